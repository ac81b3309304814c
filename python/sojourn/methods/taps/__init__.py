"""The device's own delay of each packet, between two taps at its ports."""
