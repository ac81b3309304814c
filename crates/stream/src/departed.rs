//! What left, packet by packet and all together.

use sojourn_time::{Stamp, Time};

use crate::{Cell, Exchange, Fit, ReceiveOutcome, SentCounts, Spread, Unexpected};

/// One packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The stream.
    pub flow: u16,
    /// The packet's number.
    pub seq: u64,
    /// When it was to leave.
    pub intended: Time,
    /// When the program called to send it.
    pub send_call: Time,
    /// When the queueing discipline took it, where that was asked for and told.
    pub scheduled: Option<Time>,
    /// When it left, by the best stamp.
    pub departure: Stamp,
}

/// What was sent of one stream.
#[derive(Clone, Debug)]
pub struct FlowSent {
    /// The stream.
    pub flow: u16,
    /// The index of its port.
    pub port: usize,
    /// What became of its packets.
    pub counts: SentCounts,
    /// The number after the highest that was given: as many as were sent, or more where refused packets had numbers too.
    pub next: u64,
    /// The rate that was asked for; 0 of a flood.
    pub asked_pps: f64,
    /// The rate of the intended departures of the packets that were sent; 0 below two, and of a flood.
    pub intended_pps: f64,
    /// The rate at which they left; 0 below two.
    pub achieved_pps: f64,
    /// Whether departures are known by late stamps of the port; else by the calls to send.
    pub is_by_stamps: bool,
    /// When the first left.
    pub first: Option<Time>,
    /// When the last left.
    pub last: Option<Time>,
    /// Departure less intended departure: by late stamps where the port gives them, else by the calls. None of a flood.
    pub pacing_error: Spread,
    /// Between departures.
    pub inter_departure: Spread,
    /// The share of departures within 1 µs of the intended ones.
    pub within_1us: f64,
    /// The share within 10 µs.
    pub within_10us: f64,
    /// How well a Poisson stream's gaps, as they really were, fit. Of at most 1,000 gaps, spread evenly over the
    /// stream: with ever more, every real stream differs significantly from an ideal one.
    pub fit: Option<Fit>,
}

/// What was sent.
#[derive(Clone, Debug)]
pub struct SendOutcome {
    /// When it began: the time of offset 0.
    pub started: Time,
    /// When all was over.
    pub ended: Time,
    /// For each stream, in the order of the request.
    pub flows: Vec<FlowSent>,
    /// Each packet, in the order of departure, as far as there was room.
    pub rows: Vec<Departure>,
    /// Packets that no room was left for in `rows`; they are counted.
    pub not_kept: u64,
    /// The exchanges of synchronisation that were complete.
    pub exchanges: Vec<Exchange>,
    /// What receivers answered.
    pub answers: Option<ReceiveOutcome>,
    /// Replies with another key, as far as the sender listened.
    pub unexpected: Unexpected,
}

impl FlowSent {
    /// Returns its histograms with the quantities that records name.
    pub fn histograms(&self) -> [(&'static str, &'static str, Vec<Cell>); 2] {
        [("pacing_error", "ns", self.pacing_error.cells()), ("inter_departure", "ns", self.inter_departure.cells())]
    }
}
