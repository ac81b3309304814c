"""A live page of a run, or of a folder of runs, on the loopback interface: `serve`.

It reads only run folders: no measuring program takes part in it. The server (`server`, `guard`) follows logs
(`follow`); results that need records are computed by a separate program (`look`), which runs only when no other program
needs the processor. Privileges are dropped before the first request is read (`sojourn.confine`).
"""
