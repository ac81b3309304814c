//! The parameters of a simulated link, as users write them. `draw.rs` draws from them.

use serde::{Deserialize, Serialize};

/// A link with a device on it. Everything but the two delays is optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Delay of each frame to the responder.
    pub forward: Delay,
    /// Delay of each frame back to the prober.
    pub backward: Delay,
    /// Delay per byte of the Ethernet frame, in each direction.
    #[serde(default)]
    pub per_byte_ns: f64,
    /// Probability that a request is lost.
    #[serde(default)]
    pub loss: f64,
    /// Probability that a reply is lost.
    #[serde(default)]
    pub loss_backward: f64,
    /// Probability that a reply is duplicated; the duplicate arrives 1 µs after the first.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that a request is delayed by `reorder_ns`.
    #[serde(default)]
    pub reorder: f64,
    /// The additional delay of reordered requests.
    #[serde(default)]
    pub reorder_ns: i64,
    /// The increase of the forward delay per second of simulated time.
    #[serde(default)]
    pub drift_ns_per_s: f64,
    /// A device that delays each n-th request.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// A device whose delay rises periodically.
    #[serde(default)]
    pub ramp: Option<Ramp>,
    /// A device that stalls once: frames that reach it meanwhile, in either direction, leave at the end.
    #[serde(default)]
    pub stall: Option<Stall>,
    /// A second mode: some requests take longer.
    #[serde(default)]
    pub two_modes: Option<TwoModes>,
    /// Standard deviation of an additional forward delay, drawn once per block.
    #[serde(default)]
    pub block_sd_ns: f64,
    /// The processing time of the responder.
    #[serde(default)]
    pub responder_ns: i64,
    /// Seed of all draws of this line.
    #[serde(default)]
    pub seed: u64,
    /// A step of the prober's clock.
    #[serde(default)]
    pub clock_step: Option<ClockStep>,
    /// A prober that is sometimes late.
    #[serde(default)]
    pub sender_late: Option<SenderLate>,
}

/// The delay distribution of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Delay {
    /// Constant, in ns.
    #[serde(rename = "constant_ns")]
    Constant(i64),
    /// Normal; negative draws count as 0.
    Normal(Normal),
    /// Gamma, shifted.
    Gamma(Gamma),
    /// Pareto: heavy-tailed. Its minimum is `scale_ns`.
    Pareto(Pareto),
}

/// A normal distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normal {
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub sd_ns: f64,
}

/// A gamma distribution: mean `shift_ns + shape * scale_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gamma {
    /// Shape.
    pub shape: f64,
    /// Scale.
    pub scale_ns: f64,
    /// Added to each draw.
    #[serde(default)]
    pub shift_ns: f64,
}

/// A Pareto distribution: mean `scale_ns * shape / (shape - 1)` for shapes above 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// The minimum.
    pub scale_ns: f64,
    /// Tail index: below 2 the variance is infinite.
    pub shape: f64,
}

/// Delays each n-th request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The n: 50 delays the 50th, the 100th, …, counted through all blocks of the link.
    pub every: u64,
    /// The additional delay.
    pub for_ns: i64,
}

/// Raises the delay of requests linearly from 0, during the first part of each period of simulated time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// The period.
    pub every_ns: i64,
    /// The duration of the rise in each period; after it, nothing is added.
    pub for_ns: i64,
    /// The additional delay at the end of the rise.
    pub to_ns: i64,
    /// Which requests: 1 is all, 50 the 50th, the 100th, …, counted through all blocks of the link.
    #[serde(default = "one")]
    pub nth: u64,
}

fn one() -> u64 {
    1
}

/// Stalls once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The start, in simulated time.
    pub at_ns: i64,
    /// The duration.
    pub for_ns: i64,
}

/// Delays some requests longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoModes {
    /// The share of requests.
    pub probability: f64,
    /// The additional delay.
    pub extra_ns: i64,
}

/// Steps the prober's clock once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// The time of the step, in simulated time.
    pub at_ns: i64,
    /// The size of the step; negative steps back.
    pub by_ns: i64,
}

/// Makes the prober late for some departures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderLate {
    /// The share of departures.
    pub probability: f64,
    /// The lateness.
    pub by_ns: i64,
}

/// An invalid parameter of a simulated link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line: {key} is {value}; expected {expected}")]
pub struct LineError {
    key: &'static str,
    value: f64,
    expected: &'static str,
}

impl LineError {
    pub(super) fn refused(key: &'static str, value: f64) -> Self {
        Self { key, value, expected: "a value that such a distribution can have" }
    }
}

