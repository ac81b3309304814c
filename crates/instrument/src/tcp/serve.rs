//! `tcp serve`: either end of TCP connections, asked line by line. Decides nothing about what is measured.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_record::ReadingFile;
use sojourn_rights::table::TCP;
use sojourn_tcp::{Listening, Outcome};
use sojourn_time::Nanos;

use super::apply_scheduling;
use super::arguments::Serve;
use crate::failure::WrongRequest;
use crate::place;
use crate::serve;
use crate::sys::STOP;

/// A request, one a line.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Asked {
    /// Accept connections from now on; `finish` tells what came of them.
    Listen(sojourn_tcp::Receive),
    /// Connect and send; answered when everything has been acknowledged.
    Send(sojourn_tcp::Send),
    Finish(Finish),
}

/// Wait for the connections of a block to end, and say what came of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    block: u32,
    #[serde(default = "five_seconds", rename = "patience_ns")]
    patience: Nanos,
}

/// Carries out requests until the input ends or a signal comes.
///
/// # Errors
/// When records cannot be written any more.
pub fn run(arguments: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    apply_scheduling(&arguments.place)?;
    let file = ReadingFile::create(&arguments.record, &arguments.name, arguments.part, &crate::origin(false))?;
    TCP.confine()?;
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
                if asked.duration.is_none() && asked.bytes.is_none() {
                    return Err(WrongRequest("send: give duration_ns or bytes".to_owned()).into());
                }
                let outcomes = sojourn_tcp::send(&asked, &STOP)?;
                self.keep(asked.sockets.block, "sent", &outcomes)
            }
            Asked::Finish(asked) => {
                let nobody = || WrongRequest(format!("finish: nobody listens for block {}", asked.block));
                let listening = self.listening.remove(&asked.block).ok_or_else(nobody)?;
                let outcomes = listening.finish(asked.patience)?;
                self.keep(asked.block, "received", &outcomes)
            }
        }
    }

    fn listen(&mut self, asked: sojourn_tcp::Receive) -> anyhow::Result<Value> {
        let block = asked.sockets.block;
        if self.listening.contains_key(&block) {
            return Err(WrongRequest(format!("listen: block {block} is being received already")).into());
        }
        let listening = Listening::begin(asked, &STOP)?;
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

fn five_seconds() -> Nanos {
    Nanos::seconds(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_is_refused() {
        let refusal = |line: &str| serde_json::from_str::<Asked>(line).err().map(|error| error.to_string());
        for line in [
            r#"{"do":"listen","block":1,"at":"5201","connections":1,"settings":{},"read_every_ns":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","duration_ns":1,"settings":{"mss_bytes":900}}"#,
            r#"{"do":"finish","block":1}"#,
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
        for line in [
            r#"{"do":"listen","block":1,"at":"5201","conections":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","duration":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","settings":{"mss":900}}"#,
            r#"{"do":"finish","block":1,"patience":1}"#,
        ] {
            assert!(refusal(line).is_some_and(|why| why.contains("unknown")), "{line}");
        }
    }
}
