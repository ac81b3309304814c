"""Shell scripts that run on a real host while a bed stands there; they clean up without the controller.

The *keeper* is root's shell on the host; it reads commands over SSH, one per line of its standard input. It holds the
lock of the host, keeps the network namespaces of the bed's hosts, sends signals, and expects a heartbeat every few
seconds. At the end of its input (the controller or the SSH session has ended), at a SIGTERM, or without a heartbeat for
LEASE_SECONDS (the network has failed), it ends every program in these namespaces and beside them, restores the
interfaces, and removes what was copied.

Where a bed asks for cgroups, the keeper makes a folder with one for each host and one for the programs beside them. Its
name ends as that of the folder for records, which is random; it is written down before it is made, so that the next
keeper removes what one that was killed has left.

Every user of the host may enter the folder for records, but not list it: what is recorded there is for root alone, and
a file that is lent for root and the caller of sudo.
"""

from __future__ import annotations

from sojourn.bed.look import BED_MACS
from sojourn.bed.setting_scripts import PROCESS, RESTORE, STATE

BEAT_SECONDS = 10.0
LEASE_SECONDS = 40
"""Without input for this long, a keeper takes its controller for dead."""

INSTRUMENTS = "/var/lib/sojourn"
"""The folder for instruments on each host, owned by root; each has a subfolder named by its content.

Under the name `ethtool` the instrument replaces that program on a host without one: these folders are the last in the
search path.
"""

BESIDE = "beside"
"""The cgroup of programs beside the hosts: their processor time is no host's, and no log sees their packets."""

