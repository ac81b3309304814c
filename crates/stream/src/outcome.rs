//! What arrived: packet by packet, and in total.

use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::count::{Received as Counts, Unexpected};
use crate::{Cell, Spread};

/// One received frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The index of the port.
    pub port: u16,
    /// The stream.
    pub flow: u16,
    /// The node that answered; 0: not an answer.
    pub node: u8,
    /// The sequence number.
    pub seq: u64,
    /// The intended departure, on the sender's clock.
    pub intended: Time,
    /// The sender's call to send, on the sender's clock.
    pub sent: Time,
    /// The RX timestamp.
    pub arrival: Stamp,
    /// When the program had received it.
    pub receive_call: Time,
    /// Whether the packet had arrived before.
    pub is_duplicate: bool,
    /// Whether a packet with a higher number had arrived before.
    pub is_reordered: bool,
    /// Whether its delay exceeded the limit.
    pub is_late: bool,
    /// Whether its payload was damaged.
    pub is_corrupted: bool,
}

impl Arrival {
    /// The filler of preallocated rows.
    pub(crate) const NONE: Self = Self {
        port: 0,
        flow: 0,
        node: 0,
        seq: 0,
        intended: Time(0),
        sent: Time(0),
        arrival: Stamp { at: Time(0), source: Source::User },
        receive_call: Time(0),
        is_duplicate: false,
        is_reordered: false,
        is_late: false,
        is_corrupted: false,
    };
}

/// How many packets of a stream were sent to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCount {
    /// The stream.
    pub flow: u16,
    /// The index of the port; `None`: each port.
    pub port: Option<usize>,
    /// The number of packets.
    pub sent: u64,
    /// The highest sequence number plus one, if packets that were refused have numbers too; `None`: equal to `sent`.
    pub next: Option<u64>,
}

/// The packets of one stream received at one port.
#[derive(Clone, Debug)]
pub struct FlowReceived {
    /// The stream.
    pub flow: u16,
    /// The index of the port.
    pub port: usize,
    /// The node that answered; 0: not answers.
    pub node: u8,
    /// The counts of its packets.
    pub counts: Counts,
    /// Payload of packets counted as `first`, in bytes.
    pub payload_bytes: u64,
    /// Arrival of the first of them.
    pub first_arrival: Option<Time>,
    /// Arrival of the last of them.
    pub last_arrival: Option<Time>,
    /// One-way delay: from `sent` on the sender's clock to arrival on ours, minus the known offset.
    pub delay: Spread,
    /// IPDV: differences in delay of packets with consecutive numbers that arrived consecutively (RFC 3393).
    pub ipdv: Spread,
    /// Inter-arrival times.
    pub inter_arrival: Spread,
    /// Lengths of runs of packets of which nothing arrived: lost, dropped by our own socket, or damaged beyond recognition.
    pub loss_run: Spread,
    /// Lengths of runs of arrived packets between them.
    pub gap_run: Spread,
}

/// The frames received at one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortReceived {
    /// All frames.
    pub frames: u64,
    /// Frames that belong to none of the streams.
    pub unexpected: Unexpected,
    /// Local drops: frames for which our own socket had no room.
    pub local_drops: u64,
    /// Greetings, time exchanges and ends: neither packets nor unexpected.
    pub control: u64,
    /// Packets that should be answered and were not: from another address than the sender's, shorter than the answer, or
    /// beyond the rate limit.
    pub unanswered: u64,
}

/// Everything received.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOutcome {
    /// By port and stream, in that order, with an entry for each node that sent answers.
    pub flows: Vec<FlowReceived>,
    /// By port.
    pub ports: Vec<PortReceived>,
    /// The frames in the order of arrival, as far as there was room.
    pub rows: Vec<Arrival>,
    /// Frames for which `rows` had no room; they are counted.
    pub not_kept: u64,
}

impl ReceiveOutcome {
    /// Adds unexpected frames at a port that were counted outside the engine.
    pub fn add_unexpected(&mut self, port: usize, unexpected: Unexpected) {
        if let Some(counted) = self.ports.get_mut(port) {
            counted.frames += unexpected.total();
            counted.unexpected = counted.unexpected + unexpected;
        }
        if let Some(first) = self.flows.iter_mut().find(|flow| flow.port == port) {
            first.counts.unexpected = first.counts.unexpected + unexpected;
        }
    }
}

impl FlowReceived {
    /// Returns the rate of arrivals in packets per second, from the first to the last; 0 for fewer than two.
    pub fn achieved_pps(&self) -> f64 {
        let span = self.span().0;
        if span > 0 { self.counts.first.saturating_sub(1) as f64 * 1e9 / span as f64 } else { 0.0 }
    }

    /// Returns the time from the first arrival to the last.
    pub fn span(&self) -> Nanos {
        match (self.first_arrival, self.last_arrival) {
            (Some(first), Some(last)) => last - first,
            _ => Nanos::ZERO,
        }
    }

    /// Returns its histograms, with quantity and unit as in records.
    pub fn histograms(&self) -> [(&'static str, &'static str, Vec<Cell>); 5] {
        [
            ("delay", "ns", self.delay.cells()),
            ("ipdv", "ns", self.ipdv.cells()),
            ("inter_arrival", "ns", self.inter_arrival.cells()),
            ("loss_run", "packets", self.loss_run.cells()),
            ("gap_run", "packets", self.gap_run.cells()),
        ]
    }
}
