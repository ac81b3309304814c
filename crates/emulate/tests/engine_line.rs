//! The delay line: departure times are exactly as drawn, order is kept where configured, and live changes lose no packet.

mod drive;

use drive::{START, at, dispositions, endless, frame::udp, one};
use sojourn_emulate::config::{Delay, Distribution, Impairments, Limit, Link, Order, PortDelay, Queue, Reorder};
use sojourn_emulate::{Arrived, Cause, Config, Direction, Engine, Outcome, Pipe};
use sojourn_time::{Nanos, Time};

fn jittered(order: Order) -> Pipe {
    let jitter = Some(Distribution::Normal { sd: Nanos::millis(2) });
    Pipe { delay: Delay { constant: Nanos::millis(20), jitter, order, ..Delay::default() }, ..Pipe::default() }
}

#[test]
fn jitter_without_reordering_does_not_accumulate_delay() {
    let arrivals: Vec<_> = (0..1_000_000).map(|n| (n * 10_000, 60)).collect();
    let kept = dispositions(&one(jittered(Order::Kept)), arrivals.clone());
    let free = dispositions(&one(jittered(Order::Free)), arrivals);
    let own: Vec<_> = free.iter().map(|disposition| disposition.arrived + disposition.drawn.expect("drawn")).collect();
    assert!(free.iter().zip(&own).all(|(disposition, own)| disposition.intended == Some(*own)));
    let left: Vec<_> = kept.iter().map(|disposition| disposition.intended.expect("sent")).collect();
    assert!(left.is_sorted(), "no reordering");
    assert!(!own.is_sorted(), "somebody would have");
    let mut sorted = own;
    sorted.sort_unstable();
    assert_eq!(left, sorted, "the same times, so the mean is the same to the nanosecond");
    // N(20 ms, 2 ms) with a million samples: the mean is within five standard errors.
    let mean = kept
        .iter()
        .map(|disposition| (disposition.intended.expect("sent") - disposition.arrived).0 as f64)
        .sum::<f64>()
        / 1e6;
    assert!((mean - 20e6).abs() < 5.0 * 2e6 / 1e3, "{mean}");
}

#[test]
fn chosen_packets_overtake_and_the_others_do_not() {
    let reorder = Some(Reorder { probability: 0.1, gap: 0, by: None });
    let pipe = Pipe { delay: Delay { constant: Nanos::millis(1), reorder, ..Delay::default() }, ..Pipe::default() };
    let dispositions = dispositions(&one(pipe), (0..10_000).map(|n| (n * 50_000, 60)));
    let stay =
        |disposition: &&sojourn_emulate::Disposition| (disposition.intended.expect("sent") - disposition.arrived).0;
    let (chosen, others): (Vec<_>, Vec<_>) = dispositions.iter().partition(|disposition| disposition.is_reordered);
    assert!((800..1_200).contains(&chosen.len()));
    assert!(
        chosen.iter().all(|disposition| stay(disposition) == 0)
            && others.iter().all(|disposition| stay(disposition) == 1_000_000)
    );
}

#[test]
fn departures_of_reordered_packets_behind_a_link_are_announced_in_time() {
    for by in [None, Some(Nanos::millis(6))] {
        let reorder = Some(Reorder { probability: 0.5, gap: 0, by });
        let delay = Delay { constant: Nanos::millis(10), reorder, ..Delay::default() };
        let link = Link { rate_bps: Some(10_000_000), ..Link::default() };
        let mut engine =
            Engine::new(&one(Pipe { delay, link, queue: endless(), ..Pipe::default() }), START).expect("holds");
        (0..200).for_each(|flow| drive::keep(&mut engine, &udp(1_250, flow), START));
        let (mut now, mut left) = (START, 0);
        while engine.next() < Time::NEVER {
            now = now.max(engine.next());
            while let Some(departure) = engine.due(now) {
                assert_eq!(departure.intended, now, "packet {} is announced too late, by {by:?}", departure.number);
                engine.departed(departure, now);
                left += 1;
            }
        }
        assert_eq!(left, 200);
    }
}