# $1: the run; $2: its holder; $3: the folder to make for records; $4: the folder of the instrument; $5: "keep" if that
# stays; $6: "cgroups" if each host has one; then the names of hosts. Prints "held …", or "ready" with its PID, a
# process (PID-TICKS) in each namespace and, if asked, the folder of the cgroups or "-", or nothing.
KEEPER = (
    """
PATH=$PATH:/usr/sbin:/sbin
trap '' PIPE HUP
stop=
trap 'stop=yes' TERM INT
umask 022
run=$1 who=$2 work=$3 tools=$4 keep=$5 grouped=$6; shift 6
for own in "$tools" {instruments}/*; do PATH=$PATH:$own; done # those of keepers that were killed, too
state={state} boot=/proc/sys/kernel/random/boot_id
mkdir -p "$state" || exit 1
taken=$state/taken.$$

{process}
in_ns() { # $1: PID-TICKS
    is_same "$1" || return 1
    there=${1%-*}; shift
    nsenter --net="/proc/$there/ns/net" -- "$@"
}

{restore}
give_back() { # what the file of taken interfaces says, and what was set; what is not back stays in it
    journal=$state/settings.${taken##*.}
    : >"$state/away.$$"
    while read -r ns old new mac mtu up; do
        for name in "$new" "$old"; do
            in_ns "$ns" ip link set dev "$name" down && in_ns "$ns" ip link set dev "$name" name "$old" &&
                { in_ns "$ns" ip link set dev "$old" netns $$ address "$mac" ||
                    in_ns "$ns" ip link set dev "$old" name "$new"; }
        done 2>/dev/null
        if ! ip link show dev "$old" >/dev/null 2>&1; then # its namespace went first, and the kernel brought it here
            ip link set dev "$new" down && {
                ip link set dev "$new" address "$mac"
                ip link set dev "$new" name "$old"
            }
        fi 2>/dev/null
        case $(ip link show dev "$old" 2>/dev/null | sed -n 's/^ *link\\/[^ ]* \\([^ ]*\\).*/\\1/p') in
            "$mac"|{macs}*) ;;
            *) # it is away, or an interface that came meanwhile has its name
                echo "$ns $old $new $mac $mtu $up" >>"$state/away.$$"
                continue ;;
        esac
        ip link set dev "$old" xdp off 2>/dev/null
        ip link set dev "$old" address "$mac" mtu "$mtu" 2>/dev/null
        set --
        while read -r feature value fixed; do
            [ -n "$fixed" ] || set -- "$@" "${feature%:}" "$value"
        done <"$state/features.$old"
        [ $# -eq 0 ] || ethtool -K "$old" "$@" >/dev/null 2>&1
        read -r segments <"$state/segments.$old" && ip link set dev "$old" gso_max_segs "$segments" 2>/dev/null
        [ "$up" != up ] || ip link set dev "$old" up
        rm -f "$state/features.$old" "$state/segments.$old"
    done <"$taken"
    if [ -s "$state/away.$$" ]; then cat "$state/away.$$" >"$taken"; else restore; rm -f "$taken"; fi
    rm -f "$state/away.$$"
}

make_groups() { # for the hosts that are named; says where, or - where root can make none
    root=$(sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \\([^ \\\\]*\\) .* - cgroup2 .*/\\1/p' /proc/self/mountinfo |
        while read -r one; do
            if [ -e "$one/cgroup.procs" ]; then echo "$one"; break; fi
        done)
    groups=$root/${work##*/}
    if [ -n "$root" ] && echo "$groups" >"$state/cgroup.$$" && mkdir "$groups"; then
        for one in "$@" {beside}; do mkdir "$groups/$one" || groups=-; done
    else
        groups=-
    fi 2>/dev/null
    [ "$groups" != - ] || drop_groups "$state/cgroup.$$"
    echo "$groups"
}

drop_groups() { # what a file names, with every program there; the file stays as long as that does
    [ -e "$1" ] || return 0
    read -r there <"$1"
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -n "$there" ] && [ -d "$there" ] || { rm -f "$1"; break; }
        for one in "$there"/*/; do
            [ -d "$one" ] || continue
            echo 1 >"$one/cgroup.kill"
            rmdir "$one"
        done
        rmdir "$there" || sleep 0.05
    done 2>/dev/null
}

find_held() { # those of our processes in namespaces that are still there
    keepers=
    for one in $held; do if is_same "$one"; then keepers="$keepers ${one%-*}"; fi; done
}

end_programs() { # all in our namespaces
    find_held
    inodes= own=$(stat -L -c %i /proc/self/ns/net)
    for keeper in $keepers; do
        inode=$(stat -L -c %i "/proc/$keeper/ns/net")
        [ "$inode" = "$own" ] || inodes="$inodes $inode"
    done
    for try in 1 2 3 4 5 6 7 8 9 10; do
        pids=$(stat -L -c '%i %n' /proc/[0-9]*/ns/net 2>/dev/null | while read -r inode path; do
            pid=${path#/proc/}; pid=${pid%%/*}
            case "$keepers " in *" $pid "*) continue ;; esac
            case "$inodes " in *" $inode "*) echo "$pid" ;; esac
        done)
        [ -n "$pids" ] || break
        kill -KILL $pids 2>/dev/null
    done
}

end_keepers() { # of our namespaces, which go with them
    find_held
    for one in $keepers; do
        kill -KILL "$one"
        wait "$one"
    done
} 2>/dev/null

links() { # how often each port of the bed has lost its carrier and got it back
    for one in $held; do
        in_ns "$one" ip -o -s -s link show |
            sed -n 's/^[0-9]*: \\([^:@ ]*\\)[:@].* transns[^0-9]*\\([0-9 ]*\\).*$/\\1 \\2/p' |
            while read -r port counts; do echo "$port=${counts##* }"; done
    done 2>/dev/null
}

exec 9>>"$state/lock"
locked=yes
if ! flock -n 9; then
    read -r holder rest <"$state/holder"
    if [ "$holder" != "$run" ]; then echo "held run $holder of $rest"; exit 0; fi
    locked= # another host of the same bed on the same machine
else
    for left in "$state"/taken.*; do # a keeper that was killed
        [ -e "$left" ] && ! grep -qsF "$state" "/proc/${left##*.}/cmdline" && { taken=$left; give_back >/dev/null; }
    done
    for left in "$state"/cgroup.*; do
        [ -e "$left" ] && ! grep -qsF "$state" "/proc/${left##*.}/cmdline" && drop_groups "$left"
    done
    taken=$state/taken.$$
    echo "$run $who" >"$state/holder"
    if [ -e "$state/unused" ]; then # somebody has use for ours again; others' are removed by who is the last
        grep -vxF "$tools" "$state/unused" >"$state/unused.$$"
        mv "$state/unused.$$" "$state/unused"
        [ -s "$state/unused" ] || rm -f "$state/unused"
    fi
    for left in "${work%/*}"/sojourn-*/boot; do # of a bed whose host was booted again
        [ -O "$left" ] && [ ! -L "${left%/boot}" ] && ! cmp -s "$left" "$boot" && rm -rf "${left%/boot}"
    done
fi
# Below sudo an emulator reads its configuration, which is lent into this folder, as the user who called it.
mkdir -m 711 "$work" && cat "$boot" >"$work/boot" || exit 1
: >"$taken"
held= keeps=
for host in "$@"; do
    setpriv --pdeathsig KILL -- unshare --net sleep 2147483647 </dev/null >/dev/null 9>&- &
    until read -r name <"/proc/$!/comm" && [ "$name" = sleep ]; do
        sleep 0.01
        kill -0 $! || exit 1
    done 2>/dev/null
    started $!
    held="$held $!-$ticks"
done
exec 8<"$taken"
where=
[ "$grouped" != cgroups ] || where=" $(make_groups "$@")"
echo "ready $$$held$where"

while [ -z "$stop" ] && line=$(timeout {lease} sh -c 'IFS= read -r line && echo "$line"'); do
    case $line in
        look) echo here $(links) ;;
        latency\\ *) # asked for as long as its file is open, so it ends with us, however we end
            setpriv --pdeathsig KILL -- sh -c 'exec 7>/dev/cpu_dma_latency && printf %08x "$0" >&7 &&
                exec sleep 2147483647' "${line#* }" </dev/null >/dev/null 2>&1 9>&- 8>&- &
            started $!
            keeps=$!-$ticks ;;
        signal\\ *) (
            number=${line##* } name=${line#* }
            for try in 1 2 3 4 5 6 7 8 9 10; do [ -s "$work/pid.$number" ] && break; sleep 0.05; done
            kill -"${name%% *}" "$(cat "$work/pid.$number")"
        ) 2>/dev/null 9>&- 8>&- & ;; # it may wait longer than we live
    esac
done

flock -w 20 8 # whoever is taking interfaces now takes them to the end; nobody begins to
end_programs
drop_groups "$state/cgroup.$$"
if [ -n "$keeps" ]; then
    if is_same "$keeps"; then kill -KILL "${keeps%-*}"; wait "${keeps%-*}"; fi
    echo "back - idle_latency $(value_of idle_latency -)"
fi
give_back
end_keepers
for try in 1 2 3; do # what the kernel brought here when its namespace went
    [ -e "$taken" ] || break
    sleep 0.3
    give_back
done
drop_groups "$state/cgroup.$$"
rm -rf "$work"
# The instrument helps to give back: whoever is the last to do so removes what is written down as unused.
[ "$keep" = keep ] || echo "$tools" >>"$state/unused"
if [ -e "$state/unused" ] && ! [ -s "$(ls -S "$state"/taken.* 2>/dev/null | head -n 1)" ]; then
    while read -r one; do rm -rf "$one"; done <"$state/unused"
    rm -f "$state/unused"; rmdir {instruments}
fi 2>/dev/null
[ -z "$locked" ] || rm -f "$state/holder"
echo gone
""".replace("{process}", PROCESS)
    .replace("{restore}", RESTORE)
    .replace("{macs}", BED_MACS)
    .replace("{state}", STATE)
    .replace("{lease}", str(LEASE_SECONDS))
    .replace("{beside}", BESIDE)
    .replace("{instruments}", INSTRUMENTS)
)

