"""Closed loops beside a load: `probe blocks` sends requests, our responder answers; streams use other ports.

Prober and responder start with the first such trial. Does not control the load (tester does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.conduct import asking
from sojourn.conduct.part import require_as_asked, without_event
from sojourn.conduct.site import UDP_PORT
from sojourn.conduct.tester import added, factors
from sojourn.conduct.turns import put_in_place
from sojourn.errors import MachineError
from sojourn.instruments import BlocksInstrument, Responder, respond_argv
from sojourn.instruments.blocks import blocks_argv
from sojourn.instruments.conversation import place_options

if TYPE_CHECKING:
    from contextlib import ExitStack

    from sojourn.conduct.asking import Asked
    from sojourn.conduct.tester import Tester

TIMEOUT_NS = 200_000_000
"""The timeout: a later answer counts as late."""

WARM_UP_SHARE = 10
"""One of WARM_UP_SHARE probes is for warming up: these are sent first and not evaluated."""


class ClosedLoop:
    """The requesting and the answering end of closed-loop trials."""

    def __init__(self, tester: Tester, stack: ExitStack) -> None:
        self._tester = tester
        self._stack = stack
        self._prober: BlocksInstrument | None = None

    def measure(self, asked: Asked) -> None:
        """Measure one trial, with its load if it has one."""
        session = self._tester.session
        prober = self._prober or self._start()
        put_in_place(session, asked.trial.path, is_under_way=True)  # its load has been decided over the first path
        self._tester.announce(asked)
        with self._tester.emulated(asked), self._tester.loaded(asked) as load:
            before = self._tester.counted(asked)
            answer = prober.measure(self._request(asked), session.screen.tick)
            after = self._tester.counted(asked)
        session.log(
            "stream-trial",
            **asking.head(asked.trial),
            link=asking.link_number(asked.trial),
            factors=factors(asked),
            trial=asked.trial.block,
            attempt=1,
            missed=False,
            kept=True,
            engines={"send": self._via(asked), "receive": self._via(asked)},
            sent=[],
            received=[],
            probed=without_event(answer),
            answers=None,
            load=load or None,
            **added(before, after),
        )

    def _start(self) -> BlocksInstrument:
        session = self._tester.session
        cores, part = session.cores, session.part
        options = place_options(cores.prober, session.plan.host.wait, fifo=session.fifo)
        if not session.site.simulated:
            paths = [link for link in session.site.bed.topology.links if not link.is_bypass]
            port = UDP_PORT if any(engine.startswith("udp") for engine in session.plan.stream.engine) else None
            # With a load the responder must not poll: the load needs the core on which it would.
            alone = cores.responder != cores.prober and not any(session.plan.stream.load)
            devices = [link.b_dev for link in paths]
            amplified = self._asks_for_longer()
            argv = respond_argv(session.instrument, devices, port, cores.responder, alone=alone, amplified=amplified)
            self._stack.callback(Responder(session.site.start("b"), argv).stop)
        argv = blocks_argv(
            session.instrument, session.records("a"), part.number, options, simulated=session.site.simulated
        )
        self._prober = prober = BlocksInstrument(session.site.start("a"), argv)
        self._stack.callback(prober.kill)
        self._stack.callback(prober.finish, at_once=True)  # nothing is in flight, or is to be dropped
        require_as_asked(session.plan, prober.ready)
        session.log("ready", part=part.number, cores=cores._asdict(), **without_event(prober.ready))
        return prober

    def _asks_for_longer(self) -> bool:
        """Return whether responses may be longer than requests: a responder sends those only to permitted addresses."""
        return "request-response" in self._tester.session.plan.stream.kind

    def _request(self, asked: Asked) -> dict[str, Any]:
        trial, plan = asked.trial, asked.plan
        fixed = trial.factors.kind == "request-response"
        payload = trial.factors.payload_bytes
        if trial.count is None:
            raise MachineError(f"trial {trial.block} is a closed loop without a count")
        head = asking.head(trial)
        del head["purpose"]
        return head | {
            "to": self._to(asked),
            "kind": trial.factors.kind,
            "request_payload_bytes": plan.stream.request_payload_bytes if fixed else payload,
            "response_payload_bytes": payload,
            "schedule": "closed-loop",
            "interval_ns": 0,
            "count": trial.count,
            "warmup": max(1, trial.count // WARM_UP_SHARE),
            "timeout_ns": TIMEOUT_NS,
            "seed": trial.seed,
        }

    def _via(self, asked: Asked) -> str:
        engine = asked.trial.factors.engine
        return "udp" if engine.startswith("udp") else "packet"

    def _to(self, asked: Asked) -> dict[str, Any]:
        link, engine, site = asked.link, asked.trial.factors.engine, self._tester.session.site
        if site.simulated:
            return {"via": "sim", "line": site.line(asked.trial.path), "as": "packet"}
        if self._via(asked) == "packet":
            return {"via": "packet", "dev": link.a_dev, "mac": link.b_mac, "qdisc_bypass": True}
        address = link.b_ip6 if engine == "udp6" else link.b_ip4
        return {"via": "udp", "address": address, "dev": link.a_dev, "port": UDP_PORT}
