"""The reports of trials over TCP: is the log of its state true (`truth`), does it change anything (`perturbation`)."""
