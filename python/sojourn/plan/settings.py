"""Settings of ports and of hosts that a run changes: [settings]. Without a key, a setting is not changed.

Each old value is read and recorded, the new one is set and read back, and the old one is restored at the end. A missing
setting is refused. A name here may be in `variance.factors` too: it is set on some beds, and not changed on the others.
Touches no machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sojourn.plan.section import key, keys_of, section
from sojourn.plan.source import refuse
from sojourn.plan.values import Reader, duration, flag, matching, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

Scope = Literal["port", "host"]
SECOND_NS = 1_000_000_000
MICRO_NS = 1_000


def microseconds(most_ns: int) -> Reader:
    """Return the reader of a time in whole microseconds, with its unit."""
    inner = duration(0, most_ns)

    def read(value: Any) -> int | None:
        nanos = inner.read(value)
        return nanos if nanos is not None and nanos % MICRO_NS == 0 else None

    return Reader(read, f"{inner.expected}, in whole microseconds", inner.write)


def processors() -> Reader:
    """Return the reader of a list of processors, as the kernel writes it; a number or a list of numbers is allowed."""
    inner = matching(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", 'processors, such as "2" or "0-1,4"')
    return replace(inner, read=lambda value: inner.read(_as_text(value)))


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(str(_as_text(one)) for one in value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


@section
class SettingsPlan:
    """Settings of every test port and every host of the bed; a missing key leaves the setting unchanged."""

    rx_usecs: int | None = key(whole(0, 100_000), None, "microseconds that an interrupt waits after a received frame")
    rx_frames: int | None = key(whole(0, 65_535), None, "received frames that cause an interrupt")
    tx_usecs: int | None = key(whole(0, 100_000), None, "microseconds that an interrupt waits after a sent frame")
    tx_frames: int | None = key(whole(0, 65_535), None, "sent frames that cause an interrupt")
    adaptive_rx: bool | None = key(flag(), None, "whether the driver chooses rx_usecs and rx_frames by the load")
    adaptive_tx: bool | None = key(flag(), None, "whether the driver chooses tx_usecs and tx_frames by the load")
    rx_ring: int | None = key(whole(1, 65_536), None, "descriptors of the receive ring")
    tx_ring: int | None = key(whole(1, 65_536), None, "descriptors of the transmit ring")
    irq_cpus: str | None = key(
        processors(),
        None,
        "processors that may handle the interrupts of the test ports",
    )
    napi_defer_hard_irqs: int | None = key(
        whole(0, 10_000), None, "polls without a frame before a port's interrupt is enabled again"
    )
    gro_flush_timeout_ns: int | None = key(
        duration(0, SECOND_NS), None, "time between such polls, and that GRO holds a frame"
    )
    busy_poll_ns: int | None = key(
        microseconds(SECOND_NS), None, "time that poll and select poll a port for (net.core.busy_poll)"
    )
    busy_read_ns: int | None = key(
        microseconds(SECOND_NS), None, "time that a read of a socket polls a port for (net.core.busy_read)"
    )
    governor: str | None = key(
        matching(r"[a-z_]{1,15}", 'a governor of cpufreq, such as "performance"'), None, "of the processors' frequency"
    )
    idle_latency_ns: int | None = key(
        microseconds(SECOND_NS), None, "the longest that an idle processor may take to wake; 0us: it polls"
    )


_NOTHING: dict[str, Any] = {}
AS_FOUND = SettingsPlan(**_NOTHING)
"""The section that sets nothing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The scope of a setting, its description, and how to get it if it is missing."""

    scope: Scope
    what: str
    fix: str


_NIC = "take ports of a NIC whose driver has it"
_COALESCING = Setting("port", "interrupt coalescing of that kind (ethtool -c)", _NIC)
_RING = Setting("port", "ring sizes (ethtool -g)", _NIC)
_NAPI = Setting("port", "a setting of that name in /sys/class/net", "a kernel from 5.15 on has it")
_BUSY = Setting("host", "busy polling (net.core)", "take a kernel with CONFIG_NET_RX_BUSY_POLL, outside of a container")
SETTINGS: dict[str, Setting] = {
    **dict.fromkeys(("adaptive_rx", "adaptive_tx", "rx_usecs", "rx_frames", "tx_usecs", "tx_frames"), _COALESCING),
    **dict.fromkeys(("rx_ring", "tx_ring"), _RING),
    **dict.fromkeys(("napi_defer_hard_irqs", "gro_flush_timeout"), _NAPI),
    "irq_cpus": Setting("port", "interrupts of their own (msi_irqs in /sys)", _NIC),
    **dict.fromkeys(("busy_poll", "busy_read"), _BUSY),
    "governor": Setting("host", "governor of cpufreq", "a virtual machine has none; ask its host's owner"),
    "idle_latency": Setting("host", "idle states that can be limited (/dev/cpu_dma_latency)", "run as root"),
}
"""By the plan's key, in the order of setting: adaptive coalescing comes before values that it would refuse."""

OF_VETH = ("napi_defer_hard_irqs", "gro_flush_timeout")
"""The settings of ports that a veth has."""


def asked(settings: SettingsPlan) -> dict[str, str]:
    """Return the configured settings in the kernel's notation, in the order of setting."""
    found: dict[str, str] = {}
    for name in SETTINGS:
        declared = keys_of(SettingsPlan)[name]
        value = getattr(settings, declared.field)
        if value is not None:
            found[name] = _word(name, value)
    return found


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value // MICRO_NS) if name in {"busy_poll", "busy_read", "idle_latency"} else str(value)


def shown(name: str, word: str) -> str:
    """Return a value for people, with its unit if it has one."""
    units = {"gro_flush_timeout": "ns", "rx_usecs": "µs", "tx_usecs": "µs"}
    unit = units.get(name, "µs" if name in {"busy_poll", "busy_read", "idle_latency"} else "")
    return f"{word} {unit}" if unit and word.isdigit() else word


def switched(settings: SettingsPlan, switches: Mapping[str, bool]) -> dict[str, str]:
    """Return the settings of a bed on which some of them are switched off."""
    return {name: word for name, word in asked(settings).items() if switches.get(name, True)}


def check_settings(plan: Plan, given: Lookup) -> None:
    """Refuse settings that no port of the bed has, and factors whose setting has no value."""
    declared = {name: keys_of(SettingsPlan)[name] for name in SETTINGS}
    values = {name: getattr(plan.settings, one.field) for name, one in declared.items()}
    for name, value in values.items():
        if value is None:
            continue
        own, dotted = SETTINGS[name], f"settings.{name}"
        asked_for = given(dotted, declared[name].key.reader.write(value))
        if plan.bed.simulated:
            wanted = "no such key: a simulated bed has no port and no processor to set"
            raise refuse(asked_for, dotted, wanted)
        if plan.bed.backend != "ssh" and own.scope == "port" and name not in OF_VETH:
            wanted = f"no such key: this bed's ports are veths, which have no {own.what}; real ones may: --bed bed.toml"
            raise refuse(asked_for, dotted, wanted)
    factors = getattr(plan.sections.get("variance"), "factors", ())
    for name in factors:
        if name in SETTINGS and values[name] is None:
            wanted = f"a value of settings.{name}, which is set on half of the beds"
            raise refuse(given("variance.factors", list(factors)), "variance.factors", wanted)


def is_empty(settings: SettingsPlan) -> bool:
    """Return whether nothing is set."""
    return settings == AS_FOUND
