//! Tests that a logger's memory does not grow with the number of past flows, and that its final counters add up.

use std::path::PathBuf;

use sojourn_record::Origin;
use sojourn_tcplog::flight::{FlightOptions, Keep};
use sojourn_tcplog::numbers::MOST_FLOWS;
use sojourn_tcplog::simulated::{NOTHING_ASKED, Setup, Simulated};
use sojourn_tcplog::tables::{self, Converted};
use sojourn_tcplog::{Prefix, Source, SourceError};

use super::*;
use crate::tcplog::arguments::PartArguments;

/// The table size: room for all flows that end between two reaps.
const SLOTS: u32 = 128;

/// A source of short connections, one after the other, eight at a time.
struct Short {
    twin: Simulated,
    is_on: bool,
    /// Reports flows that have ended with the counters from before their first packet.
    is_late: bool,
    /// Reports that its programs were detached.
    is_taken: bool,
}

impl Short {
    fn new(is_late: bool) -> Self {
        let mut twin = Simulated::new(Setup { slots: SLOTS, seed: 5, ..Setup::default() });
        (0..8).for_each(|_| twin.connect(3_000));
        Self { twin, is_on: false, is_late, is_taken: false }
    }
}

impl Source for Short {
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError> {
        for _ in 0..if self.is_on { 2_000 } else { 0 } {
            if !self.twin.step() {
                (0..8).for_each(|_| self.twin.connect(3_000));
            }
        }
        self.twin.drain(take)
    }

    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError> {
        self.twin.ask(options, prefixes)
    }

    fn flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.twin.flows(show);
    }

    fn ended_flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.twin.ended_flows(&mut |slot, flow| match self.is_late {
            true => show(slot, &Flow { directions: [flow.directions[0]; 2], ..*flow }),
            false => show(slot, flow),
        });
    }

    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError> {
        self.twin.release(slot)
    }

    fn totals(&self) -> Result<Vec<Totals>, SourceError> {
        self.twin.totals()
    }
}

impl Programs for Short {
    fn facts(&self) -> anyhow::Result<Facts> {
        Ok(Facts { is_simulated: true, ..Facts::default() })
    }

    fn attach_as(&mut self, mode: Mode) -> anyhow::Result<()> {
        self.is_on = mode == Mode::On;
        let asked = Options { enabled: self.is_on.into(), points: u32::MAX, private_every: 3, ..NOTHING_ASKED };
        self.twin.ask(&asked, &[])?;
        if !self.is_on {
            self.twin.rest();
        }
        Ok(())
    }

    fn taken_away(&self) -> Option<String> {
        self.is_taken.then(|| "the test took it away".to_owned())
    }

    fn measure(&mut self, _wanted: bool) -> anyhow::Result<()> {
        Ok(())
    }

