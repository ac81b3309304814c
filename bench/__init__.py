"""Sojourn's probe beside its peers, in one run, on one bed: `make bench`. Not installed; imports the package."""
