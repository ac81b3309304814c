//! `tcp send` and `tcp receive` by hand: one request, reported as text or JSON.

use std::io::Write as _;
use std::path::Path;

use serde_json::json;
use sojourn_record::ReadingFile;
use sojourn_rights::table::TCP;
use sojourn_tcp::{Connected, Listener, Outcome};
use sojourn_time::Nanos;

use super::apply_scheduling;
use super::arguments::{ReceiveByHand, SendByHand, TcpRun};
use crate::failure::NotTrusted;
use crate::place;
use crate::printed::printed;
use crate::sys::STOP;

/// Sends, and reports the results.
///
/// # Errors
/// If it fails, or a connection broke.
pub fn send(asked: &SendByHand) -> anyhow::Result<()> {
    asked.request.check()?;
    place::stop_signal()?;
    apply_scheduling(&asked.run.place)?;
    let mut file = open(&asked.run, "send")?;
    let connected = Connected::open(&asked.request, &STOP)?;
    TCP.confine()?;
    tell(&connected.send(&STOP)?, &asked.run, &mut file, "sent")
}

/// Receives, and reports the results.
///
/// # Errors
/// If it fails, or a connection broke.
pub fn receive(asked: &ReceiveByHand) -> anyhow::Result<()> {
    asked.request.check()?;
    place::stop_signal()?;
    apply_scheduling(&asked.run.place)?;
    let mut file = open(&asked.run, "receive")?;
    let listener = Listener::open(asked.request.clone())?;
    // Before the threads of connections start: they have what this one has then.
    TCP.confine()?;
    let listening = listener.accept(&STOP)?;
    if asked.run.json {
        writeln!(printed(), "{}", json!({ "event": "listening", "at": listening.at }))?;
    }
    tell(&listening.finish(Nanos(i64::MAX))?, &asked.run, &mut file, "received")
}

fn open(run: &TcpRun, who: &str) -> anyhow::Result<Option<ReadingFile>> {
    let create = |folder: &Path| ReadingFile::create(folder, who, run.part, &crate::origin(false));
    Ok(run.record.as_deref().map(create).transpose()?)
}

fn tell(outcomes: &[Outcome], run: &TcpRun, file: &mut Option<ReadingFile>, verb: &str) -> anyhow::Result<()> {
    if let Some(file) = file {
        let readings: Vec<_> = outcomes.iter().flat_map(|outcome| outcome.readings.clone()).collect();
        file.write(0, &readings)?;
        file.finish()?;
    }
    for outcome in outcomes {
        if run.json {
            let told = json!({ "event": verb, "connection": outcome, "readings": outcome.readings.len() });
            writeln!(printed(), "{told}")?;
        } else {
            writeln!(printed(), "{}", sentence(outcome, verb))?;
        }
    }
    match outcomes.iter().find_map(|outcome| outcome.problem.as_deref()) {
        Some(problem) => Err(NotTrusted(format!("a connection broke: {problem}")).into()),
        None => Ok(()),
    }
}

fn sentence(outcome: &Outcome, verb: &str) -> String {
    let seconds = (outcome.ended_ns - outcome.started_ns) as f64 / 1e9;
    let rate = outcome.moved_bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
    format!(
        "{} to {}: {} bytes {verb} in {seconds:.3} s, {rate:.3} Mbit/s ({}, {} readings of TCP_INFO)",
        outcome.facts.local,
        outcome.facts.remote,
        outcome.moved_bytes,
        outcome.facts.congestion,
        outcome.readings.len()
    )
}
