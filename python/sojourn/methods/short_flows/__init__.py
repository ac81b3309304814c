"""Method "short-flows": how long transfers of given sizes take over a path, one after the other."""
