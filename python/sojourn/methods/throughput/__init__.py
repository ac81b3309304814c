"""The received rate at each frame size while the sender sends as fast as it can."""
