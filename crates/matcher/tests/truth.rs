//! Simulated boxes with known delay, loss and duplication: each match is true or marked as ambiguous, and the counts
//! add up for any input.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sojourn_matcher::{Counts, Ends, Limits, Matcher, Observed, Outcome, Reordering, Slice, Tap, Way};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;

/// The behaviour of a simulated box.
#[derive(Clone, Debug)]
struct Scenario {
    packets: u64,
    interval: i64,
    /// Digests repeat after this many packets; 0: never.
    alike_after: u64,
    delay: (i64, i64),
    loss: f64,
    duplication: f64,
    unexpected: f64,
    /// The second clock: its offset, and its rate in ppm.
    offset: i64,
    skew_ppm: f64,
    limits: Limits,
    seed: u64,
}

const PLAIN: Scenario = Scenario {
    packets: 20_000,
    interval: 10 * US,
    alike_after: 0,
    delay: (20 * US, 20 * US),
    loss: 0.0,
    duplication: 0.0,
    unexpected: 0.0,
    offset: 0,
    skew_ppm: 0.0,
    limits: Limits { window: 10 * MS, ahead: 0, memory: 64 << 20 },
    seed: 1,
};

/// The outcome of the packets, true and as matched.
struct Told {
    counts: Counts,
    lost: u64,
    copies: u64,
    foreign: u64,
    reordered: u64,
    extent_max: u32,
    /// Matches with a wrong delay that are not marked as ambiguous.
    wrong: u64,
    wrong_but_ambiguous: u64,
}

/// Run a scenario; the truth of a match is looked up by the first tap's timestamp.
fn run(scenario: &Scenario) -> Told {
    let mut random = StdRng::seed_from_u64(scenario.seed);
    let clock = |time: i64| time + scenario.offset + (time as f64 * scenario.skew_ppm * 1e-6) as i64;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut arrivals = Vec::new();
    let mut truth = HashMap::new();
    let (mut lost, mut copies, mut foreign) = (0, 0, 0);
    for number in 0..scenario.packets {
        let sent = number as i64 * scenario.interval;
        let kind = if scenario.alike_after == 0 { number } else { number % scenario.alike_after };
        let digest = kind.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x0123_4567_89AB_CDEF;
        let seen = |time| Observed { at: time, time, digest, length: 60 + (number % 1_400) as u32, note: 3 };
        first.push(seen(sent));
        if random.random_bool(scenario.loss) {
            lost += 1;
            continue;
        }
        let arrived = sent + random.random_range(scenario.delay.0..=scenario.delay.1);
        truth.insert(sent, clock(arrived));
        arrivals.push((arrived, number));
        second.push(seen(clock(arrived)));
        if random.random_bool(scenario.duplication) {
            copies += 1;
            second.push(seen(clock(arrived + random.random_range(0..MS))));
        }
        if random.random_bool(scenario.unexpected) {
            foreign += 1;
            second.push(Observed {
                at: clock(arrived),
                time: clock(arrived),
                digest: !digest ^ number,
                length: 60,
                note: 0,
            });
        }
    }
    second.sort_by_key(|seen| seen.time);
    arrivals.sort_unstable();
    let (mut reordered, mut extent_max) = (0, 0);
    for (place, (_, number)) in arrivals.iter().enumerate() {
        // By definition: the earliest arrival that was sent later.
        let from = place.saturating_sub(2_000);
        if let Some(before) = arrivals[from..place].iter().position(|(_, other)| other > number) {
            reordered += 1;
            extent_max = extent_max.max((place - from - before) as u32);
        }
    }
    let (mut wrong, mut wrong_but_ambiguous) = (0, 0);
    let counts = matched(&first, &second, scenario.limits, |outcome| {
        if let Outcome::Matched { seen, second, is_ambiguous, .. } = outcome
            && truth.get(&seen.time) != Some(&second)
        {
            if is_ambiguous { wrong_but_ambiguous += 1 } else { wrong += 1 }
        }
    });
    Told { counts, lost, copies, foreign, reordered, extent_max, wrong, wrong_but_ambiguous }
}

