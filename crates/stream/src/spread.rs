//! The distribution of times or lengths: a high dynamic range histogram for positive and negative values.

use hdrhistogram::Histogram;

/// Significant digits of a value.
const DIGITS: u8 = 3;

/// Signed values. Recording allocates memory only for values far larger than all before.
#[derive(Clone, Debug)]
pub struct Spread {
    above: Histogram<u64>,
    below: Histogram<u64>,
    sum: f64,
}

/// A bin: values that are equal to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The smallest value in the bin.
    pub low: i64,
    /// The largest value in the bin.
    pub high: i64,
    /// The number of values.
    pub count: u64,
}

impl Default for Spread {
    fn default() -> Self {
        // The histogram grows if a value needs it, a few times at most.
        let empty = || Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("digits that a histogram can have"));
        Self { above: empty(), below: empty(), sum: 0.0 }
    }
}

impl Spread {
    /// Adds a value.
    pub fn record(&mut self, value: i64) {
        let side = if value < 0 { &mut self.below } else { &mut self.above };
        let recorded = side.record(value.unsigned_abs());
        debug_assert!(recorded.is_ok(), "it grows");
        self.sum += value as f64;
    }

    /// Adds a value `count` times.
    pub fn record_many(&mut self, value: i64, count: u64) {
        let side = if value < 0 { &mut self.below } else { &mut self.above };
        let recorded = side.record_n(value.unsigned_abs(), count);
        debug_assert!(recorded.is_ok(), "it grows");
        self.sum += value as f64 * count as f64;
    }

    /// Adds the values of another.
    pub fn add(&mut self, other: &Self) {
        let added = self.above.add(&other.above).and_then(|()| self.below.add(&other.below));
        debug_assert!(added.is_ok(), "all have the same bounds");
        self.sum += other.sum;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.above.len() + self.below.len()
    }

    /// Returns the arithmetic mean, exact; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum / self.count() as f64)
    }

    /// Returns the minimum, to three digits.
    pub fn min(&self) -> Option<i64> {
        self.quantile(0.0)
    }

    /// Returns the maximum, to three digits.
    pub fn max(&self) -> Option<i64> {
        self.quantile(1.0)
    }

    /// Returns the nearest-rank quantile, from 0 to 1, to three digits; `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<i64> {
        self.quantile_among(quantile, self.count()).flatten()
    }

    /// Returns the nearest-rank quantile among `all` values; those not recorded here count as infinite, because lost
    /// packets never arrive. `None`: there are no values at all. `Some(None)`: the quantile is infinite.
    pub fn quantile_among(&self, quantile: f64, all: u64) -> Option<Option<i64>> {
        let all = all.max(self.count());
        if all == 0 {
            return None;
        }
        let rank = ((quantile.clamp(0.0, 1.0) * all as f64).ceil() as u64).max(1);
        let below = self.below.len();
        if rank <= below {
            // The largest magnitudes are the smallest values.
            return Some(Some(-nth(&self.below, below - rank + 1)));
        }
        let rank = rank - below;
        Some((rank <= self.above.len()).then(|| nth(&self.above, rank)))
    }

    /// Returns the share of values above a limit of 0 or more, to three digits of the limit; 0 without values.
    pub fn share_above(&self, limit: i64) -> f64 {
        let within = self.below.len() + self.above.count_between(0, limit.unsigned_abs());
        (self.count() - within) as f64 / self.count().max(1) as f64
    }

    /// Returns the non-empty bins, ascending.
    pub fn cells(&self) -> Vec<Cell> {
        let below = self.below.iter_recorded().map(|value| {
            let (low, high) = range(&self.below, value.value_iterated_to());
            Cell { low: -high, high: -low, count: value.count_at_value() }
        });
        let mut cells: Vec<_> = below.collect();
        cells.reverse();
        cells.extend(self.above.iter_recorded().map(|value| {
            let (low, high) = range(&self.above, value.value_iterated_to());
            Cell { low, high, count: value.count_at_value() }
        }));
        cells
    }
}

/// Returns the middle of the bin that holds the `rank`th value, from 1.
fn nth(histogram: &Histogram<u64>, rank: u64) -> i64 {
    let mut seen = 0;
    for value in histogram.iter_recorded() {
        seen += value.count_at_value();
        if seen >= rank {
            let (low, high) = range(histogram, value.value_iterated_to());
            return low + (high - low) / 2;
        }
    }
    0
}

fn range(histogram: &Histogram<u64>, value: u64) -> (i64, i64) {
    (histogram.lowest_equivalent(value) as i64, histogram.highest_equivalent(value) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(-3_000_000_i64..9_000_000, 1..300),
            quantile in 0.0..=1.0_f64, lost in 0..50_u64,
        ) {
            let mut spread = Spread::default();
            values.iter().for_each(|value| spread.record(*value));
            values.sort_unstable();
            let rank = ((quantile * (values.len() as f64 + lost as f64)).ceil() as usize).max(1);
            let truth = values.get(rank - 1);
            let told = spread.quantile_among(quantile, values.len() as u64 + lost).unwrap();
            prop_assert_eq!(told.is_some(), truth.is_some());
            if let (Some(told), Some(truth)) = (told, truth) {
                prop_assert!((told - truth).abs() as f64 <= 1.0 + truth.abs() as f64 / 1_000.0, "{} {}", told, truth);
            }
        }

        #[test]
        fn a_share_above_a_limit_is_that_of_the_values(
            values in prop::collection::vec(-3_000_i64..9_000, 1..300), limit in 0..9_000_i64,
        ) {
            let mut spread = Spread::default();
            values.iter().for_each(|value| spread.record(*value));
            let above = |limit: i64| values.iter().filter(|value| **value > limit).count() as f64 / values.len() as f64;
            let near = limit / 1_000 + 1;
            prop_assert!((above(limit + near)..=above(limit - near)).contains(&spread.share_above(limit)));
        }

        #[test]
        fn histogram_cells_are_ordered_and_contain_every_value(values in prop::collection::vec(any::<i64>(), 0..100)) {
            let mut spread = Spread::default();
            values.iter().for_each(|value| spread.record(*value / 4));
            let cells = spread.cells();
            prop_assert!(cells.iter().all(|cell| cell.low <= cell.high));
            let ascends = |low: &Cell, high: &Cell| low.high < high.low || low.high == 0 && high.low == 0;
            prop_assert!(cells.windows(2).all(|pair| ascends(&pair[0], &pair[1])));
            prop_assert_eq!(cells.iter().map(|cell| cell.count).sum::<u64>(), values.len() as u64);
            for value in &values {
                prop_assert!(cells.iter().any(|cell| (cell.low..=cell.high).contains(&(value / 4))));
            }
        }
    }
}
