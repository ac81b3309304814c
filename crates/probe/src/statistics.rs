//! Summary statistics of a sample of times. Exact: from all values, by sorting.

use serde::Serialize;
use sojourn_time::Nanos;

/// A sample's summary. Quantiles are nearest-rank; the two highest are present when at least one value lies beyond
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The number of values.
    pub n: usize,
    /// The minimum.
    pub min_ns: i64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile; the maximum in samples below 100.
    pub p99_ns: i64,
    /// 99.9th percentile.
    pub p99_9_ns: Option<i64>,
    /// 99.99th percentile.
    pub p99_99_ns: Option<i64>,
    /// The maximum.
    pub max_ns: i64,
    /// Sample standard deviation; 0 for a single value.
    pub sd_ns: f64,
}

impl Summary {
    /// Summarizes `values`; `None` when there are none.
    pub fn of(values: impl Iterator<Item = Nanos>) -> Option<Self> {
        let mut sorted: Vec<i64> = values.map(|value| value.0).collect();
        sorted.sort_unstable();
        let (min_ns, max_ns) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        // Relative to the minimum, so that the magnitude of the times costs no precision.
        let mean_above_min = sorted.iter().map(|value| (value - min_ns) as f64).sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|value| ((value - min_ns) as f64 - mean_above_min).powi(2)).sum();
        let beyond = |per_beyond: usize| (n >= per_beyond).then(|| rank(&sorted, per_beyond - 1, per_beyond));
        Some(Self {
            n,
            min_ns,
            mean_ns: min_ns as f64 + mean_above_min,
            p50_ns: rank(&sorted, 1, 2),
            p90_ns: rank(&sorted, 9, 10),
            p99_ns: rank(&sorted, 99, 100),
            p99_9_ns: beyond(1_000),
            p99_99_ns: beyond(10_000),
            max_ns,
            sd_ns: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
        })
    }
}

/// Returns the least value that at least `part` of `whole` of the values do not exceed.
fn rank(sorted: &[i64], part: usize, whole: usize) -> i64 {
    let index = (sorted.len() * part).div_ceil(whole).saturating_sub(1);
    sorted[index.min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_use_the_nearest_rank() {
        let summary = Summary::of((1..=1_000).map(Nanos)).unwrap();
        assert_eq!((summary.p50_ns, summary.p90_ns, summary.p99_ns), (500, 900, 990));
        assert_eq!((summary.p99_9_ns, summary.p99_99_ns), (Some(999), None));
        assert!((summary.mean_ns - 500.5).abs() < 1e-9);
        assert!((summary.sd_ns - 288.819_436).abs() < 1e-5);
    }

    #[test]
    fn empty_sample_has_no_summary() {
        assert_eq!(Summary::of(std::iter::empty()), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_in_order(values in proptest::collection::vec(-1_000_000..1_000_000_i64, 1..300)) {
            let summary = Summary::of(values.iter().copied().map(Nanos)).unwrap();
            let order =
                [summary.min_ns, summary.p50_ns, summary.p90_ns, summary.p99_ns, summary.max_ns];
            prop_assert!(order.is_sorted());
            let at_most = values.iter().filter(|value| **value <= summary.p90_ns).count();
            prop_assert!(at_most * 10 >= values.len() * 9);
            prop_assert!(summary.min_ns as f64 <= summary.mean_ns && summary.mean_ns <= summary.max_ns as f64);
        }
    }
}
