"""Streams over real namespaces: every method conducted once, frames conserved to the last by the interfaces' own
counters, and devices whose rate and bucket are known found out by the searches.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.analysis import analyse
from sojourn.bed.model import BedSpec, Link, Topology
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.devices import twin_of
from sojourn.plan import Plan, load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from tests.net.busy_machine import await_that, retried, thrice, undisturbed
from tests.net.here import sojourn_here

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = dict[str, Any]
SOJOURN = str(Path(sys.executable).parent / "sojourn")
SHORT = ("trials.rounds=1", "trials.duration=30ms", "trials.grace=10ms", "trials.qualify=false", "trials.a_a=false")


def run(folder: Path, source: str, *sets: str) -> tuple[Plan, list[Event], RunFolder]:
    """Conduct a study, or a plan's text, shortened; gives what the log says."""
    if "\n" in source:
        (folder / "plan.toml").write_text(source)
        source = str(folder / "plan.toml")
    plan = load_plan(source, sets=list(sets))
    out = create_folder(plan, folder / "run")
    conduct(plan, out, Screen(io.StringIO()))
    return plan, read_log(out.log), out


def trials(log: list[Event], purpose: str = "measure") -> list[Event]:
    return [one for one in log if one["event"] == "stream-trial" and one["purpose"] == purpose]


def topology(plan: Plan) -> Topology:
    bed = plan.bed
    return Topology.of_spec(
        BedSpec(devices=bed.devices, near=bed.near, far=bed.far, bypass=bed.bypass, twins=plan.twins)
    )


def left_by(counts: dict[str, int]) -> int:
    """Frames that were put out of a port, those that its neighbour's core or its own queue had no room for included."""
    return counts["tx_packets"] + counts["tx_dropped"] + counts.get("qdisc_dropped", 0)


def taken(links: Topology, trial: Event) -> Link:
    """The link that a trial took: of two of a kind the log says which."""
    return links.link(twin_of(trial["device"]) if trial["link"] == 2 else trial["device"])


def require_conservation(trial: Event, link: Link) -> None:
    """From the sender's count to the receiver's, cable by cable, no frame appears or goes without being counted."""
    counted, said = trial["counters"], json.dumps(trial)
    for flow, port in zip(trial["sent"], link.near, strict=False):
        # What the sender's own port has no room for it drops, and may tell: then the sender counts it as refused.
        assert flow["sent"] <= left_by(counted[port.dev]) <= flow["sent"] + flow["refused"], said
        assert flow["asked"] == flow["sent"] + flow["refused"] + flow["unsent"], said
    for cable in (*link.cables, *link.further_cables):
        assert counted[cable.left.dev]["tx_packets"] == counted[cable.right.dev]["rx_packets"], said
    for station in link.stations:
        come = sum(counted[port.dev]["rx_packets"] for port in station.lefts)
        assert come == sum(left_by(counted[port.dev]) for port in station.rights), said
    seen = [one for one in trial["received"] if one["port"] == 0]
    arrived = sum(one["first"] + one["duplicated"] + one["corrupted"] + one["local_drops"] for one in seen)
    assert arrived == counted[link.b_dev]["rx_packets"], said
    for one, flow in zip(seen, trial["sent"], strict=True):
        assert flow["sent"] == one["first"] + one["corrupted"] + one["local_drops"] + one["lost"], said


@pytest.mark.parametrize(
    ("study", "sets"),
    [
        ("one-way", ("payload_bytes=[46,1500]", 'interval=["100us"]', "trials.a_a=true", "schedule=regular")),
        ("stages", ("payload_bytes=[64]", 'interval=["100us"]', "kind=one-way", "engine=packet")),
        ("model", ("payload_bytes=[512]", 'interval=["100us","20us"]')),
        ("throughput", ("payload_bytes=[46]", "engine=packet")),
        ("loss", ("payload_bytes=[46]", 'rate=["50%"]', "engine=packet", "to=unicast")),
        ("fan-in", ("payload_bytes=[512]", "senders=[1,3]", "engine=packet", "schedule=regular")),
    ],
)
def test_every_frame_of_a_matrix_of_trials_is_accounted_for(study: str, sets: tuple[str, ...], tmp_path: Path) -> None:
    plan, log, folder = run(tmp_path, study, *SHORT, *sets)
    found = trials(log)
    links = topology(plan)
    control = {"a/a"} if plan.trials.a_a else set()
    assert {one["device"] for one in found} == {"direct", *control, *plan.bed.devices}
    seconds = {twin_of(path) for path in plan.twins}
    paths = {"direct", *control, *plan.bed.devices, *seconds}
    assert len({links.link(path).a_dev for path in paths}) == len(links.links)
    assert {one["device"] for one in found if one["link"] == 2} == set(plan.twins) - ({"direct"} if control else set())
    for one in found:
        require_conservation(one, taken(links, one))
    table = read_table(folder.records, "streams").frame
    recorded = {row["block"]: row["sent"] for row in table.iter_rows(named=True) if row["role"] == "send"}
    assert all(recorded[one["block"]] == one["sent"][-1]["sent"] for one in found)


