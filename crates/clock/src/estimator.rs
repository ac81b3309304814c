//! From exchanges to an estimate.

use serde::{Deserialize, Serialize};

use crate::{Estimate, Exchange};

/// What is taken for granted of two clocks between steps. The hard bound holds within these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// By how many millionths one may run faster than the other: two crystals of 100 ppm each.
    pub skew_ppm: f64,
    /// By how much that may change in a second, as by temperature.
    pub drift_ppm_per_s: f64,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsynchronised {
    /// Fewer than two exchanges.
    #[error("{0} of the exchanges needed were completed: at least 2 are")]
    TooFew(u64),
}

/// Gathers exchanges and estimates the remote clock from them.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    limits: Limits,
    exchanges: Vec<Exchange>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { skew_ppm: 200.0, drift_ppm_per_s: 0.5 }
    }
}

impl Limits {
    /// Returns how far a clock can run away from a line, so many ns beyond its end, where its skew may differ by so much.
    pub fn beyond_ns(&self, skew_ppb: f64, beyond: f64) -> f64 {
        let free = skew_ppb * 1e-9 * beyond + self.drift_ppm_per_s * 1e-15 * beyond * beyond / 2.0;
        free.min(2.0 * self.skew_ppm * 1e-6 * beyond)
    }
}

impl Estimator {
    /// Begins with no exchange.
    pub fn new(limits: Limits) -> Self {
        Self { limits, exchanges: Vec::new() }
    }

    /// Takes an exchange. Those whose times contradict themselves are left out.
    pub fn push(&mut self, exchange: Exchange) {
        self.exchanges.push(exchange);
    }

    /// Returns what all exchanges up to now tell.
    ///
    /// # Errors
    /// When they are too few.
    pub fn estimate(&self) -> Result<Estimate, Unsynchronised> {
        Err(Unsynchronised::TooFew(self.exchanges.len() as u64))
    }

    /// Returns the limits that are taken for granted.
    pub fn limits(&self) -> Limits {
        self.limits
    }
}
