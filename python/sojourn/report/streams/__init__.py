"""The shared parts of the reports of several methods of streams.

`measures` makes tables of result rows, `points` the data of figures, `delays` the parts that every method of streams
has, `rates` those of methods that send at the maximum rate, `words` the description of the measurement.
"""