#[test]
fn flows_behind_one_link_share_its_queue_and_have_delays_per_port() {
    let millis = Nanos::millis;
    // Flow 1 of `udp` has source port 1025.
    let own = PortDelay { first: 1_025, last: 1_025, constant: millis(40) };
    let delay = Delay { constant: millis(10), of_ports: vec![own], ..Delay::default() };
    let link = Link { rate_bps: Some(10_000_000), ..Link::default() };
    let mut engine =
        Engine::new(&one(Pipe { delay, link, queue: endless(), ..Pipe::default() }), START).expect("holds");
    (0..100).for_each(|n| drive::keep(&mut engine, &udp(1_250, n % 2), START));
    let (mut now, mut left) = (START, Vec::new());
    while engine.next() < Time::NEVER {
        now = now.max(engine.next());
        while let Some(departure) = engine.due(now) {
            assert_eq!(departure.intended, now, "packet {} is announced too late", departure.number);
            left.push((departure.number, departure.intended));
            engine.departed(departure, now);
        }
    }
    left.sort_unstable();
    // 1250 bytes at 10 Mbit/s take 1 ms: the link sends the packets in turn, as with a single delay.
    let expected: Vec<_> =
        (0..100).map(|n: u64| (n, START + millis(n as i64 + 1) + millis([10, 40][n as usize % 2]))).collect();
    assert_eq!(
        left.iter().map(|(_, at)| *at).collect::<Vec<_>>(),
        expected.iter().map(|(_, at)| *at).collect::<Vec<_>>()
    );
}

#[test]
fn shortening_the_delay_at_run_time_neither_loses_nor_reorders_packets() {
    let millis = |n| Pipe { delay: Delay { constant: Nanos::millis(n), ..Delay::default() }, ..Pipe::default() };
    let mut engine = Engine::new(&one(millis(100)), START).expect("holds");
    let mut left = Vec::new();
    for n in 0..1_000_i64 {
        let now = at(n * 1_000_000);
        if n % 100 == 50 {
            let to = millis([5, 100, 0, 30][n as usize / 100 % 4]);
            assert_eq!(engine.set("p", &to, now), Ok(now));
        }
        engine.arrive(Direction::Forward, &udp(60, n as u16), now);
        while let Some(departure) = engine.due(now) {
            left.push(departure.number);
            engine.departed(departure, now);
        }
    }
    while let Some(departure) = engine.due(Time::NEVER) {
        left.push(departure.number);
        engine.departed(departure, departure.intended);
    }
    assert_eq!(left, (0..1_000).collect::<Vec<_>>());
    assert_eq!(engine.report().pipes[0].accuracy.count, 1_000);
}

#[test]
fn rate_change_applies_to_the_rest_of_the_packet_being_serialised() {
    let rated =
        |rate| Pipe { link: Link { rate_bps: Some(rate), ..Link::default() }, queue: endless(), ..Pipe::default() };
    let mut engine = Engine::new(&one(rated(1_000_000)), START).expect("holds");
    (0..3).for_each(|_| drive::keep(&mut engine, &[0; 1_250], START));
    // 10 ms each; after 4 ms of the first the rate becomes ten times as high: 6 ms become 0.6 ms.
    assert_eq!(engine.set("p", &rated(10_000_000), at(4_000_000)), Ok(at(4_000_000)));
    let mut left = Vec::new();
    while engine.next() < Time::NEVER {
        let now = engine.next();
        while let Some(departure) = engine.due(now) {
            left.push((departure.intended - START).0);
            engine.departed(departure, now);
        }
    }
    assert_eq!(left, [4_600_000, 5_600_000, 6_600_000]);
    // The first one had left the queue before.
    let report = &engine.report().pipes[0];
    let since = report.since_change.expect("it was changed");
    assert_eq!((since.at_ns, since.arrived, since.sent, report.queueing_delay.count), (at(4_000_000), 0, 3, 3));
    let waited = since.queueing_delay;
    assert_eq!((waited.count, waited.mean_ns, waited.max_ns), (2, 5_100_000.0, 5_600_000));
    assert!((waited.p50_ns - 4_600_000).abs() <= 4_600 && (waited.p99_ns - 5_600_000).abs() <= 5_600, "{waited:?}");
    // Already announced: it leaves the link in less than a millisecond, at the announced time.
    let start = at(20_000_000);
    (0..2).for_each(|_| drive::keep(&mut engine, &[0; 1_250], start));
    engine.set("p", &rated(1_000_000), start + Nanos::micros(500)).expect("holds");
    let left: Vec<_> = std::iter::from_fn(|| engine.due(at(40_000_000))).map(|due| (due.intended - start).0).collect();
    assert_eq!(left, [1_000_000, 11_000_000]);
}

#[test]
fn shrinking_the_queue_drops_the_excess_and_removing_the_link_releases_all() {
    let slots = |slots| Pipe {
        link: Link { rate_bps: Some(1_000_000), ..Link::default() },
        queue: Queue { limit: Limit { slots: Some(slots), bytes: None }, ..Queue::default() },
        ..Pipe::default()
    };
    let mut engine = Engine::new(&one(slots(10)), START).expect("holds");
    (0..13).for_each(|_| drive::keep(&mut engine, &[0; 1_250], START));
    let lost = |engine: &Engine| engine.report().pipes[0].counts.lost[Cause::Full];
    assert_eq!(lost(&engine), 2, "one on the link, ten in the queue");
    engine.set("p", &slots(4), at(1_000)).expect("holds");
    assert_eq!((lost(&engine), engine.report().pipes[0].held), (8, 5));
    engine.set("p", &Pipe::default(), at(2_000)).expect("holds");
    let left: Vec<_> = std::iter::from_fn(|| engine.due(at(2_000))).map(|due| (due.intended - START).0).collect();
    assert_eq!(left, [2_000; 5]);
}

