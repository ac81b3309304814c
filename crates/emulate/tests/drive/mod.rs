//! Drives an engine in virtual time.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

pub mod any;
pub mod frame;

use sojourn_emulate::config::{Action, Config, Limit, Match, Queue, Rule};
use sojourn_emulate::{Arrived, Direction, Disposition, Engine, Pipe};
use sojourn_time::{Nanos, Time};

/// The start of all times: a day in 2026 on `CLOCK_TAI`, not a round number.
pub const START: Time = Time(1_795_300_123_456_789_012);

/// Returns a configuration with one pipe for both directions.
pub fn one(pipe: Pipe) -> Config {
    let pipe = Pipe { name: "p".to_owned(), ..pipe };
    let action = Action::Pipe { pipe: "p".to_owned(), class: None };
    let rules = vec![Rule { number: 1, on: Match::default(), action }];
    Config { pipes: vec![pipe], rules, ..Config::default() }
}

/// Returns a queue that is never full.
pub fn endless() -> Queue {
    Queue { limit: Limit { slots: Some(u64::MAX), bytes: None }, ..Queue::default() }
}

/// Returns a time relative to the start.
pub fn at(nanos: i64) -> Time {
    START + Nanos(nanos)
}

/// Delivers frames (nanoseconds after the start, bytes), and returns their dispositions by number.
pub fn dispositions(config: &Config, arrivals: impl IntoIterator<Item = (i64, usize)>) -> Vec<Disposition> {
    let mut engine = Engine::new(config, START).expect("a valid configuration");
    engine.keep_dispositions(true);
    let frame = [0x55; 16_384];
    let mut all = Vec::new();
    for (nanos, bytes) in arrivals {
        drain(&mut engine, at(nanos), &mut all);
        engine.arrive(Direction::Forward, &frame[..bytes], at(nanos));
    }
    finish(&mut engine, &mut all);
    all.sort_by_key(|disposition| disposition.number);
    all
}

/// Sends what is due before a time.
pub fn drain(engine: &mut Engine, until: Time, all: &mut Vec<Disposition>) {
    while engine.next() < until {
        let now = engine.next();
        engine.advance(now);
        while let Some(departure) = engine.due(now) {
            engine.departed(departure, departure.intended);
        }
    }
    all.extend(engine.dispositions());
}

/// Sends everything.
pub fn finish(engine: &mut Engine, all: &mut Vec<Disposition>) {
    drain(engine, Time::NEVER, all);
    engine.end();
    all.extend(engine.dispositions());
}

/// Delivers a frame that enters a pipe.
pub fn keep(engine: &mut Engine, frame: &[u8], at: Time) {
    assert_eq!(engine.arrive(Direction::Forward, frame, at), Arrived::Kept);
}
