"""The local history: the leading figures of every run of this user on this machine, and their variation over runs.

A run folder is read, and each leading figure becomes a row in one SQLite file; `over_runs` compares the runs of one
bed. It has names of studies, runs and figures, but no names of users, hosts or folders. It never changes a run folder.
"""

from sojourn.history.entry import Entry, Figure, entry_of
from sojourn.history.over_runs import OfBed, Series, Value, components_of, occasion, over_runs, repeats_of
from sojourn.history.place import find_history
from sojourn.history.store import History

__all__ = [
    "Entry",
    "Figure",
    "History",
    "OfBed",
    "Series",
    "Value",
    "components_of",
    "entry_of",
    "find_history",
    "occasion",
    "over_runs",
    "repeats_of",
]
