//! Exchanges that tell how a receiver's clock stands to the sender's. What follows from them is computed elsewhere.

use sojourn_time::{Stamp, Time};

/// When, beside the stream, an exchange took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first packet.
    Before,
    /// In a gap of the stream.
    During,
    /// After the last packet.
    After,
}

/// One exchange: there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its number in the block, from 0.
    pub number: u64,
    /// The flow whose receiver answered.
    pub flow: u16,
    /// When.
    pub phase: Phase,
    /// The request's departure, on our clock, by the best stamp.
    pub t1: Stamp,
    /// The request's arrival, on the replier's clock.
    pub t2: Stamp,
    /// The reply's departure, on the replier's clock, as its program called to send.
    pub t3: Time,
    /// The reply's arrival, on our clock.
    pub t4: Stamp,
    /// The replier's clock, by its id: equal to ours, it is ours.
    pub clock: u64,
}

impl Phase {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}
