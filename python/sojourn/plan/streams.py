"""The sections [stream], [trials] and [search], and the ends that a bed needs for them, from values already read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError
from sojourn.plan.key import ABSENT
from sojourn.plan.keys import TESTS
from sojourn.plan.rates import Rate
from sojourn.plan.types import SearchPlan, StreamPlan, TrialsPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.source import Table

STREAM_SIZE_KEYS = ("frame_bytes", "payload_bytes")
DEFAULT_SIZES = (64,)
"""User data that every engine can carry."""

DEFAULT_RATE = Rate("pps", Decimal(1000))


def read_stream(values: dict[str, Any], table: Table, name: str) -> StreamPlan:
    """[stream]: one size key, and either intervals or rates."""
    size_key = one_key(values, table, [f"stream.{key}" for key in STREAM_SIZE_KEYS]) or "stream.payload_bytes"
    rate_key = one_key(values, table, ["stream.interval", "stream.rate"]) or "stream.rate"
    del name
    plain = {
        key: values[f"stream.{key}"]
        for key in (
            *("kind", "engine", "schedule", "to", "senders", "receivers", "load", "load_via", "load_frame_bytes"),
            *("load_schedule", "request_payload_bytes", "vlan", "pcp", "dscp", "pipe", "marks"),
        )
    }
    return StreamPlan(
        **plain,
        size_key=size_key.split(".")[1],  # type: ignore[arg-type]
        sizes=given_or(values[size_key], DEFAULT_SIZES),
        rate_key=rate_key.split(".")[1],  # type: ignore[arg-type]
        rates=given_or(values[rate_key], (DEFAULT_RATE,)),
        late_after_ns=values["stream.late_after"],
    )


def read_trials(values: dict[str, Any]) -> TrialsPlan:
    """[trials]."""
    plain = {
        key: values[f"trials.{key}"] for key in ("rounds", "count_at_most", "probes", "seed", "a_a", "qualify", "keep")
    }
    times = {f"{key}_ns": values[f"trials.{key}"] for key in ("duration", "settle", "at_most")}
    return TrialsPlan(**plain, **times)


def read_search(values: dict[str, Any]) -> SearchPlan:
    """[search]; without tests, all that the suite has."""
    plain = (
        *("algorithm", "goals", "width", "exceed_ratio", "max_rate", "repetitions", "verify_loss"),
        *("latency_repetitions", "loss_step", "burst_repetitions", "most_addresses"),
    )
    times = ("initial_duration", "duration", "duration_sum", "latency_duration", "burst", "at_most")
    return SearchPlan(
        tests=given_or(values["search.tests"], TESTS.get(values["study.method"], ())),
        **{key: values[f"search.{key}"] for key in plain},
        **{f"{key}_ns": values[f"search.{key}"] for key in times},
    )


def ends(values: dict[str, Any], stream: StreamPlan) -> dict[str, Any]:
    """Ports and decoys as asked, else as many as the study needs; the shaper's rate in bits."""
    needed_near, needed_far, decoy = needs(stream)
    near, far, asked = values["bed.near"], values["bed.far"], values["bed.decoy"]
    rate = values["bed.rate"]
    return {
        "near": needed_near if near is None else near,
        "far": needed_far if far is None else far,
        "decoy": decoy if asked is None else asked,
        "rate_bps": None if rate is None else int(rate.value),
    }


def needs(stream: StreamPlan) -> tuple[int, int, bool]:
    """Near ports, far ports and whether decoys: a load through the device runs between a pair of its own."""
    loaded = any(stream.load)
    through = 1 if loaded and "through" in stream.load_via else 0
    near = 1 if stream.marks else max(stream.senders)
    return near + through, 1 + max(stream.receivers) + through, loaded and "beside" in stream.load_via


def one_key(values: dict[str, Any], table: Table, keys: Sequence[str]) -> str | None:
    """Which of these keys was given; two of them exclude each other."""
    asked = [key for key in keys if values[key] is not ABSENT]
    if len(asked) > 1:
        raise RequestError(
            f"{table[asked[1]].where}: {asked[1]} beside {asked[0]}: expected one of {' and '.join(keys)}"
        )
    return asked[0] if asked else None


def given_or(value: Any, default: Any) -> Any:
    """The value, where there is one."""
    return default if value is ABSENT else value
