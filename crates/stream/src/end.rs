//! The message that a sender sends to a receiver at the end of a stream.

use serde::{Deserialize, Serialize};
use sojourn_wire::stream::SEQ_LIMIT;

/// Limit on clock offsets and on times since their origin, which is 1970 for a clock that was set: 146 years.
const MOST_NS: i64 = 1 << 62;

/// Limit on the skew between two clocks: 10 %.
const MOST_SKEW_PPB: f64 = 1e8;

/// The end of a stream, as reported by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The number of packets sent.
    pub sent: u64,
    /// The highest sequence number plus one, if packets that the sender's own machine refused have numbers too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The receiver's clock relative to the sender's; `None` if unknown.
    pub clock: Option<EndLine>,
    /// The mean pacing error (actual minus intended departure), if the sender's kernel or interface stamped at least nine in ten packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_error_ns: Option<f64>,
    /// The id of the clock that `clock` describes, if several receivers get this message: the others wait for their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

impl End {
    /// Returns whether the values are possible: no more packets than sequence numbers, offsets within the range of
    /// times, and all zero for a shared clock. Values read from frames are used only if this holds.
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

/// A linear segment that maps the receiver's clock to the sender's: sender's time = receiver's time − (offset + skew ·
/// (receiver's time − reference)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndLine {
    /// Whether both are the same clock: then all other values are 0, except the reference.
    pub shared: bool,
    /// The time on the receiver's clock at which the offset holds.
    pub reference_ns: i64,
    /// Offset: the receiver's clock minus the sender's.
    pub offset_ns: f64,
    /// Skew: the gain of the receiver's clock, in ppb.
    pub skew_ppb: f64,
    /// The maximum error.
    pub bound_ns: f64,
    /// The 95 % error, which assumes equal minimum delays in both directions.
    pub error95_ns: f64,
}
