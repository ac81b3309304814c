//! Compare the programs' decisions, in C code compiled for user space, with plain arithmetic.

use proptest::prelude::*;
use sojourn_tcplog::decide::{WATCHED, Watched, digest, flow_is_chosen, is_early, is_full, is_multiple, ports_match};

fn watched() -> impl Strategy<Value = Watched> {
    // Equal values are frequent, so that fields resemble each other.
    prop::array::uniform11(prop_oneof![0_u64..4, any::<u64>()]).prop_map(|fields| Watched { fields })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    /// The result agrees with counting.
    #[test]
    fn number_of_multiples_agrees_with_counting(
        first in prop_oneof![0_u64..500, (1_u64 << 32) - 200..(1 << 32) + 200, 0..u64::MAX / 2],
        count in 1_u32..70,
        ppl in prop_oneof![0_u32..80, any::<u32>()],
    ) {
        let is_there = (first..first + u64::from(count)).any(|number| number.is_multiple_of(ppl.max(1).into()));
        prop_assert_eq!(is_multiple(first, count, ppl), is_there);
    }

    /// For any division of segments into packets, each multiple lies in one packet: with one segment each, exactly one
    /// in `ppl` is due; with more, no multiple is missed.
    #[test]
    fn each_multiple_lies_in_exactly_one_packet(counts in prop::collection::vec(1_u32..46, 1..300), ppl in 1_u32..100) {
        let mut first = 0_u64;
        for count in &counts {
            let multiples = (first + u64::from(*count)).div_ceil(ppl.into()) - first.div_ceil(ppl.into());
            prop_assert_eq!(is_multiple(first, *count, ppl), multiples > 0);
            first += u64::from(*count);
        }
        let due = (0..first).filter(|&packet| is_multiple(packet, 1, ppl)).count() as u64;
        prop_assert_eq!(due, first.div_ceil(ppl.into()));
    }

    /// A sample within the interval is early; without an interval or an earlier sample, none is.
    #[test]
    fn sample_within_the_minimum_interval_is_early(last in 1_u64..1 << 62, after in 0_u64..1 << 40, interval in 1_u64..1 << 40) {
        prop_assert_eq!(is_early(last + after, last, interval), after < interval);
        prop_assert!(!is_early(last + after, last, 0));
        prop_assert!(!is_early(last + after, 0, interval));
        // Another CPU may have logged slightly later.
        prop_assert!(is_early(last, last + after.min(interval - 1), interval));
        // A larger step back means that the clock was set: not early.
        prop_assert!(!is_early(last, last + after + interval, interval));
    }

    /// A ring is full when as many records wait as it has slots. It is not full when empty, nor when its position was
    /// read before other records arrived and were read.
    #[test]
    fn a_ring_is_full_when_all_its_slots_wait(read in 0_u64..1 << 62, waiting in 0_u64..1 << 20, more in 1_u64..1 << 20, log in 0_u32..32) {
        prop_assert_eq!(is_full(read + waiting, read, 1 << log), waiting >= 1 << log);
        prop_assert!(!is_full(read, read, 1 << log));
        prop_assert!(!is_full(read, read + more, 1 << log));
    }

    /// The digest changes if and only if a chosen field changes; it is never 0.
    #[test]
    fn change_digest_covers_only_the_chosen_fields(
        before in watched(),
        field in 0..WATCHED,
        value in any::<u64>(),
        changes in 0_u64..1 << WATCHED,
    ) {
        let mut after = before;
        after.fields[field] = value;
        let has_changed = changes >> field & 1 != 0 && after != before;
        prop_assert_eq!(digest(&before, changes) != digest(&after, changes), has_changed);
        prop_assert_ne!(digest(&before, changes), 0);
    }

    /// Swapping two fields is a change.
    #[test]
    fn change_digest_distinguishes_fields(before in watched(), one in 0..WATCHED, other in 0..WATCHED) {
        let mut after = before;
        after.fields.swap(one, other);
        let all = (1 << WATCHED) - 1;
        prop_assert_eq!(digest(&before, all) == digest(&after, all), before == after);
    }

    /// Local and remote ports match; without ports, all match.
    #[test]
    fn port_filter_matches_local_and_remote_ports(ports in prop::collection::vec(0_u16..30, 0..=16), local in 0_u16..30, remote in 0_u16..30) {
        let is_one = ports.is_empty() || ports.contains(&local) || ports.contains(&remote);
        prop_assert_eq!(ports_match(&ports, local, remote), is_one);
    }
}

/// One flow in N is chosen, of consecutive cookies, as the kernel assigns them, and of any others; the share is within
/// five standard deviations.
#[test]
fn one_flow_in_n_is_chosen() {
    const FLOWS: u64 = 100_000;
    let rows: [fn(u64) -> u64; 4] =
        [|at| at + 1, |at| at * 2, |at| at * 4096 + 7, |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
    for n in [1_u32, 2, 3, 7, 16, 100] {
        for row in rows {
            let chosen = (0..FLOWS).filter(|&at| flow_is_chosen(row(at), n)).count() as f64;
            let share = 1.0 / f64::from(n);
            let deviation = (FLOWS as f64 * share * (1.0 - share)).sqrt();
            assert!((chosen - FLOWS as f64 * share).abs() <= 5.0 * deviation, "{chosen} of {FLOWS} for 1 in {n}");
        }
    }
    assert!((0..1000).all(|cookie| flow_is_chosen(cookie, 0)), "0 is as 1");
}
