//! `tcp serve`: either end of TCP connections, asked line by line. Decides nothing about what is measured.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_record::ReadingFile;
use sojourn_time::Nanos;

use super::arguments::{Listen, Moments, Serve, Settings};
use super::receiving::{Listening, Reception};
use super::sending::{self, End, Outcome, Task};
use super::settle;
use crate::failure::WrongRequest;
use crate::place;
use crate::serve;

/// What is asked on one line.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Asked {
    Listen(Receive),
    Send(Send),
    Finish(Finish),
}

/// Accept connections from now on; `finish` tells what came of them.
#[derive(Debug, Deserialize)]
struct Receive {
    block: u32,
    #[serde(flatten)]
    at: Listen,
    #[serde(default = "one")]
    connections: u32,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    read_every_ns: Option<i64>,
}

/// Connect and send; answered when everything has been acknowledged.
#[derive(Debug, Deserialize)]
struct Send {
    block: u32,
    to: SocketAddr,
    #[serde(default)]
    bind: Option<IpAddr>,
    #[serde(default)]
    duration_ns: Option<i64>,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default = "sixty_four_kibibytes")]
    message_bytes: usize,
    #[serde(default)]
    interval_ns: Option<i64>,
    #[serde(default = "one")]
    connections: u32,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    read_every_ns: Option<i64>,
    #[serde(default)]
    read_before_send: bool,
}

/// Wait for the connections of a block to end, and say what came of them.
#[derive(Debug, Deserialize)]
struct Finish {
    block: u32,
    #[serde(default = "five_seconds")]
    patience_ns: i64,
}

/// Carries out requests until the input ends or a signal comes.
///
/// # Errors
/// When records cannot be written any more.
pub fn run(arguments: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    settle(&arguments.place)?;
    let file = ReadingFile::create(&arguments.record, &arguments.name, arguments.part, &crate::origin(false))?;
    let mut end = Ends { file, listening: BTreeMap::new() };
    serve::say(&serve::ready(None, json!({ "cpu": arguments.place.cpu })))?;
    serve::serve(signal, |asked| end.answer(asked).map(Some))?;
    Ok(end.file.finish()?)
}

/// What is under way.
struct Ends {
    file: ReadingFile,
    listening: BTreeMap<u32, Listening>,
}

impl Ends {
    fn answer(&mut self, asked: Asked) -> anyhow::Result<Value> {
        match asked {
            Asked::Listen(asked) => self.listen(asked),
            Asked::Send(asked) => {
                let block = asked.block;
                let outcomes = sending::send(&asked.task()?)?;
                self.keep(block, "sent", &outcomes)
            }
            Asked::Finish(asked) => {
                let nobody = || WrongRequest(format!("finish: nobody listens for block {}", asked.block));
                let listening = self.listening.remove(&asked.block).ok_or_else(nobody)?;
                let outcomes = listening.finish(Nanos(asked.patience_ns))?;
                self.keep(asked.block, "received", &outcomes)
            }
        }
    }

    fn listen(&mut self, asked: Receive) -> anyhow::Result<Value> {
        let block = asked.block;
        if self.listening.contains_key(&block) {
            return Err(WrongRequest(format!("listen: block {block} is being received already")).into());
        }
        let listening = Listening::begin(Reception {
            at: asked.at,
            connections: asked.connections,
            settings: asked.settings,
            read_every: asked.read_every_ns.map(Nanos),
        })?;
        let at = listening.at;
        self.listening.insert(block, listening);
        Ok(json!({ "event": "listening", "block": block, "port": at.port() }))
    }

    fn keep(&mut self, block: u32, verb: &str, outcomes: &[Outcome]) -> anyhow::Result<Value> {
        let readings: Vec<_> = outcomes.iter().flat_map(|outcome| outcome.readings.clone()).collect();
        self.file.write(block, &readings)?;
        Ok(json!({ "event": verb, "block": block, "connections": outcomes, "readings": readings.len() }))
    }
}

impl Send {
    fn task(self) -> anyhow::Result<Task> {
        let wrong = |problem: &str| Err(WrongRequest(format!("send: {problem}")).into());
        let end = match (self.duration_ns, self.bytes) {
            (Some(span), None) if span > 0 => End::After(Nanos(span)),
            (None, Some(bytes)) => End::Bytes(bytes),
            _ => return wrong("say either duration_ns, above 0, or bytes"),
        };
        if self.message_bytes == 0 || self.connections == 0 {
            return wrong("message_bytes and connections are at least 1");
        }
        if [self.interval_ns, self.read_every_ns].into_iter().flatten().any(|span| span <= 0) {
            return wrong("interval_ns and read_every_ns are above 0");
        }
        Ok(Task {
            to: self.to,
            bind: self.bind,
            end,
            message_bytes: self.message_bytes,
            interval: self.interval_ns.map(Nanos),
            connections: self.connections,
            settings: self.settings,
            moments: Moments { read_every: self.read_every_ns.map(Nanos), read_before_send: self.read_before_send },
        })
    }
}

fn one() -> u32 {
    1
}

fn sixty_four_kibibytes() -> usize {
    64 << 10
}

fn five_seconds() -> i64 {
    5_000_000_000
}
