"""The uncertainty budgets of delays between taps, with the taps' own error, which the redirect shows.

Two taps at a redirect (`wire`) measure their own error and a negligible path through the kernel: the error of a mean
lies between zero and the whole of that, and is not subtracted. In the difference of two devices with the same taps it
cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.budget import Entry, Stated, counted, unknown
from sojourn.analysis.run import WIRE
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.wording import micro
from sojourn.statistics.budget import Component, rectangular

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

OFFSET, SCATTER = "offset of the taps", "scatter of the taps"


def of_delay(run: Run, rows: list[Row], row: Row, quantity: str) -> Stated:
    """Return the budget of a mean delay between taps."""
    own = delay_budget(run, rows, f"Mean delay between the taps of {row.device}", row, paths=1)
    seen = {one.statistic: one for one in rows if (one.device, one.quantity, one.cell) == (WIRE, quantity, row.cell)}
    return Stated(own.name, row, (*own.entries, *taps(row, seen)), own.uncovered)


def of_difference(run: Run, rows: list[Row], row: Row) -> Stated:
    """Return the budget of the difference of two devices."""
    own = delay_budget(run, rows, f"Delay of {row.device} over {row.reference}, between taps", row, paths=2)
    same = Entry(OFFSET, "cancels", "both devices have the same taps, of one kind, on one host")
    return Stated(own.name, row, (*own.entries, same), own.uncovered)


def taps(row: Row, seen: dict[str, Row]) -> list[Entry]:
    """Return the taps' own error, from the redirect in the same cell."""
    if row.device == WIRE:
        return [Entry(OFFSET, "outside", "only a redirect shows it")]
    mean, sd = seen.get("mean"), seen.get("sd")
    if mean is None:
        return [unknown(OFFSET, "no redirect was measured in this cell: put wire among bed.devices")]
    # An error anywhere between 0 and m has the root mean square m/√3, as one within ± m has.
    ends = [end for end in (mean.value.low, mean.value.estimate, mean.value.high) if end is not None]
    largest = max(map(abs, ends))
    said = (
        f"two taps measure {micro(mean.value.estimate)} at a redirect, with almost nothing between them: at most "
        f"{micro(largest)} of the figure comes from the taps; this is not subtracted"
    )
    found = [counted(rectangular(OFFSET, largest, "ns"), said)]
    if sd is not None:
        # For a single packet, while a mean is over thousands: part of the scatter of trials.
        component = Component(SCATTER, "A", sd.value.estimate, "ns", "normal", 0.0, max(1, sd.value.n - 1))
        told = (
            f"packets over the redirect differ by sd {micro(sd.value.estimate)}: averaged, and part of the scatter "
            "of trials"
        )
        found.append(Entry(SCATTER, "contained", told, component))
    return found
