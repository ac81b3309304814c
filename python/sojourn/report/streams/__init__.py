"""What the reports of several methods of streams share.

`measures` makes tables of result rows, `points` the frames of figures, `delays` what every method of streams has,
`rates` what those have that send as fast as they can, `words` how it was measured.
"""
