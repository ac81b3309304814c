"""A live page of a run, or of a folder of runs, on loopback: `serve`.

It reads run folders and nothing else: no program that measures is asked or knows of it. The server (`server`, `guard`)
follows logs (`follow`); what needs the records is worked out by a program of its own (`look`), which runs only where
nobody else wants the processor. Before the first request is read, rights are given up (`confine`).
"""
