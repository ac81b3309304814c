"""What is known beforehand of links that have rates: the laws of serialisation and of queues, asked of a run.

`cables` knows the cables of each arm, from bed.json; `slope`, `waiting`, `sharing` and `pacing` each answer a law.
"""
