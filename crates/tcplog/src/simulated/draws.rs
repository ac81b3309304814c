//! Random numbers of a simulation: SplitMix64, the same for ever from the same seed.

/// A row of draws.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The row of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all there are.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    /// A number below another one, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// True in so many of 1000 cases.
    pub const fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}
