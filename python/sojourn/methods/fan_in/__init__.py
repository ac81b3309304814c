"""Several senders into one receiver: the total rate through the shared port, and each sender's share."""
