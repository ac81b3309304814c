"""`emulate explain --from`: lines of tc and ipfw as manual pages have them, and what becomes of each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts.command_tree import tree
from sojourn.cli import is_by_hand
from sojourn.cli.translate import translate
from sojourn.errors import RequestError
from sojourn.instruments import find_instrument
from sojourn.instruments.emulator import explain
from sojourn.plan import studies
from tests.unit.in_process import sojourn
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from sojourn.cli.translate import Translated

ADD = "tc qdisc add dev eth0 root"
BELOW = "tc qdisc add dev eth0 parent 1:"
TBF = "rate 1Mbit/s burst 1600B queue 3000B"

WHOLE = [
    (f"{ADD} netem delay 40ms loss 1%", "loss 1% delay 40ms"),
    (f"{ADD} netem delay 100ms 10ms", "delay 100ms jitter 10ms order free"),
    (f"{ADD} netem delay 100ms 20ms distribution normal", "delay 100ms jitter 20ms distribution normal order free"),
    (f"sudo {ADD} handle 1: netem delay 100000", "delay 100us"),
    ("tc qdisc change dev eth0 root netem loss 0.1%", "loss 0.1%"),
    ("/sbin/tc qdisc replace dev eth0 handle 1: root netem duplicate 1%", "duplicate 1%"),
    (f"{ADD} netem corrupt 0.1%", "corrupt 0.1%"),
    (f"{ADD} netem loss gemodel 1% 10%", "loss gemodel 1% 10%"),
    (f"{ADD} netem gap 5 delay 10ms reorder 25%", "delay 10ms reorder 25% gap 5"),
    (f"{ADD} netem delay 100ms\ntc qdisc change dev eth0 root netem loss 1%", "loss 1%"),
    ((f"{ADD} handle 1: netem delay 9ms\n{BELOW} tbf rate 1mbit burst 1600 limit 3000\n"
     "tc qdisc replace dev eth0 root netem loss 1%"), "loss 1%"),
    (f"{ADD} tbf rate 8mbit burst 1000 latency 50000", "rate 8Mbit/s burst 1000B queue 51000B"),
    (f"{ADD} tbf rate 1mbit burst 1600 limit 3000 overhead 14", f"{TBF} overhead 14"),
    (f"{ADD} tbf rate 1mbit burst 32kbit latency 400ms", "rate 1Mbit/s burst 4096B queue 54096B"),
    (f"{ADD} tbf rate 2mbit burst 1600 limit 3000", "rate 2Mbit/s burst 1600B queue 3000B"),
    (
        f"{ADD} handle 1: netem delay 30ms\n{BELOW} handle 2: tbf rate 10mbit burst 10kb limit 60kb",
        "rate 10Mbit/s burst 10240B delay 30ms queue 61440B",
    ),
    (f"{ADD} handle 1: tbf rate 1mbit burst 1600 limit 9000; tc qdisc add dev eth0 parent 1:1 pfifo limit 20",
     "rate 1Mbit/s burst 1600B queue 20"),
    ("netem delay 5ms loss 2", "loss 2% delay 5ms"),
    ("ipfw pipe 1 config bw 10Mbit/s delay 20 plr 0.01 queue 50", "loss 1% rate 10Mbit/s delay 20ms queue 50"),
    ("dnctl pipe 3 config delay 250ms", "delay 250ms"),
]  # fmt: skip

IN_PART = [
    (f"{ADD} netem delay 100ms 10ms 25%", "delay 100ms jitter 10ms order free", "25%", "half-life"),
    (f"{ADD} netem delay 10ms reorder 25% 50%", "delay 10ms reorder 25%", "50%", "changes the probability"),
    (f"{ADD} netem corrupt 0.1% 25%", "corrupt 0.1%", "25%", "changes the probability"),
    (f"{ADD} netem delay 40ms limit 1000", "delay 40ms", "limit 1000", "delay line holds all packets"),
    (f"{ADD} netem rate 10mbit delay 40ms limit 1000", "rate 10Mbit/s delay 40ms queue 1000", "in part", "delayed"),
    (f"{ADD} netem rate 1mbit delay 20ms", "rate 1Mbit/s delay 20ms queue 1000", "in part", "delayed"),
    (f"{ADD} netem rate 1mbit delay 20ms 5ms", "rate 1Mbit/s delay 20ms jitter 5ms queue 1000", "in part", "delayed"),
    (f"{ADD} netem rate 5kbit 20 100 5", "rate 5Kbit/s overhead 20 cell 100 5 queue 1000", "in part", "delayed"),
    (f"{ADD} netem delay 5ms; {BELOW} pfifo limit 1000", "delay 5ms", "pfifo limit 1000", "nothing waits"),
    (f"{ADD} handle 1: netem delay 100ms; {BELOW} netem delay 50ms", "delay 100ms", "netem delay 50ms", "first"),
    (f"{ADD} netem delay 5ms slot 20ms packets 64", "delay 5ms", "slot 20ms packets 64", "trace FILE"),
    (f"{ADD} netem loss 1% ecn", "loss 1%", "ecn", "a loss is a loss"),
    (f"{ADD} netem delay 5ms seed 42", "delay 5ms", "seed 42", "--seed N"),
    (f"{ADD} netem delay 5ms; {BELOW} fq_codel", "delay 5ms", "fq_codel", "docs/reference"),
    (
        f"{ADD} netem delay 5ms\ntc class add dev eth0 parent 1: classid 1:1 htb rate 1mbit",
        "delay 5ms",
        "tc class",
        "-C",
    ),
    (
        f"{ADD} tbf rate 1mbit burst 1600 limit 3000 peakrate 2mbit",
        "rate 1Mbit/s burst 1600B queue 3000B",
        "peakrate",
        "",
    ),
]


def translated(text: str) -> Translated:
    return translate(text, lambda options: explain(find_instrument(), options))


def same(words: str) -> set[str]:
    """What words mean to the instrument, in its own order."""
    return {explain(find_instrument(), ["--forward", words])["pipes"][0]["words"]}


@pytest.mark.parametrize(("text", "words"), WHOLE)
def test_supported_netem_options_translate_exactly(text: str, words: str | None) -> None:
    found = translated(text)
    assert not found.without
    assert {one["words"] for one in found.pipes} == same(words or text.split("root ")[1])


@pytest.mark.parametrize(("text", "words", "left_out", "why"), IN_PART)
def test_unsupported_netem_options_are_listed_with_a_reason(text: str, words: str, left_out: str, why: str) -> None:
    found = translated(text)
    assert {one["words"] for one in found.pipes} == same(words)
    assert [left_out in one["words"] and why in one["why"] for one in found.without] == [True]


def test_second_rate_is_omitted() -> None:
    found = translated(f"{ADD} handle 1: netem rate 2mbit\n{BELOW} tbf rate 1mbit burst 1600 limit 3000")
    assert {one["words"] for one in found.pipes} == same("rate 2Mbit/s queue 1000")
    assert [one["words"] for one in found.without] == ["limit, in part", "tbf rate 1mbit burst 1600 limit 3000"]


def test_two_interfaces_are_two_directions() -> None:
    found = translated("tc qdisc add dev eth0 root netem delay 5ms\ntc qdisc add dev eth1 root netem delay 7ms")
    assert found.command == 'sojourn emulate eth1 eth0 --forward "delay 5ms" --backward "delay 7ms"'
    one = translated("tc qdisc add dev eth0 root netem delay 5ms")
    assert one.command == 'sojourn emulate LEFT eth0 --forward "delay 5ms"', "netem acts on what leaves"


def test_a_script_of_ipfw_keeps_its_rules() -> None:
    script = "ipfw pipe 1 config bw 1Mbit/s delay 20\nipfw add 100 pipe 1 tcp from any to any 80 out via em0\n"
    found = translated(script)
    assert found.lines[1] == "ipfw add 100 pipe 1 tcp from any to any 80 forward"
    assert [one["words"] for one in found.without] == ["out, in part", "via em0"]
    assert found.pipes == [{"name": "1", "words": "rate 1Mbit/s delay 20ms"}]
    pipes = "ipfw pipe 1 config delay 5; ipfw pipe 2 config delay 9"
    both = translated(f"{pipes}; ipfw add pipe 1 ip from any to any out; ipfw add pipe 2 ip from any to any in")
    assert [one.split()[-1] for one in both.lines[2:]] == ["forward", "backward"]
    whole = translated(
        "ipfw pipe 1 config delay 5\nipfw add pipe 1 ip from any to any\nipfw add allow ip from me to any"
    )
    assert [one["words"] for one in whole.without] == ["ipfw add allow ip from me to any"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_script_belongs_to_who_called_sudo_whatever_the_umask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instrument reads it as that user."""
    monkeypatch.setenv("SUDO_UID", "4711")
    monkeypatch.setenv("SUDO_GID", "4712")
    found: list[tuple[int, int, int]] = []

    def explained(options: list[str]) -> dict[str, Any]:
        about = Path(options[options.index("--config") + 1]).stat()
        found.append((about.st_uid, about.st_gid, about.st_mode & 0o777))
        return {"pipes": []}

    before = os.umask(0o077)
    try:
        translate("ipfw pipe 1 config delay 5\nipfw add pipe 1 ip from any to any", explained)
    finally:
        os.umask(before)
    assert found == [(4711, 4712, 0o600)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delay 40ms", "expected lines of tc"),
        (f"{ADD} htb default 1", "nothing has an equivalent"),
        (f"{ADD} netem delay much", "much"),
        (
            (
                f"{ADD} handle 1: prio\ntc qdisc add dev eth0 parent 1:1 netem delay 10ms\n"
                "tc qdisc add dev eth0 parent 1:2 netem delay 100ms"
            ),
            "one class of packets",
        ),
        (
            (
                "ipfw pipe 1 config delay 5\nipfw pipe 2 config delay 9\nipfw add 1 pipe 1 ip from any to any via em0\n"
                "ipfw add 2 pipe 2 ip from any to any via em1"
            ),
            "differ in an interface",
        ),
        (f"{ADD} tbf burst 1600 limit 3000", "tbf without a rate"),
        (f"{ADD} tbf rate 1mbit burst lots limit 3000", "expected a size as tc has it"),
        ("\n".join(f"tc qdisc add dev eth{n} root netem delay 1ms" for n in range(3)), "a bridge has two"),
        ("ipfw pipe 1 config delay 5\nipfw add pipe 2 ip from any to any", "the script"),
    ],
)
def test_untranslatable_commands_are_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        translated(text)


