"""The backend for one machine: hosts are network namespaces, cables are veth pairs.

A *holder* process keeps everything: it starts one more process in each network namespace, its keeper, and opens the
namespace itself. Devices that stand apart have further namespaces, and these further holders. Everybody names a
namespace by the holder's descriptor: the holder is our child, so its number is nobody else's, whatever becomes of a
keeper. Without root, all of them live in a user namespace. Nothing has a name in the file system and nothing is
mounted: a bed is made of processes alone, so it stands in a plain chroot as anywhere.
Their standard input is a pipe whose only writer is this process: when this process ends, however it ends, they read the
end of the pipe and go, and with them the namespaces and the links in them. Programs that run in the bed die with this
process by the parent-death signal, which follows the *thread* that started them: a thread that calls `start` must live
as long as what it started. What they have started in turn is killed by the holder's last act.

Programs join only the network (and user) namespace of their host, and its cgroup where the bed has some, which the
holder removes too. So they see the files that everybody sees, and write their records where the command line says; but
`/sys/class/net` is not their host's: ask netlink.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sojourn.bed import cgroups
from sojourn.bed.backends.local import LocalMachine
from sojourn.bed.bounded import first_line
from sojourn.bed.hosts import END_HOSTS
from sojourn.bed.processes import end, end_all, environment, finish, guarded, launch, require_tools
from sojourn.bed.rights import what_is_missing_without_root, what_root_lacks, why_no_namespaces
from sojourn.bed.state import Process, StateFile
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import BedSpec, Cable, Port, Topology

# When its input ends, the holder kills everything that still runs in the namespaces: what a program has started has no
# parent-death signal of its own. A broken pipe must not prevent this. It finds these processes by the namespaces'
# inodes, which the kernel reuses within milliseconds after a namespace is gone: so it keeps all of them open to its
# end. A keeper is ready when it has become `cat`. Between that check and the opening the shell starts nothing and reaps
# no child, so the number is still the keeper's.
# `$0` is the state file's name without its suffix, in the working folder; `$1` is the folder of the bed's cgroups, `$2`
# names the kinds of namespaces that each host has of its own, `$3` the hosts: three at most, because descriptors in a
# shell have one digit. More hosts need further holders, which have nothing to do with the state file.
_HOLDER = """
trap '' PIPE
exec 3<&0
net=4 mnt=7
for host in $3; do
    unshare $2 cat <&3 >/dev/null &
    until read -r name <"/proc/$!/comm" && [ "$name" = cat ]; do
        sleep 0.001
        kill -0 $! || { echo none; wait; exit 1; }
    done 2>/dev/null
    eval "exec $net</proc/$!/ns/net $mnt</proc/$!/ns/mnt"
    keepers="$keepers $!" inodes="$inodes $(stat -L -c %i /proc/self/fd/$net)"
    net=$((net + 1)) mnt=$((mnt + 1))
done
echo ready$keepers
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(stat -L -c '%i %n' /proc/[0-9]*/ns/net 2>/dev/null | while read -r inode path; do
        pid=${path#/proc/}
        case "$inodes " in *" $inode "*) echo "${pid%%/*}" ;; esac
    done)
    [ -n "$pids" ] || break
    kill -KILL $pids 2>/dev/null
done
{cgroups}
rm -f -- "$0.json" "$0.draft" "$0".*.sock
wait
""".replace("{cgroups}", cgroups.HOLDERS_LAST_ACT)

TOOL_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}

_READY_SECONDS = 10.0
_NET_DESCRIPTORS = (4, 5, 6)
_MOST_HELD = len(_NET_DESCRIPTORS)
"""The most hosts that one holder can have."""


class _Held(NamedTuple):
    """The keeper of a host, the holder that has its namespaces open, and the host's place among those of the holder."""

    holder: int
    place: int
    keeper: int


