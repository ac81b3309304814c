"""The kernel's names of a sample's numbers: states of a connection and of its congestion control."""

STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
    12: "NEW_SYN_RECV",
}
"""include/net/tcp_states.h."""

RECOVERY = {0: "Open", 1: "Disorder", 2: "CWR", 3: "Recovery", 4: "Loss"}
"""enum tcp_ca_state."""
