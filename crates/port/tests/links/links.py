"""Detach or replace BPF programs that a process has attached, as other tools may do.

links.py PROCESS detach|replace xdp|tcx-in|tcx-out|cgroup PLACE

PLACE is an interface's index or a cgroup's ID. On a cgroup, only programs that process packets are replaced.
"""

import ctypes
import pathlib
import platform
import re
import struct
import sys

NUMBER = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PROG_LOAD, INFO, LINK_UPDATE, FD_BY_ID, DETACH = 5, 15, 29, 30, 34
CGROUP, XDP, TCX = 3, 6, 11
INGRESS, EGRESS, XDP_HOOK, TCX_INGRESS, TCX_EGRESS = 0, 1, 37, 46, 47
# For each hook: the program's type, and the verdict that passes everything.
PASSING = {INGRESS: (8, 1), EGRESS: (8, 1), XDP_HOOK: (6, 2), TCX_INGRESS: (3, 0), TCX_EGRESS: (3, 0)}
# For each kind of link on the command line: the link type and its hooks; for a cgroup, any.
KINDS = {
    "xdp": (XDP, [XDP_HOOK]),
    "tcx-in": (TCX, [TCX_INGRESS]),
    "tcx-out": (TCX, [TCX_EGRESS]),
    "cgroup": (CGROUP, []),
}
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Call bpf(2)."""
    room = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    done = libc.syscall(NUMBER, command, room, 128)
    return done, room.raw


def links(process: int):
    """Yield each link that a process holds: its type, its place, its hook there, and a descriptor."""
    for told in pathlib.Path(f"/proc/{process}/fdinfo").iterdir():
        found = re.search(r"^link_id:\s+(\d+)$", told.read_text(), re.MULTILINE)
        if not found:
            continue
        link, _ = bpf(FD_BY_ID, struct.pack("I", int(found[1])))
        info = ctypes.create_string_buffer(128)
        bpf(INFO, struct.pack("IIQ", link, 128, ctypes.addressof(info)))
        kind = struct.unpack_from("I", info.raw)[0]
        place = struct.unpack_from("Q" if kind == CGROUP else "I", info.raw, 16)[0]
        at = {CGROUP: 24, TCX: 20}.get(kind)
        hook = struct.unpack_from("I", info.raw, at)[0] if at else XDP_HOOK
        yield kind, place, hook, link


def passing(hook: int) -> int:
    """Load a program that passes every frame or packet, and return its descriptor."""
    kind, verdict = PASSING[hook]
    code = struct.pack("<BBhi", 0xB7, 0, 0, verdict) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    where, licence, log = (ctypes.create_string_buffer(text) for text in (code, b"GPL", b"\0" * 4096))
    addresses = [ctypes.addressof(buffer) for buffer in (where, licence, log)]
    attributes = struct.pack("IIQQIIQ", kind, 2, addresses[0], addresses[1], 1, 4096, addresses[2])
    # expected_attach_type follows fields that are zero here.
    attributes = attributes.ljust(68, b"\0") + struct.pack("I", hook)
    program, _ = bpf(PROG_LOAD, attributes)
    assert program >= 0, ctypes.get_errno()
    return program


process, what, place = int(sys.argv[1]), sys.argv[2], int(sys.argv[4])
kind, hooks = KINDS[sys.argv[3]]
found = [(hook, link) for its_kind, at, hook, link in links(process) if (its_kind, at) == (kind, place)]
if what == "replace" or hooks:
    found = [(hook, link) for hook, link in found if hook in (hooks or PASSING)]
assert found, "no program of that kind is attached"
for hook, link in found:
    if what == "detach":
        done, _ = bpf(DETACH, struct.pack("I", link))
    else:
        done, _ = bpf(LINK_UPDATE, struct.pack("II", link, passing(hook)))
    assert done == 0, ctypes.get_errno()
