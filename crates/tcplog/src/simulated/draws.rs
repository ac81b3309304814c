//! Random numbers of a simulation: SplitMix64, reproducible from a seed.

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// Seed the generator.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Return a number from the full range.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    /// Return a number below `bound`, which must not be 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// Return true with a probability of `permille` / 1000.
    pub const fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}
