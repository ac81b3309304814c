"""A model of delay over frame size and rate, fitted to some cells and tested on the others."""
