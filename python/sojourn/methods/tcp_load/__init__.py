"""The goodput of TCP flows over a path, and the path's round trips while they run."""
