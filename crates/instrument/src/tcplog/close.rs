//! Ends a log: detaches and drains it, checks its packet accounting, converts its spool to tables, and writes the footer.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_tcplog::account::{Account, Entry};
use sojourn_tcplog::spool::{Export, SpoolError};
use sojourn_tcplog::tables::{self, Converted, Job, Spent};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::drain::Drain;
use super::folder::{self, Moment};
use super::logger::Ended;
use super::show;
use crate::failure::NotTrusted;

/// The interval between two reads of counters that must not change any more.
const STILL: Nanos = Nanos::millis(2);

/// The reason for the end of a log that reached its `--log-limit`.
pub const LIMITED: &str = "log limit";
/// The reasons for the end of a log that could not be written any more.
pub const FULL: &str = "disk full";
pub const REMOVED: &str = "log file removed";
pub const UNWRITTEN: &str = "log could not be written";
/// The reason for the end of a log with as many flows as its records can number.
pub const NUMBERED: &str = "too many flows";

/// The places of a log's spool and of its records.
#[derive(Clone, Debug)]
pub struct Place {
    /// The spool's folder.
    pub spool: PathBuf,
    /// `None`: no records are written.
    pub records: Option<PathBuf>,
    /// Part of file names.
    pub who: String,
    /// Part of file names.
    pub part: u16,
    pub block: i32,
    /// Whether times are simulated.
    pub is_simulated: bool,
}

/// A log that has ended.
pub struct Closed {
    /// The export that still lacks its end record, with its counters.
    pub export: Option<(Export, Account)>,
    /// The footer.
    pub footer: Value,
    /// Whether the log can be trusted.
    pub outcome: anyhow::Result<()>,
    /// The error of a gap at the end: kernel programs were detached by another process.
    pub interruption: Option<NotTrusted>,
    /// The spool, if records were made of it.
    pub spent: Option<Spent>,
}

/// The facts about an end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub why: &'static str,
    pub began: Time,
    pub command_status: Option<i32>,
}

impl Place {
    /// The places of a log that belongs to no study.
    pub fn of_log(out: &Path, is_simulated: bool) -> Self {
        Self {
            spool: out.to_owned(),
            records: Some(out.join(folder::RECORDS)),
            who: folder::WHO.to_owned(),
            part: 0,
            block: 0,
            is_simulated,
        }
    }
}

/// Ends a log.
///
/// # Errors
/// If rings or counters cannot be read, so that nothing is known about the log.
pub fn close(drain: Drain, place: &Place, end: End) -> anyhow::Result<Closed> {
    let took = drain.processor_time();
    let (logger, drained) = drain.stop();
    let logger = logger.ok_or_else(|| NotTrusted("the log has ended already".to_owned()));
    let before = HostClock.thread_time();
    let mut wait = || {
        HostClock.wait_until(HostClock.now() + STILL, Nanos::ZERO);
    };
    let mut ended = logger?.end(&mut wait)?;
    let export = ended.export.take();
    let took = took + (HostClock.thread_time() - before);
    let (moment, lasted) = (Moment::now(), HostClock.now() - end.began);
    let converted = place.records.as_ref().map_or(Ok(None), |records| make_records(place, records).map(Some));
    let (law, interruption) = (law(&ended), ended.interruption.as_ref());
    let interruption = interruption.map(|found| NotTrusted(format!("the log has a gap: {}", found.why)));
    let totals = ended.account.totals_without(ended.removed.packets);
    let mut footer = counted(totals, ended.gaps, ended.flows, &ended.flow_list);
    let more = json!({
        "ended": moment.iso(),
        "disable_time_secs": moment.seconds,
        "disable_time_usecs": moment.nanos / 1_000,
        "why": ended.failed.as_ref().map_or(end.why, why_failed),
        "records": ended.records,
        "events": ended.events,
        "privates": ended.privates,
        "events_full": ended.account.events_full,
        "missing": ended.missing,
        "not_run": ended.not_run,
        "fields": ended.fields,
        "flight_triggers": ended.triggers,
        "parts": ended.parts[0],
        "parts_removed": ended.parts[1],
        "flows_removed": ended.removed.gone,
        "logger_cpu_s": seconds(took),
        "duration_s": seconds(lasted),
        "command_status": end.command_status,
        "conserved": law.is_ok() && interruption.is_none(),
        "interruption": ended.interruption,
    });
    join(&mut footer, more);
    if let Ok(Some((converted, _))) = &converted {
        footer["flows_unrecorded"] = converted.unrecorded.into();
        footer["parts_unread"] = converted.unread.into();
    }
    let (converted, spent) = match converted {
        Ok(Some((converted, spent))) => (Ok(Some(converted)), Some(spent)),
        Ok(None) => (Ok(None), None),
        Err(error) => (Err(error), None),
    };
    let outcome = match (ended.failed.filter(|error| !is_asked_for(error)), converted) {
        (Some(error), _) => Err(failed(error)),
        (None, Err(error)) => Err(error),
        // Counters with a gap cannot add up.
        (None, Ok(_)) if interruption.is_some() => drained,
        // An error while draining shows in the counters, if it lost anything.
        (None, Ok(converted)) => drained.and(law).and(converted.map_or(Ok(()), |converted| complete(&converted))),
    };
    Ok(Closed { export, footer, outcome, interruption, spent })
}

