//! Properties of every configuration: every packet is counted, results do not depend on when the engine is called, and
//! the replay of a log gives the same dispositions.

mod drive;

use std::collections::{BTreeMap, HashMap};

use drive::{START, any, at, finish, frame::udp};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use sojourn_emulate::config::check::check;
use sojourn_emulate::replay::{Change, differences, replay};
use sojourn_emulate::{Arrived, Cause, Config, Disposition, Engine, Outcome, Report};
use sojourn_time::{Nanos, Time};

/// How an engine is called between arrivals.
#[derive(Clone, Copy, Debug)]
enum Calls {
    /// At every event.
    Each,
    /// At random times, for random parts.
    Some,
    /// Only at the end.
    None,
}

fn run(
    config: &Config,
    arrivals: &[(i64, sojourn_emulate::Direction, usize, u16)],
    calls: Calls,
    random: &mut StdRng,
) -> (Vec<Disposition>, Report) {
    let mut engine = Engine::new(config, START).expect("a valid configuration");
    engine.keep_dispositions(true);
    let mut all = Vec::new();
    let mut before = START;
    for (nanos, direction, bytes, flow) in arrivals {
        let now = at(*nanos);
        match calls {
            Calls::Each => drive::drain(&mut engine, now, &mut all),
            Calls::Some => some_calls(&mut engine, before, now, random),
            Calls::None => {}
        }
        engine.arrive(*direction, &udp(*bytes, *flow), now);
        before = now;
    }
    finish(&mut engine, &mut all);
    (all, engine.report())
}

/// Makes random calls, but none for a time after the next arrival.
fn some_calls(engine: &mut Engine, from: Time, to: Time, random: &mut StdRng) {
    for _ in 0..random.random_range(0..4) {
        let now = from + Nanos(random.random_range(0..=(to - from).0));
        if random.random() {
            engine.advance(now);
        }
        let most = random.random_range(0..3);
        for _ in 0..most {
            if let Some(departure) = engine.due(now) {
                engine.departed(departure, departure.intended);
            }
        }
    }
}

/// Returns the dispositions by ancestry instead of number: numbers of copies depend on when links were processed.
fn by_ancestry(mut dispositions: Vec<Disposition>) -> BTreeMap<Vec<u64>, Disposition> {
    dispositions.sort_by_key(|disposition| disposition.number);
    let (mut names, mut children, mut arrivals) = (HashMap::new(), HashMap::new(), 0);
    let named = dispositions.into_iter().map(|mut disposition| {
        let name = match disposition.copy_of {
            None => {
                arrivals += 1;
                vec![arrivals]
            }
            Some(original) => {
                let child: &mut u64 = children.entry(original).or_default();
                *child += 1;
                let parent: &Vec<u64> = &names[&original];
                [parent.clone(), vec![*child]].concat()
            }
        };
        names.insert(disposition.number, name.clone());
        (disposition.number, disposition.copy_of) = (0, None);
        (name, disposition)
    });
    named.collect()
}

