//! Estimate the offset between two taps' clocks from packets that both saw at their beginnings.

use std::collections::HashMap;

use crate::Seen;

/// The minimum number of common packets.
const LEAST: usize = 3;

/// Return the median difference of the second tap's times minus the first's, over packets that each tap saw once;
/// `None` if these are too few. It is the clock offset plus a delay.
pub fn offset_between(first: &[Seen], second: &[Seen]) -> Option<i64> {
    let mut differences: Vec<i64> = common(first, second).map(|(one, other)| other.time - one.time).collect();
    (differences.len() >= LEAST).then(|| median(&mut differences))
}

/// Return the packets that each tap saw exactly once.
pub(crate) fn common<'a>(first: &'a [Seen], second: &'a [Seen]) -> impl Iterator<Item = (&'a Seen, &'a Seen)> {
    let once = once(second);
    let mut found: Vec<_> =
        self::once(first).into_iter().filter_map(|(digest, seen)| Some((seen?, (*once.get(&digest)?)?))).collect();
    found.sort_unstable_by_key(|(one, other)| (one.time, other.time, one.digest));
    found.into_iter()
}

/// Return the packets by digest; `None` for a digest that occurs several times.
fn once(all: &[Seen]) -> HashMap<u64, Option<&Seen>> {
    let mut by_digest = HashMap::with_capacity(all.len());
    for seen in all {
        by_digest.entry(seen.digest).and_modify(|found| *found = None).or_insert(Some(seen));
    }
    by_digest
}

/// Return the lower median; 0 for no values.
pub(crate) fn median(values: &mut [i64]) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}
