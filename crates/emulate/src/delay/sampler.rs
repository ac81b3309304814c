//! How long each packet is to stay: drawn.
//!
//! Every draw is a level u of the distribution, taken through its quantile function. Without a half-life levels are
//! independent. With one they are correlated in *time* by a Gaussian copula: z' = ρ z + √(1 − ρ²) ε with ρ = 2^(−Δt / half-life)
//! is standard normal again whatever Δt was, so u = Φ(z) is uniform and the distribution of the delay is exactly what was asked,
//! correlated or not. (netem averages uniform numbers instead, whose mean is no longer uniform.) Between two packets of the same
//! time, or where time went back, ρ is 1: they get the same delay.

use std::sync::Arc;

use sojourn_time::{Nanos, Time};

use crate::config::{Delay, Reorder};
use crate::random::{Chance, Origin, Random, uniform};

use super::distribution::{Level, Shape};
use super::normal;

/// The longest delay there is, 36 years: added to any time of this century it is still a time.
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

/// A delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// How long the packet is to stay; not below zero.
    pub delay: Nanos,
    /// It was chosen to overtake: it leaves at its own time even where order is kept.
    pub is_reordered: bool,
    /// The draw was below zero and is now zero.
    pub is_clipped: bool,
}

impl Sampler {
    /// Makes one.
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

    /// Takes other parameters; the correlated state goes on.
    pub fn set(&mut self, delay: &Delay) {
        (self.constant, self.half_life, self.reorder) = (delay.constant, delay.half_life, delay.reorder);
        self.shape = delay.jitter.as_ref().map(Shape::of);
    }

    /// Draws the delay of a packet that enters the line at `at`. `constant`: the constant part that holds now (a trace's).
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

    /// The random part, to the nearest nanosecond. Takes one value from the stream, with a half-life or without.
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

/// The next value of a stationary Gauss–Markov process of variance 1; the first is the innovation itself.
fn correlate(last: Option<(Time, f64)>, at: Time, half_life: Nanos, innovation: f64) -> f64 {
    let Some((before, deviate)) = last else { return innovation };
    let halvings = (at - before).0.max(0) as f64 / half_life.0 as f64;
    let kept = libm::exp2(-halvings);
    // √(1 − ρ²), also where ρ is nearly 1.
    let fresh = (-libm::expm1(-2.0 * std::f64::consts::LN_2 * halvings)).sqrt();
    kept * deviate + fresh * innovation
}

/// Who overtakes, counted as netem counts: after a chosen packet `gap` − 1 are not asked, then each is with the
/// probability until one is chosen. So one in gap − 1 + 1 / probability overtakes.
#[derive(Debug)]
struct Choice {
    random: Random,
    /// Packets since the last that was chosen.
    since: u64,
}

impl Choice {
    /// How much of its delay a packet is spared, if it is chosen.
    fn spared(&mut self, reorder: Reorder) -> Option<i64> {
        // One value for every packet, so that another gap does not change who would be chosen at what draw.
        let is_chosen = Chance::of(reorder.probability).happens(&mut self.random);
        if is_chosen && self.since + 1 >= reorder.gap {
            self.since = 0;
            return Some(reorder.by.map_or(LONGEST, |by| by.0.max(0)));
        }
        self.since = self.since.saturating_add(1);
        None
    }
}
