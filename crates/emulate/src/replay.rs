//! The oracle: the same engine, driven by the arrivals of a log, must produce the same dispositions.
//!
//! Taken from the log is only what the engine cannot compute: the numbers of packets, which packets found no memory
//! (this depends on actual departures) and what a port refused. Everything else is computed again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Stamp, Time};

use crate::config::check::ConfigError;
use crate::config::{Config, Pipe};
use crate::disposition::{Cause, Disposition, Outcome};
use crate::engine::{Engine, Numbers, Told};

/// A live change of a pipe: the number of the first packet it applies to, its time, the pipe's name, and the new parameters.
pub type Change = (u64, Time, String, Pipe);

/// Differences between a replay and its log, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// Packets of the log.
    pub packets: u64,
    /// Packets that still waited when the log ended: their disposition is unknown.
    pub unfinished: u64,
    /// Packets with another disposition, or with none on one side.
    pub dispositions: u64,
    /// Packets with another delay.
    pub drawn: u64,
    /// Packets with another intended departure.
    pub intended: u64,
    /// The first packet that differs.
    pub first: Option<u64>,
}

impl Differences {
    /// Returns whether there are no differences.
    pub fn is_identical(&self) -> bool {
        (self.dispositions, self.drawn, self.intended) == (0, 0, 0)
    }
}

/// Replays the arrivals of a log with its configuration and its start.
///
/// # Errors
/// If the configuration or a change contradicts itself.
pub fn replay(
    config: &Config,
    start: Time,
    changes: &[Change],
    logged: &[Disposition],
) -> Result<Vec<Disposition>, ConfigError> {
    let config = Config { memory_bytes: memory(config, logged), ..config.clone() };
    let mut engine = Engine::numbered(&config, start, Numbers::Told(Box::new(told(logged))))?;
    engine.keep_dispositions(true);
    let mut replay = Replay {
        engine,
        logged: logged.iter().map(|disposition| (disposition.number, disposition)).collect(),
        dispositions: Vec::with_capacity(logged.len()),
        missing: logged.iter().filter(|disposition| has_ended(disposition)).count(),
    };
    let mut changes = changes.iter().peekable();
    for (arrival, earliest) in with_earliest(arrivals(logged)) {
        while let Some((_, at, pipe, to)) = changes.next_if(|(number, ..)| *number <= arrival.number) {
            replay.engine.set(pipe, to, *at)?;
        }
        replay.leave(earliest);
        replay.arrive(arrival);
    }
    for (_, at, pipe, to) in changes {
        replay.engine.set(pipe, to, *at)?;
    }
    Ok(replay.finish(logged))
}

/// Returns the memory limit of a replay: twice the emulator's, because the log names the packets that found no memory,
/// but no more than all frames of the log would take. A log that needs more was not written by an emulator.
fn memory(config: &Config, logged: &[Disposition]) -> u64 {
    // A slot is up to twice the frame; the metadata of a packet takes less than a page.
    let of = |disposition: &Disposition| 2 * u64::from(disposition.bytes) + 4_096;
    let all = logged.iter().map(of).fold(LEAST_MEMORY, u64::saturating_add);
    all.min(config.memory_bytes.saturating_mul(2).saturating_add(LEAST_MEMORY))
}

/// Memory is allocated in chunks, at least one for each frame size.
const LEAST_MEMORY: u64 = 4 << 20;

/// Returns the part of a truncated log, in the order in which it was written, that can be replayed: the packets before
/// the first missing number, because the missing packet may have affected all later ones. Packets that left after the
/// last of these entered become unfinished.
pub fn before_gap(mut logged: Vec<Disposition>) -> Vec<Disposition> {
    let mut numbers: Vec<u64> = logged.iter().map(|disposition| disposition.number).collect();
    numbers.sort_unstable();
    let gap = (0..).zip(&numbers).find(|(expected, number)| expected != *number);
    let gap = gap.map_or(numbers.len() as u64, |(missing, _)| missing);
    let until =
        logged.iter().filter(|disposition| disposition.number < gap).map(|disposition| disposition.entered).max();
    let mut ended = Time::NEVER;
    for disposition in logged.iter_mut().rev() {
        // A lost packet ended before the next packet left.
        ended = disposition.departed.unwrap_or(ended);
        if until.is_some_and(|until| ended > until) {
            disposition.outcome = Outcome::Lost(Cause::Ended);
        }
    }
    logged.retain(|disposition| disposition.number < gap);
    logged
}

/// Compares a replay with its log.
pub fn differences(logged: &[Disposition], replayed: &[Disposition]) -> Differences {
    let mut by_number: HashMap<u64, &Disposition> =
        replayed.iter().map(|disposition| (disposition.number, disposition)).collect();
    let unfinished: HashMap<u64, bool> =
        logged.iter().map(|disposition| (disposition.number, !has_ended(disposition))).collect();
    let mut found = Differences { packets: logged.len() as u64, ..Differences::default() };
    for disposition in logged {
        let other = by_number.remove(&disposition.number);
        if !has_ended(disposition) {
            found.unfinished += 1;
        } else {
            found.compare(disposition, other);
        }
    }
    // Copies of unfinished packets may appear in the replay only.
    let is_new = |disposition: &&Disposition| {
        !disposition.copy_of.is_some_and(|original| unfinished.get(&original).copied().unwrap_or(true))
    };
    for disposition in by_number.into_values().filter(is_new) {
        found.dispositions += 1;
        found.differs_at(disposition.number);
    }
    found
}

