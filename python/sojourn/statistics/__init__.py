"""Pure numbers: estimators and tests over arrays, knowing nothing of devices, records or files.

Every function takes arrays and levels and gives plain numbers; none draws random numbers, reads a clock or a file.
"""
