//! The gaps are exactly the lost numbers.

use super::*;
use proptest::prelude::*;

fn noted(numbers: &[u64]) -> Gaps {
    let mut gaps = Gaps::default();
    numbers.iter().for_each(|&number| gaps.note(0, number, 100 + number));
    gaps
}

#[test]
fn complete_sequence_has_no_gap() {
    assert!(noted(&[0, 1, 2, 3]).finish(0, 4).is_empty());
    assert!(noted(&[]).finish(0, 0).is_empty());
}

#[test]
fn gap_has_the_times_of_its_neighbours() {
    let expected = Gap { cpu: 0, number: 2, missing: 3, after_ns: Some(101), before_ns: Some(105) };
    assert_eq!(noted(&[0, 1, 5]).finish(0, 6), [expected]);
}

#[test]
fn gaps_at_both_ends_are_found() {
    let first = Gap { cpu: 0, number: 0, missing: 2, after_ns: None, before_ns: Some(102) };
    let last = Gap { cpu: 0, number: 3, missing: 4, after_ns: Some(102), before_ns: None };
    assert_eq!(noted(&[2]).finish(0, 7), [first, last]);
    assert_eq!(
        noted(&[]).finish(3, 7),
        [Gap { cpu: 3, number: 0, missing: 7, after_ns: None, before_ns: None }],
        "a ring in which nothing had room"
    );
}

#[test]
fn late_number_splits_its_gap() {
    let mut gaps = noted(&[0, 5]);
    assert!(gaps.end_batch(0).is_empty());
    gaps.note(0, 3, 103);
    let expected = [
        Gap { cpu: 0, number: 1, missing: 2, after_ns: Some(100), before_ns: Some(103) },
        Gap { cpu: 0, number: 4, missing: 1, after_ns: Some(103), before_ns: Some(105) },
    ];
    assert_eq!(gaps.finish(0, 6), expected);
    assert_eq!((gaps.missing(), gaps.unexpected()), (3, 0));
}

#[test]
fn gap_is_reported_once_after_its_grace_period() {
    let mut gaps = noted(&[0, 2]);
    let given: Vec<_> = (0..PATIENCE).map(|_| gaps.end_batch(0).len()).collect();
    assert_eq!(given.iter().sum::<usize>(), 1);
    assert_eq!(given.last(), Some(&1));
    assert!(gaps.finish(0, 3).is_empty());
    gaps.note(0, 1, 101);
    assert_eq!(gaps.unexpected(), 1, "what was given up is not expected any more");
}

#[test]
fn numbering_of_a_later_block_starts_at_its_first_number() {
    let mut gaps = Gaps::default();
    gaps.begin(0, 1000);
    gaps.note(0, 1001, 1);
    assert_eq!(gaps.finish(0, 1002).iter().map(|gap| (gap.number, gap.missing)).collect::<Vec<_>>(), [(1000, 1)]);
    gaps.note(0, 1003, 3);
    let next = gaps.finish(0, 1004);
    assert_eq!(next, [Gap { cpu: 0, number: 1002, missing: 1, after_ns: Some(1), before_ns: Some(3) }]);
}

proptest! {
    /// For any losses, any bounded reordering and any division into batches: the gaps are exactly the lost numbers, in
    /// maximal rows, with the times of their neighbours.
    #[test]
    fn gaps_are_exactly_what_was_lost(
        kept in prop::collection::vec(prop::bool::weighted(0.7), 0..400),
        jitter in prop::collection::vec(0_u64..12, 400),
        batches in prop::collection::vec(1_usize..20, 1..40),
    ) {
        let end = kept.len() as u64;
        let mut order: Vec<u64> = (0..end).filter(|&n| kept[n as usize]).collect();
        order.sort_by_key(|&n| (n + jitter[n as usize], n));
        let mut gaps = Gaps::default();
        let mut found = Vec::new();
        let mut sizes = batches.iter().cycle();
        let mut waiting = order.as_slice();
        while !waiting.is_empty() {
            let (batch, rest) = waiting.split_at((*sizes.next().unwrap()).min(waiting.len()));
            batch.iter().for_each(|&number| gaps.note(7, number, 100 + number));
            found.extend(gaps.end_batch(7));
            waiting = rest;
        }
        found.extend(gaps.finish(7, end));
        let mut expected = Vec::new();
        let mut at = 0;
        while at < end {
            let stop = (at..end).find(|&n| kept[n as usize]).unwrap_or(end);
            if stop > at {
                let after_ns = at.checked_sub(1).map(|n| 100 + n);
                let before_ns = (stop < end).then_some(100 + stop);
                expected.push(Gap { cpu: 7, number: at, missing: stop - at, after_ns, before_ns });
            }
            at = stop + 1;
        }
        found.sort_by_key(|gap| gap.number);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(gaps.missing(), kept.iter().filter(|&&is_kept| !is_kept).count() as u64);
        prop_assert_eq!(gaps.unexpected(), 0);
    }
}
