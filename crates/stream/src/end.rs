//! What a sender tells a receiver at the end of a stream.

use serde::{Deserialize, Serialize};
use sojourn_wire::stream::SEQ_LIMIT;

/// How far apart clocks can be, and times from their origin: two thirds of a century.
const MOST_NS: i64 = 2_000_000_000_000_000_000;

/// How much faster one clock can be than another: a tenth.
const MOST_SKEW_PPB: f64 = 1e8;

/// The end of a stream, as its sender tells it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// How many packets were sent.
    pub sent: u64,
    /// The number after the highest that was given, where packets that our own machine refused had numbers too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// How the receiver's clock stands to the sender's; `None` when it is not known.
    pub clock: Option<EndLine>,
    /// The mean pacing error: how long after the intended time packets left, where the sender's kernel or interface stamped
    /// nine in ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_error_ns: Option<f64>,
    /// Whose clock that is, by its id, where several receivers hear it: the others wait for an end of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

impl End {
    /// Tells whether it can be true: no more packets than numbers, clocks no further apart than times go, and one clock not apart
    /// from itself. What is read from frames is computed with only where it can.
    pub fn is_possible(&self) -> bool {
        let is_error = |ns: f64| ns.is_finite() && ns >= 0.0;
        let is_nothing = |line: &EndLine| {
            [line.offset_ns, line.skew_ppb, line.bound_ns, line.error95_ns]
                .iter()
                .all(|of_two_clocks| *of_two_clocks == 0.0)
        };
        let is_possible = |line: &EndLine| {
            (-MOST_NS..=MOST_NS).contains(&line.reference_ns)
                && line.offset_ns.abs() <= MOST_NS as f64
                && line.skew_ppb.abs() <= MOST_SKEW_PPB
                && is_error(line.bound_ns)
                && is_error(line.error95_ns)
                && (!line.shared || is_nothing(line))
        };
        self.sent <= SEQ_LIMIT
            && self.next.is_none_or(|next| (self.sent..=SEQ_LIMIT).contains(&next))
            && self.clock.as_ref().is_none_or(is_possible)
            && self.pacing_error_ns.is_none_or(|ns| ns.abs() <= MOST_NS as f64)
    }
}

/// A line that maps the receiver's clock to the sender's: sender's time = receiver's - (offset + skew · (receiver's -
/// reference)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndLine {
    /// Whether both are one clock: then all else is 0.
    pub shared: bool,
    /// When, on the receiver's clock, the offset is as said.
    pub reference_ns: i64,
    /// By how much the receiver's clock is ahead.
    pub offset_ns: f64,
    /// By how much it gains, in parts in 10⁹.
    pub skew_ppb: f64,
    /// The greatest error that can be.
    pub bound_ns: f64,
    /// The error that 95 % are within, where the least delays there and back are equal.
    pub error95_ns: f64,
}
