"""Properties of rated links: `cables` gives the cables of each path, from bed.json.

The hypotheses about them are in the methods that test them.
"""
