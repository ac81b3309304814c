"""When the frames of a sender leave, seen by a capture at the far end: ping and our own probe."""
