//! How a log ends: detached, drained, counted, made into records, told.

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

/// Between two readings of counters that are to stand still.
const STILL: Nanos = Nanos::millis(2);

/// Why a log ended that has the size of its `--log-limit`.
pub const LIMITED: &str = "log limit";
/// And why one ended that could be written no more.
pub const FULL: &str = "disk full";
pub const REMOVED: &str = "log file removed";
pub const UNWRITTEN: &str = "log could not be written";

/// Where a log's spool is, and where its records go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The spool's folder.
    pub spool: PathBuf,
    /// `None`: nothing is kept.
    pub records: Option<PathBuf>,
    /// In the names of files.
    pub who: String,
    /// Likewise.
    pub part: u16,
    pub block: i32,
    /// Whether times are simulated.
    pub is_simulated: bool,
}

/// A log that has ended.
pub struct Closed {
    /// What goes to another host and lacks its end, with its account.
    pub export: Option<(Export, Account)>,
    /// What its footer says.
    pub footer: Value,
    /// Whether what it has can be trusted.
    pub outcome: anyhow::Result<()>,
    /// Why it misses what passed from some time on: somebody took programs away.
    pub interruption: Option<NotTrusted>,
    /// Its spool, where there are records of it.
    pub spent: Option<Spent>,
}

/// What is known of an end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub why: &'static str,
    pub began: Time,
    pub command_status: Option<i32>,
}

impl Place {
    /// Of a log that belongs to no study.
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
/// When nothing can be said of it any more: rings or counters cannot be read.
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
        // An account that is not whole cannot be held to the law.
        (None, Ok(_)) if interruption.is_some() => drained,
        // What went wrong while it drained has left its marks in the account, if any.
        (None, Ok(converted)) => drained.and(law).and(converted.map_or(Ok(()), |converted| complete(&converted))),
    };
    Ok(Closed { export, footer, outcome, interruption, spent })
}

/// What a footer says of what was counted.
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

/// Throws a spool away that nobody wants records of.
///
/// # Errors
/// When it cannot.
pub fn throw_away(folder: &Path) -> anyhow::Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
}

/// Makes records of a spool, which is left.
///
/// # Errors
/// When it cannot; says then what makes them later.
pub fn make_records(place: &Place, records: &Path) -> anyhow::Result<(Converted, Spent)> {
    let spool = place.spool.display();
    let advice = || format!("{spool}: what was logged is there still; `sojourn tcplog recover {spool}`");
    convert(place, records).with_context(advice)
}

/// The same, for who recovers it.
///
/// # Errors
/// When it cannot.
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

/// Holds an account to the law.
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

/// Holds the records to the account.
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
        _ => UNWRITTEN,
    }
}

/// Whether a log ended as it was asked to.
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
