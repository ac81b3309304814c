//! The bottleneck link.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

/// A link: packets leave it one after the other, as long as each takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// Bits per second, up to 100 Gbit/s; `None`: packets take no time.
    pub rate_bps: Option<u64>,
    /// What each packet takes beside the bytes of its frame (without FCS): 24 for Ethernet's preamble, FCS and gap.
    pub overhead_bytes: i32,
    /// Packets are carried in cells.
    pub cell: Option<Cell>,
    /// Bytes that may go at once after idle time: credit grows at the rate.
    pub burst_bytes: u64,
    /// What the medium's access takes beside, at random, and what it loses.
    pub profile: Option<Profile>,
    /// Rate, delay and loss over time.
    pub trace: Option<Trace>,
    /// Times at which nothing goes.
    pub outages: Vec<Outage>,
}

impl Link {
    /// Whether packets ever wait for it.
    pub const fn is_limiting(&self) -> bool {
        self.rate_bps.is_some() || self.trace.is_some() || self.profile.is_some() || !self.outages.is_empty()
    }

    /// Returns the largest rate that it ever has; `None`: it is never limited by a rate.
    pub fn largest_rate(&self) -> Option<u64> {
        match &self.trace {
            None => self.rate_bps,
            Some(Trace::Points { points, .. }) => {
                points.iter().map(|point| point.rate_bps.or(self.rate_bps)).max().flatten()
            }
            Some(Trace::Opportunities { at, period, .. }) => {
                let bits = at.len() as u128 * 12_000 * 1_000_000_000;
                u64::try_from(bits / u128::from(period.0.max(1).unsigned_abs())).ok()
            }
        }
    }
}

/// Packets are cut into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// What of a packet a cell carries: 48 for ATM.
    pub bytes: u32,
    /// What each cell has beside: 5 for ATM.
    pub overhead_bytes: u32,
}

/// dummynet's profile: an empirical distribution of extra time on the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// At or above this quantile a packet is lost, after it took its time.
    pub loss_level: f64,
    /// The inverse distribution at equally spaced quantiles: extra time.
    pub samples: Vec<Nanos>,
}

/// What a link is over time, from the emulator's start; again from the start at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Trace {
    /// mahimahi's: at each of these times (since the start, rising) one packet of up to 1500 bytes may leave; unused ones are gone.
    Opportunities {
        /// When.
        at: Vec<Nanos>,
        /// How long one round of it is.
        period: Nanos,
        /// Where it was read from.
        file: String,
    },
    /// Pieces: each holds until the next one's time.
    Points {
        /// Rising in time, the first at 0.
        points: Vec<TracePoint>,
        /// How long one round of it is; `None`: the last holds for ever.
        period: Option<Nanos>,
        /// Where it was read from.
        file: String,
    },
}

/// What holds from a time on; what is not given is as the pipe has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracePoint {
    /// Since the start of the trace.
    pub at: Nanos,
    /// Bits per second; 0: an outage.
    pub rate_bps: Option<u64>,
    /// The constant part of the delay.
    pub delay: Option<Nanos>,
    /// Probability of loss behind the link, instead of the pipe's own.
    pub loss: Option<f64>,
}

/// Nothing goes for a while; what comes waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Since the emulator's start.
    pub at: Nanos,
    /// For how long.
    pub lasts: Nanos,
    /// Again after so long.
    #[serde(default)]
    pub every: Option<Nanos>,
}
