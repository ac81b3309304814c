"""Taps at both ports of each trial's device, and the matching of their records.

The taps are attached before the first frame and detached after the last; then packets that both recorded are matched,
and the delay of each is recorded. Does not judge.
"""

from __future__ import annotations

import math
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from sojourn.bed.bounded import SilentError, TooLongError, outputs_of
from sojourn.bed.ssh import OUR_INSTRUMENT, reading
from sojourn.conduct.asking import link_number
from sojourn.conduct.messages import DATA
from sojourn.conduct.part import without_event
from sojourn.conduct.repeats import REPEAT
from sojourn.errors import MachineError, SojournError
from sojourn.instruments.conversation import error_of
from sojourn.instruments.tap import TapInstrument, match_argv, tap_argv
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.asking import Asked
    from sojourn.conduct.part import Session
    from sojourn.conduct.repeats import Means
    from sojourn.plan.trial import Trial

BEFORE, AFTER = "before", "after"
MEASURE = "measure"
MATCH_SECONDS = 600.0


class Taps:
    """The capturing programs, one for each host that has a device."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running: dict[HostName, TapInstrument] = {}
        self.means: Means = {}
        """Mean delays of the trials of this session so far."""
        self.trials: dict[tuple[str, int], Trial[Any]] = {}
        """One trial for each path and cell that has taps."""

    @contextmanager
    def during(self, asked: Asked) -> Iterator[None]:
        """During a planned trial over a device, capture what passes the device; afterwards match it."""
        stations = asked.link.stations
        if asked.trial.purpose not in (MEASURE, REPEAT) or not stations:
            yield
            return
        host, key = stations[0].host, asked.link.device.mode.key_of(is_routed=asked.link.is_routed)
        options = {"format": "records", "key": key} | ({"filter": DATA} if asked.engines.send == "tcp" else {})
        ports = {BEFORE: stations[0].left.dev, AFTER: stations[-1].right.dev}
        taps = [{"name": name, "interface": port, "options": options} for name, port in ports.items()]
        # Named by part too: an interrupted trial is measured again in another part.
        name = f"taps/{self._session.part.number:03}-{asked.trial.block}"
        folder = self._session.records(host) / name
        instrument = self._on(host)
        instrument.start(folder, taps, asked.trial.block)
        try:
            yield
        except BaseException:
            self._running.pop(host).kill()
            raise
        captured = instrument.stop()
        matched = self._match(host, folder)
        self._keep(asked, matched)
        self._session.log(
            "taps",
            block=asked.trial.block,
            device=asked.trial.device,
            link=link_number(asked.trial),
            key=key,
            ports=ports,
            records=f"{name}/matched",
            captured=without_event(captured),
            matched=without_event(matched),
        )

    def _keep(self, asked: Asked, matched: dict[str, Any]) -> None:
        """Keep the mean delay of a planned trial, over all its attempts, to find cells to repeat.

        It includes exchanges between two clocks; each trial has equally many, and the analysis leaves them out.
        """
        place = (asked.trial.device, asked.trial.cell)
        mean_ns = mean_delay_ns(matched)
        if asked.trial.purpose == MEASURE and mean_ns is not None:
            self.means.setdefault(place, []).append(mean_ns)
            self.trials[place] = asked.trial

    def _match(self, host: HostName, folder: Path) -> dict[str, Any]:
        """Match the records of a folder's taps; the delays are written beside them."""
        before, after = (folder / f"taps-{name}-000.arrow" for name in (BEFORE, AFTER))
        window_ns = self._session.plan.stream.late_after_ns  # packets with a longer delay are late at the receiver, too
        argv = match_argv(self._session.instrument, before, after, folder / "matched", window_ns)
        process = self._session.site.start(host)(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        where = getattr(process, "where", None) or f"host {host.upper() if len(host) == 1 else host}"
        try:
            out, said = outputs_of(process, MATCH_SECONDS)
        except SilentError:
            raise MachineError(f"{where}: matching {folder} did not end within {MATCH_SECONDS:.0f} s") from None
        except TooLongError as error:
            raise MachineError(f"{where}: matching {folder} prints without end ({error})") from None
        if process.returncode != 0:
            words = said.strip().splitlines() or [f"status {process.returncode}"]
            raise error_of(process.returncode, f"{where}: match: {words[-1].removeprefix('sojourn-instrument: ')}")
        return matched_in(out, where)

    def _on(self, host: HostName) -> TapInstrument:
        if host not in self._running:
            argv = tap_argv(self._session.instrument, self._session.cores.responder)
            self._running[host] = TapInstrument(self._session.site.start(host), argv)
        return self._running[host]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        at_once = kind is not None and not issubclass(kind, SojournError)
        for instrument in self._running.values():
            instrument.kill() if at_once else instrument.finish()


def matched_in(said: str, where: str) -> dict[str, Any]:
    """Parse the summary that `match` prints of two taps; raises MachineError, which names the host, if it is none."""
    with reading(f"{where}: match", OUR_INSTRUMENT):
        matched: dict[str, Any] = dict(json_value(said))
        mean_delay_ns(matched)
    return matched


def mean_delay_ns(matched: dict[str, Any]) -> float | None:
    """Return the mean delay of the forward direction; None if no packet of it was matched."""
    ways = matched["pairs"][0]["directions"]
    delay = next((one.get("delay") for one in ways if one["direction"] == "forward"), None)
    if not delay or not delay["n"]:
        return None
    mean_ns = float(delay["mean_ns"])
    if not math.isfinite(mean_ns):
        raise ValueError(f"a mean delay of {mean_ns}")
    return mean_ns