def test_paced_senders_get_timestamps_also_if_maximum_rate_streams_are_only_counted(tmp_path: Path) -> None:
    """The delay spread needs each frame's delay; the receiver that counts floods has none."""
    _, log, folder = run(tmp_path, "fan-in", *SHORT, "payload_bytes=[512]", "senders=[3]")
    found = trials(log)
    regular = [one for one in found if one["factors"]["schedule"] == "regular"]
    assert regular
    assert {one["factors"]["schedule"] for one in found} == {"regular", "flood"}
    for one in regular:
        assert one["engines"] == {"send": "packet", "receive": "packet"}
    arrivals = read_table(folder.records, "arrivals").frame
    assert {one["block"] for one in regular} <= set(arrivals["block"])


def test_an_unknown_address_is_flooded_to_every_port(tmp_path: Path) -> None:
    sets = ("payload_bytes=[46]", "schedule=regular", 'rate=["5kpps"]', "engine=packet")
    plan, log, _ = run(tmp_path, "loss", *SHORT, *sets)
    links = topology(plan)
    for one in trials(log):
        if one["device"] == "bridge":
            link = taken(links, one)
            others = {one["counters"][port.dev]["rx_packets"] for port in link.far[1:]}
            assert others == {one["sent"][0]["sent"] if one["factors"]["to"] == "unknown" else 0}, one


def test_multiple_receivers_reply_and_are_counted_separately(tmp_path: Path) -> None:
    sets = ('kind=["one-way","answers","request-response"]', "payload_bytes=[64]", "to=multicast", "receivers=[2]")
    _, log, folder = run(tmp_path, "multicast", *SHORT, *sets, "trials.probes=30")
    found = {one["factors"]["kind"]: one for one in trials(log)}
    sent = found["one-way"]["sent"][0]["sent"]
    assert [(one["port"], one["first"]) for one in found["one-way"]["received"]] == [(0, sent), (1, sent), (2, sent)]
    for kind, nodes in (("answers", [1, 2, 3]), ("request-response", [1])):
        sent = found[kind]["sent"][0]["sent"]
        answers = [(one["node"], one["first"]) for one in found[kind]["answers"] if one["node"]]
        assert answers == [(node, sent) for node in nodes], found[kind]
    arrivals = read_table(folder.records, "arrivals").frame
    assert set(arrivals.filter(arrivals["node"] > 0)["node"]) == {1, 2, 3}


@retried
def test_load_runs_through_the_device_and_on_the_bypass(tmp_path: Path) -> None:
    sets = ("payload_bytes=[512]", 'load=["0%","20%"]', "trials.probes=50")
    plan, log, folder = run(tmp_path, "background", *SHORT, *sets)
    links = topology(plan)
    found = trials(log)
    (pps,) = {one["pps"] for one in log if one["event"] == "path-throughput" and one["device"] == "bridge"}
    loaded = [one for one in found if one["load"]]
    assert {one["factors"]["load_via"] for one in loaded} == {"through", "beside"}
    assert {one["factors"]["kind"] for one in found} == {"request-response", "one-way"}
    for one in loaded:
        if one["device"] == "bridge":
            assert one["factors"]["load_pps"] == pytest.approx(0.2 * pps)
        is_beside = one["factors"]["load_via"] == "beside"
        via = links.link(f"{one['device']}/bypass") if is_beside else taken(links, one)
        [flow] = one["load"]["sent"]
        assert flow["sent"] > 0
        with undisturbed():  # a load may fill what a device without a processor has no time to empty
            assert one["load"]["received"][0]["first"] > 0.9 * flow["sent"]
        if one["factors"]["kind"] == "one-way":  # fifty round trips are over in a millisecond
            assert one["counters"][via.far[-1].dev]["rx_packets"] > 0
    probed = set(read_table(folder.records, "blocks").frame["block"])
    assert probed == {one["block"] for one in found if one["factors"]["kind"] == "request-response"}


