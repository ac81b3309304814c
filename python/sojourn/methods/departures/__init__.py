"""When the frames of a sender leave, measured by a capture at the other end: ping and our own probe."""
