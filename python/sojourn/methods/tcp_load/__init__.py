"""What flows of TCP make of a path, and what the path's round trips become while they run."""
