//! `tcplog recover`: records of what a killed log left behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde_json::{Value, json};
use sojourn_rights::table::TCPLOG_RECOVER;
use sojourn_tcplog::spool;
use sojourn_tcplog::tables::Converted;

use super::arguments::Recover;
use super::client::Conversation;
use super::close::{Place, convert, counted, join};
use super::folder::{self, Moment};
use super::run::summary;
use crate::caller::{self, HERE};
use crate::failure::WrongRequest;

/// Makes records, and a footer that says that the log was killed; one that is there already stays: the log was killed after it
/// had ended.
///
/// # Errors
/// When there is nothing to recover, or it goes on.
pub fn run(asked: &Recover) -> anyhow::Result<()> {
    let out = &asked.out;
    if ![folder::HEADER, folder::SOCKET].iter().any(|name| out.join(name).exists()) {
        return Err(WrongRequest(format!("{}: no log is there", out.display())).into());
    }
    confine(out)?;
    let (footer, converted) = recover().with_context(|| format!("below {}", out.display()))?;
    if asked.json {
        println!("{footer}");
    } else {
        eprint!("{}", summary(&footer));
    }
    let problems = converted.problems.iter();
    problems.for_each(|problem| eprintln!("{}: {problem}", crate::program()));
    Ok(())
}

/// Recovers the log of the folder that this is in. Whoever listens at its socket may be anyone, and is asked when nothing is left to
/// be gained by a false answer.
fn recover() -> anyhow::Result<(Value, Converted)> {
    let out = Path::new(HERE);
    if let Some(mut log) = Conversation::open(out)? {
        log.ask(&json!({ "do": "status" }))?;
        return Err(WrongRequest("this log goes on; end it first".to_owned()).into());
    }
    let header = folder::read(&out.join(folder::HEADER))?;
    let last = written_last(out)?;
    let is_simulated = header["simulated"] == json!(true);
    let (converted, spent) = convert(&Place::of_log(out, is_simulated), &out.join(folder::RECORDS))?;
    // What a killed log could not remove.
    let _ = fs::remove_file(out.join(folder::SOCKET));
    let path = out.join(folder::FOOTER);
    let footer = match path.exists() {
        true => folder::read(&path)?,
        false => {
            let footer = footer_of(&header, &converted, last);
            folder::write_whole(&path, &footer)?;
            footer
        }
    };
    spent.discard();
    Ok((footer, converted))
}

/// Goes into the log's folder, becomes whose it is, and can change nothing else: what is to be read is of a killed log, or of
/// anyone's making.
fn confine(out: &Path) -> anyhow::Result<()> {
    let writable = caller::enter(out)?;
    let here = Path::new(HERE);
    caller::become_owner(here, || can_have(here))?;
    TCPLOG_RECOVER.drop_privileges()?;
    if !can_have(here) {
        let problem = "neither its owner nor who calls, without capabilities, can read and write all of the log: give it to \
                       one user (chown -R)";
        return Err(anyhow!("{}: {problem}", out.display()));
    }
    TCPLOG_RECOVER.write_only_below(writable)?;
    Ok(TCPLOG_RECOVER.restrict_calls()?)
}

/// Whether this thread can read what a log consists of, and write where its records go.
fn can_have(out: &Path) -> bool {
    let is_readable = |path: &Path| match access(path, Access::READ_OK) {
        Err(error) => error == Errno::NOENT,
        Ok(()) => true,
    };
    let records = out.join(folder::RECORDS);
    let has_records = records.symlink_metadata().is_ok();
    let files = spool::files(out);
    std::iter::once(out.join(folder::HEADER)).chain(files).all(|path| is_readable(&path))
        && caller::can_write(out)
        && (!has_records || caller::can_write(&records))
}

/// What a killed log ends with.
pub fn footer_of(header: &Value, converted: &Converted, last: Moment) -> Value {
    let flows = converted.flows.saturating_add(converted.flows_removed);
    let mut footer = counted(converted.totals.clone(), converted.gaps, flows, &converted.flow_list);
    let more = json!({
        "ended": last.iso(),
        "disable_time_secs": last.seconds,
        "disable_time_usecs": last.nanos / 1_000,
        "why": "killed",
        "records": converted.records,
        "duration_s": last.seconds.saturating_sub(began(header, last.seconds)),
        "conserved": converted.is_conserved,
        "fields": header["options"]["fields"],
        "problems": converted.problems,
        "parts": converted.parts,
        "parts_removed": converted.removed,
        "parts_unread": converted.unread,
        "flows_removed": converted.flows_removed,
    });
    join(&mut footer, more);
    footer
}

/// When a log began, as its header has it: in seconds since 1970, or so many where it has nothing.
pub fn began(header: &Value, otherwise: i64) -> i64 {
    header["enable_time_secs"].as_i64().unwrap_or(otherwise)
}

/// When the spool was written last: then the log was killed, or a little later.
fn written_last(out: &Path) -> anyhow::Result<Moment> {
    let Some(last) = spool::files(out).pop() else {
        // What could not be removed any more when its records had been made.
        spool::discard(out);
        let spool = out.join(spool::NAME);
        let problem = format!("{}: nothing to recover: the log ended well, or its spool is gone", spool.display());
        return Err(WrongRequest(problem).into());
    };
    let found = fs::metadata(&last).with_context(|| format!("look at {}", last.display()))?;
    Ok(Moment { seconds: found.mtime(), nanos: found.mtime_nsec() })
}
