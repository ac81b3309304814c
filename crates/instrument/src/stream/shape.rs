//! From the command line's size, schedule, rate and count to a flow.

use std::fs;
use std::path::Path;

use sojourn_stream::{Pattern, Schedule};
use sojourn_time::Nanos;
use sojourn_wire::size::SizeError;
use sojourn_wire::stream::{HEADER_BYTES, TAG_BYTES};
use sojourn_wire::{Carrier, Size};

use super::arguments::Shape;
use super::rate::{Rate, ScheduleText};
use super::request::{Flow, To};
use crate::failure::WrongRequest;

/// Unless it is said.
const RATE: Rate = Rate::Frames(1_000.0);
const DURATION: Nanos = Nanos::seconds(10);

/// A flow, and for how long at most it is sent.
#[derive(Clone, Debug)]
pub struct Shaped {
    /// The flow.
    pub flow: Flow,
    /// For how long to go on at most.
    pub at_most: Option<Nanos>,
}

/// Returns the flow that a command line asks for.
///
/// # Errors
/// When it contradicts itself, or asks for what cannot be.
pub fn shape(number: u16, to: Option<To>, shape: &Shape) -> anyhow::Result<Shaped> {
    let payload_bytes = payload_bytes(to.as_ref(), shape)?;
    let frame_bytes = frame_bytes(to.as_ref(), payload_bytes);
    let (schedule, offsets) = schedule(&shape.schedule)?;
    let pattern: Pattern = schedule.parse().map_err(|error: sojourn_stream::ScheduleError| wrong(error.to_string()))?;
    let rate = rate(shape, pattern)?;
    let rate_pps = rate.map(|rate| rate.pps(frame_bytes));
    let offsets_ns: Vec<i64> = offsets.iter().map(|offset| offset.0).collect();
    let count = count(shape, pattern, (rate_pps, offsets.len()))?;
    let at_most = (pattern == Pattern::Flood && shape.count.is_none()).then(|| shape.duration.unwrap_or(DURATION));
    let flow = Flow { flow: number, to, schedule, rate_pps, count, payload_bytes, seed: shape.seed, offsets_ns };
    Ok(Shaped { flow, at_most })
}

/// The rate that is asked for, or the usual one; none where the schedule has its own.
fn rate(shape: &Shape, pattern: Pattern) -> anyhow::Result<Option<Rate>> {
    let own = match pattern {
        Pattern::Flood => "a flood goes as fast as it can",
        Pattern::Ramp { .. } => "a ramp carries its own rates",
        Pattern::Replay => "a replay carries its own times",
        Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => return Ok(Some(shape.rate.unwrap_or(RATE))),
    };
    match shape.rate {
        Some(_) => Err(wrong(format!("--rate: {own}; leave out one of --rate and --schedule {pattern}")).into()),
        None => Ok(None),
    }
}

fn count(shape: &Shape, pattern: Pattern, (rate_pps, offsets): (Option<f64>, usize)) -> anyhow::Result<u64> {
    if let Some(count) = shape.count {
        return Ok(count);
    }
    let seconds = shape.duration.unwrap_or(DURATION).0 as f64 / 1e9;
    let count = match pattern {
        // Its time ends it.
        Pattern::Flood => return Ok(u64::MAX / 2),
        Pattern::Replay => return Ok(offsets as u64),
        Pattern::Ramp { .. } => Schedule::new(pattern, 0.0, 1, 0).mean_pps() * seconds,
        Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => rate_pps.unwrap_or(0.0) * seconds,
    };
    match count.round() {
        count if count >= 1.0 => Ok(count as u64),
        _ => Err(wrong("--duration: no frame leaves in so short a time; ask for longer, or --count".to_owned()).into()),
    }
}

fn schedule(text: &ScheduleText) -> anyhow::Result<(String, Vec<Nanos>)> {
    match text {
        ScheduleText::Named(name) => Ok((name.clone(), Vec::new())),
        ScheduleText::Replay(file) => Ok(("replay".to_owned(), offsets(file)?)),
    }
}

/// Reads departures, a line each, in ns from the start.
fn offsets(file: &Path) -> anyhow::Result<Vec<Nanos>> {
    let text = fs::read_to_string(file)
        .map_err(|error| wrong(format!("--schedule replay: read {}: {error}", file.display())))?;
    let parse = |(number, line): (usize, &str)| {
        let refusal = || wrong(format!("{}:{}: {line:?} is no number of ns", file.display(), number + 1));
        line.trim().parse().map(Nanos).map_err(|_| refusal())
    };
    Ok(text.lines().enumerate().map(parse).collect::<Result<_, _>>()?)
}

/// What carries the user data to a destination; Ethernet frames where there is none.
fn carrier(to: Option<&To>) -> Carrier {
    match to {
        Some(To::Udp { address, .. }) if address.is_ipv4() => Carrier::Udp4,
        Some(To::Udp { .. }) => Carrier::Udp6,
        _ => Carrier::Raw,
    }
}

fn tag_bytes(to: Option<&To>) -> usize {
    let is_tagged = match to {
        Some(To::Packet { vlan, pcp, .. } | To::Xdp { vlan, pcp, .. }) => vlan.is_some() || pcp.is_some(),
        _ => false,
    };
    if is_tagged { TAG_BYTES } else { 0 }
}

fn frame_bytes(to: Option<&To>, payload_bytes: usize) -> usize {
    carrier(to).frame_bytes(payload_bytes) + tag_bytes(to)
}

fn payload_bytes(to: Option<&To>, shape: &Shape) -> Result<usize, SizeError> {
    let carrier = carrier(to);
    let least = carrier.least_payload_bytes().max(HEADER_BYTES);
    match (shape.size.size, shape.size.payload_bytes) {
        (Some(bytes), _) => carrier.payload_bytes(Size::Frame(bytes.saturating_sub(tag_bytes(to)))),
        (None, Some(bytes)) => carrier.payload_bytes(Size::Payload(bytes)),
        (None, None) => Ok(least),
    }
}

fn wrong(problem: String) -> WrongRequest {
    WrongRequest(problem)
}