impl Differences {
    fn compare(&mut self, logged: &Disposition, replayed: Option<&Disposition>) {
        let has_same = |other: &&Disposition| {
            let of = |disposition: &Disposition| {
                (
                    disposition.outcome,
                    (disposition.pipe, disposition.flow, disposition.sub_queue),
                    disposition.is_marked,
                    disposition.flipped,
                    disposition.is_reordered,
                )
            };
            of(other) == of(logged)
        };
        let wrong = [
            !replayed.as_ref().is_some_and(has_same),
            replayed.is_some_and(|other| other.drawn != logged.drawn),
            replayed.is_some_and(|other| other.intended != logged.intended),
        ];
        self.dispositions += u64::from(wrong[0]);
        self.drawn += u64::from(wrong[1]);
        self.intended += u64::from(wrong[2]);
        if wrong.contains(&true) {
            self.differs_at(logged.number);
        }
    }

    fn differs_at(&mut self, number: u64) {
        self.first = Some(self.first.map_or(number, |first| first.min(number)));
    }
}

/// How long after the last time in a log the replay waits for its packets: none of their events is later.
const PATIENCE: Nanos = Nanos::seconds(60);

/// A replay in progress.
struct Replay<'a> {
    engine: Engine,
    logged: HashMap<u64, &'a Disposition>,
    dispositions: Vec<Disposition>,
    /// Packets whose disposition is in the log but not yet in the replay.
    missing: usize,
}

impl Replay<'_> {
    fn arrive(&mut self, disposition: &Disposition) {
        self.engine.numbers().is_told(disposition.number);
        // Only the length matters beyond the recorded head: nothing reads those bytes.
        let mut frame = disposition.head().to_vec();
        frame.resize(disposition.bytes as usize, 0);
        let stamp = Stamp { at: disposition.arrived, source: disposition.source };
        self.engine.arrive_late(disposition.direction, &frame, stamp, disposition.entered);
    }

    /// Sends what is due.
    fn leave(&mut self, until: Time) {
        while let Some(departure) = self.engine.due(until) {
            let logged = self.logged.get(&departure.number);
            match logged.map(|disposition| (disposition.outcome, disposition.departed)) {
                Some((Outcome::Lost(Cause::Port), _)) => self.engine.refused(departure),
                Some((_, Some(departed))) => self.engine.departed(departure, departed),
                _ => self.engine.departed(departure, departure.intended),
            }
        }
        self.note();
    }

    fn note(&mut self) {
        for disposition in self.engine.dispositions() {
            let is_known = self.logged.get(&disposition.number).is_some_and(|logged| has_ended(logged));
            // A log that has a packet twice was not written by an emulator.
            self.missing = self.missing.saturating_sub(is_known.into());
            self.dispositions.push(disposition);
        }
    }

    /// Continues until every disposition of the log has been reproduced.
    fn finish(mut self, logged: &[Disposition]) -> Vec<Disposition> {
        let times = logged.iter().flat_map(|disposition| {
            [Some(disposition.entered), disposition.link_left, disposition.intended, disposition.departed]
        });
        let end = times.flatten().max().unwrap_or(Time(0)) + PATIENCE;
        while self.missing > 0 {
            let now = self.engine.next_event().min(self.engine.next_departure());
            // Bounds the loop: a damaged log may lack times.
            if now > end || now == Time::NEVER {
                break;
            }
            self.engine.advance(now);
            self.leave(now);
        }
        self.engine.end();
        self.dispositions.extend(self.engine.dispositions());
        self.dispositions
    }
}

/// Returns whether the disposition of a packet is known.
fn has_ended(disposition: &Disposition) -> bool {
    disposition.outcome != Outcome::Lost(Cause::Ended)
}

/// Returns the packets that a port received, in the order of arrival.
fn arrivals(logged: &[Disposition]) -> Vec<&Disposition> {
    let mut arrivals: Vec<_> = logged.iter().filter(|disposition| disposition.copy_of.is_none()).collect();
    arrivals.sort_by_key(|disposition| disposition.number);
    arrivals
}

/// Pairs each arrival with the earliest entry time of it and all later ones: no departure after that may be fetched before.
fn with_earliest(arrivals: Vec<&Disposition>) -> Vec<(&Disposition, Time)> {
    let mut earliest = Time::NEVER;
    let mut with: Vec<_> = arrivals
        .into_iter()
        .rev()
        .map(|disposition| {
            earliest = earliest.min(disposition.entered);
            (disposition, earliest)
        })
        .collect();
    with.reverse();
    with
}

fn told(logged: &[Disposition]) -> Told {
    let mut told = Told {
        unknown: logged.iter().map(|disposition| disposition.number.saturating_add(1)).max().unwrap_or(0),
        without_memory: logged
            .iter()
            .filter(|disposition| disposition.outcome == Outcome::Lost(Cause::Memory))
            .map(|disposition| disposition.number)
            .collect(),
        ..Told::default()
    };
    let mut copies: Vec<_> =
        logged.iter().filter_map(|disposition| Some((disposition.copy_of?, disposition.number))).collect();
    copies.sort_unstable();
    let mut last = (0, 0_u8);
    for (original, number) in copies {
        let count = if last.0 == original { last.1.saturating_add(1) } else { 1 };
        last = (original, count);
        told.copies.insert((original, count), number);
    }
    told
}
