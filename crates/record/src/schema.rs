//! The tables, column by column. The one place where their names, types, units and clocks are said.

use serde::Serialize;

use crate::Finding;

mod packet;
mod stream;
mod tcp;
mod tcp_readings;
mod tcp_slices;

pub use packet::PACKETS;
pub use stream::{ARRIVALS, CLOCK_LINES, EXCHANGES, HISTOGRAMS, SENDS, STREAM_TABLES, STREAMS};
pub use tcp::{TCP_ACCOUNT, TCP_FLOWS, TCP_GAPS, TCP_PRIVATE, TCP_SAMPLES, TCP_TABLES};
pub use tcp_readings::{BEFORE_INFO as READINGS_BEFORE_INFO, INFO as READINGS_INFO, TCP_CAPTURES, TCP_READINGS};
pub use tcp_slices::{TCP_COSTS, TCP_SLICE_TABLES, TCP_SLICES};

/// The version of all tables. A change that old readers cannot read raises it.
pub const VERSION: &str = "1";

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name: files are called `<name>-<part>.arrow`, or `<name>-<who>-<part>.arrow` where several write it at once.
    pub name: &'static str,
    /// Whether the files carry the name of who wrote them.
    pub is_named: bool,
    /// Its columns, in order.
    pub fields: &'static [Field],
}

/// A column.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Field {
    /// Its name, ending in its unit where it has one.
    pub name: &'static str,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether values may be missing.
    pub nullable: bool,
    /// Its unit; "1" for counts, names and truth values.
    pub unit: &'static str,
    /// For instants: the clock that they are on.
    pub clock: Option<&'static str>,
    /// For instants: the column that tells the timestamp source of each, or the one source of all of them.
    pub source: Option<&'static str>,
    /// The version of the tables that it came with: files of an earlier one lack it.
    pub since: u32,
    /// What it holds.
    pub doc: &'static str,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// True or false.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// 64-bit floating-point number.
    Float64,
    /// Text.
    Utf8,
    /// Text from a small set, dictionary-encoded.
    Utf8Dictionary,
    /// Bytes.
    Binary,
}

/// `CLOCK_TAI`.
pub const TAI: &str = "TAI";
/// `CLOCK_MONOTONIC_RAW`.
pub const MONOTONIC_RAW: &str = "MONOTONIC_RAW";
/// Simulated time.
pub const SIMULATED: &str = "simulated";

/// One row for each probe.
pub const PROBES: Table = Table {
    name: "probes",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("seq", Kind::Int32, "Its number in the block, from 0."),
        Field::new("warmup", Kind::Bool, "Whether it only warmed the path up."),
        Field::time("intended_ns", TAI, "plan", "When the schedule wanted it to leave."),
        Field::time("send_call_ns", TAI, "user", "When the program called to send it."),
        Field::time("departure_ns", TAI, "departure_source", "When it left, by the best stamp there is."),
        Field::new(
            "departure_source",
            Kind::Utf8Dictionary,
            "Who took departure_ns: hardware, kernel, user, simulated.",
        ),
        Field::time("arrival_ns", TAI, "arrival_source", "When its first reply arrived, by the best stamp.").or_null(),
        Field::new("arrival_source", Kind::Utf8Dictionary, "Who took arrival_ns.").or_null(),
        Field::time("receive_call_ns", TAI, "user", "When the program had the first reply in hand.").or_null(),
        Field::time(
            "responder_arrival_ns",
            TAI,
            "responder",
            "When the request reached the responder, by the best stamp that it has: it does not say which.",
        )
        .or_null(),
        Field::time("responder_departure_ns", TAI, "user", "When the responder was about to reply.").or_null(),
        Field::new("replies", Kind::Int32, "How many replies came; 0: lost."),
        Field::new("late", Kind::Bool, "Whether the first reply came after the timeout."),
        Field::new("reordered", Kind::Bool, "Whether a later probe's reply came first (RFC 4737)."),
    ],
};

/// One row for each block of probes.
pub const BLOCKS: Table = Table {
    name: "blocks",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "Its number."),
        Field::new("device", Kind::Utf8, "The device under test, by its name in the plan."),
        Field::new("round", Kind::Int32, "The round of the cell."),
        Field::new("visit", Kind::Int32, "0 on the way there, 1 on the mirrored way back."),
        Field::new("cell", Kind::Int32, "The cell of the plan's matrix."),
        Field::new("via", Kind::Utf8, "The backend: icmp, udp, packet, sim."),
        Field::new("kind", Kind::Utf8, "icmp, request-response or ping-pong."),
        Field::new("schedule", Kind::Utf8, "regular, poisson or as-answered."),
        Field::span("interval_ns", "The (mean) interval between intended departures."),
        Field::new("count", Kind::Int32, "How many probes were asked for, warm-up included."),
        Field::new("warmup", Kind::Int32, "How many of them, the first, warm the path up."),
        Field::new("seed", Kind::Int64, "The seed of the schedule."),
        Field::bytes("request_payload_bytes", "User data of a request."),
        Field::bytes("response_payload_bytes", "User data of a reply."),
        Field::bytes("request_frame_bytes", "Ethernet frame of a request, with FCS."),
        Field::bytes("response_frame_bytes", "Ethernet frame of a reply, with FCS."),
        Field::span("timeout_ns", "After which a reply is late."),
        Field::time("started_ns", TAI, "user", "When the block began."),
        Field::time("ended_ns", TAI, "user", "When the block ended."),
        Field::time(
            "started_raw_ns",
            MONOTONIC_RAW,
            "user",
            "When the block began, on the clock that is never stepped.",
        ),
        Field::time("ended_raw_ns", MONOTONIC_RAW, "user", "When the block ended, on the clock that is never stepped."),
        Field::span("clock_error_ns", "By how much at most the two clocks' readings are apart."),
        Field::count("sent", "Probes sent: received + lost."),
        Field::count("received", "Probes answered, late ones included."),
        Field::count("lost", "Probes never answered."),
        Field::count("late", "Probes answered after the timeout."),
        Field::count("duplicated", "Replies beyond the first of each probe."),
        Field::count("reordered", "First replies that a later probe's reply overtook (RFC 4737)."),
        Field::count("foreign", "Frames that were no reply to a probe of this block, damaged ones included."),
        Field::count("own_drops", "Frames that our own socket, ring or queue dropped."),
        Field::new("responder_kernel", Kind::Bool, "Whether the peer's kernel answers."),
        Field::new("wait", Kind::Utf8, "How the prober waits: spin, sleep-then-spin, sleep, simulated."),
        Field::new("cpu", Kind::Int32, "The CPU that the prober is pinned to.").or_null(),
        Field::new("fifo", Kind::Bool, "Whether the prober runs under SCHED_FIFO."),
    ],
};

