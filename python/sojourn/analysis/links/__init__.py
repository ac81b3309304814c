"""What is known beforehand of links that have rates: `cables` knows the cables of each path, from bed.json.

The hypotheses about them stand with the methods that test them.
"""
