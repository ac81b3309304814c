"""The reports of streams: one module for each method (`PARTS`), and what several of them share.

`measures` makes tables of result rows, `points` the frames of figures, `delays` what every method of streams has,
`words` how it was measured.
"""
