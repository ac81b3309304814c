//! The delay line of a pipe.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

use super::{Pipe, Trace};

/// The delay in the delay line: a constant and a random part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delay {
    /// Added to every packet.
    pub constant: Nanos,
    /// The random part, added to the constant. A negative sum is set to zero and counted.
    pub jitter: Option<Distribution>,
    /// The half-life of the delay's autocorrelation, made by a Gaussian copula that keeps the distribution. `None`: delays are independent.
    pub half_life: Option<Nanos>,
    /// Whether packets may overtake each other.
    pub order: Order,
    /// Explicit reordering of selected packets.
    pub reorder: Option<Reorder>,
    /// Constant delays by port; the first entry that matches a packet's source or destination port applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_ports: Vec<PortDelay>,
}

/// The constant delay of packets from or to a range of ports: flows of another RTT over the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDelay {
    /// The first port of the range.
    pub first: u16,
    /// The last port of the range.
    pub last: u16,
    /// The delay, in place of the pipe's constant and of a trace's.
    pub constant: Nanos,
}

impl PortDelay {
    /// Returns whether this delay applies to a packet with these ports.
    pub(crate) fn is_of(&self, (source, destination): (u16, u16)) -> bool {
        let own = self.first..=self.last;
        own.contains(&source) || own.contains(&destination)
    }
}

impl Pipe {
    /// Returns the maximum constant delay over time, including those of a trace and of ports.
    pub fn largest_delay(&self) -> Nanos {
        let of_trace = match &self.link.trace {
            Some(Trace::Points { points, .. }) => points.iter().filter_map(|point| point.delay).max(),
            _ => None,
        };
        let of_ports = self.delay.of_ports.iter().map(|own| own.constant).max();
        of_trace.unwrap_or_default().max(of_ports.unwrap_or_default()).max(self.delay.constant)
    }
}

/// Whether packets may overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Packets leave in order: the drawn departure times are sorted, and the packet that waited longest takes the
    /// earliest. The mean delay is as configured.
    #[default]
    Kept,
    /// Each packet leaves at its own drawn time.
    Free,
}

/// The distribution of the random part, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Distribution {
    /// Uniform between `-spread` and `+spread`.
    Uniform {
        /// Half the width.
        spread: Nanos,
    },
    /// Normal, with mean 0.
    Normal {
        /// Standard deviation.
        sd: Nanos,
    },
    /// Exponential, from 0.
    Exponential {
        /// Mean.
        mean: Nanos,
    },
    /// Lomax, from 0: scale × (u^(-1/shape) − 1), mean scale / (shape − 1).
    Pareto {
        /// Scale.
        scale: Nanos,
        /// Shape, above 1: otherwise there is no mean.
        shape: f64,
    },
    /// Gamma, from 0.
    Gamma {
        /// Shape.
        shape: f64,
        /// Scale; the mean is shape × scale.
        scale: Nanos,
    },
    /// A user-supplied inverse CDF, linear between its points.
    Empirical {
        /// Points (cumulative probability, value), ascending in both.
        points: Vec<(f64, Nanos)>,
        /// The file it was read from.
        file: String,
    },
    /// A table of iproute2's `.dist` files: `sd` × (a value of the table) / 8192.
    Table {
        /// The standard deviation by which the table is scaled.
        sd: Nanos,
        /// The table's values in ascending order.
        values: Vec<i16>,
        /// The file it was read from.
        file: String,
    },
}

/// Explicit reordering: selected packets have a smaller delay than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The probability that a candidate packet is selected.
    pub probability: f64,
    /// After a selected packet the next `gap` − 1 packets are not candidates, as in netem; 0 and 1: every packet is one.
    #[serde(default)]
    pub gap: u64,
    /// The reduction of a selected packet's delay; `None`: all of it, as in netem.
    #[serde(default)]
    pub by: Option<Nanos>,
}
