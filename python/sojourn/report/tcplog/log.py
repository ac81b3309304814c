"""The flows of a log: identity, packet accounting, gaps, and the samples of those that are drawn.

The only file here that knows the records' columns. A log of hundreds of megabytes is read column by column, and only
what is drawn stays in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.errors import RequestError
from sojourn.records import read_table
from sojourn.records.log_ends import read_log_end

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

KEYS = ["who", "part", "block", "flow"]
"""These columns together identify a flow; in a log of the command line the flow's number is enough."""

DRAWN = (
    "time_ns", "snd_cwnd", "snd_ssthresh", "mss_bytes", "packets_out", "sacked_out", "lost_out", "retrans_out",
    "in_flight_bytes", "snd_wnd_bytes", "srtt_us", "rtt_last_us", "rtt_min_us", "delivery_rate_bps", "pacing_rate_bps",
    "ca_state", "total_retrans", "total_rto", "rcv_wnd_bytes", "rcv_queued_bytes", "received_bytes", "sent_bytes",
)  # fmt: skip
"""The columns of tcp_samples that a figure shows."""

MOST_FLOWS = 6


@dataclass(frozen=True)
class Flow:
    """One connection, as one of its ends recorded it."""

    key: tuple[str, int, int, int]
    local: str
    remote: str
    algorithm: str
    process: int | None
    command: str | None
    is_wanted: bool
    """Whether the filters admitted it."""
    dispositions: dict[str, int] = field(default_factory=dict)
    """Packets of both directions by disposition; "seen" is their sum."""

    @property
    def number(self) -> int:
        """The flow's number in the log."""
        return self.key[3]


@dataclass(frozen=True)
class Log:
    """A log: its header, its footer if it has one, its flows with the most packets first, its gaps."""

    folder: Path
    records: Path
    header: dict[str, Any]
    footer: dict[str, Any]
    flows: tuple[Flow, ...]
    filtered: int
    """Flows that the filters excluded, of which nothing was logged; they are not in `flows`."""
    gaps: pl.DataFrame
    """cpu, missing, after_ns, before_ns; with who, part and block."""

    @classmethod
    def read(cls, folder: Path) -> Log:
        """Read the log in a folder; raises RequestError where there is none."""
        records = _records_of(folder)
        flows = read_table(records, "tcp_flows").frame
        account = read_table(records, "tcp_account").frame
        if flows.is_empty():
            raise RequestError(f"{folder}: no flow was seen: was there any TCP, and did --port or --prefix exclude it?")
        every = _flows(flows, account)
        logged = tuple(flow for flow in every if flow.is_wanted or flow.dispositions.get("logged"))
        return cls(
            folder,
            records,
            read_log_end(folder / "header.json"),
            read_log_end(folder / "footer.json"),  # a log whose writer was killed has none
            logged,
            len(every) - len(logged),
            read_table(records, "tcp_gaps").frame,
        )

    def chosen(self, numbers: Collection[int]) -> tuple[Flow, ...]:
        """Return the flows with these numbers; without numbers, the logged flows with the most packets."""
        if not numbers:
            logged = [flow for flow in self.flows if flow.dispositions.get("logged", 1)]
            return tuple(logged[:MOST_FLOWS])
        known = {flow.number for flow in self.flows}
        for number in numbers:
            if number not in known:
                raise RequestError(f"--flow {number}: {self.folder} has {_span(known)}{_kept_out(self.filtered)}")
        return tuple(flow for number in numbers for flow in self.flows if flow.number == number)

    def samples(self, flows: Collection[Flow]) -> dict[tuple[str, int, int, int], pl.DataFrame]:
        """Return the samples of these flows, each flow's in time order."""
        wanted = pl.DataFrame([flow.key for flow in flows], schema=_KEY_TYPES, orient="row")
        table = read_table(self.records, "tcp_samples", columns=("block", "flow", *DRAWN)).frame
        rows = table.join(wanted, on=KEYS, how="semi")
        parted = rows.partition_by(KEYS, as_dict=True)
        empty = rows.clear()
        return {flow.key: parted.get(flow.key, empty).sort("time_ns", maintain_order=True) for flow in flows}

    def gaps_of(self, flow: Flow) -> pl.DataFrame:
        """Return the gaps of the part of the log that has the flow: samples of any flow may be missing in them."""
        who, part, block, _ = flow.key
        return self.gaps.filter(pl.col("who") == who, pl.col("part") == part, pl.col("block") == block)


_KEY_TYPES = {"who": pl.String, "part": pl.Int32, "block": pl.Int32, "flow": pl.Int32}


def _records_of(folder: Path) -> Path:
    if not folder.is_dir():
        raise RequestError(f"{folder}: there is no such log: `sojourn tcplog run --out {folder}` would make one")
    for records in (folder / "records", folder):
        if any(records.glob("tcp_flows-*.arrow")):
            return records
    if any(folder.glob("spool-*")):
        recover = f"if it was killed: `sojourn tcplog recover {folder}`"
        raise RequestError(f"{folder}: its log is not converted to tables yet: wait until it has ended; {recover}")
    raise RequestError(f"{folder}: no log of tcplog is here: there is no records/tcp_flows-*.arrow")


def _flows(flows: pl.DataFrame, account: pl.DataFrame) -> tuple[Flow, ...]:
    dispositions: dict[tuple[Any, ...], dict[str, int]] = {}
    own = account.drop_nulls("flow").group_by(*KEYS, "disposition").agg(pl.col("packets").sum())
    for *key, disposition, packets in own.select(*KEYS, "disposition", "packets").iter_rows():
        dispositions.setdefault(tuple(key), {})[disposition] = packets
    found = [_flow(row, dispositions) for row in flows.iter_rows(named=True)]
    return tuple(sorted(found, key=lambda flow: (-flow.dispositions.get("seen", 0), flow.key)))


def _flow(row: dict[str, Any], dispositions: dict[tuple[Any, ...], dict[str, int]]) -> Flow:
    key = (row["who"], row["part"], row["block"], row["flow"])
    return Flow(
        key,
        _place(row["local_address"], row["local_port"]),
        _place(row["remote_address"], row["remote_port"]),
        row["algorithm"],
        row["process"],
        row["command"],
        row["wanted"],
        dispositions.get(key, {}),
    )


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _kept_out(filtered: int) -> str:
    return f"; {filtered} more {'was' if filtered == 1 else 'were'} kept out by filters" if filtered else ""


def _span(numbers: set[int]) -> str:
    """Return "flows 1 to 20", or a list of ranges where numbers are missing."""
    if not numbers:
        return "no flow that was logged"
    return f"flow{'s' * (len(numbers) != 1)} {_numbers(numbers)}"


def _numbers(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    if len(numbers) == high - low + 1:
        return f"{low} to {high}" if high > low else str(low)
    return ", ".join(map(str, sorted(numbers)[:8])) + (", …" if len(numbers) > 8 else "")
