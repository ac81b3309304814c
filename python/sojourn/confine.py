"""Give up the rights of this process that it does not need, for good: by capabilities, no_new_privs and Landlock.

Child processes have the same restrictions. Must be called before the first thread is started.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

NOBODY = 65534
CAPABILITIES = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2, "CAP_FOWNER": 3, "CAP_KILL": 5, "CAP_SETGID": 6,
    "CAP_SETUID": 7, "CAP_SETPCAP": 8, "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14,
    "CAP_SYS_MODULE": 16, "CAP_SYS_PTRACE": 19, "CAP_SYS_NICE": 23, "CAP_PERFMON": 38, "CAP_BPF": 39,
}  # fmt: skip
"""Their numbers in the kernel."""

READ_SEARCH = CAPABILITIES["CAP_DAC_READ_SEARCH"]
LAST_CAPABILITY = 63
VERSION_3 = 0x20080522
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, AMBIENT_RAISE, AMBIENT_CLEAR_ALL = (
    8,
    24,
    38,
    47,
    2,
    4,
)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, with the same numbers on every architecture."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
IOCTL, DEVICES = 1 << 15, 1 << 6 | 1 << 11
"""Commands to devices; making character and block devices."""

PATH_BENEATH = 1
FIRST = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
"""The file system rights that each ABI version of Landlock can restrict; later versions as the last."""

NET_FROM, SCOPED_FROM = 4, 6

PR_SET_SECCOMP, FILTER = 22, 2
LOAD, IS_EQUAL, IS_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
"""Steps of a filter, in the kernel's classic BPF."""

OF_NUMBER, OF_ARCHITECTURE, OF_FIRST_ARGUMENT = 0, 4, 16
"""Where these are in what a filter sees of a call (struct seccomp_data, of a machine with the lower half first)."""

REFUSE, ALLOW = 0x00050000, 0x7FFF0000
X32 = 0x40000000
"""The numbers from here on are of x86-64's other calls (x32), which do the same; no other architecture has any."""

_EVERYWHERE = frozenset({425, 452, 463})
"""io_uring_setup, fchmodat2, setxattrat."""

_GENERIC = _EVERYWHERE | {198, 52, 53, 5, 6, 7, 117, 271, 97}
"""socket, fchmod, fchmodat, setxattr, lsetxattr, fsetxattr, ptrace, process_vm_writev, unshare."""

REFUSED = {
    "x86_64": (0xC000003E, _EVERYWHERE | {41, 90, 91, 268, 188, 189, 190, 101, 311, 272}, 302),
    "aarch64": (0xC00000B7, _GENERIC, 261),
    "riscv64": (0xC00000F3, _GENERIC, 261),
}
"""By machine: its number, the calls that are refused (x86-64 has chmod, too), and prlimit64, refused for others."""

SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/proc", "/sys", "/dev/urandom",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone", "/etc/locale.alias",
    "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies", "/etc/passwd", "/etc/nsswitch.conf",
    "/etc/mime.types",
)  # fmt: skip
"""The files that a Python with its libraries reads to start. No more of /etc: it has root's keys and passwords."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_so", ctypes.c_uint8),
        ("if_not", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def only_read(readable: Iterable[Path]) -> str | None:
    """Drop all rights but reading below these folders and this program; return a sentence on what cannot be restricted.

    Root becomes `nobody`, with the single capability to read any file (CAP_DAC_READ_SEARCH): a run's folder belongs to
    root while it is measured and to another user afterwards. Landlock then allows no writing, no connection and no port
    except open ones.
    """
    import sysconfig

    first_to_go()
    if os.geteuid() == 0:
        become_nobody()
    gain_nothing()
    libraries = {Path(one) for one in (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), Path(sys.executable))}
    if forbid_all_but([*readable, *libraries, Path(__file__).parents[1], *map(Path, SYSTEM)]):
        return None
    return "this kernel has no Landlock: the server can read what its user can"


def only_write(folder: Path) -> bool:
    """Drop all rights but reading any file, and making and writing files in this folder.

    Root stays root, for the folder is root's meanwhile, and keeps the capabilities to read and write what is another
    user's in it. Landlock, where the kernel has it, allows no other writing. What Landlock leaves to root, seccomp
    refuses: sockets, modes and attributes of files, other processes. Return whether the kernel has Landlock.
    """
    first_to_go()
    keep_capabilities(("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"))
    gain_nothing()
    has_landlock = forbid_all_but([Path("/")], [folder])
    refuse_calls()
    return has_landlock


def keep_capabilities(kept: Iterable[str]) -> None:
    """Drop every capability but these, which programs that root starts have, too; those that it has not, it has not."""
    some = {CAPABILITIES[name] for name in kept}
    _bound(some)
    header, data = _Header(VERSION_3, 0), (_Data * 2)()
    if _libc().capget(ctypes.byref(header), ctypes.byref(data)):
        raise _refused("capget")
    _hold(some, held=data[0].permitted | data[1].permitted << 32)
    _prctl("no ambient capabilities", PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL)


def gain_nothing() -> None:
    """Let no program that is executed gain privileges."""
    _prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def first_to_go() -> None:
    """Make this process the first that the OOM killer ends, before any that measures."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:
        return


