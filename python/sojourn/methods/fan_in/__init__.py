"""Several senders into one receiver: what the shared port passes, and to whom."""
