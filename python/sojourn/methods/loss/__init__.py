"""Loss over offered load, and the lengths of loss bursts."""
