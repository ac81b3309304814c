"""Pure numbers: estimators and tests over arrays, independent of devices, records and files.

Every function takes arrays and levels and returns plain numbers; none reads a clock or a file.
"""
