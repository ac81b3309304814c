"""The smallest forwarder in XDP: a program at each port redirects every frame to the other port (bpf_redirect).

The programs are compiled by clang when the box is built, because they contain the other port's index, and loaded by
`ip` in the driver's native mode. A veth accepts redirected frames only while its peer polls: every port of the path has
GRO on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices.mode import Box, Ink, Mode, commands
from sojourn.records.scratch import OF_SHELL

if TYPE_CHECKING:
    from sojourn.devices.mode import Command

SCRATCH = f'folder=$(mktemp -dt "sojourn-xdp-{OF_SHELL}-XXXXXXXX")'
LOAD = """trap 'rm -rf "$folder"' EXIT
redirect() {
    clang -O2 -target bpf -c -x c - -o "$folder/$1.o" <<END
static long (*bpf_redirect)(unsigned, unsigned long long) = (void *)23;
__attribute__((section("xdp"), used)) int redirect(void *frame) { return bpf_redirect($2, 0); }
__attribute__((section("license"), used)) char _license[] = "GPL";
END
    ip link set dev "$1" xdpdrv obj "$folder/$1.o" sec xdp
}"""


def forward(box: Box) -> list[Command]:
    """Return the commands for a program in each direction."""
    ways = ((box.left.dev, box.right.dev), (box.right.dev, box.left.dev))
    lines = [f"redirect {come} $(ip -o link show dev {go} | cut -d: -f1)" for come, go in ways]
    return commands("sh", "(", SCRATCH, LOAD, *lines, ")")


DEVICE = Mode(
    name="xdp",
    title="The XDP redirect",
    box="XDP",
    ink=Ink("xdp", "#3d7fae", "#8cc7ee", (3, 3), "triangle-left"),
    place=15,
    rank=1,
    polls=True,
    tools={"clang": "clang"},
    fix="root, a kernel with CONFIG_BPF_SYSCALL, an `ip` with libbpf (iproute2 5.11), and clang: apt-get install clang",
    join=forward,
)