    fn costs(&self) -> anyhow::Result<Vec<Cost>> {
        let cost = |name: &str, missed| Cost { name: name.to_owned(), runs: 9, run_ns: 90, missed };
        Ok(vec![cost("packet_in", 0), cost("state_set", 2)])
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-logger-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Logs until so many flows have ended, checks that memory stays within the table's size, and returns the results.
fn log(name: &str, source: Short, flight: Option<Flight>, flows: u64) -> (Ended, Converted) {
    let folder = folder(name);
    let mut logger = Logger::new(Box::new(source), flight).unwrap();
    logger.spool_to(Spool::create(&folder, r#"{"hz":250}"#).unwrap());
    logger.be(Mode::On).unwrap();
    let mut now = Time(1_000);
    for turn in 0.. {
        if logger.gone_flows >= flows {
            break;
        }
        assert!(turn < 10_000, "{} flows have ended", logger.gone_flows);
        logger.drain().unwrap();
        logger.reap(now).unwrap();
        logger.write_down().unwrap();
        now = now + GRACE;
        let by_flow = [
            logger.gone.flows.len(),
            logger.ending.len(),
            logger.written.len(),
            logger.latest.len(),
            logger.flight.as_ref().map_or(0, |flight| flight.left_out().iter().count()),
        ];
        assert!(by_flow.iter().all(|held| *held <= SLOTS as usize), "{by_flow:?}");
    }
    let status = logger.status().unwrap();
    assert_eq!(status["not_run"], json!({ "state_set": 2 }), "{status}");
    let ended = logger.end(&mut || ()).unwrap();
    let converted = tables::recover(&folder, &Origin::default()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (ended, converted)
}

fn lawful((ended, converted): &(Ended, Converted)) {
    assert!(ended.is_still && ended.failed.is_none());
    assert_eq!(ended.account.check(), Ok(()));
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved);
    assert_eq!(converted.totals, ended.account.totals().collect::<Vec<_>>());
    assert_eq!((converted.records, converted.flows), (ended.records, ended.flows));
    assert_eq!(converted.privates, ended.privates);
    assert_eq!(ended.not_run, json!({ "state_set": 2 }));
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    assert_eq!(sorted(&converted.flow_list), sorted(&ended.flow_list));
}

#[test]
fn memory_does_not_grow_with_ended_flows() {
    let told = log("short", Short::new(false), None, 1_000);
    lawful(&told);
    assert!(told.0.flows >= 1_000 && told.0.records > 10_000);
}

#[test]
fn memory_does_not_grow_with_flows_discarded_by_the_flight_recorder() {
    let told = log("flight", Short::new(false), Some(Flight::new(FlightOptions::keeping(Keep::Samples(4)))), 500);
    lawful(&told);
    let forgotten = told.0.account.all.iter().map(|counters| counters.of(Disposition::Forgotten).packets).sum::<u64>();
    assert!(forgotten > 1_000, "{forgotten}");
}

/// The oldest part is removed as soon as the next has begun, and the log is killed before the timer writes the flows again.
#[test]
fn new_part_begins_with_the_open_flows() {
    let (mut logger, folder) = in_parts("parts", Short::new(false));
    let flows = |logger: &Logger| logger.status().unwrap()["flows"].as_u64().unwrap();
    let before = flows(&logger);
    logger.drain().unwrap();
    let begun_since = flows(&logger) - before;
    drop(logger);
    let converted = tables::recover(&folder, &Origin::default()).unwrap();
    // 256 KiB of records.
    assert!(converted.removed > 3 && converted.records > 500, "{} {}", converted.removed, converted.records);
    let unknown = converted.flow_list.iter().filter(|flow| flow.starts_with(';')).count() as u64;
    // Flows that began within the last part are not known yet.
    assert!(unknown <= begun_since, "{unknown} of {}, {begun_since} since", converted.flow_list.len());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_interruption_outlives_the_part_in_which_it_was_written() {
    let (logger, folder) = in_parts("interrupted", Short { is_taken: true, ..Short::new(false) });
    drop(logger);
    let converted = tables::recover(&folder, &Origin::default()).unwrap();
    assert!(converted.removed > 3 && !converted.is_conserved);
    let told = converted.problems.iter().filter(|problem| problem.contains("the test took it away: what passed"));
    assert_eq!(told.count(), 1, "{:?}", converted.problems);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Returns a log of 256 KiB in parts, of which some are removed; the last has just begun.
fn in_parts(name: &str, source: Short) -> (Logger, PathBuf) {
    let folder = folder(name);
    let mut logger = Logger::new(Box::new(source), None).unwrap();
    logger.spool_to(Spool::create(&folder, r#"{"hz":250}"#).unwrap());
    let (rotate_size, rotate_time) = (Some(1 << 16), None);
    let asked = PartArguments { rotate_size, rotate_time, budget: Some(1 << 18), remove_oldest: true };
    let mut now = Time(1_000);
    logger.parts = Parts::of(&asked, now).unwrap();
    logger.be(Mode::On).unwrap();
    let parts = |logger: &Logger| logger.spool.as_ref().unwrap().parts();
    for turn in 0.. {
        assert!(turn < 10_000, "{:?} parts", parts(&logger));
        logger.drain().unwrap();
        logger.reap(now).unwrap();
        let begun = parts(&logger)[0];
        logger.rotate(now).unwrap();
        now = now + SHORT_GRACE;
        if parts(&logger)[1] > 3 && parts(&logger)[0] > begun {
            break;
        }
    }
    (logger, folder)
}

#[test]
fn packets_that_arrive_before_a_flow_slot_is_released_are_counted() {
    lawful(&log("late", Short::new(true), None, 100));
}

/// A log numbers its flows by 31 bits: some 60 hours of 10,000 connections a second.
#[test]
fn log_with_as_many_flows_as_records_can_number_ends_and_its_counters_add_up() {
    let folder = folder("numbered");
    let mut logger = Logger::new(Box::new(Short::new(false)), None).unwrap();
    logger.spool_to(Spool::create(&folder, r#"{"hz":250}"#).unwrap());
    logger.numbers = Numbers::after(MOST_FLOWS - 60);
    logger.be(Mode::On).unwrap();
    let mut now = Time(1_000);
    for turn in 0.. {
        logger.drain().unwrap();
        if logger.has_failed() {
            break;
        }
        assert!(turn < 10_000, "{} flows have ended", logger.gone_flows);
        logger.reap(now).unwrap();
        logger.write_down().unwrap();
        now = now + GRACE;
    }
    let written = logger.written();
    logger.drain().unwrap();
    assert_eq!(logger.written(), written, "the log has ended");
    let ended = logger.end(&mut || ()).unwrap();
    let told = ended.failed.as_ref().unwrap().to_string();
    assert!(told.ends_with("it has 2130706431 flows, and its records cannot number more; begin another log"), "{told}");
    assert_eq!(ended.account.check(), Ok(()));
    let broken: u64 = ended.account.all.iter().map(|counters| counters.of(Disposition::Broken).packets).sum();
    let converted = tables::recover(&folder, &Origin::default()).unwrap();
    assert!(broken > 0 && converted.records == written && converted.is_conserved, "{broken} {}", converted.records);
    assert_eq!(converted.totals, ended.account.totals().collect::<Vec<_>>());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn flow_slot_out_of_range_allocates_no_memory() {
    let mut latest = Vec::new();
    keep_latest(&mut latest, 3, &[7]);
    keep_latest(&mut latest, MOST_SLOTS, &[7]);
    keep_latest(&mut latest, u32::MAX, &[7]);
    assert_eq!(latest, [vec![], vec![], vec![], vec![7]]);
}