/// Push the packets of both taps in order of time.
fn matched(first: &[Observed], second: &[Observed], limits: Limits, mut each: impl FnMut(Outcome)) -> Counts {
    let mut matcher = Matcher::new(limits, 1);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        (first.iter().copied().collect(), second.iter().copied().collect());
    let mut sink = |_: Way, outcome| each(outcome);
    loop {
        let is_first = match (first.front(), second.front()) {
            (Some(one), Some(other)) => one.time <= other.time,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        let (tap, queue) = if is_first { (Tap::First, &mut first) } else { (Tap::Second, &mut second) };
        if let Some(seen) = queue.pop_front() {
            matcher.push(tap, Way::Forward, &seen, &mut sink);
        }
    }
    matcher.end(&mut sink);
    let counts = matcher.counts(Way::Forward);
    assert_eq!(counts.seen_first, counts.matched + counts.lost + counts.evicted + counts.pending);
    assert_eq!(counts.seen_second, counts.matched + counts.duplicated + counts.unexpected);
    counts
}

#[test]
fn packets_that_differ_are_matched_exactly() {
    let told = run(&PLAIN);
    assert_eq!((told.counts.matched, told.wrong, told.counts.ambiguous), (20_000, 0, 0));
    assert_eq!(told.counts, Counts { seen_first: 20_000, seen_second: 20_000, matched: 20_000, ..told.counts });
}

#[test]
fn losses_duplicates_and_unexpected_packets_are_counted_exactly() {
    let told = run(&Scenario { loss: 0.03, duplication: 0.02, unexpected: 0.01, delay: (5 * US, 900 * US), ..PLAIN });
    assert!(told.lost > 400 && told.copies > 200 && told.foreign > 100);
    // The outcome of the last ones is still open.
    assert_eq!(told.counts.lost + told.counts.pending, told.lost);
    assert_eq!((told.counts.duplicated, told.counts.unexpected), (told.copies, told.foreign));
    assert_eq!((told.wrong, told.counts.ambiguous), (0, 0));
}

#[test]
fn reordering_is_that_of_its_definition() {
    for (seed, delay) in [(1, (5 * US, 60 * US)), (2, (5 * US, 500 * US)), (3, (0, 5 * MS))] {
        let told = run(&Scenario { delay, seed, loss: 0.01, ..PLAIN });
        assert!(told.reordered > 1_000);
        assert_eq!((told.counts.reordered, told.counts.reordering_extent_max), (told.reordered, told.extent_max));
        assert_eq!((told.wrong, told.counts.lost + told.counts.pending), (0, told.lost));
    }
}

/// Trains of pure acknowledgements, wrapped identifiers, repeated payloads.
#[test]
fn identical_packets_are_matched_correctly_or_reported_as_ambiguous() {
    let mut wrong_but_ambiguous = 0;
    for alike_after in [1, 2, 3, 10, 100, 900] {
        for (seed, loss, duplication) in [(1, 0.0, 0.0), (2, 0.05, 0.0), (3, 0.0, 0.05), (4, 0.05, 0.05)] {
            let delay = (5 * US, 300 * US);
            let told = run(&Scenario { alike_after, loss, duplication, delay, seed, ..PLAIN });
            assert_eq!(told.wrong, 0, "{alike_after} {loss} {duplication}");
            assert!(told.counts.ambiguous > 15_000);
            wrong_but_ambiguous += told.wrong_but_ambiguous;
        }
    }
    assert!(wrong_but_ambiguous > 1_000, "the scenario is hard: {wrong_but_ambiguous}");
    // Beyond the window there is no other candidate.
    let told = run(&Scenario { alike_after: 1_100, loss: 0.05, delay: (5 * US, 300 * US), ..PLAIN });
    assert_eq!((told.wrong, told.counts.ambiguous, told.counts.lost + told.counts.pending), (0, 0, told.lost));
}

/// In order and without loss, equal packets too have their true delays.
#[test]
fn equal_packets_in_order_are_matched_in_order() {
    let told = run(&Scenario { alike_after: 1, ..PLAIN });
    assert_eq!((told.counts.matched, told.wrong + told.wrong_but_ambiguous), (20_000, 0));
    assert_eq!((told.counts.ambiguous, told.counts.reordered), (20_000, 0));
}

#[test]
fn clock_offset_and_skew_within_the_limits_do_not_change_matching() {
    for (offset, skew_ppm) in [(-3 * MS, 0.0), (4 * MS, 0.0), (-2 * MS, 100.0), (2 * MS, -200.0)] {
        let limits = Limits { ahead: 5 * MS, ..PLAIN.limits };
        let scenario =
            Scenario { offset, skew_ppm, limits, loss: 0.02, duplication: 0.02, delay: (0, 200 * US), ..PLAIN };
        let told = run(&scenario);
        assert_eq!((told.wrong, told.counts.duplicated, told.counts.unexpected), (0, told.copies, 0));
        assert_eq!(told.counts.lost + told.counts.pending, told.lost);
        assert_eq!(told.counts.reordered, told.reordered);
    }
}

#[test]
fn packet_delayed_beyond_the_window_is_lost_and_unexpected() {
    let limits = Limits { window: 50 * US, ..PLAIN.limits };
    let late = run(&Scenario { delay: (51 * US, 51 * US), limits, ..PLAIN });
    assert_eq!((late.counts.matched, late.counts.unexpected), (0, 20_000));
    let just = run(&Scenario { delay: (50 * US, 50 * US), limits, ..PLAIN });
    assert_eq!((just.counts.matched, just.counts.unexpected), (20_000, 0));
}

#[test]
fn too_little_memory_is_reported() {
    let limits = Limits { memory: 1 << 16, ..PLAIN.limits };
    let told = run(&Scenario { delay: (8 * MS, 8 * MS), limits, ..PLAIN });
    assert!(told.counts.evicted > 10_000, "{:?}", told.counts);
    assert_eq!(told.wrong, 0);
    let told = run(&Scenario { delay: (100 * US, 100 * US), limits, ..PLAIN });
    assert_eq!((told.counts.evicted, told.counts.matched), (0, 20_000));
}

#[test]
fn too_little_memory_for_two_clocks_is_reported() {
    let limits = Limits { memory: 1 << 16, ahead: 10 * MS, ..PLAIN.limits };
    let told = run(&Scenario { offset: -8 * MS, limits, ..PLAIN });
    assert!(told.counts.judged_early > 10_000 && told.wrong == 0, "{:?}", told.counts);
    assert_eq!(run(&PLAIN).counts.judged_early, 0);
}

#[test]
fn directions_are_matched_separately() {
    let limits = Limits { window: MS, ahead: 0, memory: 1 << 20 };
    let mut matcher = Matcher::new(limits, 2);
    let mut told = Vec::new();
    let mut sink = |way, outcome| told.push((way, outcome));
    let at = |time| Observed { at: time, time, digest: 7, length: 60, note: 0 };
    matcher.push(Tap::First, Way::Forward, &at(0), &mut sink);
    matcher.push(Tap::Second, Way::Backward, &at(1), &mut sink);
    matcher.push(Tap::Second, Way::Forward, &at(5), &mut sink);
    matcher.push(Tap::First, Way::Backward, &at(9), &mut sink);
    // Time advances in both directions.
    matcher.push(Tap::First, Way::Forward, &at(3 * MS), &mut sink);
    assert_eq!(told.len(), 2);
    for (way, from, until) in [(Way::Forward, 0, 5), (Way::Backward, 1, 9)] {
        let found = told.iter().any(|(told, outcome)| {
            *told == way
                && matches!(outcome, Outcome::Matched { seen, second, is_ambiguous: false, .. }
                    if (seen.time, *second) == (from, until))
        });
        assert!(found, "{told:?}");
    }
}

proptest! {
    /// For any input in any order of time, each packet is counted and reported exactly once.
    #[test]
    fn counts_add_up(
        records in prop::collection::vec((any::<bool>(), any::<bool>(), 0_i64..5_000, 0_u64..12), 0..400),
        window in 0_i64..2_000, ahead in prop::sample::select(vec![0_i64, 1, 300, 5_000]), memory in 0_usize..20_000,
    ) {
        let mut matcher = Matcher::new(Limits { window, ahead, memory }, 2);
        let mut told = HashMap::<(bool, &str), u64>::new();
        let mut sink = |way: Way, outcome| {
            let name = match outcome {
                Outcome::Matched { seen, second, .. } => {
                    assert!(second - seen.time >= -ahead);
                    "matched"
                }
                Outcome::Lost { .. } => "lost",
                Outcome::Evicted { .. } => "evicted",
                Outcome::Pending { .. } => "pending",
                Outcome::Duplicated(_) => "duplicated",
                Outcome::Unexpected(_) => "unexpected",
            };
            *told.entry((way == Way::Forward, name)).or_default() += 1;
        };
        let mut seen = HashMap::<(bool, bool), u64>::new();
        for (is_first, is_forward, time, digest) in &records {
            let tap = if *is_first { Tap::First } else { Tap::Second };
            let way = if *is_forward { Way::Forward } else { Way::Backward };
            *seen.entry((*is_forward, is_first == is_forward)).or_default() += 1;
            matcher.push(tap, way, &Observed { at: *time, time: *time, digest: *digest, length: 1, note: 0 }, &mut sink);
        }
        matcher.end(&mut sink);
        for is_forward in [true, false] {
            let counts = matcher.counts(if is_forward { Way::Forward } else { Way::Backward });
            let of = |name| told.get(&(is_forward, name)).copied().unwrap_or(0);
            let seen = |is_first| seen.get(&(is_forward, is_first)).copied().unwrap_or(0);
            prop_assert_eq!((counts.seen_first, counts.seen_second), (seen(true), seen(false)));
            prop_assert_eq!(seen(true), counts.matched + counts.lost + counts.evicted + counts.pending);
            prop_assert_eq!(seen(false), counts.matched + counts.duplicated + counts.unexpected);
            prop_assert_eq!(counts.matched, of("matched"));
            prop_assert_eq!(
                (counts.lost, counts.evicted, counts.pending), (of("lost"), of("evicted"), of("pending"))
            );
            prop_assert_eq!((counts.duplicated, counts.unexpected), (of("duplicated"), of("unexpected")));
        }
    }

    /// For distinct packets in order of time, a simple model with unlimited memory gives the same result.
    #[test]
    fn a_simple_model_agrees(
        packets in prop::collection::vec((0_i64..50, 0_i64..200, any::<bool>()), 1..200), window in 1_i64..150,
    ) {
        let (mut first, mut second, mut sent) = (Vec::new(), Vec::new(), 0);
        for (number, (gap, delay, is_lost)) in packets.iter().enumerate() {
            sent += gap;
            let seen = |time| Observed { at: time, time, digest: number as u64, length: 1, note: 0 };
            first.push(seen(sent));
            if !is_lost {
                second.push(seen(sent + delay));
            }
        }
        second.sort_by_key(|seen| seen.time);
        let within = packets.iter().filter(|(_, delay, is_lost)| !is_lost && *delay <= window).count() as u64;
        let counts = matched(&first, &second, Limits { window, ahead: 0, memory: 1 << 20 }, |_| ());
        prop_assert_eq!((counts.matched, counts.ambiguous), (within, 0));
        prop_assert_eq!(counts.unexpected, second.len() as u64 - within);
    }

    /// The packets of some digests, matched separately, have the same results as among all, in every direction, with
    /// any clocks.
    #[test]
    fn slices_agree_with_the_whole(
        records in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.8), 0_i64..60, 0_i64..40, 0_u64..30), 0..400),
        window in 0_i64..900, ahead in prop::sample::select(vec![0_i64, 1, 300, 5_000]), slices in 1_u64..6,
    ) {
        // Times increase by gaps; a timestamp may be earlier than those before it at its tap.
        let (mut time, mut latest) = (0, [0_i64; 2]);
        let mut events = Vec::new();
        for (is_first, is_forward, gap, back, digest) in records {
            time += gap;
            let stamp = if back > 30 { time - 5 * back } else { time };
            let at = &mut latest[usize::from(!is_first)];
            *at = (*at).max(stamp);
            let seen = Observed { at: *at, time: stamp, digest, length: 60, note: 1 };
            let tap = if is_first { Tap::First } else { Tap::Second };
            events.push((tap, if is_forward { Way::Forward } else { Way::Backward }, seen, 0));
        }
        events.sort_by_key(|(tap, _, seen, _)| (seen.at, *tap == Tap::Second));
        let (mut numbers, mut ends) = ([[0_u64; 2]; 2], Ends::default());
        for (tap, way, seen, number) in &mut events {
            let (place, leaves) = (usize::from(*way == Way::Backward), (*tap == Tap::First) != (*way == Way::Forward));
            let next = &mut numbers[place][usize::from(leaves)];
            *number = *next;
            *next += 1;
            ends.last = Some(seen.at);
            if leaves {
                ends.left_last[place] = Some(seen.at);
            } else {
                ends.came_first[place] = ends.came_first[place].or(Some(seen.at));
            }
        }
        let limits = Limits { window, ahead, memory: 1 << 20 };
        let mut whole = Matcher::new(limits, 2);
        let mut told = Vec::new();
        for (tap, way, seen, _) in &events {
            whole.push(*tap, *way, seen, &mut |way, outcome| told.push((way == Way::Forward, outcome)));
        }
        whole.end(&mut |way, outcome| told.push((way == Way::Forward, outcome)));

        let mut found = Vec::new();
        let mut arrivals = [Vec::new(), Vec::new()];
        let mut counts = [Counts::default(); 2];
        for mine in 0..slices {
            let mut slice = Slice::new(limits, 2);
            slice.lies_within(&ends);
            let mut ranked = Vec::new();
            let mut sink = |way: Way, outcome| ranked.push((way, outcome));
            for (tap, way, seen, number) in events.iter().filter(|(_, _, seen, _)| seen.digest % slices == mine) {
                slice.push(*tap, *way, seen, *number, &mut sink);
            }
            slice.end(&ends, &mut sink);
            for (place, way) in [Way::Forward, Way::Backward].into_iter().enumerate() {
                slice.arrivals(way, &mut arrivals[place]);
                counts[place] = counts[place] + slice.counts(way);
            }
            for (way, outcome) in ranked {
                if let Outcome::Matched { extent: low, number, .. } = outcome {
                    let rank = slice.rank(way, low);
                    let listed = arrivals[usize::from(way == Way::Backward)].iter().any(|one| (one.rank, one.number) == (rank, Some(number)));
                    prop_assert!(listed);
                }
                found.push((way == Way::Forward, outcome));
            }
        }
        // Reordering, from the arrivals of all slices in order.
        let mut extents = HashMap::new();
        for (place, arrivals) in arrivals.iter_mut().enumerate() {
            arrivals.sort_unstable_by_key(|one| one.rank);
            prop_assert!(arrivals.iter().map(|one| one.rank).eq(0..numbers[place][1]));
            let mut reordering = Reordering::default();
            for number in arrivals.iter().filter_map(|one| one.number) {
                let extent = reordering.arrive(number);
                counts[place].reordered += u64::from(extent > 0);
                counts[place].reordering_extent_max = counts[place].reordering_extent_max.max(extent);
                extents.insert((place == 0, number), extent);
            }
        }
        for (way, outcome) in &mut found {
            if let Outcome::Matched { extent, number, .. } = outcome {
                *extent = extents[&(*way, *number)];
            }
        }
        let name = |one: &(bool, Outcome)| format!("{one:?}");
        told.sort_by_key(name);
        found.sort_by_key(name);
        prop_assert_eq!(told, found);
        prop_assert_eq!(counts, [whole.counts(Way::Forward), whole.counts(Way::Backward)]);
    }
}
