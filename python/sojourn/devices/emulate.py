"""Our own emulating bridge between two ports, `sojourn-instrument emulate`, with the pipes of a study.

The bed makes its cables but does not join them: frames pass once the emulator runs.
"""

from __future__ import annotations

from sojourn.devices.mode import HOURGLASS, Ink, Mode

DEVICE = Mode(
    name="emulate",
    title="The emulator",
    titles={
        "bare": "The emulator without any pipe",
        "idle": "The emulator with an idle pipe",
        "zero": "The emulator with a delay of 0",
    },
    box="emulator",
    ink=Ink("emulate", "#7a5cc0", "#b9a3f0", (7, 2), HOURGLASS),
    inks={
        ":bare": Ink("emulate-bare", "#6b7a1f", "#bfd15c", (2, 2, 2, 6), "square"),
        ":idle": Ink("emulate-idle", "#c84f00", "#ff9355", (12, 2, 4, 2), "circle"),
        ":zero": Ink("emulate-zero", "#7a5cc0", "#b9a3f0", (6, 2, 1, 2, 1, 2), "diamond"),
    },
    place=40,
    rank=3,
    is_emulator=True,
)