#[test]
fn contradictory_change_is_refused_and_changes_nothing() {
    let mut engine = Engine::new(&one(jittered(Order::Kept)), START).expect("holds");
    let wrong = Pipe { delay: Delay { constant: Nanos(-1), ..Delay::default() }, ..Pipe::default() };
    assert!(engine.set("p", &wrong, START).is_err());
    assert!(engine.set("q", &Pipe::default(), START).expect_err("no such pipe").to_string().contains("`q`"));
    assert_eq!(engine.config(), &one(jittered(Order::Kept)));
}

#[test]
fn copies_pass_all_later_stages() {
    let duplicating = || Impairments { duplication: Some(1.0), ..Impairments::default() };
    let pipe = Pipe {
        before: duplicating(),
        link: Link { rate_bps: Some(8_000_000), ..Link::default() },
        queue: endless(),
        after: duplicating(),
        delay: Delay { constant: Nanos::millis(7), ..Delay::default() },
        ..Pipe::default()
    };
    let dispositions = dispositions(&one(pipe), [(0, 1_000)]);
    let told: Vec<_> = dispositions
        .iter()
        .map(|disposition| (disposition.number, disposition.copy_of, (disposition.intended.expect("sent") - START).0))
        .collect();
    // The link carries two, a millisecond each; after it there are four.
    let mut times: Vec<_> = told.iter().map(|(.., time)| *time).collect();
    times.sort_unstable();
    assert_eq!(times, [8_000_000, 8_000_000, 9_000_000, 9_000_000]);
    let mut originals: Vec<_> = told.iter().map(|(_, of, _)| *of).collect();
    originals.sort_unstable();
    assert_eq!(originals, [None, Some(0), Some(0), Some(1)]);
    assert!(
        dispositions.iter().all(|disposition| disposition.outcome == Outcome::Sent && disposition.head().len() == 128)
    );
}

#[test]
fn full_memory_loses_packets_but_breaks_no_accounting() {
    let config = Config {
        memory_bytes: 1 << 20,
        ..one(Pipe { delay: Delay { constant: Nanos::seconds(10), ..Delay::default() }, ..Pipe::default() })
    };
    let mut engine = Engine::new(&config, START).expect("holds");
    engine.keep_dispositions(true);
    let arrived: Vec<_> =
        (0..2_000).map(|n| engine.arrive(Direction::Forward, &udp(1_514, n), at(i64::from(n)))).collect();
    let kept = arrived.iter().filter(|arrived| **arrived == Arrived::Kept).count();
    let report = engine.report();
    assert!((350..692).contains(&kept), "{kept}");
    assert_eq!(report.pipes[0].counts.lost[Cause::Memory], 2_000 - kept as u64);
    assert!(report.memory.taken_bytes <= 1 << 20 && report.memory.held_bytes == 1_514 * kept as u64);
    assert!(engine.dispositions().all(|disposition| disposition.outcome == Outcome::Lost(Cause::Memory)));
    while let Some(departure) = engine.due(Time::NEVER) {
        assert_eq!(engine.frame(&departure), udp(1_514, departure.number as u16));
        engine.departed(departure, departure.intended);
    }
    assert_eq!(engine.arrive(Direction::Forward, &udp(60, 0), at(0)), Arrived::Kept, "other sizes find room again");
    assert_eq!(engine.report().pipes[0].counts.sent, kept as u64);
}

#[test]
fn accuracy_is_the_pacing_error_of_departures_per_block() {
    let mut engine = Engine::new(&one(Pipe::default()), START).expect("holds");
    let mut send = |count: i64, error: i64| {
        for n in count..2 * count {
            drive::keep(&mut engine, &[0; 60], at(n));
            let departure = engine.due(at(n)).expect("due");
            engine.departed(departure, departure.intended + Nanos(error));
        }
        engine.begin().pipes[0].clone()
    };
    let (first, second) = (send(100, 150_000), send(300, -40));
    assert_eq!((first.accuracy.count, first.accuracy.late, first.accuracy.max_ns), (100, 100, 150_000));
    assert_eq!((second.counts.sent, second.accuracy.late, second.accuracy.p50_ns), (300, 0, -40));
    let whole = engine.report().pipes[0].clone();
    assert_eq!((whole.counts.sent, whole.accuracy.late, whole.accuracy.min_ns), (400, 100, -40));
    assert_eq!(whole.accuracy.mean_ns, (100.0 * 150_000.0 - 300.0 * 40.0) / 400.0);
}
