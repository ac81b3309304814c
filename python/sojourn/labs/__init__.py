"""A laboratory: two hosts of this machine joined by an emulated path, for programs of anybody.

A bed and an emulator are put together here; nothing is measured, recorded or judged.
"""
