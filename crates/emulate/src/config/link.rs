//! The bottleneck link.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

/// A link: packets leave it one after the other, each after its serialisation time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// Bits per second, up to 100 Gbit/s; `None`: packets take no time.
    pub rate_bps: Option<u64>,
    /// Bytes added to each frame (without FCS): 24 for Ethernet's preamble, FCS and inter-frame gap.
    pub overhead_bytes: i32,
    /// Cell framing, as on ATM.
    pub cell: Option<Cell>,
    /// Token bucket size in bytes: credit grows at the rate while the link is idle.
    pub burst_bytes: u64,
    /// Random extra time for medium access, and losses.
    pub profile: Option<Profile>,
    /// Rate, delay and loss over time.
    pub trace: Option<Trace>,
    /// Periods in which nothing is sent.
    pub outages: Vec<Outage>,
}

impl Link {
    /// Whether packets ever wait for it.
    pub const fn is_limiting(&self) -> bool {
        self.rate_bps.is_some() || self.trace.is_some() || self.profile.is_some() || !self.outages.is_empty()
    }

    /// Returns the maximum rate over time; `None`: no rate ever limits it.
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

/// Cell framing: packets are cut into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Payload of a cell in bytes: 48 for ATM.
    pub bytes: u32,
    /// Header of a cell in bytes: 5 for ATM.
    pub overhead_bytes: u32,
}

/// A profile as in dummynet: an empirical distribution of extra time on the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The loss quantile: a packet whose draw is at or above it is lost after its time on the link.
    pub loss_level: f64,
    /// The inverse CDF of the extra time at equally spaced quantiles.
    pub samples: Vec<Nanos>,
}

/// The link over time, from the emulator's start; repeated at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Trace {
    /// A mahimahi trace: at each of these times one packet of up to 1500 bytes may leave; unused opportunities are lost.
    Opportunities {
        /// Times since the start, ascending.
        at: Vec<Nanos>,
        /// The duration of one repetition.
        period: Nanos,
        /// The file it was read from.
        file: String,
    },
    /// A step function: each point holds until the next one's time.
    Points {
        /// Points in ascending time, the first at 0.
        points: Vec<TracePoint>,
        /// The duration of one repetition; `None`: the last point holds for ever.
        period: Option<Nanos>,
        /// The file it was read from.
        file: String,
    },
}

/// Values that hold from a time on; a value of `None` is the pipe's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracePoint {
    /// Time since the start of the trace.
    pub at: Nanos,
    /// Bits per second; 0: an outage.
    pub rate_bps: Option<u64>,
    /// The constant part of the delay.
    pub delay: Option<Nanos>,
    /// Loss probability after the link, in place of the pipe's own.
    pub loss: Option<f64>,
}

/// An outage: nothing is sent for a while; arriving packets wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Start, relative to the emulator's start.
    pub at: Nanos,
    /// Duration.
    pub lasts: Nanos,
    /// Repetition period; `None`: it occurs once.
    #[serde(default)]
    pub every: Option<Nanos>,
}
