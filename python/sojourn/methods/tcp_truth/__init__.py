"""The log of TCP's state held against TCP_INFO, a capture and the laws of congestion control."""
