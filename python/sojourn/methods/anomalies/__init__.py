"""Long series of probes, searched for periods, ramps, steps and modes of the delay."""
