"""What the log of TCP's state costs: throughput and processor time with the log and without."""
