//! What a simulated path does to frames: the parameters as users write them.

use serde::{Deserialize, Serialize};
use sojourn_port::sim::{ClockStep, Delay, SenderLate};

/// A one-way path, with the way back that synchronisation takes. All but the delay is absent unless said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Delay of each frame on its way.
    pub delay: Delay,
    /// Delay on the way back; absent: as `delay`.
    #[serde(default)]
    pub delay_backward: Option<Delay>,
    /// Delay for each byte of the Ethernet frame.
    #[serde(default)]
    pub per_byte_ns: f64,
    /// A place that frames pass one after the other.
    #[serde(default)]
    pub serialiser: Option<Serialiser>,
    /// Probability that a frame is lost, each for itself.
    #[serde(default)]
    pub loss: f64,
    /// Losses that come in bursts.
    #[serde(default)]
    pub bursty_loss: Option<GilbertElliott>,
    /// Probability that a frame comes twice.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that a frame is held back by `reorder_ns`.
    #[serde(default)]
    pub reorder: f64,
    /// How long the held-back ones are held.
    #[serde(default)]
    pub reorder_ns: i64,
    /// Probability that a byte of a frame is damaged.
    #[serde(default)]
    pub corrupt: f64,
    /// Probability that the receiver's own socket drops a frame.
    #[serde(default)]
    pub own_drop: f64,
    /// Both ends' clocks against true time.
    #[serde(default)]
    pub clocks: Clocks,
    /// How long the sender takes for each frame: what a flood is bounded by.
    #[serde(default = "send_ns")]
    pub send_ns: i64,
    /// A sender that is sometimes late.
    #[serde(default)]
    pub sender_late: Option<SenderLate>,
    /// Seed of all draws.
    #[serde(default)]
    pub seed: u64,
}

const fn send_ns() -> i64 {
    500
}

/// A place that frames pass one after the other: a queue and a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serialiser {
    /// Its rate in bits of the Ethernet frame, with FCS, a second; or
    #[serde(default)]
    pub rate_bps: Option<f64>,
    /// its rate in frames a second.
    #[serde(default)]
    pub rate_pps: Option<f64>,
    /// How many frames wait at most; one that comes then is lost. The one in service does not count.
    pub queue_frames: usize,
}

/// Losses in bursts, by a chain of two states (Gilbert and Elliott).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of going from good to bad, for each frame.
    pub p: f64,
    /// Probability of going from bad to good.
    pub r: f64,
    /// Probability that a frame passes in the bad state.
    #[serde(default)]
    pub h: f64,
    /// Probability that a frame passes in the good state.
    #[serde(default = "one")]
    pub k: f64,
}

const fn one() -> f64 {
    1.0
}

/// The clocks of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// The sender's.
    #[serde(default)]
    pub sender: Skewed,
    /// The receiver's.
    #[serde(default)]
    pub receiver: Skewed,
    /// Whether both say that they are one clock, as two programs on one host do.
    #[serde(default)]
    pub shared: bool,
}

/// A clock that does not keep true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skewed {
    /// By how much it is ahead at the start.
    #[serde(default)]
    pub offset_ns: i64,
    /// By how much it gains, in parts in a million.
    #[serde(default)]
    pub skew_ppm: f64,
    /// By how much that grows in each second.
    #[serde(default)]
    pub drift_ppm_per_s: f64,
    /// A skew that swings, as with the temperature.
    #[serde(default)]
    pub temperature: Option<Sinusoid>,
    /// A step.
    #[serde(default)]
    pub step: Option<ClockStep>,
}

/// A swing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinusoid {
    /// By how much the skew swings to each side.
    pub amplitude_ppm: f64,
    /// How long it takes to come back.
    pub period_s: f64,
}

/// A path that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("path: {key} is {value}; expected {expected}")]
pub struct PathError {
    pub(super) key: &'static str,
    pub(super) value: f64,
    pub(super) expected: &'static str,
}