fn is_conserved(report: &Report) {
    for pipe in &report.pipes {
        let gone = pipe.counts.sent + pipe.counts.lost.total();
        assert_eq!(pipe.counts.arrived + pipe.counts.duplicated, gone + pipe.held, "{pipe:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn call_times_do_not_change_results_and_every_packet_is_counted_once(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let config = any::config(&mut random);
        let arrivals = any::arrivals(&mut random, 300);
        let (each, report) = run(&config, &arrivals, Calls::Each, &mut random);
        is_conserved(&report);
        prop_assert_eq!(report.memory.held_frames, 0);
        let of = |outcome: fn(&Outcome) -> bool| each.iter().filter(|disposition| outcome(&disposition.outcome)).count() as u64;
        let sent: u64 = report.pipes.iter().map(|pipe| pipe.counts.sent).sum();
        prop_assert_eq!(of(|outcome| *outcome == Outcome::Sent), sent);
        let lost: u64 = report.pipes.iter().map(|pipe| pipe.counts.lost.total()).sum();
        prop_assert_eq!(of(|outcome| outcome.cause().is_some()), lost + report.lost_by_rules);
        let copies: u64 = report.pipes.iter().map(|pipe| pipe.counts.duplicated).sum();
        prop_assert_eq!(each.len() as u64, arrivals.len() as u64 + copies);
        let each = by_ancestry(each);
        for calls in [Calls::Some, Calls::None] {
            let (other, _) = run(&config, &arrivals, calls, &mut random);
            let other = by_ancestry(other);
            for (name, disposition) in &each {
                prop_assert_eq!(Some(disposition), other.get(name), "{:?} {:?}", calls, name);
            }
            prop_assert_eq!(each.len(), other.len());
        }
    }

    #[test]
    fn log_of_a_run_with_changes_and_small_memory_replays_identically(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut config = any::config(&mut random);
        // Too little memory for some packets, if that is allowed.
        let small = Config { memory_bytes: 1 << 17, ..config.clone() };
        if random.random_bool(0.3) && check(&small).is_ok() {
            config = small;
        }
        let arrivals = any::arrivals(&mut random, 300);
        let (logged, changes) = rough(&config, &arrivals, &mut random);
        let replayed = replay(&config, START, &changes, &logged).expect("what held before");
        let found = differences(&logged, &replayed);
        prop_assert!(found.is_identical(), "{:?}", found);
        prop_assert_eq!(found.packets, logged.len() as u64);
        for disposition in &logged {
            prop_assert!(disposition.intended >= disposition.link_left || disposition.intended.is_none(), "{disposition:?}");
        }
    }
}

/// A realistic run: late timestamps, calls ahead of them, a full port, live changes, and an end
/// while packets wait.
fn rough(
    config: &Config,
    arrivals: &[(i64, sojourn_emulate::Direction, usize, u16)],
    random: &mut StdRng,
) -> (Vec<Disposition>, Vec<Change>) {
    let mut engine = Engine::new(config, START).expect("a valid configuration");
    engine.keep_dispositions(true);
    let (mut logged, mut changes) = (Vec::new(), Vec::new());
    for (nanos, direction, bytes, flow) in arrivals {
        let now = at(*nanos);
        if random.random_bool(0.7) {
            engine.advance(now);
            while let Some(departure) = engine.due(now) {
                if random.random_bool(0.02) {
                    engine.refused(departure);
                } else {
                    engine.departed(departure, now);
                }
            }
        }
        if random.random_bool(0.02) {
            changes.extend(change(&mut engine, now, random));
        }
        let stamp = now - Nanos(random.random_range(0..50_000));
        engine.arrive(*direction, &udp(*bytes, *flow), stamp);
        logged.extend(engine.dispositions());
    }
    engine.end();
    logged.extend(engine.dispositions());
    (logged, changes)
}

fn change(engine: &mut Engine, now: Time, random: &mut StdRng) -> Option<Change> {
    let name = engine.config().pipes[0].name.clone();
    let to = any::pipe(random, name.clone());
    let number = engine.next_number();
    let from = engine.set(&name, &to, now).ok()?;
    Some((number, from, name, to))
}

#[test]
fn altered_log_is_detected() {
    let mut random = StdRng::seed_from_u64(7);
    let (config, logged) = loop {
        let config = any::config(&mut random);
        let arrivals = any::arrivals(&mut random, 200);
        let (logged, _) = run(&config, &arrivals, Calls::Each, &mut random);
        if logged.iter().filter(|disposition| disposition.outcome == Outcome::Sent).count() > 100 {
            break (config, logged);
        }
    };
    let again = || replay(&config, START, &[], &logged).expect("what held before");
    assert!(differences(&logged, &again()).is_identical());
    let place = logged.iter().position(|disposition| disposition.outcome == Outcome::Sent).expect("one was sent");
    let alter = |change: fn(&mut Disposition)| {
        let mut altered = logged.clone();
        change(&mut altered[place]);
        differences(&altered, &again())
    };
    assert_eq!(alter(|disposition| disposition.intended = disposition.intended.map(|at| at + Nanos(1))).intended, 1);
    assert_eq!(alter(|disposition| disposition.drawn = None).drawn, 1);
    assert_eq!(alter(|disposition| disposition.outcome = Outcome::Unmatched).dispositions, 1);
    assert_eq!(alter(|disposition| disposition.number = 1 << 40).dispositions, 2);
    let other = Config { seed: config.seed ^ 1, ..config.clone() };
    assert!(replay(&other, START, &[], &logged).is_ok());
}

#[test]
fn unmatched_packets_are_not_stored() {
    let mut engine = Engine::new(&Config::default(), START).expect("holds");
    engine.keep_dispositions(true);
    assert_eq!(engine.arrive(sojourn_emulate::Direction::Backward, &udp(60, 0), START), Arrived::Unmatched);
    assert_eq!(
        (engine.next(), engine.report().unmatched.backward, engine.report().memory.taken_bytes),
        (Time::NEVER, 1, 0)
    );
    assert_eq!(
        engine.dispositions().next().map(|disposition| (disposition.outcome, disposition.pipe)),
        Some((Outcome::Unmatched, None))
    );
}

/// A regression test: replaying a log with a damaged row that has the last representable time did not end, and a log
/// with a packet twice stopped the program.
#[test]
fn replay_of_a_forged_log_terminates() {
    let mut random = StdRng::seed_from_u64(7);
    let config = any::config(&mut random);
    let (logged, _) = run(&config, &any::arrivals(&mut random, 50), Calls::Each, &mut random);
    let sent = logged.iter().position(|disposition| disposition.outcome == Outcome::Sent).expect("one was sent");
    let alter = |change: &dyn Fn(&mut Vec<Disposition>)| {
        let mut altered = logged.clone();
        change(&mut altered);
        let replayed = replay(&config, START, &[], &altered).expect("the configuration is valid");
        assert!(!differences(&altered, &replayed).is_identical());
    };
    alter(&|altered| {
        altered[sent].entered = Time::NEVER;
        altered[sent].copy_of = Some(i64::MAX.unsigned_abs());
    });
    alter(&|altered| {
        let twice = Disposition { outcome: Outcome::Lost(Cause::Ended), ..altered[sent].clone() };
        altered.insert(0, twice);
    });
    alter(&|altered| altered[sent].number = i64::MAX.unsigned_abs());
}
