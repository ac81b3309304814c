//! What arrived, packet by packet and all together.

use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::count::{Received as Counts, Unexpected};
use crate::{Cell, Spread};

/// One frame of a stream that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The index of the port.
    pub port: u16,
    /// The stream.
    pub flow: u16,
    /// Who answered; 0 where nobody did.
    pub node: u8,
    /// The packet's number.
    pub seq: u64,
    /// When it was to leave, on the sender's clock.
    pub intended: Time,
    /// When the sender called to send it, on the sender's clock.
    pub sent: Time,
    /// When it arrived.
    pub arrival: Stamp,
    /// When the program had it in hand.
    pub receive_call: Time,
    /// Whether the packet had arrived before.
    pub is_duplicate: bool,
    /// Whether a later packet had arrived before.
    pub is_reordered: bool,
    /// Whether it took longer than asked for.
    pub is_late: bool,
    /// Whether its user data was damaged.
    pub is_corrupted: bool,
}

impl Arrival {
    /// No frame yet: what room is filled with.
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
    /// The index of the port; `None`: to each port.
    pub port: Option<usize>,
    /// How many.
    pub sent: u64,
    /// The number after the highest that one of them can have, where packets that were refused have numbers too; `None`: as many as
    /// were sent.
    pub next: Option<u64>,
}

/// What arrived of one stream at one port.
#[derive(Clone, Debug)]
pub struct FlowReceived {
    /// The stream.
    pub flow: u16,
    /// The index of the port.
    pub port: usize,
    /// Who answered; 0 where nobody did.
    pub node: u8,
    /// What became of its packets.
    pub counts: Counts,
    /// User data of those that arrived first, in bytes.
    pub payload_bytes: u64,
    /// When the first of them arrived.
    pub first_arrival: Option<Time>,
    /// When the last of them arrived.
    pub last_arrival: Option<Time>,
    /// From `sent` on the sender's clock to arrival on ours, less the known offset.
    pub delay: Spread,
    /// Differences in delay of consecutive packets that arrived one after the other (RFC 3393).
    pub ipdv: Spread,
    /// Between arrivals.
    pub inter_arrival: Spread,
    /// Lengths of runs of packets of which nothing arrived: lost, dropped by our own socket or damaged beyond
    /// recognition.
    pub loss_run: Spread,
    /// Lengths of runs of packets that arrived, between such runs.
    pub gap_run: Spread,
}

/// What arrived at one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortReceived {
    /// All frames.
    pub frames: u64,
    /// Those that are none of the streams'.
    pub unexpected: Unexpected,
    /// Frames that our own socket had no room for.
    pub local_drops: u64,
    /// Frames of greetings, of synchronisation and of ends: neither packets nor unexpected.
    pub control: u64,
}

/// What arrived.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOutcome {
    /// For each port and stream, in that order; answers for each node that sent some.
    pub flows: Vec<FlowReceived>,
    /// For each port.
    pub ports: Vec<PortReceived>,
    /// Each frame, in the order of arrival, as far as there was room.
    pub rows: Vec<Arrival>,
    /// Frames that no room was left for in `rows`; they are counted.
    pub not_kept: u64,
}

impl ReceiveOutcome {
    /// Adds frames at a port that something else than the engine has counted.
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
    /// Returns the rate at which packets arrived, from the first to the last; 0 below two.
    pub fn achieved_pps(&self) -> f64 {
        let span = self.span().0;
        if span > 0 { self.counts.first.saturating_sub(1) as f64 * 1e9 / span as f64 } else { 0.0 }
    }

    /// Returns how long arrivals went on.
    pub fn span(&self) -> Nanos {
        match (self.first_arrival, self.last_arrival) {
            (Some(first), Some(last)) => last - first,
            _ => Nanos::ZERO,
        }
    }

    /// Returns its histograms with the quantities that records name.
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
