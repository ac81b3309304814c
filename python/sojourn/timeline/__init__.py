"""Join the records of one flow: the path of each segment, and what limited the sender at a moment.

Reads logs of TCP's state and of emulators, joins them by the fields that identify a segment, and writes formats that
other tools read. Counts what could not be joined. Measures nothing and estimates no clock: records of hosts with
separate clocks are refused.
"""
