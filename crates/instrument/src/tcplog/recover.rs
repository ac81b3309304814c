//! `tcplog recover`: converts what a killed log left behind.

use std::fs;
use std::io::Write as _;
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
use crate::printed::printed;

/// Converts the spool, and writes a footer that says that the log was killed. An existing footer stays: the log was
/// killed after its end.
///
/// # Errors
/// If there is nothing to recover, or the log is still running.
pub fn run(asked: &Recover) -> anyhow::Result<()> {
    let out = &asked.out;
    if ![folder::HEADER, folder::SOCKET].iter().any(|name| out.join(name).exists()) {
        return Err(WrongRequest(format!("{}: no log is there", out.display())).into());
    }
    confine(out)?;
    let (footer, converted) = recover().with_context(|| format!("below {}", out.display()))?;
    if asked.json {
        writeln!(printed(), "{footer}")?;
    } else {
        eprint!("{}", summary(&footer));
    }
    let problems = converted.problems.iter();
    problems.for_each(|problem| eprintln!("{}: {problem}", crate::program()));
    Ok(())
}

/// Recovers the log in the current folder. Any program may listen at its socket, so it is asked only after privileges
/// are dropped, when a false answer gains nothing.
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
    // The file that a killed log could not remove.
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

/// Enters the log's folder, becomes its owner, and gives up access to everything else: the files may have been forged.
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

/// Whether this thread can read the files of the log, and write into the folder of its records.
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

/// Returns the footer of a killed log.
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

/// Returns the start time of a log in seconds since 1970, from its header; `otherwise` if the header has none.
pub fn began(header: &Value, otherwise: i64) -> i64 {
    header["enable_time_secs"].as_i64().unwrap_or(otherwise)
}

/// Returns when the spool was last written: the log was killed then or slightly later.
fn written_last(out: &Path) -> anyhow::Result<Moment> {
    let Some(last) = spool::files(out).pop() else {
        // Discard what could not be removed after conversion.
        spool::discard(out);
        let spool = out.join(spool::NAME);
        let problem = format!("{}: nothing to recover: the log ended well, or its spool is gone", spool.display());
        return Err(WrongRequest(problem).into());
    };
    let found = fs::metadata(&last).with_context(|| format!("look at {}", last.display()))?;
    Ok(Moment { seconds: found.mtime(), nanos: found.mtime_nsec() })
}