impl Line {
    /// Returns a link with these constant delays and no other effect.
    pub fn constant(forward_ns: i64, backward_ns: i64) -> Self {
        Self {
            forward: Delay::Constant(forward_ns),
            backward: Delay::Constant(backward_ns),
            per_byte_ns: 0.0,
            loss: 0.0,
            loss_backward: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_ns: 0,
            drift_ns_per_s: 0.0,
            hold: None,
            ramp: None,
            stall: None,
            two_modes: None,
            block_sd_ns: 0.0,
            responder_ns: 0,
            seed: 0,
            clock_step: None,
            sender_late: None,
        }
    }

    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// For the first value out of range, by its key.
    pub fn check(&self) -> Result<(), LineError> {
        self.forward.check()?;
        self.backward.check()?;
        for (key, value) in [
            ("loss", self.loss),
            ("loss_backward", self.loss_backward),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("two_modes.probability", self.two_modes.map_or(0.0, |modes| modes.probability)),
            ("sender_late.probability", self.sender_late.map_or(0.0, |late| late.probability)),
        ] {
            require(key, value, (0.0..=1.0).contains(&value), "a probability from 0 to 1")?;
        }
        for (key, value) in [
            ("per_byte_ns", self.per_byte_ns),
            ("block_sd_ns", self.block_sd_ns),
            ("reorder_ns", self.reorder_ns as f64),
            ("responder_ns", self.responder_ns as f64),
            ("hold.for_ns", self.hold.map_or(0.0, |hold| hold.for_ns as f64)),
            ("ramp.every_ns", self.ramp.map_or(0.0, |ramp| ramp.every_ns as f64)),
            ("ramp.for_ns", self.ramp.map_or(0.0, |ramp| ramp.for_ns as f64)),
            ("ramp.to_ns", self.ramp.map_or(0.0, |ramp| ramp.to_ns as f64)),
            ("stall.at_ns", self.stall.map_or(0.0, |stall| stall.at_ns as f64)),
            ("stall.for_ns", self.stall.map_or(0.0, |stall| stall.for_ns as f64)),
            ("two_modes.extra_ns", self.two_modes.map_or(0.0, |modes| modes.extra_ns as f64)),
            ("sender_late.by_ns", self.sender_late.map_or(0.0, |late| late.by_ns as f64)),
        ] {
            require_span(key, value)?;
        }
        require("drift_ns_per_s", self.drift_ns_per_s, self.drift_ns_per_s.is_finite(), "a finite number")?;
        let every = self.hold.map_or(1, |hold| hold.every);
        require("hold.every", every as f64, every > 0, "at least 1")?;
        let nth = self.ramp.map_or(1, |ramp| ramp.nth);
        require("ramp.nth", nth as f64, nth > 0, "at least 1")?;
        let (rise, period) = self.ramp.map_or((1, 1), |ramp| (ramp.for_ns, ramp.every_ns));
        require("ramp.for_ns", rise as f64, 0 < rise && rise <= period, "more than 0, and at most ramp.every_ns")
    }
}

impl Delay {
    fn check(&self) -> Result<(), LineError> {
        match *self {
            Self::Constant(ns) => require_span("constant_ns", ns as f64),
            Self::Normal(Normal { mean_ns, sd_ns }) => {
                require_span("normal.mean_ns", mean_ns)?;
                require_span("normal.sd_ns", sd_ns)
            }
            Self::Gamma(Gamma { shape, scale_ns, shift_ns }) => {
                require("gamma.shape", shape, shape > 0.0 && shape.is_finite(), "more than 0")?;
                require("gamma.scale_ns", scale_ns, scale_ns > 0.0 && scale_ns.is_finite(), "more than 0")?;
                require_span("gamma.shift_ns", shift_ns)
            }
            Self::Pareto(Pareto { scale_ns, shape }) => {
                require("pareto.shape", shape, shape > 0.0 && shape.is_finite(), "more than 0")?;
                require("pareto.scale_ns", scale_ns, scale_ns > 0.0 && scale_ns.is_finite(), "more than 0")
            }
        }
    }
}

/// A year: a longer span is a typing error, and would overflow sums.
const LONGEST_NS: f64 = 3.2e16;

fn require_span(key: &'static str, value: f64) -> Result<(), LineError> {
    require(key, value, (0.0..=LONGEST_NS).contains(&value), "0 or more, at most a year")
}

fn require(key: &'static str, value: f64, holds: bool, expected: &'static str) -> Result<(), LineError> {
    if holds { Ok(()) } else { Err(LineError { key, value, expected }) }
}
