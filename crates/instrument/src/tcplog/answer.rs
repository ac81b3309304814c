//! Requests to a running log through its socket, and their answers.

use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_tcplog::Mode;
use sojourn_time::{Clock, HostClock};

use super::asked::Asked;
use super::drain::Drain;
use super::log_options::LogOptions;
use super::show;
use crate::failure;

/// A request from a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request {
    Status {},
    Flows {},
    Set(Set),
    Dump {},
    Mode { mode: Mode },
    Cost {},
    Stop {},
}

/// Log options, and whether logging is enabled.
#[derive(Debug, Deserialize)]
struct Set {
    enabled: Option<bool>,
    #[serde(flatten)]
    request: serde_json::Map<String, Value>,
}

/// Parses a request.
fn request(line: &[u8]) -> anyhow::Result<Request> {
    Ok(serde_json::from_slice(line)?)
}

/// Checks that a request can be parsed, and that its options are valid for a new log.
///
/// # Errors
/// If it is invalid.
pub fn understood(line: &[u8]) -> anyhow::Result<()> {
    match request(line)? {
        Request::Set(Set { request, .. }) => makes_sense(&LogOptions::read(request)?),
        _ => Ok(()),
    }
}

/// Checks that options are valid for a new log.
///
/// # Errors
/// If they are invalid.
pub fn makes_sense(options: &LogOptions) -> anyhow::Result<()> {
    let mut asked = Asked::default();
    asked.apply(options, &[])?;
    asked.options();
    Ok(())
}

/// Answers a request; sets `is_stopped` if it requests the end.
pub fn answer(drain: &Drain, line: &[u8], is_stopped: &mut bool) -> Value {
    match request(line).and_then(|request| carry_out(drain, request, is_stopped)) {
        Ok(answer) => answer,
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &anyhow::Error) -> Value {
    json!({ "error": failure::sentence(error), "status": failure::status(error) })
}

fn carry_out(drain: &Drain, request: Request, is_stopped: &mut bool) -> anyhow::Result<Value> {
    match request {
        Request::Status {} => status(drain),
        Request::Flows {} => flows(drain),
        Request::Set(Set { enabled, request }) => {
            let request: LogOptions = LogOptions::read(request)?;
            drain.with(|logger| {
                let said = logger.set(&request, enabled)?;
                Ok(json!({ "ok": true, "options": logger.asked, "said": said }))
            })
        }
        Request::Dump {} => drain.with(|logger| Ok(json!({ "ok": true, "records": logger.dump() }))),
        Request::Mode { mode } => drain.with(|logger| {
            logger.be(mode)?;
            Ok(json!({ "ok": true, "mode": mode }))
        }),
        Request::Cost {} => drain.with(|logger| Ok(json!({ "ok": true, "programs": logger.costs()? }))),
        Request::Stop {} => {
            *is_stopped = true;
            Ok(json!({ "ok": true }))
        }
    }
}

fn status(drain: &Drain) -> anyhow::Result<Value> {
    let mut status = drain.with(|logger| logger.status())?;
    status["ok"] = true.into();
    status["logger_cpu_s"] = (drain.processor_time().0 as f64 / 1e9).into();
    Ok(status)
}

/// Returns the flows as `watch` prints them. Only the copying delays the drain.
///
/// # Errors
/// If the log has ended.
pub fn flows(drain: &Drain) -> anyhow::Result<Value> {
    let (flows, status, absent) =
        drain.with(|logger| Ok((logger.flows(), logger.status()?, logger.facts().absent.clone())))?;
    let hertz = u32::try_from(HostClock.jiffies_per_second()).unwrap_or(1);
    let flows: Vec<Value> = flows.iter().map(|flow| show::flow(flow, &absent, hertz)).collect();
    Ok(json!({
        "event": "flows",
        "time_ns": HostClock.now().0,
        "enabled": status["enabled"],
        "totals": status["totals"],
        "events": status["events"],
        "events_full": status["events_full"],
        "flows": flows,
    }))
}
