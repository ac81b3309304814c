//! Draws the delay of each packet.
//!
//! Every draw is a level u in (0, 1), mapped through the distribution's quantile function. Without a half-life levels
//! are independent. With one they are correlated in *time* by a Gaussian copula: z' = ρ z + √(1 − ρ²) ε with ρ = 2^(−Δt
//! / half-life) is again standard normal for any Δt, so u = Φ(z) is uniform, and the distribution of the delay is
//! exactly the configured one, correlated or not. (netem averages uniform numbers instead, and such an average is not
//! uniform.) For two packets at the same time, or if time went back, ρ is 1: they get the same delay.

use std::sync::Arc;

use sojourn_time::{Nanos, Time};

use crate::config::{Delay, Reorder};
use crate::random::{Chance, Origin, Random, uniform};

use super::distribution::{Level, Shape};
use super::normal;

/// The maximum delay, 36 years: the sum of it and any time of this century does not overflow.
const LONGEST: i64 = 1 << 60;

/// Draws delays.
#[derive(Debug)]
pub struct Sampler {
    constant: Nanos,
    half_life: Option<Nanos>,
    reorder: Option<Reorder>,
    shape: Option<Arc<Shape>>,
    levels: Random,
    last: Option<(Time, f64)>,
    choice: Choice,
}

/// A drawn delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The time in the delay line; not negative.
    pub delay: Nanos,
    /// Whether the packet is reordered: it leaves at its own time even if order is kept.
    pub is_reordered: bool,
    /// Whether the drawn value was negative and was set to zero.
    pub is_clipped: bool,
}

impl Sampler {
    /// Creates a sampler.
    pub fn new(delay: &Delay, origin: Origin<'_>) -> Self {
        Self {
            constant: delay.constant,
            half_life: delay.half_life,
            reorder: delay.reorder,
            shape: delay.jitter.as_ref().map(Shape::of),
            levels: origin.stream("delay"),
            last: None,
            choice: Choice { random: origin.stream("delay/reorder"), since: 0 },
        }
    }

    /// Changes the parameters; the correlated state continues.
    pub fn set(&mut self, delay: &Delay) {
        (self.constant, self.half_life, self.reorder) = (delay.constant, delay.half_life, delay.reorder);
        self.shape = delay.jitter.as_ref().map(Shape::of);
    }

    /// Draws the delay of a packet that enters the line at `at`. `constant`: the constant part that now replaces the configured one.
    pub fn draw(&mut self, at: Time, constant: Option<Nanos>) -> Drawn {
        let jitter = self.jitter(at);
        let sum = constant.unwrap_or(self.constant).0.saturating_add(jitter);
        let delay = sum.clamp(0, LONGEST);
        let spared = self.reorder.and_then(|reorder| self.choice.spared(reorder));
        Drawn {
            delay: Nanos(delay.saturating_sub(spared.unwrap_or(0)).max(0)),
            is_reordered: spared.is_some(),
            is_clipped: sum < 0,
        }
    }

    /// Draws the random part, to the nearest nanosecond. Takes one value from the stream, with a half-life or without.
    fn jitter(&mut self, at: Time) -> i64 {
        let Some(shape) = &self.shape else { return 0 };
        let draw = uniform(&mut self.levels);
        let level = match self.half_life {
            Some(half_life) if half_life > Nanos::ZERO => {
                let deviate = correlate(self.last, at, half_life, normal::quantile(draw));
                self.last = Some((self.last.map_or(at, |(last, _)| last.max(at)), deviate));
                Level::Normal(deviate)
            }
            _ => Level::Uniform(draw),
        };
        shape.quantile(level).round() as i64
    }
}

/// Returns the next value of a stationary Gauss–Markov process of variance 1; the first is the innovation itself.
fn correlate(last: Option<(Time, f64)>, at: Time, half_life: Nanos, innovation: f64) -> f64 {
    let Some((before, deviate)) = last else { return innovation };
    let halvings = (at - before).0.max(0) as f64 / half_life.0 as f64;
    let kept = libm::exp2(-halvings);
    // √(1 − ρ²), accurate even if ρ is close to 1.
    let fresh = (-libm::expm1(-2.0 * std::f64::consts::LN_2 * halvings)).sqrt();
    kept * deviate + fresh * innovation
}

/// Selects packets for reordering, as netem counts: after a selected packet `gap` − 1 packets are not candidates, then
/// each is selected with the probability until one is. One in gap − 1 + 1 / probability is selected on average.
#[derive(Debug)]
struct Choice {
    random: Random,
    /// Packets since the last selected one.
    since: u64,
}

impl Choice {
    /// Returns the reduction of a packet's delay if it is selected.
    fn spared(&mut self, reorder: Reorder) -> Option<i64> {
        // One value for every packet, so that another gap does not shift the draws of later packets.
        let is_chosen = Chance::of(reorder.probability).happens(&mut self.random);
        if is_chosen && self.since + 1 >= reorder.gap {
            self.since = 0;
            return Some(reorder.by.map_or(LONGEST, |by| by.0.max(0)));
        }
        self.since = self.since.saturating_add(1);
        None
    }
}
