//! What was sent: packet by packet, and in total.

use sojourn_time::{Stamp, Time};

use crate::{Cell, Exchange, Fit, ReceiveOutcome, SentCounts, Spread, Unexpected};

/// One packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The stream.
    pub flow: u16,
    /// The sequence number.
    pub seq: u64,
    /// The intended departure.
    pub intended: Time,
    /// The program's call to send it.
    pub send_call: Time,
    /// When it entered the queueing discipline, if that timestamp was requested and received.
    pub scheduled: Option<Time>,
    /// The departure, by the best timestamp.
    pub departure: Stamp,
}

/// The packets sent of one stream.
#[derive(Clone, Debug)]
pub struct FlowSent {
    /// The stream.
    pub flow: u16,
    /// The index of its port.
    pub port: usize,
    /// The counts of its packets.
    pub counts: SentCounts,
    /// The highest sequence number plus one: equal to the packets sent, or more if refused packets had numbers too.
    pub next: u64,
    /// The requested rate; 0 for maximum rate.
    pub asked_pps: f64,
    /// The rate of the intended departures of the packets sent; 0 for fewer than two, and for maximum rate.
    pub intended_pps: f64,
    /// The rate of actual departures; 0 for fewer than two.
    pub achieved_pps: f64,
    /// Whether departures are TX timestamps of the port; otherwise they are the calls to send.
    pub is_by_stamps: bool,
    /// The first departure.
    pub first: Option<Time>,
    /// The last departure.
    pub last: Option<Time>,
    /// The pacing error: actual minus intended departure, by TX timestamps if the port gives them, otherwise by the
    /// calls. Empty for maximum rate.
    pub pacing_error: Spread,
    /// Inter-departure times.
    pub inter_departure: Spread,
    /// The share of departures within 1 µs of the intended ones.
    pub within_1us: f64,
    /// The share within 10 µs.
    pub within_10us: f64,
    /// Goodness of fit of a Poisson stream's actual gaps. At most 1,000 gaps, spread evenly over the stream, are
    /// tested: with ever more, every real stream differs significantly from an ideal one.
    pub fit: Option<Fit>,
}

/// Everything sent.
#[derive(Clone, Debug)]
pub struct SendOutcome {
    /// The start: the time of offset 0.
    pub started: Time,
    /// The end of the block.
    pub ended: Time,
    /// By stream, in the order of the request.
    pub flows: Vec<FlowSent>,
    /// The packets in the order of departure, as far as there was room.
    pub rows: Vec<Departure>,
    /// Packets for which `rows` had no room; they are counted.
    pub not_kept: u64,
    /// The complete time exchanges.
    pub exchanges: Vec<Exchange>,
    /// The answers of receivers.
    pub answers: Option<ReceiveOutcome>,
    /// Replies with another key, as far as the sender listened.
    pub unexpected: Unexpected,
}

impl FlowSent {
    /// Returns its histograms, with quantity and unit as in records.
    pub fn histograms(&self) -> [(&'static str, &'static str, Vec<Cell>); 2] {
        [("pacing_error", "ns", self.pacing_error.cells()), ("inter_departure", "ns", self.inter_departure.cells())]
    }
}
