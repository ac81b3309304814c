"""The log of TCP's state against TCP_INFO, a packet capture and the congestion control algorithms."""
