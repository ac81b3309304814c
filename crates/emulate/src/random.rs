//! Random streams: one for each impairment of each pipe and flow, all derived from one seed.
//!
//! A change of one impairment therefore does not affect the draws of another, and the same seed gives the same
//! dispositions however the packets of several pipes are interleaved. The generator is xoshiro256++ (Blackman and Vigna
//! 2019), seeded through SplitMix64; its values do not depend on a version, and a test pins them.

use rand::{RngCore, SeedableRng};

/// The generator.
pub type Random = rand_xoshiro::Xoshiro256PlusPlus;

/// The pipe and the flow that a stream belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The emulator's seed.
    pub seed: u64,
    /// The pipe's name.
    pub pipe: &'a str,
    /// The flow within the pipe; 0 where the pipe has no mask.
    pub flow: u64,
}

impl Origin<'_> {
    /// Returns the stream for one purpose: "before/loss/0", "delay", "red".
    pub fn stream(&self, purpose: &str) -> Random {
        // FNV-1a. Any hash that never changes would do; SplitMix64 then decorrelates similar seeds.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let words = [self.seed.to_le_bytes(), self.flow.to_le_bytes()];
        for byte in words.iter().flatten().chain(self.pipe.as_bytes()).chain(&[0]).chain(purpose.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Random::seed_from_u64(hash)
    }
}

/// An [`Origin`] that a stage stores, to create streams later.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    seed: u64,
    pipe: String,
    flow: u64,
}

impl Owner {
    pub(crate) fn new(origin: Origin<'_>) -> Self {
        Self { seed: origin.seed, pipe: origin.pipe.to_owned(), flow: origin.flow }
    }

    pub(crate) fn stream(&self, purpose: &str) -> Random {
        Origin { seed: self.seed, pipe: &self.pipe, flow: self.flow }.stream(purpose)
    }
}

/// A probability as a number of the 2^64 values of a draw: exact for 0 and 1, and to 2^-64 between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u128);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// Converts a probability; below 0 (and NaN) gives never, above 1 always.
    pub fn of(probability: f64) -> Self {
        // A power of two: the product is exact, so p is not rounded before the conversion truncates it to 64 bits.
        Self((probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u128)
    }

    /// Returns whether the event happens. Takes one value from the stream, whatever the probability.
    pub fn happens(self, random: &mut Random) -> bool {
        self.covers(random.next_u64())
    }

    /// Returns whether the event happens at this draw. Several outcomes can share a draw, by ascending cumulative probabilities.
    pub fn covers(self, draw: u64) -> bool {
        u128::from(draw) < self.0
    }
}

/// Draws from the open interval (0, 1): odd multiples of 2^-53, so that 1 − u is exact and neither u nor 1 − u is ever 0.
pub fn uniform(random: &mut Random) -> f64 {
    ((random.next_u64() >> 12) as f64 + 0.5) * (1.0 / 4_503_599_627_370_496.0)
}