/// Returns the counters for a footer.
pub fn counted(totals: impl IntoIterator<Item = Entry>, gaps: u64, flows: u64, flow_list: &[String]) -> Value {
    json!({
        "totals": show::totals(totals),
        "gaps": gaps,
        "flows": flows,
        "flow_list": flow_list,
    })
}

/// Adds the members of one object to another.
pub fn join(to: &mut Value, mut more: Value) {
    if let (Some(to), Some(more)) = (to.as_object_mut(), more.as_object_mut()) {
        to.append(more);
    }
}

/// Removes a spool of which no records are wanted.
///
/// # Errors
/// If it cannot be removed.
pub fn throw_away(folder: &Path) -> anyhow::Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
}

/// Converts a spool to tables; the spool stays.
///
/// # Errors
/// If it fails; the error names the command that repeats the conversion.
pub fn make_records(place: &Place, records: &Path) -> anyhow::Result<(Converted, Spent)> {
    let spool = place.spool.display();
    let advice = || format!("{spool}: what was logged is there still; `sojourn tcplog recover {spool}`");
    convert(place, records).with_context(advice)
}

/// As [`make_records`], but without that advice, for recovery.
///
/// # Errors
/// If it fails.
pub fn convert(place: &Place, records: &Path) -> anyhow::Result<(Converted, Spent)> {
    let job = Job {
        folder: &place.spool,
        records,
        who: &place.who,
        part: place.part,
        block: place.block,
        origin: &crate::origin(place.is_simulated),
    };
    Ok(tables::convert(&job)?)
}

/// Checks that the packet accounting adds up.
fn law(ended: &Ended) -> anyhow::Result<()> {
    let doubt = |problem: &str| Err(NotTrusted(format!("the account of the log does not add up: {problem}")).into());
    if let Err(breach) = ended.account.check() {
        return doubt(&breach.to_string());
    }
    if let Err(breach) = ended.account.check_gaps(ended.missing) {
        return doubt(&breach.to_string());
    }
    match (ended.is_still, ended.unexpected) {
        (true, 0) => Ok(()),
        (false, _) => doubt("packets were still being counted when the programs had been taken away"),
        (true, twice) => doubt(&format!("{twice} records came twice")),
    }
}

/// Checks the records against the packet accounting.
fn complete(converted: &Converted) -> anyhow::Result<()> {
    match converted.problems.first() {
        Some(problem) => Err(NotTrusted(format!("the records of the log do not add up: {problem}")).into()),
        None => Ok(()),
    }
}

const fn why_failed(error: &SpoolError) -> &'static str {
    match error {
        SpoolError::Full(_) => FULL,
        SpoolError::Limit(_) => LIMITED,
        SpoolError::Gone(_) => REMOVED,
        SpoolError::Flows(_) => NUMBERED,
        _ => UNWRITTEN,
    }
}

/// Whether a log ended because of a requested limit.
const fn is_asked_for(error: &SpoolError) -> bool {
    matches!(error, SpoolError::Limit(_))
}

fn failed(error: SpoolError) -> anyhow::Error {
    NotTrusted(format!(
        "{error}: the log ends there, packets were only counted from then on, and the footer tells how many"
    ))
    .into()
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}