/// One row for each frame that an independent capture saw.
pub const CAPTURES: Table = Table {
    name: "captures",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "The block during which it was seen."),
        Field::time("arrival_ns", TAI, "kernel", "When the capture saw it."),
        Field::bytes("frame_bytes", "Ethernet frame, with FCS."),
        Field::new("icmp_id", Kind::Int32, "ICMP identifier."),
        Field::new("icmp_seq", Kind::Int32, "ICMP sequence number."),
    ],
};

/// All tables.
pub const TABLES: [Table; 19] = [
    PROBES,
    BLOCKS,
    CAPTURES,
    SENDS,
    ARRIVALS,
    STREAMS,
    HISTOGRAMS,
    EXCHANGES,
    CLOCK_LINES,
    PACKETS,
    TCP_SAMPLES,
    TCP_PRIVATE,
    TCP_FLOWS,
    TCP_ACCOUNT,
    TCP_GAPS,
    TCP_SLICES,
    TCP_COSTS,
    TCP_READINGS,
    TCP_CAPTURES,
];

impl Field {
    const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, nullable: false, unit: "1", clock: None, source: None, since: 1, doc }
    }

    const fn time(name: &'static str, clock: &'static str, source: &'static str, doc: &'static str) -> Self {
        Self { unit: "ns", clock: Some(clock), source: Some(source), ..Self::new(name, Kind::Int64, doc) }
    }

    const fn span(name: &'static str, doc: &'static str) -> Self {
        Self { unit: "ns", ..Self::new(name, Kind::Int64, doc) }
    }

    const fn bytes(name: &'static str, doc: &'static str) -> Self {
        Self { unit: "bytes", ..Self::new(name, Kind::Int32, doc) }
    }

    const fn count(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Kind::Int64, doc)
    }

    const fn real(name: &'static str, unit: &'static str, doc: &'static str) -> Self {
        Self { unit, ..Self::new(name, Kind::Float64, doc) }
    }

    const fn or_null(self) -> Self {
        Self { nullable: true, ..self }
    }
}

/// Returns all tables and findings as JSON, for other languages to generate their side from.
pub fn to_json() -> serde_json::Value {
    let tables: serde_json::Map<_, _> =
        TABLES.iter().map(|table| (table.name.to_owned(), declaration(table))).collect();
    let findings: Vec<_> = Finding::ALL
        .iter()
        .map(|finding| {
            serde_json::json!({ "name": finding.name(), "severity": finding.severity(), "doc": finding.doc() })
        })
        .collect();
    serde_json::json!({ "version": VERSION, "tables": tables, "findings": findings })
}

fn declaration(table: &Table) -> serde_json::Value {
    serde_json::json!({ "version": VERSION, "named": table.is_named, "fields": table.fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_carries_unit_clock_and_source() {
        for table in TABLES {
            for field in table.fields {
                let ends_in_ns = field.name.ends_with("_ns");
                assert_eq!(ends_in_ns, field.unit == "ns", "{}.{}", table.name, field.name);
                assert_eq!(field.clock.is_some(), field.source.is_some(), "{}.{}", table.name, field.name);
                if let Some(source) = field.source {
                    let is_column = table.fields.iter().any(|other| other.name == source);
                    let is_fixed = ["plan", "user", "kernel", "responder"].contains(&source);
                    assert!(is_column || is_fixed, "{}.{}: {source}", table.name, field.name);
                }
                let spans = ["interval_ns", "timeout_ns", "clock_error_ns", "cpu_time_ns", "drawn_ns"];
                let is_span = spans.contains(&field.name) || field.kind == Kind::Float64;
                assert_eq!(ends_in_ns && !is_span, field.clock.is_some(), "{}.{}", table.name, field.name);
            }
        }
    }

    #[test]
    fn sizes_carry_their_unit() {
        for field in TABLES.iter().flat_map(|table| table.fields) {
            assert_eq!(field.name.ends_with("_bytes"), field.unit == "bytes", "{}", field.name);
        }
    }
}
