//! The Anderson–Darling test of whether gaps are exponentially distributed, as those of a Poisson stream.
//!
//! The mean is estimated. Source: M. A. Stephens, in D'Agostino and Stephens, *Goodness-of-Fit Techniques* (1986), table 4.11 and after.

/// The goodness of fit of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The statistic A², without modification.
    pub a2: f64,
    /// The p-value: the probability of a statistic at least this large if the null hypothesis holds.
    pub p: f64,
    /// The sample size.
    pub n: usize,
}

impl Fit {
    /// Returns the largest A² at this sample size whose p is at least `level`, for levels of 1e-6 to 0.1.
    pub fn critical(&self, level: f64) -> f64 {
        let (mut low, mut high) = (0.51, 10.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if p_of_estimated_mean(middle) >= level {
                low = middle;
            } else {
                high = middle;
            }
        }
        low / modification(self.n)
    }
}

/// Returns the probability that at least `failed` of `tests` tests of true Poisson streams fail at a level.
pub fn chance(failed: usize, tests: usize, level: f64) -> f64 {
    let mut exactly = (1.0 - level).powi(tests as i32);
    let mut fewer = 0.0;
    for count in 0..failed {
        fewer += exactly;
        exactly *= (tests - count) as f64 / (count + 1) as f64 * level / (1.0 - level);
    }
    (1.0_f64 - fewer).clamp(0.0, 1.0)
}

/// The minimum number of gaps for a test.
pub const LEAST_GAPS: usize = 8;

/// Gaps are rounded to nanoseconds: a gap of 0 counts as this.
const LEAST_GAP_NS: f64 = 0.5;

/// Tests gaps, in nanoseconds, for an exponential distribution of any mean. Sorts them. `None`: too few gaps.
pub fn exponential(gaps_ns: &mut [f64]) -> Option<Fit> {
    let n = gaps_ns.len();
    let mean_ns = gaps_ns.iter().sum::<f64>() / n as f64;
    let a2 = statistic(gaps_ns, mean_ns)?;
    Some(Fit { a2, p: p_of_estimated_mean(a2 * modification(n)), n })
}

fn statistic(gaps_ns: &mut [f64], mean_ns: f64) -> Option<f64> {
    let n = gaps_ns.len();
    if n < LEAST_GAPS || mean_ns.is_nan() || mean_ns <= 0.0 {
        return None;
    }
    gaps_ns.sort_unstable_by(f64::total_cmp);
    let scaled = |gap: f64| gap.max(LEAST_GAP_NS) / mean_ns;
    let pairs = gaps_ns.iter().zip(gaps_ns.iter().rev()).enumerate();
    let sum: f64 = pairs
        .map(|(place, (low, high))| {
            // ln F of the i-th smallest value and ln (1 - F) of the i-th largest.
            let below = (-(-scaled(*low)).exp_m1()).ln();
            (2 * place + 1) as f64 * (below - scaled(*high))
        })
        .sum();
    Some(-(n as f64) - sum / n as f64)
}

/// Returns the factor that modifies A² for the sample size.
fn modification(n: usize) -> f64 {
    1.0 + 0.6 / n as f64
}

/// Stephens' formulas for the p-value of the modified statistic with an estimated mean.
fn p_of_estimated_mean(z: f64) -> f64 {
    let p = if z < 0.26 {
        1.0 - (-12.2204 + 67.459 * z - 110.3 * z * z).exp()
    } else if z < 0.51 {
        1.0 - (-6.1327 + 20.218 * z - 18.663 * z * z).exp()
    } else if z < 0.95 {
        (0.9209 - 3.353 * z + 0.300 * z * z).exp()
    } else if z < 10.03 {
        (0.731 - 3.009 * z + 0.15 * z * z).exp()
    } else {
        // The parabola would rise again.
        0.0
    };
    p.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution, Exp1};

    use super::*;

    const SAMPLES: u64 = 1_500;

    fn gaps(seed: u64, n: usize) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        (0..n).map(|_| Distribution::<f64>::sample(&Exp1, &mut random) * 1e5).collect()
    }

    /// Returns the maximum distance between the distribution of p-values and the uniform one, times √n.
    fn distance(p: impl Fn(u64) -> f64) -> f64 {
        let mut values: Vec<f64> = (0..SAMPLES).map(p).collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = SAMPLES as f64;
        let steps = values.iter().enumerate();
        steps.map(|(place, value)| ((place as f64 + 0.5) / n - value).abs()).fold(0.0, f64::max) * n.sqrt()
    }

    /// Kolmogorov's distance of a valid sample exceeds 1.95 once in a thousand; the published formulas are fits with
    /// errors of up to some thousandths.
    const MOST: f64 = 2.2;

    #[test]
    fn p_values_of_exponential_gaps_are_uniform() {
        for n in [20, 100, 1_000] {
            let distance = distance(|seed| exponential(&mut gaps(seed, n)).unwrap().p);
            assert!(distance < MOST, "{n}: {distance}");
        }
    }

    #[test]
    fn gaps_that_are_not_exponential_do_not_fit() {
        let mut regular = vec![1e5; 1_000];
        assert!(exponential(&mut regular).unwrap().p < 1e-6);
        let mut uniform: Vec<f64> = (0..1_000).map(|place| f64::from(place) * 200.0).collect();
        assert!(exponential(&mut uniform).unwrap().p < 1e-6);
    }

    /// For the modified statistic, Stephens' table has 1.959 at 1 % and 1.321 at 5 %; his formulas agree with it to 1 %.
    #[test]
    fn critical_value_equals_the_published_table() {
        for (level, tabled) in [(0.01, 1.959), (0.05, 1.321), (0.1, 1.062)] {
            let fit = Fit { a2: 0.0, p: 1.0, n: 40 };
            let modified = fit.critical(level) * (1.0 + 0.6 / 40.0);
            assert!((modified / tabled - 1.0).abs() < 0.01, "{level}: {modified}");
        }
        for seed in 0..200 {
            let mut gaps = gaps(seed, 30);
            gaps[..10].fill(1e5);
            let fit = exponential(&mut gaps).unwrap();
            assert_eq!(fit.a2 > fit.critical(0.05), fit.p < 0.05, "{fit:?}");
        }
    }

    #[test]
    fn combined_p_value_allows_one_failure_in_twenty_tests() {
        assert!((chance(1, 1, 0.01) - 0.01).abs() < 1e-12);
        assert!((chance(1, 20, 0.01) - (1.0 - 0.99_f64.powi(20))).abs() < 1e-12);
        assert!(chance(2, 20, 0.01) > 0.01 && chance(3, 20, 0.01) < 0.01);
        assert!((chance(0, 20, 0.01) - 1.0).abs() < 1e-12 && chance(20, 20, 0.01) < 1e-12);
    }

    #[test]
    fn too_few_gaps_or_none_at_all_are_not_tested() {
        assert_eq!(exponential(&mut gaps(1, 7)), None);
        assert_eq!(exponential(&mut []), None);
        assert_eq!(exponential(&mut [0.0; 20]), None);
    }
}
