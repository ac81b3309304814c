//! Counts values in logarithmic classes (two significant digits): compact histograms that can be added.

use std::collections::BTreeMap;

/// A class is defined by a value's six highest bits, so its middle differs from a value by at most 1/64.
const BITS: u32 = 6;

/// Returns the middle of each non-empty class, ascending, with its count.
pub fn classes(values: impl IntoIterator<Item = (i64, u64)>) -> Vec<(i64, u64)> {
    let mut counts = BTreeMap::new();
    for (value, count) in values {
        *counts.entry(class_of(value)).or_insert(0) += count;
    }
    counts.into_iter().collect()
}

fn class_of(value: i64) -> i64 {
    let magnitude = value.unsigned_abs();
    let shift = (u64::BITS - magnitude.leading_zeros()).saturating_sub(BITS);
    let middle = (magnitude >> shift << shift) + ((1 << shift) >> 1);
    i64::try_from(middle).unwrap_or(i64::MAX) * value.signum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn histogram_class_is_close_to_its_values_and_counts_all(values in prop::collection::vec(any::<i64>(), 0..200)) {
            let told = classes(values.iter().map(|value| (*value, 2)));
            prop_assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), 2 * values.len() as u64);
            prop_assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for value in values {
                let middle = class_of(value);
                prop_assert!((middle as f64 - value as f64).abs() <= value.unsigned_abs() as f64 / 64.0 + 1.0);
                prop_assert!(told.binary_search_by_key(&middle, |(value, _)| *value).is_ok());
            }
        }
    }

    #[test]
    fn small_values_have_exact_classes() {
        assert_eq!(classes((-63..=63).map(|value| (value, 1))).len(), 127);
        assert_eq!(classes([(1_000, 1), (1_007, 2), (1_008, 1)]), [(1_000, 3), (1_016, 1)]);
    }
}
