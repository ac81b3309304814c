//! Whether gaps are exponentially distributed, as those of a Poisson stream are: the test of Anderson and Darling.

/// How well a sample fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The statistic A², not modified.
    pub a2: f64,
    /// The probability of so great a statistic when the sample is what it is tested for.
    pub p: f64,
    /// How many values it is of.
    pub n: usize,
}
