//! `tcp send` and `tcp receive` by hand: one task, and what came of it in words or as JSON.

use std::path::Path;

use serde_json::json;
use sojourn_record::ReadingFile;
use sojourn_time::Nanos;

use super::arguments::{Receive, Send, TcpRun};
use super::receiving::{Listening, Reception};
use super::sending::{self, End, Outcome, Task};
use super::settle;
use crate::failure::NotTrusted;
use crate::place;

const DEFAULT_DURATION: Nanos = Nanos::seconds(10);
const DEFAULT_MESSAGE_BYTES: u32 = 64 << 10;

/// Sends, and says what came of it.
///
/// # Errors
/// When it cannot, or a connection broke.
pub fn send(asked: &Send) -> anyhow::Result<()> {
    place::stop_signal()?;
    settle(&asked.run.place)?;
    let task = Task {
        to: asked.to,
        bind: asked.bind,
        end: match asked.bytes {
            Some(bytes) => End::Bytes(bytes),
            None => End::After(asked.duration.unwrap_or(DEFAULT_DURATION)),
        },
        message_bytes: asked.message_bytes.unwrap_or(DEFAULT_MESSAGE_BYTES) as usize,
        interval: asked.interval,
        connections: asked.connections,
        settings: asked.settings.clone(),
        moments: asked.moments,
    };
    let mut file = open(&asked.run, "send")?;
    tell(&sending::send(&task)?, &asked.run, &mut file, "sent")
}

/// Receives, and says what came of it.
///
/// # Errors
/// When it cannot, or a connection broke.
pub fn receive(asked: &Receive) -> anyhow::Result<()> {
    place::stop_signal()?;
    settle(&asked.run.place)?;
    let reception = Reception {
        at: asked.at,
        connections: asked.connections,
        settings: asked.settings.clone(),
        read_every: asked.read_every,
    };
    let mut file = open(&asked.run, "receive")?;
    let listening = Listening::begin(reception)?;
    if asked.run.json {
        println!("{}", json!({ "event": "listening", "at": listening.at }));
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
            println!("{}", json!({ "event": verb, "connection": outcome, "readings": outcome.readings.len() }));
        } else {
            println!("{}", sentence(outcome, verb));
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
