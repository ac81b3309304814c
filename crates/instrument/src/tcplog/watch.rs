//! `tcplog watch`: prints the flows as JSON, one line per interval; from a running log, or from programs that it loads itself.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::Ordering;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sojourn_rights::table::{TCPLOG, TCPLOG_CLIENT};
use sojourn_rights::{Folders, Right};
use sojourn_tcplog::Mode;
use sojourn_time::{Clock, HostClock, Nanos};

use super::answer;
use super::arguments::Watch;
use super::client::{Conversation, not_running};
use super::drain::Drain;
use super::logger::Logger;
use super::open;
use super::show;
use crate::caller;
use crate::failure::{NotTrusted, WrongRequest};
use crate::place;
use crate::sys::STOP;

/// Prints the flows until a signal arrives, the log ends, or so many lines are printed.
///
/// # Errors
/// If there is no such log, or this machine cannot watch.
pub fn run(asked: &Watch) -> anyhow::Result<()> {
    if asked.interval <= Nanos::ZERO {
        return Err(WrongRequest("--interval: expected more than nothing".to_owned()).into());
    }
    match &asked.out {
        Some(out) => {
            if asked.request != super::log_options::LogOptions::default() {
                let problem =
                    "what a running log asks for is changed by `tcplog set`; filters are for watching without a log";
                return Err(WrongRequest(problem.to_owned()).into());
            }
            let mut log = Conversation::open(out)?.ok_or_else(|| not_running(out))?;
            TCPLOG_CLIENT.confine()?;
            lines(asked, &mut || log.ask(&json!({ "do": "flows" })))
        }
        None => own(asked),
    }
}

/// Watches by programs that this command loads itself.
fn own(asked: &Watch) -> anyhow::Result<()> {
    let programs = open::open(&asked.attach, &asked.request)?;
    let mut logger = Logger::new(programs, None)?;
    logger.room = asked.attach.flows;
    let said = logger.set(&asked.request, Some(true))?;
    let fallback = logger.facts().refusal.as_deref().map(show::fallback);
    said.iter().chain(&fallback).for_each(|said| eprintln!("{}: {said}", crate::program()));
    logger.be(Mode::On)?;
    caller::become_caller(|| true)?;
    TCPLOG.drop_privileges_keeping(&[Right::SysNice])?;
    let drain = Drain::start(logger, asked.attach.ring_bytes(), &[])?;
    TCPLOG.write_only_below(Folders::default())?;
    TCPLOG.drop_privileges()?;
    TCPLOG.restrict_calls()?;
    let printed = lines(asked, &mut || flows(&drain));
    let (_, drained) = drain.stop();
    printed.and(drained)
}

/// Returns the flows, or an error if the programs were detached.
fn flows(drain: &Drain) -> anyhow::Result<Value> {
    match drain.with(|logger| Ok(logger.interruption().cloned()))? {
        Some(interruption) => {
            Err(NotTrusted(format!("{}: packets from then on are not seen", interruption.why)).into())
        }
        None => answer::flows(drain),
    }
}

fn lines(asked: &Watch, flows: &mut dyn FnMut() -> anyhow::Result<Value>) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    let mut printed = 0;
    let mut due = HostClock.now();
    while !STOP.load(Ordering::Relaxed) {
        let now = HostClock.now();
        // A change of the clock neither prolongs the wait nor causes a burst of lines.
        due = (due + asked.interval).min(now + asked.interval).max(now);
        let left = due - now;
        let timeout = Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 };
        match poll(&mut [PollFd::new(&signal, PollFlags::IN)], Some(&timeout)) {
            Ok(1..) | Err(rustix::io::Errno::INTR) => continue,
            Ok(0) => {}
            Err(error) => return Err(error).context("wait"),
        }
        let mut output = io::stdout().lock();
        let told = flows()?;
        match writeln!(output, "{told}").and_then(|()| output.flush()) {
            // The reader has closed the output.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        printed += 1;
        if asked.count.is_some_and(|count| printed >= count) {
            return Ok(());
        }
    }
    Ok(())
}