class NetnsBackend(LocalMachine):
    """The hosts as network namespaces of this machine."""

    simulated: ClassVar[bool] = False
    own = "--net"
    """The namespaces that each host has of its own, as an option of `unshare`."""
    unprivileged: bool
    missing: list[str]

    def __init__(self, run_id: str) -> None:
        self.unprivileged = False
        self.missing = []
        self._state = StateFile(run_id)
        self._holders: list[subprocess.Popen[str]] = []
        self._hosts: dict[HostName, _Held] = {}
        self._started: list[subprocess.Popen[Any]] = []
        self._cgroups: Path | None = None
        self._no_cgroups = "it was not asked for cgroups"

    def open(self, topology: Topology, spec: BedSpec) -> None:
        """Start the holder and make the namespaces; as root if possible, else in a user namespace."""
        require_tools(TOOL_PACKAGES | {k: v for one in topology.stations for k, v in one.mode.tools.items()})
        if os.geteuid() == 0 and (lacking := what_root_lacks()):
            raise MachineError(lacking)
        self._state.claim()
        if spec.cgroups:
            try:
                self._cgroups = cgroups.folder_of(self._state.mark)
            except MachineError as error:
                self._do_without_cgroups(str(error))
        self._hold([host.name for host in topology.hosts])
        self._make_cgroups()

    def lay(self, cables: Iterable[Cable], mtu: int) -> None:
        """Make the veth pairs with one queue each: a program that binds to queue 0 then sees every frame."""
        lines = [
            f"link add {self._end(cable.left, mtu)} type veth peer {self._end(cable.right, mtu)}" for cable in cables
        ]
        self.run("d", ["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def start(self, host: HostName, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        process = launch(self._enter(host, argv), argv[0], self._state.mark, popen)
        self._started.append(process)
        return process

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        return finish(self._enter(host, argv), input, environment(self._state.mark), shown=shlex.join(argv))

    def beside(self, argv: Sequence[str], host: HostName | None = None, **popen: Any) -> subprocess.Popen[Any]:
        del host
        process = launch(guarded(argv), argv[0], self._state.mark, popen)
        self._started.append(process)
        return process

    def cgroup(self, host: HostName) -> str:
        if self._cgroups is None or host not in END_HOSTS:
            raise MachineError(f"host {host.upper()} of this bed has no cgroup: {self._no_cgroups}")
        return str(self._cgroups / host)

    def put(self, host: HostName, path: str, text: str) -> None:
        if path.startswith("/sys/class/net/"):
            self._in_sysfs(host, ["sh", "-c", 'cat > "$0"', path], text)
        else:
            self.run(host, ["sh", "-c", 'cat > "$0"', path], text)

    def get(self, host: HostName, path: str) -> str:
        if path.startswith("/sys/class/net/"):
            return self._in_sysfs(host, ["cat", path], None)
        if path.startswith("/proc/sys/"):
            return self.run(host, ["cat", path])
        return Path(path.replace("/proc/net/", f"/proc/{self._hosts[host].keeper}/net/")).read_text(errors="replace")

    def socket(self, name: str) -> str:
        return str(self._state.socket(name))

    def entrance(self, host: HostName) -> list[str]:
        """Return the prefix of a command that any terminal of this user can run on a host; it ends with the bed."""
        user = ["--user", "--preserve-credentials"] if self.unprivileged else []
        return ["nsenter", f"--target={self._hosts[host].keeper}", *user, "--net", "--"]

    def close(self) -> None:
        """End the programs started here, release the holders and wait until they are gone."""
        self.let_go()
        end_all(self._started)
        self._started.clear()
        if not self._holders:
            return
        for holder in self._holders:
            assert holder.stdin is not None
            with suppress(BrokenPipeError):
                holder.stdin.close()
        for holder in self._holders:
            end(holder)
        self._holders.clear()
        self._hosts.clear()
        if self._cgroups is not None:
            cgroups.remove(self._cgroups)
        self._state.remove()

    def _hold(self, hosts: Sequence[HostName]) -> None:
        """Start the holders as root if we are root; if that is refused, as in some containers, in a user namespace."""
        refusals = []
        first, further = hosts[:_MOST_HELD], hosts[_MOST_HELD:]
        for unprivileged in [False, True] if os.geteuid() == 0 else [True]:
            user = ["unshare", "--user", "--map-root-user"] if unprivileged else []
            refusal = self._try_to_hold(user, first, self._state.stem, self._cgroups)
            if refusal is None:
                self.unprivileged = unprivileged
                self.missing += what_is_missing_without_root() if unprivileged else []
                self._state.write(Process.of(self._holders[0].pid))
                self._hold_more(further)
                return
            refusals.append(refusal)
        self._state.remove()
        raise MachineError(why_no_namespaces("; ".join(refusals)))

    def _hold_more(self, hosts: Sequence[HostName]) -> None:
        """Start further holders, in the user namespace of the first if it has one."""
        user = ["nsenter", *self._user] if self.unprivileged else []
        for at in range(0, len(hosts), _MOST_HELD):
            refusal = self._try_to_hold(user, hosts[at : at + _MOST_HELD], f"{self._state.stem}.{at}", None)
            if refusal is not None:
                raise MachineError(why_no_namespaces(refusal))

    def _make_cgroups(self) -> None:
        """Make the hosts' cgroups if requested; a bed that cannot have them goes on without."""
        if self._cgroups is None:
            return
        if self.unprivileged:
            self._do_without_cgroups("only root can make them")
            return
        try:
            cgroups.make(self._cgroups, END_HOSTS)
        except MachineError as error:
            self._do_without_cgroups(str(error))

    def _do_without_cgroups(self, why: str) -> None:
        """Go on without cgroups; a program that needs one is refused later, with this reason."""
        self._cgroups, self._no_cgroups = None, why
        self.missing.append(f"Cgroups of hosts: {why}.")

    def _try_to_hold(
        self, user: Sequence[str], hosts: Sequence[HostName], stem: str, cgroup: Path | None
    ) -> str | None:
        holder = subprocess.Popen(
            [*user, "sh", "-c", _HOLDER, stem, str(cgroup or ""), self.own, " ".join(hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self._state.folder,
            env=environment(self._state.mark),
            start_new_session=True,
        )
        ready, *keepers = first_line(holder, _READY_SECONDS).split() or [""]
        if ready == "ready":
            self._holders.append(holder)
            held = [_Held(holder.pid, place, int(keeper)) for place, keeper in enumerate(keepers)]
            self._hosts |= dict(zip(hosts, held, strict=True))
            return None
        if not ready:
            holder.kill()
        _, said = holder.communicate()
        return str(said).strip() or "the holder did not start"

    def _in_sysfs(self, host: HostName, argv: Sequence[str], text: str | None) -> str:
        """Run a command with the host's own `/sys`: in a mount namespace made for this one command."""
        script = 'mount -n --make-rprivate /sys && mount -n -t sysfs sysfs /sys && exec "$@"'
        private = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh"]
        return self.run(host, [*private, *argv], text)

    def _enter(self, host: HostName, argv: Sequence[str]) -> list[str]:
        cgroup = self._cgroups / host if self._cgroups is not None and host in END_HOSTS else None
        return ["nsenter", *self._user, f"--net={self._namespace(host)}", "--", *guarded(argv, cgroup)]

    def _end(self, port: Port, mtu: int) -> str:
        return (
            f"name {port.dev} index {port.ifindex} address {port.mac} mtu {mtu} numtxqueues 1 numrxqueues 1 "
            f"netns {self._namespace(port.host)}"
        )

    def _namespace(self, host: HostName) -> str:
        return self._held(host, _NET_DESCRIPTORS)

    def _held(self, host: HostName, descriptors: tuple[int, ...]) -> str:
        if host not in self._hosts:
            raise MachineError("the bed is gone; build it again")
        held = self._hosts[host]
        return f"/proc/{held.holder}/fd/{descriptors[held.place]}"

    @property
    def _user(self) -> list[str]:
        if not self.unprivileged or not self._holders:
            return []
        return [f"--user=/proc/{self._holders[0].pid}/ns/user", "--preserve-credentials"]
