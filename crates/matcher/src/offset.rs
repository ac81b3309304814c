//! By how much two taps' clocks differ, roughly: packets that both saw at their beginnings say so.

use std::collections::HashMap;

use crate::Seen;

/// Fewer common packets say nothing.
const LEAST: usize = 3;

/// Returns the median of the second tap's times less the first's, of packets that each of them saw once; `None` where these are
/// too few. The clocks differ by that, and by a delay.
pub fn offset_between(first: &[Seen], second: &[Seen]) -> Option<i64> {
    let mut differences: Vec<i64> = common(first, second).map(|(one, other)| other.time - one.time).collect();
    (differences.len() >= LEAST).then(|| median(&mut differences))
}

/// Returns the packets that each tap saw once.
pub(crate) fn common<'a>(first: &'a [Seen], second: &'a [Seen]) -> impl Iterator<Item = (&'a Seen, &'a Seen)> {
    let once = once(second);
    let mut found: Vec<_> =
        self::once(first).into_iter().filter_map(|(digest, seen)| Some((seen?, (*once.get(&digest)?)?))).collect();
    found.sort_unstable_by_key(|(one, other)| (one.time, other.time, one.digest));
    found.into_iter()
}

/// Each packet by its digest; none where there are several.
fn once(all: &[Seen]) -> HashMap<u64, Option<&Seen>> {
    let mut by_digest = HashMap::with_capacity(all.len());
    for seen in all {
        by_digest.entry(seen.digest).and_modify(|found| *found = None).or_insert(Some(seen));
    }
    by_digest
}

/// Returns the lower median; 0 of nothing.
pub(crate) fn median(values: &mut [i64]) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}
