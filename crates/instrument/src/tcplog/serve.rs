//! `tcplog serve`: a log for each block of a study, driven by requests on standard input. Makes no decision about what is measured.
//!
//! Programs are loaded anew for each block, so that all counters start at zero.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_record::private;
use sojourn_rights::Right;
use sojourn_rights::table::TCPLOG_SERVE;
use sojourn_tcplog::Mode;
use sojourn_tcplog::flight::Flight;
use sojourn_tcplog::spool::Spool;
use sojourn_time::{Clock, HostClock, Time};

use super::arguments::{FlightArguments, Serve};
use super::close::{End, Place, close, throw_away};
use super::drain::Drain;
use super::log_options::{self, LogOptions};
use super::logger::Logger;
use super::{answer, folder, open, recorder};
use crate::failure::WrongRequest;
use crate::place;
use crate::serve;

/// Carries out requests until the input ends or a signal arrives.
///
/// # Errors
/// If the machine refuses a basic setting.
pub fn run(asked: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    if asked.die_with_parent {
        place::die_with_parent()?;
    }
    TCPLOG_SERVE.drop_privileges()?;
    let facts = open::open(&asked.attach, &LogOptions::default())?.facts()?;
    let ready = json!({
        "attach": facts.attach,
        "clock": facts.clock,
        "fields": facts.fields,
        "absent": facts.absent,
        "programs": facts.programs,
        "careful": facts.refusal,
    });
    serve::say(&serve::ready(None, ready))?;
    TCPLOG_SERVE.restrict_calls()?;
    let mut server = Server { asked, log: None, measures: false };
    serve::serve(signal, |request| server.carry_out(request).map(Some))?;
    server.log.take().map_or(Ok(()), |log| log.end("end of input").map(|_| ()))
}

/// A request on standard input.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request {
    Begin(Box<Begin>),
    Mode { mode: Mode },
    Set { options: Options },
    Cost {},
    Status {},
    Flows {},
    Dump {},
    Statistics { on: bool },
    End {},
}

/// A block to log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    #[serde(rename = "do")]
    _do: Option<String>,
    block: i32,
    who: String,
    records: PathBuf,
    #[serde(default)]
    options: Options,
    #[serde(default)]
    mode: Mode,
    #[serde(default = "yes")]
    keep: bool,
    /// The part number in file names; by default the first free one.
    part: Option<u16>,
    /// The flight recorder: the number of samples or the time span kept of each flow; the next field has the triggers.
    #[serde(default, deserialize_with = "log_options::word")]
    flight: Option<String>,
    flight_on: Option<Vec<String>>,
}

/// Log options, and the number of loop iterations of the placebo.
#[derive(Debug, Default, Deserialize)]
struct Options {
    placebo_loops: Option<u32>,
    #[serde(flatten)]
    request: serde_json::Map<String, Value>,
}

const fn yes() -> bool {
    true
}

impl Begin {
    fn who(&self) -> anyhow::Result<String> {
        crate::stream::request::name(&self.who).map_err(|problem| WrongRequest(format!("who: {problem}")).into())
    }

    fn flight(&self) -> anyhow::Result<Option<Flight>> {
        let flight_on = self.flight_on.clone().unwrap_or_else(|| ["rto", "reset", "loss"].map(str::to_owned).to_vec());
        let keep = self.flight.as_deref().map(recorder::keep).transpose();
        let flight = keep.map_err(|problem| WrongRequest(format!("flight: {problem}")))?;
        recorder::flight(&FlightArguments { flight, flight_on }, &self.options.request()?.fields)
    }
}

/// Checks that a request can be parsed, and that its options are valid for a new log.
///
/// # Errors
/// If it is invalid.
pub fn understood(line: &[u8]) -> anyhow::Result<()> {
    match serve::parse(line)? {
        Request::Begin(begin) => {
            begin.who()?;
            begin.flight()?;
            answer::makes_sense(&begin.options.request()?)
        }
        Request::Set { options } => answer::makes_sense(&options.request()?),
        _ => Ok(()),
    }
}

impl Options {
    fn request(&self) -> anyhow::Result<LogOptions> {
        LogOptions::read(self.request.clone()).context("options")
    }
}

struct Server<'a> {
    asked: &'a Serve,
    log: Option<Log>,
    /// Whether the kernel measures the costs of programs.
    measures: bool,
}

/// The log of one block.
struct Log {
    drain: Drain,
    place: Place,
    began: Time,
    said: Vec<String>,
}

