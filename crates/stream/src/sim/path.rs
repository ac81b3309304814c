//! The parameters of a simulated path, as users write them.

use serde::{Deserialize, Serialize};
use sojourn_port::sim::{ClockStep, Delay, LineError, SenderLate};

/// A one-way path, with a way back for time exchanges. Everything but the delay is absent by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// The delay of each frame.
    pub delay: Delay,
    /// The delay on the way back; default: `delay`.
    #[serde(default)]
    pub delay_backward: Option<Delay>,
    /// Additional delay for each byte of the Ethernet frame.
    #[serde(default)]
    pub per_byte_ns: f64,
    /// A serialiser with a queue.
    #[serde(default)]
    pub serialiser: Option<Serialiser>,
    /// Probability that a frame is lost, independent of others.
    #[serde(default)]
    pub loss: f64,
    /// Losses in bursts.
    #[serde(default)]
    pub bursty_loss: Option<GilbertElliott>,
    /// Probability that a frame is duplicated.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that a frame has an additional delay of `reorder_ns`.
    #[serde(default)]
    pub reorder: f64,
    /// The additional delay of frames selected by `reorder`.
    #[serde(default)]
    pub reorder_ns: i64,
    /// Probability that a byte of a frame is damaged.
    #[serde(default)]
    pub corrupt: f64,
    /// Probability that the receiver's own socket drops a frame.
    #[serde(default)]
    pub own_drop: f64,
    /// The clocks of both ends.
    #[serde(default)]
    pub clocks: Clocks,
    /// The sender's time per frame, which limits the maximum rate.
    #[serde(default = "send_ns")]
    pub send_ns: i64,
    /// Occasional lateness of the sender.
    #[serde(default)]
    pub sender_late: Option<SenderLate>,
    /// Seed of all draws.
    #[serde(default)]
    pub seed: u64,
}

const fn send_ns() -> i64 {
    500
}

/// A serialiser: a queue, and a link that sends one frame after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serialiser {
    /// Rate in bits per second, of Ethernet frames with FCS. Either this or `rate_pps` must be given.
    #[serde(default)]
    pub rate_bps: Option<f64>,
    /// Rate in frames per second.
    #[serde(default)]
    pub rate_pps: Option<f64>,
    /// Queue limit in frames; a frame that finds it reached is lost. The frame in service does not count.
    pub queue_frames: usize,
}

/// Bursty losses by a two-state chain (Gilbert and Elliott).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of a transition from good to bad, for each frame.
    pub p: f64,
    /// Probability of a transition from bad to good.
    pub r: f64,
    /// Delivery probability in the bad state.
    #[serde(default)]
    pub h: f64,
    /// Delivery probability in the good state.
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
    /// The sender's clock.
    #[serde(default)]
    pub sender: Skewed,
    /// The receiver's clock.
    #[serde(default)]
    pub receiver: Skewed,
    /// Whether both ends read the same clock, the sender's, as two programs on one host do.
    #[serde(default)]
    pub shared: bool,
}

/// A clock that deviates from true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skewed {
    /// Offset: how far it is ahead at the start.
    #[serde(default)]
    pub offset_ns: i64,
    /// Skew, in ppm.
    #[serde(default)]
    pub skew_ppm: f64,
    /// Drift: the change of the skew, in ppm per second.
    #[serde(default)]
    pub drift_ppm_per_s: f64,
    /// A sinusoidal skew, as caused by temperature.
    #[serde(default)]
    pub temperature: Option<Sinusoid>,
    /// A step of the clock.
    #[serde(default)]
    pub step: Option<ClockStep>,
}

/// A sinusoid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinusoid {
    /// Amplitude of the skew.
    pub amplitude_ppm: f64,
    /// Period.
    pub period_s: f64,
}

/// A path that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// A parameter is out of its range.
    #[error("path: {key} is {value}; expected {expected}")]
    Key {
        /// The parameter.
        key: &'static str,
        /// Its value.
        value: f64,
        /// The permitted values.
        expected: &'static str,
    },
    /// A delay cannot be drawn.
    #[error("path: {0}")]
    Delay(LineError),
}

/// A year: longer spans are probably typing errors, and sums would overflow.
pub const LONGEST_NS: f64 = 3.2e16;

