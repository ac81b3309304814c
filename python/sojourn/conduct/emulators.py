"""The emulators of a bed: one process each for the whole session, configured before a trial, queried after it.

An emulator is a measured device, or the rated link of a cable. Does not interpret the configuration strings of pipes:
the emulator returns the parsed configuration, which gives the longest time of a frame in it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sojourn.binary import find_instrument
from sojourn.conduct.part import without_event
from sojourn.conduct.pipes import longest_ns
from sojourn.devices import emulator_label
from sojourn.errors import MachineError, RequestError, SojournError
from sojourn.instruments.emulator import NOBODY, EmulatorInstrument, Settings, emulate_argv, explain, replay
from sojourn.plan.emulators import EVERY
from sojourn.units import as_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from sojourn.bed import Emulated
    from sojourn.bed.backend import Backend
    from sojourn.bed.emulated import Rated
    from sojourn.conduct.archive import Log
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.part import Part
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.plan.types import EmulatorPlan

NANOS = 1_000_000_000
DRAINED_SECONDS = 0.005


@dataclass
class Running:
    """One running emulator, its ports, and its configuration."""

    at: Emulated
    instrument: EmulatorInstrument
    backend: Backend
    own: Sequence[dict[str, Any]] = ()
    """The pipes that it was started with, as the emulator parsed them."""
    is_logged: bool = False
    """Whether every packet is logged, so that the log can be replayed."""

    @property
    def own_ns(self) -> int:
        """The longest time that its initial pipes may hold a frame."""
        return sum_of_longest(self.own)

    @property
    def cpu_ns(self) -> int:
        """The processor time that it has used so far."""
        return self.backend.cpu_ns(self.instrument.pid)


@dataclass
class Emulators:
    """Every emulator of a session."""

    part: Part
    site: Site
    cores: Cores
    instrument: str
    log: Log
    _running: list[Running] = field(default_factory=list)
    _understood: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The parsed pipes of each configuration string that is set before trials."""

    @property
    def are_set(self) -> bool:
        """Whether the pipe is a factor of the plan: then "" is an idle pipe, otherwise it keeps the present one."""
        return any(self._pipes)

    @property
    def _pipes(self) -> tuple[str, ...]:
        """The configurations that are set before trials."""
        return self.part.plan.ask.pipes(self.part.plan)

    def on(self, path: str) -> list[Running]:
        """Return the emulators on a path, those of rated links included."""
        return [one for one in self._running if one.at.path == path]

    def devices_on(self, path: str) -> list[Running]:
        """Return those that are devices."""
        return [one for one in self.on(path) if one.at.rated is None]

    def longest_ns(self, path: str, words: str) -> int:
        """Return the longest time of a frame in the pipes and rated links of a path."""
        links = sum(link_ns(one.at.rated) for one in self.on(path) if one.at.rated)
        return links + self._devices_ns(path, words)

    def _devices_ns(self, path: str, words: str) -> int:
        pipes = self._understood.get(words)
        return sum(one.own_ns if pipes is None else sum_of_longest(pipes) for one in self.devices_on(path))

    def wait_until_empty(self, path: str, words: str) -> None:
        """Wait until neither the pipes nor the rated links of a path can hold a frame.

        A link is polled, because its queue is long and mostly empty; a measured device is not, because polling could
        delay its departures.
        """
        time.sleep(self._devices_ns(path, words) / NANOS)
        for one in self.on(path):
            if one.at.rated:
                drain(one, link_ns(one.at.rated))

    def start_anew(self, path: str) -> None:
        """Restart a path's devices, so that their random sequences begin with the seed again."""
        for one in self.devices_on(path):
            one.instrument.stop()
            self._running.remove(one)
            self._start(one.at)

    @contextmanager
    def during(self, path: str, block: int, words: str, *, keep: bool = False) -> Iterator[None]:
        """Configure every emulator of the path for a trial, count for its block, and log the counters afterwards.

        With `keep` its packets are logged, for methods that log some trials (`Ask.logs_some`).
        """
        there = self.devices_on(path)
        used = [one.cpu_ns for one in there]
        for one in there:
            self._prepare(one, block, words, keep=keep)
        yield
        for one, before in zip(there, used, strict=True):
            answer = one.instrument.begin(NOBODY, keep=one.is_logged)  # a replay needs every packet
            self.log("emulator", block=block, device=path, emulator=one.at.name, summary=without_ok(answer),
                     cpu_ns=one.cpu_ns - before)  # fmt: skip
            if one.is_logged:
                one.instrument.require_log(one.instrument.show())

    def _prepare(self, one: Running, block: int, words: str, *, keep: bool) -> None:
        answer = one.instrument.set(words) if self.are_set else {}
        when = {key: answer[key] for key in ("number", "at_ns") if key in answer}
        for pipe in pipes_of(answer) if self.are_set else one.own:
            self.log("emulator-set", block=block, device=one.at.path, emulator=one.at.name, pipe=pipe.get("name", ""),
                     words=words, to=pipe, **when)  # fmt: skip
        one.instrument.begin(block, keep=keep or one.is_logged)

    def __enter__(self) -> Self:
        try:
            if not self.site.simulated:
                for at in self.site.bed.topology.emulated:
                    self._start(at)
                self._understand()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, SojournError | KeyboardInterrupt):
            self._kill()
            return
        try:
            ended = []
            for one in self._running:
                said = one.instrument.stop()
                self.log("emulator-ended", device=one.at.path, emulator=one.at.name, **without_event(said or {}))
                ended.append((one, said or {}))
            for one, told in ended if kind is None else ():
                if one.is_logged:
                    one.instrument.require_log(told)
            if kind is None and any(one.is_logged for one in self._running):
                self._replay()
        finally:
            self._kill()

    def _start(self, at: Emulated) -> None:
        backend = self.site.bed.backend
        control = backend.socket(at.name)
        settings = self._settings(at)
        argv = emulate_argv(self.instrument, [at.left.dev, at.right.dev], control, settings)
        running = Running(
            at,
            EmulatorInstrument(self.site.start("d"), argv, partial(backend.connect, control)),
            backend,
            is_logged=at.rated is None and self._own(at).log,
        )
        self._running.append(running)
        ready = without_event(running.instrument.ready)
        if at.rated is None:  # packets before the first trial belong to none
            running.instrument.begin(NOBODY, keep=running.is_logged)
        running.own = (running.instrument.show().get("config") or {}).get("pipes") or ()
        self.log(
            "emulator-ready",
            device=at.path,
            emulator=at.name,
            role="device" if at.rated is None else "link",
            label=at.label,
            words={"forward": settings.forward, "backward": settings.backward},
            config=settings.config,
            rated=asdict(at.rated) if at.rated else None,
            engine=ready.get("engine"),
            ready=ready,
        )

    def _settings(self, at: Emulated) -> Settings:
        if at.rated is not None:
            words = at.rated.words
            return Settings(at.name, words, words, cpu=self._cpu(None), fifo=self._fifo(), part=self.part.number)
        own, plan = self._own(at), self.part.plan
        forward, backward = own.forward, own.backward
        if self.are_set:
            forward, backward = forward or "", backward or ""
        return Settings(
            at.name,
            forward,
            backward,
            config=None if own.config is None else str(self.site.bed.backend.lend("d", Path(own.config))),
            seed=own.seed + self._turn,
            engine=own.engine,
            cpu=self._cpu(own.cpu),
            spin=own.spin if own.spin is not None else self._has_core(),
            fifo=self._fifo(own.fifo),
            budget=None if own.budget_ns is None else as_duration(own.budget_ns),
            memory=own.memory,
            compensate_ns=own.compensate_ns,
            log=self._records if own.log or plan.ask.logs_some(plan) else None,
            part=self.part.number,
        )

    def _fifo(self, own: bool | None = None) -> bool | None:
        """Return the setting for real-time priority of this emulator, else the plan's; None if both are "auto"."""
        return own if own is not None else self.part.plan.host.fifo

    def _own(self, at: Emulated) -> EmulatorPlan:
        """Return the plan's section for a device."""
        emulators = self.part.plan.emulators
        return emulators.get(at.label or EVERY, emulators[EVERY])

    @property
    def _turn(self) -> int:
        """The session's increment of seeds, without which each session would have the same losses and delays."""
        return self.part.number if self.part.plan.bed.sessions > 1 else 0

    def _cpu(self, asked: int | None) -> int | None:
        """Return the configured core, else the device's own, else the responder's; never the prober's.

        On a host without an end every core is free; which cores it has is not known here.
        """
        if asked is not None:
            return asked
        if not self.site.bed.backend.one_clock:
            return None
        return self.site.bed.device_core if self.site.bed.device_core is not None else self.cores.responder

    def _has_core(self) -> bool:
        """Return whether no other program uses the device's core, so that an emulator may poll on it."""
        core = self.site.bed.device_core
        alone = len(self.site.bed.topology.emulated) == 1
        return alone and core is not None and core not in self.cores

    def _understand(self) -> None:
        """Have each pipe of the plan parsed, or refused, before anything is measured."""
        first = next((one for one in self._running if one.at.rated is None), None)
        if first is None or not self.are_set:
            return
        for words in ("", *self._pipes):
            self._understood[words] = pipes_of(first.instrument.set(words))

    @property
    def _records(self) -> Path:
        return self.site.bed.backend.folder("d", self.part.folder.records)

    def _replay(self) -> None:
        """Replay the logs: the dispositions must be the same, or the entry names the first packet that differs."""
        for one in (one for one in self._running if one.is_logged):
            for said in replay(self.site.start("d"), self.instrument, self._records, one.at.name, self.part.number):
                self.log("emulator-replay", device=one.at.path, **without_event(said))

    def _kill(self) -> None:
        for one in self._running:
            one.instrument.kill()
        self._running.clear()