SHAPED = """
[study]
name = "shaped"
method = "rfc2544"
[bed]
devices = ["bridge"]
shaper = "{shaper}"
rate = "{rate}"
burst_bytes = {burst_bytes}
queue_bytes = {queue_bytes}
[stream]
engine = ["packet"]
frame_bytes = [{frame_bytes}]
[trials]
grace = "30ms"
[search]
tests = {tests}
algorithm = ["mlrsearch"]
goals = [0.005]
width = 0.005
max_rate = "{most}"
initial_duration = "{duration}"
duration = "{duration}"
duration_sum = "{duration}"
burst = "20ms"
burst_repetitions = 3
repetitions = 1
"""


def results(log: list[Event]) -> dict[str, Event]:
    return {one["test"]: one for one in log if one["event"] == "search-result"}


@pytest.mark.parametrize("shaper", ["tbf", pytest.param("htb", marks=pytest.mark.proof)])
@thrice
def test_throughput_of_a_shaped_link_is_its_rate(shaper: str, tmp_path: Path) -> None:
    rate_pps = 5000.0
    text = SHAPED.format(shaper=shaper, rate="40Mbit/s", burst_bytes=5000, queue_bytes=20_000, frame_bytes=1000,
                         tests='["throughput"]', most="10kpps", duration="1s")  # fmt: skip
    _, log, _ = run(tmp_path, text)
    found = results(log)["throughput"]
    # What came through at the lower bound is the rate, and in a second what bucket and queue hold: 25 frames, 0.5 %.
    with undisturbed():  # a sender that cannot keep its rate is not what is searched for
        assert found["conditional_pps"] == pytest.approx(rate_pps, rel=0.01), found
        assert found["lower_pps"] < 0.5 * found["tester_pps"]


@thrice
def test_burst_search_finds_the_size_of_a_token_bucket(tmp_path: Path) -> None:
    frame, bucket, queue = 1000, 40_000, 20_000
    text = SHAPED.format(shaper="tbf", rate="16Mbit/s", burst_bytes=bucket, queue_bytes=queue, frame_bytes=frame,
                         tests='["throughput","back-to-back"]', most="4kpps", duration="200ms")  # fmt: skip
    _, log, _ = run(tmp_path, text)
    found = results(log)["back-to-back"]
    with undisturbed():
        assert found["extra"]["corrected_frames"] == pytest.approx((bucket + queue) / frame, rel=0.05), found
        assert sum(one["test"] == "back-to-back" for one in log if one["event"] == "search-result") == 3


