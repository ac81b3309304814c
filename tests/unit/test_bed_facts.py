"""Facts of hosts from the words of iproute2."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sojourn.bed.facts import qdisc_dropped

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

    def run(self, _: str, argv: list[str], __: str = "") -> str:
        return '[{"kind":"hfsc","options":{default 1 }]' if "-json" in argv else HFSC


def test_drops_are_read_beside_hfsc_of_which_tc_prints_no_json() -> None:
    assert qdisc_dropped(cast("Backend", Host()), "m") == {"eth1": 4, "eth2": 0}
