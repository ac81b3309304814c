"""A run's records of one flow brought together: the way of each segment, and what limited the sender at a moment.

It reads logs of TCP's state and of emulators, joins them by what identifies a segment, and writes what others read.
What could not be joined is counted. It measures nothing, and estimates no clock: records of hosts with clocks of their
own are refused.
"""