def serving() -> list[str]:
    """The processes that serve a study's streams."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"stream\0serve" in line.read_bytes():
                found.append(line.parent.name)
    return found


@contextmanager
def programs_seen() -> Iterator[set[int]]:
    """The programs that any interface of any namespace runs on what it receives (XDP), looked at again and again."""
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for process in serving():
                words = ["nsenter", "-t", process, "-n", "ip", "-j", "link", "show"]
                told = subprocess.run(words, capture_output=True, text=True, check=False).stdout
                links = json.loads(told or "[]")
                seen.update(link["xdp"]["prog"]["id"] for link in links if "prog" in link.get("xdp", {}))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@thrice
def test_each_drop_of_a_bridge_overloaded_by_live_frames_is_counted(tmp_path: Path) -> None:
    sets = ("stream.frame_bytes=[64]", "search.tests=throughput", "search.goals=[0.005]", "search.width=0.1",
            "search.repetitions=1",
            "search.duration=60ms", "search.duration_sum=60ms", "search.at_most=15s", "trials.grace=20ms")  # fmt: skip
    with programs_seen() as programs:
        _, log, _ = run(tmp_path, "rfc2544", *sets, "search.initial_duration=30ms", "search.algorithm=mlrsearch")
    found = results(log)["throughput"]
    [chosen] = [one for one in log if one["event"] == "engine-chosen"]
    assert (chosen["send"], chosen["receive"]) == ("live", "live"), chosen
    tried = trials(log, "search")
    # One counter and one sender for all trials of the search, and a counter for each that qualifies the tester; one
    # process an end.
    assert len(tried) > 5
    assert 0 < len(programs) <= len(trials(log, "qualify")) + 2
    assert sorted(one["name"] for one in log if one["event"] == "ready") == ["a", "b"]
    lost = {one["block"]: sum(flow["lost"] for flow in one["received"]) for one in tried}
    for one in tried:
        dropped = sum(sum(places.values()) for dev, places in one["drops"].items() if dev.startswith("d-"))
        assert dropped == lost[one["block"]], one
        assert all(flow["refused"] == 0 for flow in one["sent"]), one
    # Where others take the processors, the frames may not suffice to overload anything: no fault of what is tested.
    with undisturbed():
        assert found["lower_pps"] is not None, found
        assert found["upper_pps"] is not None, found
        assert found["lower_pps"] < found["tester_pps"]
        assert any(lost.values()), "the highest load is too much for any bridge"


@retried
def test_a_bridge_learns_and_floods(tmp_path: Path) -> None:
    sets = ("stream.frame_bytes=[64]", "search.most_addresses=512", "search.duration=50ms", "search.width=0.1",
            "search.repetitions=1",
            "search.initial_duration=50ms", "search.duration_sum=50ms",
            "search.latency_duration=50ms", "search.latency_repetitions=2", "trials.grace=10ms")  # fmt: skip
    _, log, _ = run(tmp_path, "rfc2889", *sets, "search.goals=[0.005]", 'search.max_rate="20kpps"')
    found = results(log)
    with undisturbed():
        assert found["address-capacity"]["extra"]["addresses"] == 512
        assert (found["learning-rate"]["lower_pps"] or 0) > 1000
        assert (found["broadcast-forwarding"]["lower_pps"] or 0) > 1000
    assert found["broadcast-latency"]["lower_pps"] == found["broadcast-forwarding"]["lower_pps"]
    assert found["forward-pressure"]["sentence"].startswith("does not apply")


def test_interrupted_matrix_of_trials_resumes(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[study]\nname = "short"\nmethod = "one-way"\n[bed]\ndevices = ["bridge"]\n[stream]\nengine = ["packet"]\n'
        'frame_bytes = [64]\nrate = ["1kpps"]\n[trials]\nrounds = 10\nduration = "60ms"\nqualify = false\n'
    )
    out = tmp_path / "run"
    process = subprocess.Popen([SOJOURN, "run", str(plan), "--out", str(out), "--no-report"], stderr=subprocess.PIPE,
                               text=True)  # fmt: skip

    def is_in_its_middle() -> bool:
        assert process.poll() is None, process.communicate()
        return (out / "log.jsonl").is_file() and len(trials(read_log(out / "log.jsonl"))) >= 5

    await_that(is_in_its_middle, "five trials")
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    # What missed its schedule and was to be tried again is not recorded.
    before = {one["trial"] for one in trials(read_log(out / "log.jsonl")) if one["kept"]}
    done = sojourn_here("run", "--resume", out, "--no-report")
    assert done.returncode in {0, 4}, done.stderr
    assert f"{len(before)} of 40 trials are recorded, {40 - len(before)} to go" in done.stderr
    assert sorted(one["trial"] for one in trials(read_log(out / "log.jsonl")) if one["kept"]) == list(range(40))


@retried
def test_one_way_delays_over_three_beds_have_an_interval_over_beds(tmp_path: Path) -> None:
    sets = ("bed.sessions=3", "rounds=6", "payload_bytes=[46]", 'interval=["200us"]', "schedule=regular", "a_a=false")
    _, log, out = run(tmp_path, "one-way", *sets, "trials.duration=30ms", "trials.qualify=false", "trials.keep=packets")
    started = [one for one in log if one["event"] == "started"]
    assert [one["part"] for one in started] == [0, 1, 2]
    assert len({one["draw"]["seed"] for one in started}) == 3
    analyse(out.path)
    rows = json.loads(out.results.read_text())
    wanted = ("bridge", "wire", "device_latency", "mean")
    found = [one for one in rows if tuple(one[of] for of in ("device", "reference", "quantity", "statistic")) == wanted]
    with undisturbed():  # trials that missed their schedule make no difference
        assert len(found) == 1
    added = found[0]
    assert added["sessions"] == 3
    assert added["n"] == 6
    assert added["ci_low"] < added["estimate"] < added["ci_high"]
    told = {(one["quantity"], one["statistic"]) for one in rows if one["device"] == "bridge"}
    assert {("device_latency", "within_bed"), ("between_beds", "sd"), ("one_way_delay", "next_run")} <= told
    assert "over 3 beds" in json.loads(out.verdict.read_text())["sentence"]
