"""The orchestrator: from a plan, a bed and the instruments to a run folder. It does not interpret the records."""

from sojourn.conduct.archive import create_folder, folder_of
from sojourn.conduct.boxes import try_boxes
from sojourn.conduct.emulators import refuse_wrong_words
from sojourn.conduct.progress import Screen
from sojourn.conduct.run import Interrupted, conduct, resume

__all__ = [
    "Interrupted",
    "Screen",
    "conduct",
    "create_folder",
    "folder_of",
    "refuse_wrong_words",
    "resume",
    "try_boxes",
]
