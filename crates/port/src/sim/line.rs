//! What a simulated line does to frames: the parameters as users write them. Drawing from them is in `draw.rs`.

use serde::{Deserialize, Serialize};

/// A line with a device on it. Everything but the two delays is absent unless said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Delay of each frame towards the responder.
    pub forward: Delay,
    /// Delay of each frame back from it.
    pub backward: Delay,
    /// Delay for each byte of the Ethernet frame, each way.
    #[serde(default)]
    pub per_byte_ns: f64,
    /// Probability that a request is lost.
    #[serde(default)]
    pub loss: f64,
    /// Probability that a reply is lost.
    #[serde(default)]
    pub loss_backward: f64,
    /// Probability that a reply comes twice, the second 1 µs after the first.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that a request is held back by `reorder_ns`.
    #[serde(default)]
    pub reorder: f64,
    /// How long the held-back ones are held.
    #[serde(default)]
    pub reorder_ns: i64,
    /// By how much the forward delay grows in each second of simulated time.
    #[serde(default)]
    pub drift_ns_per_s: f64,
    /// A device that holds each n-th request.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// A device whose delay rises again and again.
    #[serde(default)]
    pub ramp: Option<Ramp>,
    /// A device that stands still once: what reaches it then, either way, leaves at the end.
    #[serde(default)]
    pub stall: Option<Stall>,
    /// Some requests take longer.
    #[serde(default)]
    pub two_modes: Option<TwoModes>,
    /// Standard deviation of an extra forward delay that is drawn once in each block.
    #[serde(default)]
    pub block_sd_ns: f64,
    /// How long the responder takes.
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

/// How one direction delays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Delay {
    /// The same for each frame, in ns.
    #[serde(rename = "constant_ns")]
    Constant(i64),
    /// Normal; draws below 0 count as 0.
    Normal(Normal),
    /// Gamma, shifted.
    Gamma(Gamma),
    /// Pareto: a heavy tail. Its least value is `scale_ns`.
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
    /// What is added to each draw.
    #[serde(default)]
    pub shift_ns: f64,
}

/// A Pareto distribution: mean `scale_ns * shape / (shape - 1)` for shapes above 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// The least value.
    pub scale_ns: f64,
    /// Tail index: below 2 the variance is infinite.
    pub shape: f64,
}

/// Holds each n-th request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Which: 50 holds the 50th, the 100th, …, counted through all blocks of the line.
    pub every: u64,
    /// For how long.
    pub for_ns: i64,
}

/// Raises the delay of requests steadily, from 0, for a while at the beginning of each period of simulated time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// The period.
    pub every_ns: i64,
    /// For how long of each period the delay rises; then the ramp is over.
    pub for_ns: i64,
    /// What is added at the end of the rise.
    pub to_ns: i64,
    /// Which requests: 1 is all, 50 the 50th, the 100th, …, counted through all blocks of the line.
    #[serde(default = "one")]
    pub nth: u64,
}

fn one() -> u64 {
    1
}

/// Stands still once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// From when, in simulated time.
    pub at_ns: i64,
    /// For how long.
    pub for_ns: i64,
}

/// Takes longer for some.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoModes {
    /// For which share.
    pub probability: f64,
    /// By how much.
    pub extra_ns: i64,
}

/// Steps the prober's clock once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// When, in simulated time.
    pub at_ns: i64,
    /// By how much; negative steps back.
    pub by_ns: i64,
}

/// Makes the prober late for some of its departures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderLate {
    /// For which share.
    pub probability: f64,
    /// By how much.
    pub by_ns: i64,
}

/// A line that cannot be simulated.
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
    /// Returns a line that delays by so much each way and does nothing else.
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

    /// Checks that every value can be.
    ///
    /// # Errors
    /// On the first that cannot, by its key.
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

/// A year: longer spans are slips of the pen, and would overflow sums.
const LONGEST_NS: f64 = 3.2e16;

fn require_span(key: &'static str, value: f64) -> Result<(), LineError> {
    require(key, value, (0.0..=LONGEST_NS).contains(&value), "0 or more, at most a year")
}

fn require(key: &'static str, value: f64, holds: bool, expected: &'static str) -> Result<(), LineError> {
    if holds { Ok(()) } else { Err(LineError { key, value, expected }) }
}