def become_nobody() -> None:
    """Leave root, but keep the capability to read."""
    _bound({READ_SEARCH})
    _prctl("keep what reads", PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _hold({READ_SEARCH})
    _prctl("let programs read", PR_CAP_AMBIENT, AMBIENT_RAISE, READ_SEARCH)


def _bound(kept: Set[int]) -> None:
    """Let no program that is executed have other capabilities than these."""
    for one in range(LAST_CAPABILITY + 1):
        if one not in kept:
            _libc().prctl(PR_CAPBSET_DROP, one, 0, 0, 0)  # those that this kernel does not have are none to lose


def _hold(kept: Iterable[int], held: int = -1) -> None:
    """Have these capabilities, as far as they are `held`, and no others."""
    asked = sum(1 << one for one in kept) & held
    header, data = _Header(VERSION_3, 0), (_Data * 2)()
    for number in range(2):
        word = asked >> 32 * number & 0xFFFFFFFF
        data[number] = _Data(word, word, word)
    if _libc().capset(ctypes.byref(header), ctypes.byref(data)):
        raise _refused("capset")


def forbid_all_but(readable: Iterable[Path], writable: Iterable[Path] = ()) -> bool:
    """Restrict this process by Landlock to reading and executing below some paths, and to all below others.

    What is written to /dev/null may be, too. Return False, and restrict nothing, if the kernel has no Landlock.
    """
    version = _libc().syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = FIRST[min(version, max(FIRST))]
    ruleset = _Ruleset(handled, 3 if version >= NET_FROM else 0, 3 if version >= SCOPED_FROM else 0)
    size = ctypes.sizeof(_Ruleset) if version >= SCOPED_FROM else 16 if version >= NET_FROM else 8
    rules = _libc().syscall(CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    if rules < 0:
        raise _refused("landlock_create_ruleset")
    for path in readable:
        _allow(rules, path, EXECUTE | READ_FILE | READ_DIR)
    for path in writable:
        _allow(rules, path, handled & ~(DEVICES | IOCTL))
    _allow(rules, Path("/dev/null"), READ_FILE | WRITE_FILE)
    if _libc().syscall(RESTRICT_SELF, rules, 0):
        raise _refused("landlock_restrict_self")
    os.close(rules)
    return True


def refuse_calls() -> None:
    """Have the kernel refuse, with EPERM, calls by which a process without capabilities still acts as root.

    On an architecture whose numbers are not known here, and in a kernel without seccomp, nothing is refused.
    """
    known = REFUSED.get(platform.machine())
    if known is None:
        return
    architecture, numbers, of_limits = known
    refusal, allowed = _Step(RETURN, 0, 0, REFUSE | errno.EPERM), _Step(RETURN, 0, 0, ALLOW)
    tests = [_Step(IS_EQUAL, 0, 1, number) for number in sorted(numbers)]
    steps = [
        _Step(LOAD, 0, 0, OF_ARCHITECTURE), _Step(IS_EQUAL, 1, 0, architecture), refusal,
        _Step(LOAD, 0, 0, OF_NUMBER), _Step(IS_AT_LEAST, 0, 1, X32), refusal,
        *(step for test in tests for step in (test, refusal)),
        _Step(IS_EQUAL, 0, 3, of_limits), _Step(LOAD, 0, 0, OF_FIRST_ARGUMENT), _Step(IS_EQUAL, 1, 0, 0), refusal,
        allowed,
    ]  # fmt: skip
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    if _libc().prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) and ctypes.get_errno() != errno.EINVAL:
        raise _refused("seccomp")


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing path needs no rule
    if not path.is_dir():
        rights &= ~READ_DIR
    beneath = _Beneath(rights, descriptor)
    if _libc().syscall(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(beneath), 0):
        raise _refused("landlock_add_rule")
    os.close(descriptor)


def _prctl(what: str, *words: int) -> None:
    if _libc().prctl(*words, *[0] * (5 - len(words))):
        raise _refused(f"prctl ({what})")


def _refused(call: str) -> MachineError:
    why = os.strerror(ctypes.get_errno())
    return MachineError(f"rights cannot be given up here ({call}: {why}): run this as a plain user")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
