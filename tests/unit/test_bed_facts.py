"""Facts of hosts from the words of iproute2."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from sojourn.bed.facts import _qdiscs, qdisc_dropped
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend

HFSC = """\
qdisc hfsc 1: dev eth1 root refcnt 2 default 1
 Sent 7020 bytes 90 pkt (dropped 4, overlimits 12 requeues 0)
 backlog 0b 0p requeues 0
qdisc netem 2: dev eth1 parent 1:1 limit 1000 delay 1ms
 Sent 7020 bytes 90 pkt (dropped 3, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
qdisc noqueue 0: dev eth2 root refcnt 2
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
"""


class Host:
    """A host whose `tc` says of hfsc what is no JSON."""

    def __init__(self, said: str = '[{"kind":"hfsc","options":{default 1 }]', text: str = HFSC) -> None:
        self.said, self.text = said, text

    def run(self, _: str, argv: list[str], __: str = "") -> str:
        return self.said if "-json" in argv else self.text


def dropped(host: Host) -> dict[str, int]:
    return qdisc_dropped(cast("Backend", host), "m")


def test_drops_are_read_beside_hfsc_of_which_tc_prints_no_json() -> None:
    assert dropped(Host()) == {"eth1": 4, "eth2": 0}


def test_empty_entries_of_earlier_versions_of_tc_are_no_qdiscs() -> None:
    assert dropped(Host('[{},{"dev":"eth1","root":true,"drops":2}]')) == {"eth1": 2}


def test_options_of_a_qdisc_are_read_over_all_their_lines() -> None:
    said = "qdisc mqprio 8001: dev eth1 root tc 2 map 0\n    queues:(0:0) (1:1)\nqdisc noqueue 0: dev lo root\n"
    mqprio, noqueue = _qdiscs(cast("Backend", Host(text=said)), "m")
    assert mqprio == {
        "kind": "mqprio", "handle": "8001:", "dev": "eth1", "root": True, "options": "tc 2 map 0 queues:(0:0) (1:1)",
    }  # fmt: skip
    assert (noqueue["dev"], noqueue["options"]) == ("lo", "")
    child = _qdiscs(cast("Backend", Host()), "m")[1]
    assert (child["parent"], child["drops"]) == ("1:1", 3)


@pytest.mark.parametrize(
    ("said", "text"),
    [("[5]", HFSC), ("7", HFSC), ("{", "no words of tc"), ("{", ""), ("{", "note\n" + HFSC), ("[" * 100_000, "[")],
)
def test_what_tc_does_not_say_is_one_sentence(said: str, text: str) -> None:
    with pytest.raises(MachineError, match="host M does not answer as a Linux host does"):
        dropped(Host(said, text))
