//! The quantile functions of the random part of a delay, in nanoseconds.
//!
//! Functions beyond plain arithmetic come from the crate `libm`, not from the system's library: the same seed gives the
//! same delays on every machine.

use std::sync::Arc;

use sojourn_time::Nanos;

use crate::config::Distribution;
use crate::shared::Pool;

use super::{gamma, normal};

/// One standard deviation in an iproute2 table.
const TABLE_SCALE: f64 = 8192.0;

/// A level of a distribution: a probability, or the standard normal deviate of that probability, which is precise in both tails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Uniform(f64),
    Normal(f64),
}

/// A distribution that is ready to be drawn from.
#[derive(Debug)]
pub(super) struct Shape {
    distribution: Distribution,
    /// The quantile table of a gamma distribution.
    table: Option<Arc<gamma::Table>>,
}

static SHAPES: Pool<Shape> = Pool::new();

impl Shape {
    /// Returns a distribution, shared by all that draw from it: tables may be large, and there may be many flows.
    pub(super) fn of(distribution: &Distribution) -> Arc<Self> {
        SHAPES.share(
            |shape| shape.distribution == *distribution,
            || {
                let table = match distribution {
                    Distribution::Gamma { shape, .. } => Some(gamma::Table::of(*shape)),
                    _ => None,
                };
                Self { distribution: distribution.clone(), table }
            },
        )
    }

    /// Returns the quantile at a level.
    pub(super) fn quantile(&self, level: Level) -> f64 {
        match &self.distribution {
            Distribution::Uniform { spread } => nanos(*spread) * (2.0 * level.below() - 1.0),
            Distribution::Normal { sd } => nanos(*sd) * level.deviate(),
            Distribution::Exponential { mean } => nanos(*mean) * level.hazard(),
            Distribution::Pareto { scale, shape } => nanos(*scale) * libm::expm1(level.hazard() / shape),
            Distribution::Gamma { scale, .. } => {
                nanos(*scale) * self.table.as_ref().map_or(0.0, |table| table.quantile(level.deviate()))
            }
            Distribution::Empirical { points, .. } => between(points, level.below()),
            Distribution::Table { sd, values, .. } => {
                let place = (level.below() * values.len() as f64) as usize;
                let value = values.get(place.min(values.len().saturating_sub(1)));
                value.map_or(0.0, |value| nanos(*sd) / TABLE_SCALE * f64::from(*value))
            }
        }
    }
}

fn nanos(time: Nanos) -> f64 {
    time.0 as f64
}

impl Level {
    /// Returns the probability below.
    fn below(self) -> f64 {
        match self {
            Self::Uniform(u) => u,
            Self::Normal(z) => normal::below(z),
        }
    }

    /// Returns −ln of the probability above: the quantile of an exponential distribution of mean 1.
    fn hazard(self) -> f64 {
        match self {
            Self::Uniform(u) if u < 0.5 => -libm::log1p(-u),
            Self::Uniform(u) => -libm::log(1.0 - u),
            Self::Normal(z) if z < 0.0 => -libm::log1p(-normal::below(z)),
            Self::Normal(z) => -libm::log(normal::below(-z)),
        }
    }

    fn deviate(self) -> f64 {
        match self {
            Self::Uniform(u) => normal::quantile(u),
            Self::Normal(z) => z,
        }
    }
}

/// Interpolates linearly between points; below the first and above the last point, returns that point's value.
fn between(points: &[(f64, Nanos)], share: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < share);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(a), Some(b)) => nanos(a.1) + nanos(b.1 - a.1) * (share - a.0) / (b.0 - a.0),
        (Some(end), None) | (None, Some(end)) => nanos(end.1),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Nanos = Nanos::millis(1);

    /// Checks each level twice: as a probability and as its deviate.
    fn assert_quantiles(distribution: &Distribution, expected: impl Fn(f64) -> f64) {
        let shape = Shape::of(distribution);
        for u in [1e-12, 1e-6, 0.01, 0.2, 0.4999, 0.75, 0.99, 1.0 - 1e-6] {
            let wanted = expected(u);
            for level in [Level::Uniform(u), Level::Normal(normal::quantile(u))] {
                let value = shape.quantile(level);
                assert!((value - wanted).abs() <= 1e-9 * wanted.abs(), "{level:?} ({u}): {value}, not {wanted}");
            }
        }
    }

    #[test]
    fn quantiles_are_the_closed_forms() {
        assert_quantiles(&Distribution::Uniform { spread: SCALE }, |u| 1e6 * (2.0 * u - 1.0));
        assert_quantiles(&Distribution::Exponential { mean: SCALE }, |u| 1e6 * -(-u).ln_1p());
        assert_quantiles(&Distribution::Pareto { scale: SCALE, shape: 3.0 }, |u| 1e6 * ((-u).ln_1p() / -3.0).exp_m1());
        assert_quantiles(&Distribution::Gamma { scale: SCALE, shape: 1.0 }, |u| 1e6 * -(-u).ln_1p());
    }

    #[test]
    fn upper_tail_is_exact_beyond_the_resolution_of_probabilities_near_one() {
        // 1 − Φ(9) = 1.13e-19 is smaller than the spacing of floating-point numbers near 1.
        let value = Shape::of(&Distribution::Exponential { mean: SCALE }).quantile(Level::Normal(9.0));
        assert!((value / 1e6 - 43.628_149_8).abs() < 1e-6, "{value}");
    }

    #[test]
    fn empirical_distribution_is_linear_between_its_points() {
        let points = vec![(0.1, Nanos(100)), (0.5, Nanos(500)), (0.5, Nanos(600)), (0.9, Nanos(600))];
        let shape = Shape::of(&Distribution::Empirical { points, file: String::new() });
        for (u, value) in [(0.05, 100.0), (0.1, 100.0), (0.3, 300.0), (0.5, 500.0), (0.500_001, 600.0), (0.99, 600.0)] {
            assert!((shape.quantile(Level::Uniform(u)) - value).abs() < 1e-9, "{u}");
        }
        let nothing = Shape::of(&Distribution::Empirical { points: Vec::new(), file: String::new() });
        assert_eq!(nothing.quantile(Level::Uniform(0.3)), 0.0);
    }

    #[test]
    fn tables_of_iproute2_are_scaled_as_the_kernel_does() {
        let table = |values: &[i16]| Distribution::Table { sd: SCALE, values: values.to_vec(), file: String::new() };
        let shape = Shape::of(&table(&[-8192, 0, 4096, 8192]));
        for (u, value) in [(1e-9, -1e6), (0.249, -1e6), (0.251, 0.0), (0.6, 0.5e6), (1.0 - 1e-15, 1e6)] {
            assert_eq!(shape.quantile(Level::Uniform(u)), value, "{u}");
        }
        assert_eq!(Shape::of(&table(&[])).quantile(Level::Uniform(0.3)), 0.0);
    }
}