/// Maximum skew of a clock.
const MOST_PPM: f64 = 10_000.0;

/// Maximum drift: beyond it a clock would run backwards within a day ([`super::clock`] limits drift to that time).
const MOST_PPM_PER_S: f64 = 10.0;

impl Path {
    /// Returns a path with a constant delay and no impairments.
    pub fn constant(delay_ns: i64) -> Self {
        Self {
            delay: Delay::Constant(delay_ns),
            delay_backward: None,
            per_byte_ns: 0.0,
            serialiser: None,
            loss: 0.0,
            bursty_loss: None,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_ns: 0,
            corrupt: 0.0,
            own_drop: 0.0,
            clocks: Clocks::default(),
            send_ns: send_ns(),
            sender_late: None,
            seed: 0,
        }
    }

    /// Checks that every value is valid.
    ///
    /// # Errors
    /// On the first invalid value, with its key.
    pub fn check(&self) -> Result<(), PathError> {
        let chain = self.bursty_loss.unwrap_or(GilbertElliott { p: 0.0, r: 0.0, h: 0.0, k: 1.0 });
        for (key, value) in [
            ("loss", self.loss),
            ("bursty_loss.p", chain.p),
            ("bursty_loss.r", chain.r),
            ("bursty_loss.h", chain.h),
            ("bursty_loss.k", chain.k),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("own_drop", self.own_drop),
            ("sender_late.probability", self.sender_late.map_or(0.0, |late| late.probability)),
        ] {
            require(key, value, (0.0..=1.0).contains(&value), "a probability from 0 to 1")?;
        }
        for (key, value) in [
            ("per_byte_ns", self.per_byte_ns),
            ("reorder_ns", self.reorder_ns as f64),
            ("send_ns", self.send_ns as f64),
            ("sender_late.by_ns", self.sender_late.map_or(0.0, |late| late.by_ns as f64)),
        ] {
            require(key, value, (0.0..=LONGEST_NS).contains(&value), "0 or more, at most a year")?;
        }
        self.serialiser.map_or(Ok(()), |serialiser| serialiser.check())?;
        self.clocks.sender.check()?;
        self.clocks.receiver.check()
    }
}

impl Serialiser {
    fn check(&self) -> Result<(), PathError> {
        let rates = [("serialiser.rate_bps", self.rate_bps), ("serialiser.rate_pps", self.rate_pps)];
        for (key, rate) in rates {
            let value = rate.unwrap_or(1.0);
            require(key, value, value > 0.0 && value.is_finite(), "more than 0")?;
        }
        let given = rates.iter().filter(|(_, rate)| rate.is_some()).count();
        let expected = "given, or else serialiser.rate_bps, and not both";
        require("serialiser.rate_pps", self.rate_pps.unwrap_or(0.0), given == 1, expected)
    }
}

impl Skewed {
    fn check(&self) -> Result<(), PathError> {
        let offset = self.offset_ns as f64;
        require("clocks.offset_ns", offset, offset.abs() <= LONGEST_NS, "at most a year to either side")?;
        let swing = self.temperature.unwrap_or(Sinusoid { amplitude_ppm: 0.0, period_s: 1.0 });
        for (key, value) in
            [("clocks.skew_ppm", self.skew_ppm), ("clocks.temperature.amplitude_ppm", swing.amplitude_ppm)]
        {
            require(key, value, value.abs() <= MOST_PPM, "at most 10000 to either side")?;
        }
        let drift = self.drift_ppm_per_s;
        require("clocks.drift_ppm_per_s", drift, drift.abs() <= MOST_PPM_PER_S, "at most 10 to either side")?;
        let is_period = swing.period_s > 0.0 && swing.period_s.is_finite();
        require("clocks.temperature.period_s", swing.period_s, is_period, "more than 0")?;
        let by = self.step.map_or(0.0, |step| step.by_ns as f64);
        require("clocks.step.by_ns", by, by.abs() <= LONGEST_NS, "at most a year to either side")
    }
}

fn require(key: &'static str, value: f64, holds: bool, expected: &'static str) -> Result<(), PathError> {
    if holds { Ok(()) } else { Err(PathError::Key { key, value, expected }) }
}
