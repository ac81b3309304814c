//! The delay line.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

use super::{Pipe, Trace};

/// How long packets stay in the delay line: a constant and a random part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delay {
    /// Added to every packet.
    pub constant: Nanos,
    /// The random part, added to the constant; a sum below zero is zero, and counted.
    pub jitter: Option<Distribution>,
    /// The time after which half of a deviation is left: correlation in time, by a Gaussian copula that keeps the distribution as it is. `None`: each packet by itself.
    pub half_life: Option<Nanos>,
    /// Whether packets may overtake.
    pub order: Order,
    /// Chosen packets that overtake or are overtaken.
    pub reorder: Option<Reorder>,
    /// Packets with a constant delay of their own; the first that a packet has a port of holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_ports: Vec<PortDelay>,
}

/// The constant delay of packets that come from a port of a range, or go to one: flows of another round trip behind the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDelay {
    /// The range's first port.
    pub first: u16,
    /// Its last port.
    pub last: u16,
    /// In place of the pipe's own, a trace's included.
    pub constant: Nanos,
}

impl PortDelay {
    /// Whether a packet with these ports has this delay.
    pub(crate) fn is_of(&self, (source, destination): (u16, u16)) -> bool {
        let own = self.first..=self.last;
        own.contains(&source) || own.contains(&destination)
    }
}

impl Pipe {
    /// Returns the largest constant delay that it ever has, its trace's and that of any port included.
    pub fn largest_delay(&self) -> Nanos {
        let of_trace = match &self.link.trace {
            Some(Trace::Points { points, .. }) => points.iter().filter_map(|point| point.delay).max(),
            _ => None,
        };
        let of_ports = self.delay.of_ports.iter().map(|own| own.constant).max();
        of_trace.unwrap_or_default().max(of_ports.unwrap_or_default()).max(self.delay.constant)
    }
}

/// Who may overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Nobody: packets leave at the times that were drawn, each time taken by the packet that waited longest. The mean delay is as it was asked.
    #[default]
    Kept,
    /// Each leaves at its own time.
    Free,
}

/// The distribution of the random part, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Distribution {
    /// Between `-spread` and `+spread`, all equally likely.
    Uniform {
        /// Half of its width.
        spread: Nanos,
    },
    /// Around 0.
    Normal {
        /// Standard deviation.
        sd: Nanos,
    },
    /// From 0 on.
    Exponential {
        /// Mean.
        mean: Nanos,
    },
    /// From 0 on: scale × (u^(-1/shape) − 1) (Lomax), mean scale / (shape − 1).
    Pareto {
        /// Scale.
        scale: Nanos,
        /// Above 1, else there is no mean.
        shape: f64,
    },
    /// From 0 on.
    Gamma {
        /// Shape.
        shape: f64,
        /// Scale; the mean is shape × scale.
        scale: Nanos,
    },
    /// The user's own: the inverse distribution, by straight lines between its points.
    Empirical {
        /// Rising in both: the share of packets with at most this value.
        points: Vec<(f64, Nanos)>,
        /// Where it was read from.
        file: String,
    },
    /// iproute2's table of `.dist` files: `sd` × (a value of the table) / 8192.
    Table {
        /// Standard deviation that it is scaled with.
        sd: Nanos,
        /// Its values in rising order.
        values: Vec<i16>,
        /// Where it was read from.
        file: String,
    },
}

/// Explicit reordering: chosen packets leave earlier than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// How likely a packet is chosen, of those that are asked.
    pub probability: f64,
    /// After a chosen packet this many less one are not asked, as netem counts; 0 and 1: all are.
    #[serde(default)]
    pub gap: u64,
    /// How much of its delay it is spared; `None`: all of it, as netem does.
    #[serde(default)]
    pub by: Option<Nanos>,
}
