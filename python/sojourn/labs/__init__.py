"""A laboratory: two hosts of this machine joined by an emulated path, for any programs.

It combines a bed and an emulator; nothing is measured, recorded or judged.
"""