# Each script below is given a namespace as a process in it, PID-TICKS.

# $1: the keeper; $2: the folder of the instrument; on each line: namespace, interface, its name, MAC and MTU in the
# bed, then its present MAC, MTU and state. The present values are written to a file before anything is changed. A
# keeper that cleans up holds the lock until its namespaces are gone.
TAKE = """
PATH=$PATH:/usr/sbin:/sbin:$2
{process}
taken={state}/taken.$1
exec 8<"$taken" && flock 8 || exit 1
while read -r ns old new new_mac new_mtu mac mtu up; do
    require_same "$ns"
    ethtool -k "$old" 2>/dev/null | sed -n 's/^[[:space:]][[:space:]]*//p
        s/^generic-receive-offload/gro/p; s/^generic-segmentation-offload/gso/p' >"{state}/features.$old"
    ip -d link show dev "$old" | sed -n 's/.* gso_max_segs \\([0-9]*\\).*/\\1/p' >"{state}/segments.$old"
    echo "$ns $old $new $mac $mtu $up" >>"$taken"
    there=${ns%-*}
    ip link set dev "$old" down && ip link set dev "$old" netns "$there" && nsenter --net="/proc/$there/ns/net" -- \\
        ip link set dev "$old" name "$new" address "$new_mac" mtu "$new_mtu" || exit 1
done
""".replace("{process}", PROCESS).replace("{state}", STATE)