impl Server<'_> {
    fn carry_out(&mut self, request: Request) -> anyhow::Result<Value> {
        match request {
            Request::Begin(begin) => self.begin(&begin),
            Request::Mode { mode } => {
                self.log()?.drain.with(|logger| logger.be(mode))?;
                Ok(json!({ "event": "mode", "mode": mode }))
            }
            Request::Set { options } => {
                let request = options.request()?;
                let said = self.log()?.drain.with(|logger| {
                    logger.burn = options.placebo_loops.unwrap_or(logger.burn);
                    logger.set(&request, None)
                })?;
                Ok(json!({ "event": "set", "said": said }))
            }
            Request::Cost {} => {
                let programs = self.log()?.drain.with(|logger| logger.costs())?;
                Ok(json!({ "event": "cost", "programs": programs }))
            }
            Request::Status {} => {
                let mut status = self.log()?.drain.with(|logger| logger.status())?;
                status["event"] = json!("status");
                Ok(status)
            }
            Request::Flows {} => answer::flows(&self.log()?.drain),
            Request::Dump {} => {
                let records = self.log()?.drain.with(|logger| Ok(logger.dump()))?;
                Ok(json!({ "event": "dumped", "records": records }))
            }
            Request::Statistics { on } => {
                self.measures = on;
                if let Some(log) = &self.log {
                    log.drain.with(|logger| logger.measure(on))?;
                }
                Ok(json!({ "event": "statistics", "on": on }))
            }
            Request::End {} => {
                let log = self.log.take().ok_or_else(nothing_begun)?;
                log.end("asked to end")
            }
        }
    }

    fn log(&self) -> anyhow::Result<&Log> {
        self.log.as_ref().ok_or_else(nothing_begun)
    }

    fn begin(&mut self, begin: &Begin) -> anyhow::Result<Value> {
        if self.log.is_some() {
            return Err(WrongRequest("begin: the block before has not been ended".to_owned()).into());
        }
        let (who, request, flight) = (begin.who()?, begin.options.request()?, begin.flight()?);
        let mut logger = Logger::new(open::open(&self.asked.attach, &request)?, flight)?;
        logger.measure(self.measures)?;
        logger.room = self.asked.attach.flows;
        logger.burn = begin.options.placebo_loops.unwrap_or(logger.burn);
        let said = logger.set(&request, None)?;
        logger.be(if begin.mode == Mode::On { Mode::Disabled } else { begin.mode })?;
        let spool = begin.records.join(format!("tcplog-{who}-{}", begin.block));
        private::create_folder(&spool).with_context(|| format!("create {}", spool.display()))?;
        let header = folder::header(logger.facts(), &json!(logger.asked), None);
        logger.spool_to(Spool::create(&spool, &header.to_string())?);
        // Needed for recovery.
        folder::write_whole(&spool.join(folder::HEADER), &header)?;
        logger.be(begin.mode)?;
        let place = Place {
            spool,
            records: begin.keep.then(|| begin.records.clone()),
            part: begin.part.map_or_else(|| free_part(&begin.records, &who), Ok)?,
            who,
            block: begin.block,
            is_simulated: self.asked.attach.simulated.is_some(),
        };
        self.log = Some(Log {
            // The drain thread looks up the spool by its path.
            drain: Drain::start(logger, self.asked.attach.ring_bytes(), &[Right::DacOverride])?,
            place,
            began: HostClock.now(),
            said,
        });
        let said = self.log.as_ref().map(|log| &log.said);
        Ok(json!({ "event": "begun", "block": begin.block, "mode": begin.mode, "header": header, "said": said }))
    }
}

impl Log {
    fn end(self, why: &'static str) -> anyhow::Result<Value> {
        let closed = close(self.drain, &self.place, End { why, began: self.began, command_status: None })?;
        if let Some(spent) = closed.spent {
            spent.discard();
        }
        // A gap makes the trial incomplete, but does not end the study.
        closed.outcome?;
        throw_away(&self.place.spool)?;
        let mut answer = closed.footer;
        answer["event"] = json!("ended");
        answer["block"] = json!(self.place.block);
        answer["account"] = answer["totals"].clone();
        Ok(answer)
    }
}

/// Returns the first free part number: a study logs many blocks into one folder.
fn free_part(records: &Path, who: &str) -> anyhow::Result<u16> {
    let is_free = |part: &u16| !records.join(format!("tcp_samples-{who}-{part:03}.arrow")).exists();
    let part = (0..1_000).find(is_free);
    part.ok_or_else(|| WrongRequest(format!("{}: 1000 parts of {who} are there already", records.display())).into())
}

fn nothing_begun() -> anyhow::Error {
    WrongRequest("no block was begun".to_owned()).into()
}
