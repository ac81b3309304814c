"""Shell scripts that read and set the settings of ports and of a host, and record the old values before setting them.

For real hosts; bed/keeper.py restores with the same functions. The names of settings are those of
sojourn.plan.settings; one of them may have several values, such as one for each interrupt.
"""

from __future__ import annotations

STATE = "/run/sojourn"
"""The folder of root on each host: the lock, its holder, the taken interfaces, and the old values of settings."""

# The kernel gives the PID of a process that has ended to another one, and the inode of a namespace that is gone to the
# next: a process is known by its PID and its start time in clock ticks, a namespace by a process that is in it.
PROCESS = """
started() { # sets `ticks` to the start time of a process; empty without one
    ticks=
    read -r ticks <"/proc/$1/stat" && set -- ${ticks##*) } && ticks=${20}
} 2>/dev/null
is_same() { started "${1%-*}"; [ "$1" = "${1%-*}-$ticks" ]; } # $1: PID-TICKS
require_same() { is_same "$1" || { echo "the process that held the network namespace has ended" >&2; exit 1; }; }
"""
"""Functions that recognise a process, given as PID-TICKS."""

FUNCTIONS = r"""
irqs_of() { # the numbers of an interface's interrupts
    for irq in $(in_sysfs sh -c 'cd "/sys/class/net/$0/device" || exit
            case $(readlink subsystem) in */virtio) cd -P .. ;; esac
            ls msi_irqs 2>/dev/null || cat irq' "$1" 2>/dev/null); do
        grep -qs "^ *$irq:" /proc/interrupts && echo "$irq"
    done
}

values_of() { # $1 a setting, $2 the interface or -: the names of its values
    case $1 in
        irq_cpus) irqs_of "$2" | sed 's/^/irq-/' ;;
        governor) for file in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
            [ -e "$file" ] && file=${file#/sys/devices/system/cpu/cpu} && echo "governor-${file%%/*}"
        done ;;
        *) echo "$1" ;;
    esac
}

value_of() { # $1 the name of a value, $2 the interface or -; says nothing where there is none
    case $1 in
        adaptive_rx) in_port ethtool -c "$2" | sed -n 's/^Adaptive RX: \(o[nf]*\) .*/\1/p' ;;
        adaptive_tx) in_port ethtool -c "$2" | sed -n 's/^Adaptive RX: .* TX: \(o[nf]*\)$/\1/p' ;;
        rx_ring) in_port ethtool -g "$2" | sed -n '/^Current/,$s/^RX:[[:space:]]*\([0-9][0-9]*\)$/\1/p' ;;
        tx_ring) in_port ethtool -g "$2" | sed -n '/^Current/,$s/^TX:[[:space:]]*\([0-9][0-9]*\)$/\1/p' ;;
        rx_*|tx_*) in_port ethtool -c "$2" | sed -n "s/^${1%_*}-${1#*_}:[[:space:]]*\([0-9][0-9]*\)$/\1/p" ;;
        napi_*|gro_*) in_sysfs cat "/sys/class/net/$2/$1" ;;
        irq-*) cat "/proc/irq/${1#irq-}/smp_affinity_list" ;;
        busy_*) cat "/proc/sys/net/core/$1" ;;
        governor-*) cat "/sys/devices/system/cpu/cpu${1#governor-}/cpufreq/scaling_governor" ;;
        idle_latency) od -An -td4 -N4 /dev/cpu_dma_latency | tr -d ' ' ;;
    esac 2>/dev/null </dev/null
}

set_value() { # $1 the name of a value, $2 the interface or -, $3 the value
    case $1 in
        rx_ring|tx_ring) in_port ethtool -G "$2" "${1%_ring}" "$3" ;;
        adaptive_*|rx_*|tx_*) in_port ethtool -C "$2" "${1%_*}-${1#*_}" "$3" ;;
        napi_*|gro_*) in_sysfs sh -c 'echo "$0" >"$1"' "$3" "/sys/class/net/$2/$1" ;;
        irq-*) echo "$3" >"/proc/irq/${1#irq-}/smp_affinity_list" ;;
        busy_*) echo "$3" >"/proc/sys/net/core/$1" ;;
        governor-*) echo "$3" >"/sys/devices/system/cpu/cpu${1#governor-}/cpufreq/scaling_governor" ;;
    esac </dev/null
}
"""

