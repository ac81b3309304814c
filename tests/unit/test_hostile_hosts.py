"""What a host may not do to the controller, and what others on either machine may not do to a bed."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sojourn.bed import BedSpec, HostSpec, PathSpec, fetching, joined, keeper, real_hosts, state, turns
from sojourn.bed.backends.ssh import SshBackend
from sojourn.bed.build import Bed
from sojourn.bed.cores import DeviceCores
from sojourn.bed.doctor import print_examination
from sojourn.bed.look import Looked
from sojourn.bed.model import Topology
from sojourn.cli.real_hosts import bed_new
from sojourn.conduct.addresses import addresses_of
from sojourn.conduct.taps import matched_in
from sojourn.errors import MachineError, RequestError
from sojourn.instruments.conversation import Conversation
from sojourn.instruments.emulator import replay
from sojourn.instruments.learning import send_new_addresses
from sojourn.plan.real_bed import load_real_bed, real_bed_of
from tests.children import Child
from tests.fuzz.hosts import AnsweringHost

if TYPE_CHECKING:
    from collections.abc import Sequence

SAID = b"whatever"


class Liar:
    """A line to a host that claims to have files of any name, each of them with the same content."""

    def __init__(self, *rows: str) -> None:
        self.rows = rows

    def run(self, argv: Sequence[str], text: str = "", seconds: float = 60) -> str:
        del seconds
        if argv[2] == keeper.SIZES:
            return "".join(f"{row}\n" for row in self.rows)
        return f"{hashlib.sha256(SAID).hexdigest()}  -\n" * text.count("\n")

    def run_bytes(self, argv: Sequence[str], given: bytes = b"", seconds: float = 60, most_bytes: int = 0) -> bytes:
        del argv, seconds, most_bytes
        return SAID * given.count(b"\n")


def fetched(tmp_path: Path, *rows: str) -> Any:
    """A folder of such a host, and `records` here."""
    records = tmp_path / "run/records"
    records.mkdir(parents=True)
    machine: Any = SimpleNamespace(line=Liar(*rows), root=[])
    return fetching.Fetched(machine, "/var/tmp/there", records, {})


@pytest.mark.parametrize(
    "name",
    [
        "./../plan.toml",
        "./deep/../../plan.toml",
        ".//etc/passwd",
        "./deep//file",
        "./.",
        "./deep/./file",
        "./deep/",
        "./two words",
        "./tab\tbed",
        "./café",
        "./$(reboot)",
        "/etc/passwd",
        "plan.toml",
        "'./a'$'\\n''b'",
    ],
)
def test_a_host_cannot_name_a_file_outside_the_folder_of_records(name: str, tmp_path: Path) -> None:
    one = fetched(tmp_path, f"{len(SAID)} ./blocks.arrow", f"{len(SAID)} {name}", "16 total")
    with pytest.raises(MachineError, match="is no record's size and name: nothing is fetched"):
        fetching.fetch(one)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("size", ["-8", "8e9", "9" * 5000, ""])
def test_invalid_size_is_refused(size: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="is no record's size and name"):
        fetching.fetch(fetched(tmp_path, f"{size} ./blocks.arrow"))


def test_records_are_not_written_or_removed_through_symbolic_links(tmp_path: Path) -> None:
    one = fetched(tmp_path, f"{len(SAID)} ./deep/a.arrow", f" {len(SAID)} ./b.arrow", "16 total")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.arrow").write_text("mine")
    (one.local / "deep").symlink_to(outside)
    with pytest.raises(MachineError, match="deep is a symbolic link"):
        fetching.fetch(one)
    one.machine.line.rows = ()
    one.sizes["deep/a.arrow"] = len(SAID)
    with pytest.raises(MachineError, match="deep is a symbolic link"):
        fetching.fetch(one)
    assert (outside / "a.arrow").read_text() == "mine"
    (one.local / "deep").unlink()
    (one.local / "b.arrow").unlink(missing_ok=True)
    (one.local / "b.arrow").symlink_to(outside / "a.arrow")
    one.machine.line.rows = (f"{len(SAID)} ./b.arrow",)
    with pytest.raises(MachineError, match=r"b\.arrow is a symbolic link"):
        fetching.fetch(one)
    assert (outside / "a.arrow").read_text() == "mine"


def test_records_are_fetched_by_their_names(tmp_path: Path) -> None:
    one = fetched(tmp_path, f" {len(SAID)} ./blocks-000.arrow", f"{len(SAID)} ./a/taps_1.pcap", "16 total")
    fetching.fetch(one)
    found = {str(path.relative_to(one.local)): path.read_bytes() for path in one.local.rglob("*") if path.is_file()}
    assert found == {"blocks-000.arrow": SAID, "a/taps_1.pcap": SAID}


def test_fetched_records_are_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fetched(tmp_path, f" {len(SAID)} ./b.arrow", f"{len(SAID)} ./deep/a.arrow", "16 total")
    synced, sync = [], os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size if path.is_file() else 0))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    fetching.fetch(one)
    assert synced == [("b.arrow", len(SAID)), ("a.arrow", len(SAID)), ("deep", 0), ("records", 0)]


def link(name: str) -> dict[str, Any]:
    """An interface as `ip -json` tells of it, of a host that tells what it likes."""
    return {"ifname": name, "link_type": "ether", "address": 'aa"\n[hosts.device]\n', "mtu": 1500, "flags": []}


def test_answers_of_a_host_are_escaped_in_a_drafted_bed_file(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ['e"\nb="x', 'x"#', "-F/etc/x", 'q"uote', "e\\n"]
    looked = Looked(
        uid=0, boot_id="", release="6.1.0", version="", architecture="x86_64", distribution="", cpu="", cpus=(0,),
        memory_bytes=0, clocksource="tsc", management="eth0", tools=frozenset(), routes=(),
        links={one: link(one) for one in names}, free_bytes=0, sudo="yes", ahead_ns=0, ahead_error_ns=0,
    )  # fmt: skip
    monkeypatch.setattr(real_hosts, "looking", lambda *_: nullcontext())
    monkeypatch.setattr(real_hosts, "look", lambda _: looked)
    bed = real_bed_of(real_hosts.first_file({"a": HostSpec("a.lab"), "b": HostSpec("b.lab")}), "bed.toml")
    assert set(bed.hosts) == {"a", "b"}
    assert (bed.paths["direct"].a, bed.paths["dut:box"].a) == (('x"#',), ('q"uote',))


@pytest.mark.parametrize(
    ("a", "more"),
    [
        ("-oProxyCommand=touch pwned", {}),
        ("a'$(id)'", {}),
        ("a.lab", {"device": "-V"}),
        ("a.lab", {"jump": "-V"}),
        ("a.lab", {"user": "-V"}),
    ],
)
def test_host_name_that_ssh_would_read_as_an_option_is_refused(a: str, more: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="expected a name"):
        bed_new(a, "b.lab", device=more.get("device"), jump=more.get("jump"), user=more.get("user"))


def test_files_named_by_a_bed_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    own = 'key = "keys/id"\nconfig = "ssh_config"\n'
    other = 'key = "/etc/id"\nconfig = "none"\n'
    paths = '[paths.direct]\na = "eth1"\nb = "eth1"\n'
    file = tmp_path / "lab/bed.toml"
    file.write_text(f'[hosts.a]\naddress = "a"\n{own}[hosts.b]\naddress = "b"\n{other}{paths}')
    monkeypatch.chdir(tmp_path)
    hosts = load_real_bed("lab/bed.toml").hosts
    assert (hosts["a"].identity, hosts["a"].config) == (f"{tmp_path}/lab/keys/id", f"{tmp_path}/lab/ssh_config")
    assert (hosts["b"].identity, hosts["b"].config) == ("/etc/id", "none")


def test_sockets_in_a_shared_folder_are_in_a_private_subfolder(tmp_path: Path) -> None:
    own = state._own_folder(tmp_path)
    assert own.parent == tmp_path
    assert own.stat().st_mode & 0o777 == 0o700
    assert state._own_folder(tmp_path) == own
    own.chmod(0o770)
    with pytest.raises(MachineError, match="is not a folder of yours alone"):
        state._own_folder(tmp_path)
    own.rmdir()
    (tmp_path / "others").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "others")
    with pytest.raises(MachineError, match="is not a folder of yours alone"):
        state._own_folder(tmp_path)


DEEP = "[" * 100_000
NONSENSE = ["", "[", DEEP, "{" + DEEP, "null", "[]", "7", "9" * 5000, '"words"', "\ufffd"]


def numbered(said: list[str]) -> pytest.MarkDecorator:
    """Tests with each of these; their names are numbers, for a name is in the environment of what a test starts."""
    return pytest.mark.parametrize("said", said, ids=map(str, range(len(said))))


FORWARD = '{"pairs": [{"directions": [{"direction": "forward", "delay": %s}]}]}'


@numbered(
    [
        *NONSENSE, "{}", '{"pairs": 3}', '{"pairs": []}', '{"pairs": [{"directions": [3]}]}', FORWARD % '{"n": 3}',
        FORWARD % '{"n": 3, "mean_ns": NaN}', FORWARD % '{"n": 3, "mean_ns": "long"}', FORWARD % "[1]",
        FORWARD % f'{{"n": 3, "mean_ns": {"9" * 400}}}',
    ],
)  # fmt: skip
def test_nonsense_in_place_of_matched_taps_is_one_sentence_that_names_the_host(said: str) -> None:
    """It ended in a traceback."""
    sentence = r"^host device \(d\.lab\): match does not answer as an instrument of this version does \("
    with pytest.raises(MachineError, match=sentence) as refused:
        matched_in(said, "host device (d.lab)")
    assert refused.value.status == 3
    assert len(str(refused.value)) < 400


@numbered(["{", "{" + DEEP, '{"identical": ' + "9" * 5000 + "}", "{\ufffd}"])
def test_nonsense_in_place_of_a_replay_is_one_sentence_that_names_the_host(said: str) -> None:
    """It ended in a traceback."""
    start: Any = AnsweringHost([said.encode()]).start
    sentence = r"^host A \(a\.lab\): emulate replay does not answer as an instrument of this version does \("
    with pytest.raises(MachineError, match=sentence):
        replay(start, "sojourn-instrument", Path("/there"), "idle", 0)


@numbered([*NONSENSE, "{}", '{"elapsed_ns": 0}', '{"elapsed_ns": -5}', '{"elapsed_ns": 1e400}'])
def test_nonsense_of_the_program_that_sends_new_addresses_is_one_sentence(said: str) -> None:
    """A time of 0 ended in a division by it."""
    backend: Any = AnsweringHost([said.encode()])
    with pytest.raises(MachineError, match=r"^host B does not answer as a Linux host does \("):
        send_new_addresses(backend, "b", "eth1", 4096, 0.0, "02:00:00:00:00:01")


@numbered(["", DEEP, "null", "[3]", '[{"mac": 3}]'])
def test_nonsense_in_place_of_learned_addresses_is_one_sentence(said: str) -> None:
    backend: Any = AnsweringHost([said.encode()])
    with pytest.raises(MachineError, match=r"^host D does not answer as a Linux host does \("):
        addresses_of(backend, "d", "br0")


@numbered([*NONSENSE, "{}"])
def test_nonsense_in_place_of_a_probe_is_no_answer_of_b(said: str) -> None:
    """Deep nesting ended in a traceback."""
    backend: Any = AnsweringHost([said.encode()])
    link: Any = SimpleNamespace(b_ip4="10.0.0.2", a_dev="eth1")
    assert turns.unanswered(backend, link) == "B does not answer A"


@numbered([*NONSENSE, "{}"])
def test_nonsense_in_place_of_the_tai_offset_is_one_sentence_that_names_the_host(said: str) -> None:
    machine: Any = AnsweringHost([said.encode()])
    backend: Any = SshBackend.__new__(SshBackend)
    backend._machines, backend._tai_offsets, backend._tools = {"a": machine}, {}, "/there"
    with pytest.raises(MachineError, match=r"^host A \(a\.lab\) does not answer as a Linux host does \("):
        backend.tai_ns("a")


@numbered([*NONSENSE, "{}"])
def test_nonsense_in_place_of_an_instruments_answer_names_the_host(said: str) -> None:
    class There(subprocess.Popen[Any]):
        where = "host B (b.lab)"

    def start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
        return There(["cat", tmp.name, "-"], **popen)

    with tempfile.NamedTemporaryFile() as tmp:
        tmp.write(said.encode() + b"\n")
        tmp.flush()
        with pytest.raises(MachineError, match=r"^host B \(b\.lab\): the instrument gave an invalid answer: b"):
            Conversation(start, ["sojourn-instrument", "capture", "serve"])


@numbered(NONSENSE)
def test_nonsense_in_place_of_the_load_of_a_core_is_no_load(said: str) -> None:
    cores: Any = DeviceCores.__new__(DeviceCores)
    with Child(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdin is not None
        asked = SimpleNamespace(write=lambda _: None, flush=lambda: None)
        cores._load = SimpleNamespace(stdin=asked, stdout=load.stdout)
        load.stdin.write(said + "\n")
        load.stdin.flush()
        assert cores.load() is None
        load.stdin.close()


def test_programs_of_a_host_may_print_bytes_that_are_no_text() -> None:
    """They ended in a traceback."""
    backend: Any = SshBackend.__new__(SshBackend)
    backend._numbers, backend._started = iter([1]), []
    line = SimpleNamespace(command=lambda _: ["printf", r"\377\n"])
    machine: Any = SimpleNamespace(line=line, root=[], work="/there", tools="/there")
    process = backend._start(machine, "1", "-", ["true"], {"stdout": subprocess.PIPE, "text": True})
    assert process.communicate(timeout=30)[0] == "\ufffd\n"


@pytest.mark.parametrize("said", [r"[red]x", r"\[/red]", r"\\[/]", "x\\", "[link=http://x]y[/link]", ":smile: [1]"])
def test_checks_show_words_of_a_host_as_they_are(said: str) -> None:
    """A closing tag behind a backslash ended in a traceback, another one styled the terminal."""
    assert said in shown(said)


def test_control_characters_of_a_host_do_not_reach_the_terminal() -> None:
    found = shown("\x1b]0;title\x07\x1b[31mred")
    assert r"\x1b]0;title\x07\x1b[31mred" in found
    assert "\x1b" not in found


def shown(said: str) -> str:
    """The text of a table of checks, in each column and below it."""
    check = {"status": "ok", "name": said, "found": said, "fix": said}
    page = io.StringIO()
    print_examination({"checks": [check], "sentence": said}, Console(file=page, width=200, highlight=False))
    assert page.getvalue().count(page.getvalue().splitlines()[-1]) == 4
    return page.getvalue()


def bed_without(*missing: str, after: int = 0) -> Any:
    """A bed of two hosts and a cable, one of which leaves ports out of its counters from a reading on."""
    spec = BedSpec(backend="ssh", hosts={"a": HostSpec("a"), "b": HostSpec("b")},
                   paths={"direct": PathSpec(("eth1",), ("eth7",))})  # fmt: skip
    bed: Any = Bed.__new__(Bed)
    bed.spec, bed.topology = spec, Topology.of_spec(spec)
    devs, readings = [port.dev for link in bed.topology.links for port in link.ports], iter(range(1000))

    def counters() -> dict[str, dict[str, int]]:
        there = devs if next(readings) < after else [dev for dev in devs if dev not in missing]
        return {dev: {"rx_packets": 20, "tx_packets": 20} for dev in there}

    bed.counters = counters
    bed.backend = SimpleNamespace(instrument=lambda: "sojourn-instrument", run=lambda *_: "")
    return bed


@pytest.mark.parametrize("after", [0, 1], ids=["left out", "vanished"])
def test_port_without_counters_is_one_sentence_that_names_it(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a traceback: in a check of the bed, as a bed was built, and once a link was back."""
    monkeypatch.setattr(real_hosts, "answered", lambda *_: (20, 9.0))
    link = bed_without().topology.link("direct")
    for ask in (
        lambda one: joined.require_joined(one, link),
        lambda one: joined.strays(one, link),
        lambda one: real_hosts._path(one, one.spec, link),
        lambda one: real_hosts._settled(one, one.counters(), lambda _: None),
    ):
        with pytest.raises(MachineError, match=r"^no counters of eth7 of host B: was it removed, or does `ip -stat"):
            ask(bed_without("b-direct", after=after))