def test_option_from_selects_the_python_command() -> None:
    assert is_by_hand(["emulate", "explain", "--forward", "delay 5ms"])
    assert not is_by_hand(["emulate", "explain", "--from=netem delay 5ms"])
    done = sojourn("emulate", "explain", "--from", f"{ADD} netem delay 40ms loss 1% ecn")
    assert done.stdout.splitlines()[0] == "forward: loss 1% delay 40ms"
    assert 'sojourn emulate LEFT eth0 --forward "loss 1% delay 40ms"' in done.stdout
    assert done.stdout.splitlines()[-2] == "no equivalent:"
    told = printed("emulate-explain-from", sojourn("emulate", "explain", "--json", "--from", "netem loss 1%").stdout)
    assert told["without"] == []


def test_translated_commands_of_the_page_have_the_stated_options() -> None:
    """The commands in its tables; those in its blocks are run by tests/net/test_pages.py."""
    page = (Path(__file__).parents[2] / "docs/guide/migration.md").read_text(encoding="utf-8")
    known = {" ".join(words): {o for one in command.options for o in one.options} for words, command in tree().all()}
    for one in ("sojourn lab", "sojourn uplink"):
        known[one] |= known["sojourn emulate run"]  # it hands them on, as its help says
    named = re.findall(r"`(sojourn [^`]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    assert len(named) > 20
    for words in named:
        asked = words.split(" -- ")[0].split()
        command = max((" ".join(asked[:n]) for n in range(1, len(asked) + 1) if " ".join(asked[:n]) in known), key=len)
        assert {word for word in asked if word.startswith("--")} <= known[command], words
        if asked[1] == "run":
            assert asked[2] in {name for name, _ in studies()} | {"STUDY"}, words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{ADD} tbf rate 1mbit burst {'9' * 400}", "expected a size"),
        ("tc qdisc add\nipfw pipe 1 config\n" * 100, "not both"),
        (f"{ADD} pfifo limit; " * 40, "nothing waits"),
    ],
)
def test_untranslatable_commands_are_refused_in_one_short_sentence(text: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        translated(text)
    assert said in str(refused.value).replace("without a rate ", "")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_queue_without_a_length_is_omitted() -> None:
    found = translated(f"{ADD} handle 1: tbf rate 1mbit burst 1600\n{BELOW} pfifo limit")
    assert [one["words"] for one in found.without] == ["pfifo limit"]