HERE = """
in_port() { "$@"; }
in_sysfs() { "$@"; }
"""
"""For a shell in the network namespace of the interfaces."""

THERE = f"""{PROCESS}
in_port() {{
    if [ "$ns" = - ]; then "$@"; else is_same "$ns" && nsenter --net="/proc/${{ns%-*}}/ns/net" -- "$@"; fi
}}
in_sysfs() {{
    [ "$ns" != - ] || {{ "$@"; return; }}
    in_port unshare --mount --propagation unchanged sh -c \\
        'mount -n --make-rprivate / && mount -n -t sysfs sysfs /sys && exec "$@"' sh "$@"
}}
"""
"""For interfaces in the network namespace of process `ns`, PID-TICKS."""

_PATH = "PATH=$PATH:/usr/sbin:/sbin:$1\n"

# $1: the folder of the instrument; on each line: a setting, and an interface of the host or -. Prints those lines for
# which there is no value.
LACKING = f"""{_PATH}{FUNCTIONS}{HERE}
while read -r setting dev; do
    found=
    for name in $(values_of "$setting" "$dev"); do
        [ -z "$(value_of "$name" "$dev")" ] || found=yes
    done
    [ "$found" ] || echo "$setting $dev"
done
"""

# $1: the folder of the instrument; $2: the keeper; on each line: a namespace, an interface's name on the host and in
# the namespace, a setting, a value; for the host's own settings the first three are -. Prints for each value:
# interface, setting, name, old value, present value. A host's setting that another bed's host has recorded already is
# not recorded twice.
TUNE = f"""{_PATH}{FUNCTIONS}{THERE}
taken={STATE}/taken.$2 journal={STATE}/settings.$2
exec 8<"$taken" && flock 8 && [ -e "$taken" ] && kill -0 "$2" || exit 1
umask 077
while read -r ns old new setting value; do
    for name in $(values_of "$setting" "$new"); do
        now=$(value_of "$name" "$new")
        [ -n "$now" ] || continue
        had=
        [ "$old" != - ] || had=$(sed -n "s/^- - $name //p" {STATE}/settings.* 2>/dev/null | head -n 1)
        if [ -z "$had" ]; then
            had=$now
            echo "$new $old $name $had" >>"$journal"
        fi
        if [ "$now" != "$value" ] && ! said=$(set_value "$name" "$new" "$value" 2>&1); then
            echo "refused $new $name $now $(echo $said)"
            exit 0
        fi
        echo "set $new $setting $name $had $(value_of "$name" "$new")"
    done
done
"""

# $1: the folder of the instrument; on each line: a namespace, an interface's name there, the name of a value. Prints
# the value, or "gone".
NOW = f"""{_PATH}{FUNCTIONS}{THERE}
while read -r ns dev name; do
    now=$(value_of "$name" "$dev")
    echo "${{now:-gone}}"
done
"""

RESTORE = f"""{FUNCTIONS}{HERE}
restore() {{ # what the journal of settings says, the last first; says what is now
    [ -e "$journal" ] || return 0
    tac "$journal" | while read -r new old name had; do
        [ "$old" = - ] || ip link show dev "$old" >/dev/null 2>&1 || continue
        case $name in irq-*) irqs_of "$old" | grep -qx "${{name#irq-}}" || continue ;; esac
        [ "$(value_of "$name" "$old")" = "$had" ] || set_value "$name" "$old" "$had" >/dev/null 2>&1
        echo "back $new $name $(value_of "$name" "$old")"
    done
    rm -f "$journal"
}}
"""
"""A part of the keeper, which sets `journal` to the file."""
