//! `tcp serve`: either end of TCP connections, driven by requests on standard input. Makes no decision about what is measured.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_record::stream::StreamBlock;
use sojourn_record::{ReadingFile, StreamFolder};
use sojourn_rights::table::TCP_SERVE;
use sojourn_tcp::{Listening, Outcome};
use sojourn_time::{Nanos, Wait};

use super::apply_scheduling;
use super::arguments::Serve;
use super::rows::{self, Arrived, OfStream};
use crate::failure::WrongRequest;
use crate::place::{self, Place};
use crate::serve;
use crate::stream::host::Meter;
use crate::sys::STOP;

/// A request, one per line.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Asked {
    /// Accept connections from now on; `finish` reports their results.
    Listen(sojourn_tcp::Receive),
    /// Connect and send; answered when everything has been acknowledged.
    Send(Box<SendAsked>),
    Finish(Finish),
}

/// A request to send on connections; as a trial of streams, it also adds rows to `streams`, and rows of messages to `sends`.
#[derive(Debug, Deserialize)]
struct SendAsked {
    #[serde(flatten)]
    request: sojourn_tcp::Send,
    stream: Option<OfStream>,
}

/// A request to wait for the connections of a block to end, and to report their results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    block: u32,
    #[serde(default = "five_seconds", rename = "patience_ns")]
    patience: Nanos,
    /// The trial of streams, if the connections are one.
    stream: Option<Arrived>,
}

impl SendAsked {
    fn has_an_end(&self) -> Result<(), WrongRequest> {
        match (self.request.duration, self.request.bytes) {
            (None, None) => Err(WrongRequest("send: give duration_ns or bytes".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Checks that a request can be parsed and says when it ends. Does not open sockets.
///
/// # Errors
/// If it is invalid.
pub fn understood(line: &[u8]) -> anyhow::Result<()> {
    match serve::parse(line)? {
        Asked::Send(asked) => Ok(asked.has_an_end()?),
        Asked::Listen(_) | Asked::Finish(_) => Ok(()),
    }
}

/// Carries out requests until the input ends or a signal arrives.
///
/// # Errors
/// If records can no longer be written.
pub fn run(arguments: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    apply_scheduling(&arguments.place)?;
    let file = ReadingFile::create(&arguments.record, &arguments.name, arguments.part, &crate::origin(false))?;
    let Serve { record, name, part, .. } = arguments;
    let folder = || StreamFolder::create(record, name, *part, &crate::origin(false));
    let streams = arguments.streams.then(folder).transpose()?;
    let nice = if arguments.punctual { place::be_punctual() } else { place::nice() };
    let place =
        Place { cpu: arguments.place.cpu, is_real_time: false, nice, wait: Wait::SleepThenSpin, is_locked: false };
    TCP_SERVE.confine()?;
    let mut end = Ends { place, file, streams, listening: BTreeMap::new() };
    serve::say(&serve::ready(None, json!({ "cpu": place.cpu, "nice": nice })))?;
    serve::serve(signal, |asked| end.answer(asked).map(Some))?;
    if let Some(mut streams) = end.streams {
        streams.finish()?;
    }
    Ok(end.file.finish()?)
}

/// The open ends of connections.
struct Ends {
    place: Place,
    file: ReadingFile,
    /// The records of trials of streams, if any.
    streams: Option<StreamFolder>,
    listening: BTreeMap<u32, (Listening, Meter)>,
}

impl Ends {
    fn answer(&mut self, asked: Asked) -> anyhow::Result<Value> {
        match asked {
            Asked::Listen(asked) => self.listen(asked),
            Asked::Send(asked) => {
                let SendAsked { request, stream } = &*asked;
                asked.has_an_end()?;
                self.check(request.sockets.block, stream.is_some())?;
                let meter = Meter::start();
                let outcomes = sojourn_tcp::send(request, &STOP)?;
                let took = meter.stop();
                let of = stream.as_ref().map(|of| rows::sent(of, request, &outcomes, (&took, &self.place)));
                self.keep(request.sockets.block, "sent", &outcomes, of)
            }
            Asked::Finish(asked) => {
                self.check(asked.block, asked.stream.is_some())?;
                let nobody = || WrongRequest(format!("finish: nobody listens for block {}", asked.block));
                let (listening, meter) = self.listening.remove(&asked.block).ok_or_else(nobody)?;
                let outcomes = listening.finish(asked.patience)?;
                let took = meter.stop();
                let by = (&took, &self.place);
                let of = asked.stream.as_ref().map(|of| rows::received((asked.block, of), &outcomes, by));
                self.keep(asked.block, "received", &outcomes, of)
            }
        }
    }

    /// Refuses a trial of streams if the program records none.
    fn check(&self, block: u32, is_stream: bool) -> anyhow::Result<()> {
        if is_stream && self.streams.is_none() {
            return Err(WrongRequest(format!("block {block} is a trial of streams: start with --streams")).into());
        }
        Ok(())
    }

    fn listen(&mut self, asked: sojourn_tcp::Receive) -> anyhow::Result<Value> {
        let block = asked.sockets.block;
        if self.listening.contains_key(&block) {
            return Err(WrongRequest(format!("listen: block {block} is being received already")).into());
        }
        let meter = Meter::start();
        let listening = Listening::begin(asked, &STOP)?;
        let at = listening.at;
        self.listening.insert(block, (listening, meter));
        Ok(json!({ "event": "listening", "block": block, "port": at.port() }))
    }

    fn keep(
        &mut self,
        block: u32,
        verb: &str,
        outcomes: &[Outcome],
        streams: Option<StreamBlock>,
    ) -> anyhow::Result<Value> {
        if let (Some(rows), Some(folder)) = (streams, &mut self.streams) {
            folder.write(&rows)?;
        }
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
    fn misspelt_request_keys_are_refused() {
        let refusal = |line: &str| serde_json::from_str::<Asked>(line).err().map(|error| error.to_string());
        for line in [
            r#"{"do":"listen","block":1,"at":"5201","connections":1,"settings":{},"read_every_ns":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","duration_ns":1,"settings":{"mss_bytes":900}}"#,
            r#"{"do":"finish","block":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","bytes":64,"message_bytes":64,"interval_ns":1000,"is_eor":true,
                "stream":{"device":"wire","round":0,"visit":1,"cell":2,"purpose":"measure","frame_bytes":122}}"#,
            r#"{"do":"finish","block":1,"stream":{"device":"wire","frame_bytes":122,"message_bytes":64,"sent":9}}"#,
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
        for line in [
            r#"{"do":"listen","block":1,"at":"5201","conections":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","duration":1}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","settings":{"mss":900}}"#,
            r#"{"do":"finish","block":1,"patience":1}"#,
            r#"{"do":"finish","block":1,"stream":{"device":"wire","frame_bytes":1,"message_bytes":1,"sent":1,"send":9}}"#,
            r#"{"do":"send","block":1,"to":"10.0.0.2:1","bytes":1,"stream":{"device":"w","frame_bytes":1,"cel":1}}"#,
        ] {
            assert!(refusal(line).is_some_and(|why| why.contains("unknown")), "{line}");
        }
    }
}
