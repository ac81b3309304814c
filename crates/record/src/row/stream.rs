//! Rows of streams. [`crate::schema`] tells what each field means.

use sojourn_time::{Nanos, Source, Stamp, Time};

/// One frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Send {
    pub flow: u16,
    pub seq: u64,
    pub intended: Time,
    pub send_call: Time,
    pub scheduled: Option<Time>,
    pub departure: Stamp,
}

/// One frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Arrival {
    pub flow: u16,
    pub port: u16,
    pub node: u8,
    pub seq: u64,
    pub intended: Time,
    pub sent: Time,
    pub arrival: Stamp,
    pub receive_call: Time,
    pub is_duplicate: bool,
    pub is_reordered: bool,
    pub is_late: bool,
    pub is_corrupted: bool,
}

/// One end of a flow in a block.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Stream {
    pub device: String,
    pub round: i32,
    pub visit: i32,
    pub cell: i32,
    pub purpose: String,
    pub role: Role,
    pub flow: u16,
    pub port: u16,
    pub via: &'static str,
    pub engine: String,
    pub schedule: String,
    pub frame_bytes: usize,
    pub payload_bytes: usize,
    pub rate_pps: f64,
    pub intended_pps: f64,
    pub achieved_pps: f64,
    /// A² and its p-value.
    pub anderson_darling: Option<(f64, f64)>,
    pub started: Time,
    pub ended: Time,
    pub started_raw: Time,
    pub ended_raw: Time,
    pub first: Option<Time>,
    pub last: Option<Time>,
    pub counts: StreamCounts,
    pub cpu: Option<u32>,
    pub cpu_time: Nanos,
    pub fifo: bool,
    pub wait: &'static str,
    pub clock_id: u64,
}

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was sent here.
    Send,
    /// It arrived here.
    Receive,
    /// Answers to it arrived here.
    Answer,
}

impl Role {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Answer => "answer",
        }
    }
}

/// What became of the frames of a flow. At its sender `asked = sent + refused + unsent`; at its receiver
/// `sent = first + corrupted + own_drops + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct StreamCounts {
    pub asked: u64,
    pub sent: u64,
    pub refused: u64,
    pub unsent: u64,
    pub first: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub late: u64,
    pub corrupted: u64,
    pub foreign: u64,
    pub own_drops: u64,
    pub lost: u64,
}

/// One bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Bin {
    pub flow: u16,
    pub port: u16,
    pub role: Role,
    pub quantity: &'static str,
    pub unit: &'static str,
    pub low: i64,
    pub high: i64,
    pub count: u64,
}

/// One exchange of times with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Exchange {
    pub peer: String,
    pub clock_id: u64,
    pub phase: &'static str,
    pub number: u64,
    pub t1: Time,
    pub t2: Time,
    pub t3: Time,
    pub t4: Time,
    pub local_source: Source,
    pub remote_source: Source,
}

/// One segment of the line between two clocks.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct ClockLine {
    pub peer: String,
    pub clock_id: u64,
    pub is_shared: bool,
    pub from: Time,
    pub to: Time,
    pub reference: Time,
    pub offset_ns: f64,
    pub skew_ppb: f64,
    pub bound_ns: f64,
    pub error95_ns: f64,
    pub skew_bound_ppb: f64,
    pub skew95_ppb: f64,
    pub exchanges: u64,
}

/// All rows of a block at one end.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is a table of the schema")]
pub struct StreamBlock {
    pub block: u32,
    pub sends: Vec<Send>,
    pub arrivals: Vec<Arrival>,
    pub streams: Vec<Stream>,
    pub histograms: Vec<Bin>,
    pub exchanges: Vec<Exchange>,
    pub clock_lines: Vec<ClockLine>,
}
