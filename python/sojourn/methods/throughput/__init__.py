"""How much gets through, frame size by frame size, when the sender sends as fast as it can."""