def refuse_wrong_words(plan: Plan) -> None:
    """Refuse pipes that an emulator cannot parse, before a bed is built or a folder made.

    Without an instrument nothing is checked; the run itself will report that.
    """
    if plan.bed.simulated or not any(emulator_label(device) is not None for device in plan.bed.devices):
        return
    try:
        instrument = find_instrument()
    except MachineError:
        return
    for where, options in asked_words(plan):
        try:
            understood = explain(instrument, options)
        except RequestError as error:
            raise RequestError(f"{where}: {str(error).removeprefix('pipe forward: ')}") from None
        if plan.bed.hosts is not None and (named := next(files_in(understood), None)):
            wanted = "expected words or a configuration without files of their own, or --bed netns"
            raise RequestError(f"{where}: the file {named} is not on the host of the emulator: {wanted}")


def files_in(config: object) -> Iterator[str]:
    """Return the files that a configuration names: distributions, profiles, traces, patterns."""
    if isinstance(config, dict):
        for key, value in config.items():
            if key == "file" and isinstance(value, str) and value:
                yield value
            yield from files_in(value)
    elif isinstance(config, list):
        yield from (name for one in config for name in files_in(one))


def asked_words(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Return the emulators' configuration as options of the instrument, with its place in the plan."""
    yield from ((f'{plan.ask.pipe_key} "{words}"', ["--forward", words]) for words in plan.ask.pipes(plan))
    for label, own in plan.emulators.items():
        section = f"emulate.{label}" if label else "emulate"
        both = {"forward": own.forward} | ({} if own.backward == own.forward else {"backward": own.backward})
        yield from ((f'{section} "{words}"', ["--forward", words]) for words in both.values() if words)
        if own.config is not None:
            yield f"{section}.config", ["--config", own.config]


def pipes_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pipes in an answer to `set`."""
    return [dict(pipe) for pipe in answer["pipes"]]


def sum_of_longest(pipes: Sequence[dict[str, Any]]) -> int:
    """Return the longest time of a frame in these pipes: one direction, through all of them in a row."""
    ways = [pipe for pipe in pipes if pipe.get("name") != "backward"] or pipes
    return sum(longest_ns(pipe) for pipe in ways)


def link_ns(rated: Rated) -> int:
    """Return the longest time of a frame in a rated link: its queue, and its delay."""
    queue = rated.queue_bytes * 8 * NANOS // rated.rate_bps if rated.rate_bps else 0
    return queue + rated.delay_ns


def drain(one: Running, longest: int) -> None:
    """Wait until a link is empty twice in a row: in between it has read the frames that waited at its ports."""
    deadline, empty = time.monotonic() + longest / NANOS, 0
    while empty < 2 and time.monotonic() < deadline:
        pipes = one.instrument.show().get("report", {}).get("pipes", [])
        empty = 0 if any(pipe.get("held") for pipe in pipes) else empty + 1
        time.sleep(DRAINED_SECONDS)


def without_ok(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of an emulator as fields of a log entry."""
    return {key: value for key, value in answer.items() if key != "ok"}