# Namespaces as arguments; on standard input the lines of `ip -batch`, which have their PIDs.
LAY = """
PATH=$PATH:/usr/sbin:/sbin
{process}
for ns; do require_same "$ns"; done
exec ip -batch -
""".replace("{process}", PROCESS)

# $1: the folder of the bed; $2: the program's number; $3: the namespace, or "-"; $4: the folder of the instrument;
# $5: the cgroup, or "-"; then the arguments of `env`, the command last. The PID is written before the program runs,
# its processor time after it has ended; then the PID is removed, which may be another program's soon: no signal that
# comes late reaches that.
ENTER = """
PATH=$PATH:/usr/sbin:/sbin:$4; export PATH
{process}
work=$1 number=$2 ns=$3 group=$5; shift 5
[ "$group" = - ] || echo $$ >"$group/cgroup.procs" || exit 1
set -- sh -c 'echo $$ >"$0"; exec env "$@"' "$work/pid.$number" "$@"
[ "$ns" = - ] || { require_same "$ns"; set -- nsenter --net="/proc/${ns%-*}/ns/net" -- "$@"; }
"$@"
status=$?
times >"$work/times.$number" 2>/dev/null
rm -f "$work/pid.$number"
exit $status
""".replace("{process}", PROCESS)

# $1: the namespace; $2: the folder of the instrument; then the command.
INSIDE = """
PATH=$PATH:/usr/sbin:/sbin:$2; export PATH
{process}
ns=$1; shift 2
require_same "$ns"
exec nsenter --net="/proc/${ns%-*}/ns/net" -- "$@"
""".replace("{process}", PROCESS)

# $1: the folder of the instrument; $2: its SHA-256. INSTALLED prints "have" if it is there; INSTALL reads it
# compressed.
INSTALLED = """
f=$1/sojourn-instrument
[ -O "$f" ] && [ -e "$1/ethtool" ] && [ "$(sha256sum <"$f")" = "$2  -" ] && echo have
true
"""
INSTALL = """
umask 022
mkdir -p "$1" && gzip -dc >"$1/new" && [ "$(sha256sum <"$1/new")" = "$2  -" ] ||
    { rm -f "$1/new"; echo "the instrument did not come as it was sent: is there room in $1?" >&2; exit 1; }
chmod 755 "$1/new" && mv -f "$1/new" "$1/sojourn-instrument" && ln -sf sojourn-instrument "$1/ethtool"
"""

# $1: a folder. SIZES prints the size of every file. FETCH and SUMS read offset, length and name of a part on each line;
# FETCH prints the parts one after another, SUMS their SHA-256.
SIZES = 'cd "$1" && export LC_ALL=C && find . -type f -exec wc -c {} +'
FETCH = """
cd "$1" || exit 1
while read -r from length name; do tail -c "+$((from + 1))" "$name" | head -c "$length"; done
"""
SUMS = """
cd "$1" || exit 1
while read -r from length name; do tail -c "+$((from + 1))" "$name" | head -c "$length" | sha256sum; done
"""

# $1: the folder of the bed; $2: the numbers of programs; then files. Prints the time, the first file, the time, the
# other files, and the processor time of the programs' threads, with a line of READ_NEXT between.
READ_NEXT = "== next"
READ = """
work=$1 numbers=$2; shift 2
date +%s%N; echo "{next}"; cat "$1"; echo "{next}"; date +%s%N
shift
for file; do echo "{next}"; cat "$file"; done
echo "{next}"
for number in $numbers; do
    cat "/proc/$(cat "$work/pid.$number")"/task/*/schedstat
done 2>/dev/null | cut -d ' ' -f 1
""".replace("{next}", READ_NEXT)

# $1: the folder of the bed. Prints processor time in clock ticks: of the machine with steal, and of the bed's programs;
# ended programs have written theirs to files.
USAGE = """
head -n 1 /proc/stat
getconf CLK_TCK
nproc
cat "$1"/times.* 2>/dev/null | grep -v '^$' | sed -n 'n;s/^/ended /p'
for file in "$1"/pid.*; do
    [ -e "$1/times.${file##*.}" ] || { read -r pid <"$file" && sed 's/^.*) /live /' "/proc/$pid/stat"; }
done 2>/dev/null
cat /proc/net/softnet_stat | sed 's/^/softnet /'
true
"""
