"""Paths that share their ports: which studies may ask them, and what of a batch is lost where one is changed."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, PathSpec, Topology
from sojourn.bed.model import checked
from sojourn.bed.turns import Turns
from sojourn.conduct.bench import Clock
from sojourn.conduct.cores import Cores
from sojourn.conduct.losses import batch_of, tell_hit_by_links
from sojourn.conduct.real_hosts import refused_with_two_clocks
from sojourn.conduct.site import Site, bed_spec
from sojourn.conduct.turns import put_in_place
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.plan import load_plan
from sojourn.plan.load import studies
from sojourn.plan.real_bed import real_bed_of

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = '[hosts.a]\naddress = "a.lab"\n[hosts.b]\naddress = "b.lab"\n'
PATH = '[paths."{}"]\na = "{}"\nb = "{}"\n'
OWN = PATH.format("direct", "eth1", "eth1") + PATH.format("dut:cisco", "eth2", "eth2")


def shared(switch: str) -> str:
    """Both paths on one pair of ports."""
    own = f'switch = "{switch}"\n'
    return "".join(PATH.format(path, "eth1", "eth1") + own for path in ("direct", "dut:cisco"))


def refusal(study: str, file: Path, paths: str) -> str | None:
    """Why a study is refused on these paths; None where it is not."""
    file.write_text(HOSTS + paths)
    try:
        plan = load_plan(study, backend=str(file))
        checked(bed_spec(plan, Cores(0, 1), None))
    except RequestError as error:
        return str(error)
    return refused_with_two_clocks(plan)


@pytest.mark.parametrize("study", [name for name, _ in studies()])
def test_a_study_over_a_device_may_share_its_ports_with_the_direct_path(study: str, tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    assert refusal(study, file, shared("./vlans.sh")) == refusal(study, file, OWN)


@pytest.mark.parametrize("study", ["one-way", "throughput", "rfc2544", "short-flows", "model", "stages", "rrul"])
def test_streams_searches_and_loads_of_tcp_are_among_them(study: str, tmp_path: Path) -> None:
    assert refusal(study, tmp_path / "bed.toml", shared("./vlans.sh")) is None


@pytest.mark.parametrize(
    ("study", "why"),
    [
        ("one-way", "method one-way sends over the direct path beside these, where its tester is qualified"),
        ("rfc2544", "method rfc2544 sends over the direct path beside these, where its tester is qualified"),
        ("short-flows", "method short-flows sends over the direct path beside these, where clocks are compared"),
        ("tcp-methodology", "only studies of round trips are measured in passes"),
    ],
)
def test_where_a_person_re_cables_other_studies_are_refused_and_it_is_said_why(
    study: str, why: str, tmp_path: Path
) -> None:
    found = refusal(study, tmp_path / "bed.toml", shared("person"))
    assert found is not None
    assert "expected a program as the switch of each path, or ports of their own: a person re-cables between" in found
    assert found.endswith(why), found


def test_a_person_may_re_cable_for_round_trips(tmp_path: Path) -> None:
    assert refusal("bridge-latency", tmp_path / "bed.toml", shared("person")) is None


def test_a_load_beside_a_path_has_ports_that_are_always_there() -> None:
    words = OWN + PATH.format("direct/bypass", "eth3", "eth3") + 'switch = "./p"\n'
    with pytest.raises(RequestError, match=r"line 14: path direct/bypass: expected no switch: its load passes while"):
        real_bed_of(HOSTS + words, "bed.toml")


class Cabled:
    """A bed whose program changes a path, which takes the links of its ports down for a moment."""

    def __init__(self) -> None:
        ends = PathSpec(("eth1",), ("eth1",), switch="true")
        spec = BedSpec(backend="ssh", devices=("dut:cisco",), paths={"direct": ends, "dut:cisco": ends})
        self.topology = Topology.of_spec(spec)
        self.turns = Turns(self.topology, spec)
        self.dev = self.topology.link("direct").a_dev
        self.lost: dict[str, str] = {}
        self.waited = False
        self.backend = SimpleNamespace(require_hosts=lambda: None, lost_links=self.lost_links)

    def lost_links(self) -> dict[str, str]:
        """Links that were lost since this was asked last."""
        found, self.lost = self.lost, {}
        return found

    def put_in_place(self, path: str) -> None:
        """Change the path, by a program that ends well."""
        self.turns.put(path, self.pull)

    def pull(self) -> None:
        """Take a link down for a moment."""
        self.lost = {self.dev: "eth1 of host A"}

    def await_links(self) -> None:
        """The link has come back."""
        self.waited = True

    def require_joined(self) -> None:
        """Its ports are joined again."""
        assert self.waited


def a_session(bed: Cabled, log: list[dict[str, Any]]) -> Any:
    return SimpleNamespace(
        site=Site(bed, {}),  # type: ignore[arg-type]
        part=SimpleNamespace(number=0),
        plan=SimpleNamespace(sections={"search": None}),
        since=[],
        learned={"direct": 0.0},
        clock=Clock(None),
        log=lambda event, **told: log.append({"event": event, **told}),
        screen=SimpleNamespace(say=lambda _: None, paused=nullcontext),
    )


def trials_over(*paths: str) -> list[Any]:
    return [SimpleNamespace(block=block, path=path, round=0, device=path, cell=0) for block, path in enumerate(paths)]


def lost_in(log: list[dict[str, Any]]) -> list[int]:
    return [one["block"] for entry in log if entry["event"] == "lost" for one in entry["trials"]]


def failing(session: Any, bed: Cabled, trials: list[Any], error: SojournError, *, pulled: bool) -> None:
    """A batch whose second trial fails, after its link was lost or with it."""
    with batch_of(session, trials) as begin:
        begin(trials[0])
        begin(trials[1])
        if pulled:
            bed.pull()
        raise error


NO_CARRIER = MachineError("host A: a-direct: the interface has no carrier")


def test_an_error_while_a_link_is_away_ends_its_batch_alone_and_all_of_its_trials_are_lost() -> None:
    bed, log = Cabled(), list[dict[str, Any]]()
    session, trials = a_session(bed, log), trials_over("direct", "direct", "dut:cisco")
    failing(session, bed, trials, NO_CARRIER, pulled=True)
    assert bed.waited
    assert session.learned == {}, "its bridges have forgotten the addresses"
    assert lost_in(log) == [0, 1, 2], "also the trial that it had not come to"
    with batch_of(session, trials_over("direct")) as begin:
        begin(trials[0])
    assert lost_in(log) == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "pulled", "lost"),
    [(NO_CARRIER, False, []), (DoubtfulError("the disk is full"), True, [0, 1])],
    ids=["no link was lost", "not for want of a link"],
)
def test_another_error_ends_the_run(error: SojournError, pulled: bool, lost: list[int]) -> None:
    bed, log = Cabled(), list[dict[str, Any]]()
    session = a_session(bed, log)
    with pytest.raises(type(error)):
        failing(session, bed, trials_over("direct", "direct"), error, pulled=pulled)
    assert lost_in(log) == lost
    assert not bed.waited


def test_an_error_ends_the_run_whose_link_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, log = Cabled(), list[dict[str, Any]]()
    away = MachineError("links are not up after 30 s")

    def await_links() -> None:
        raise away

    monkeypatch.setattr(bed, "await_links", await_links)
    with pytest.raises(MachineError, match="are not up"):
        failing(a_session(bed, log), bed, trials_over("direct", "direct"), NO_CARRIER, pulled=True)
    assert lost_in(log) == [0, 1]


def test_a_change_is_no_loss_and_what_was_lost_before_or_behind_it_is() -> None:
    bed, log = Cabled(), list[dict[str, Any]]()
    session, trials = a_session(bed, log), trials_over("direct", "dut:cisco", "direct")

    def lost() -> list[int]:
        return lost_in(log)

    with batch_of(session, trials) as begin:
        put_in_place(session, trials[0].path)
        begin(trials[0])
        bed.pull()
        put_in_place(session, trials[1].path)
        assert lost() == [0]
        begin(trials[1])
        # The tester measures the direct path for it, and comes back: it is the trial's loss still.
        put_in_place(session, "direct", is_under_way=True)
        put_in_place(session, trials[1].path, is_under_way=True)
        assert lost() == [0]
        bed.pull()
        tell_hit_by_links(session)
        assert lost() == [0, 1]
        put_in_place(session, trials[2].path)
        begin(trials[2])
        put_in_place(session, trials[2].path)
    assert lost() == [0, 1]
    assert [entry["path"] for entry in log if entry["event"] == "in-place"] == [
        "direct", "dut:cisco", "direct", "dut:cisco", "direct",
    ]  # fmt: skip
