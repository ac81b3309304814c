"""Runs and studies for programs: what `sojourn.open` and `sojourn.run` give. Every name is in the package itself."""
