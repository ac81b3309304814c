//! Converts the connections of a trial to rows of streams: each message counts as one frame.
//!
//! The receiver sees bytes, not segments: a message that did not arrive completely counts as lost. Whether each message
//! was one segment is visible only on the wire.

use serde::Deserialize;
use sojourn_record::stream::{Role, Send, Stream, StreamBlock, StreamCounts};
use sojourn_tcp::Outcome;
use sojourn_time::{Source, Stamp, Time};

use crate::place::Place;
use crate::stream::host::{self, Took};
use crate::stream::request::Head;
use crate::stream::rows::{Common, What, blank};

/// The backend's name in records.
const VIA: &str = "tcp";

/// The trial, as passed to the sender.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfStream {
    #[serde(default)]
    device: String,
    #[serde(default)]
    round: i32,
    #[serde(default)]
    visit: i32,
    #[serde(default)]
    cell: i32,
    #[serde(default = "measure")]
    purpose: String,
    /// The length of the frame of a segment that carries one message, with FCS.
    frame_bytes: usize,
}

/// The trial, as passed to the receiver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrived {
    #[serde(flatten)]
    of: OfStream,
    message_bytes: u32,
    /// The number of messages that the sender has written on each connection.
    sent: u64,
}

/// The resources that the connections used, and the scheduling settings of the program.
pub type By<'a> = (&'a Took, &'a Place);

fn measure() -> String {
    "measure".to_owned()
}

/// Returns a sender's rows: a stream per connection, and a departure per message whose write call was recorded.
pub fn sent(of: &OfStream, request: &sojourn_tcp::Send, outcomes: &[Outcome], by: By<'_>) -> StreamBlock {
    let block = request.sockets.block;
    let asked_pps = request.interval.map_or(0.0, |interval| 1e9 / interval.0 as f64);
    let row = |outcome: &Outcome| {
        let (written, unwritten) = messages(outcome, request.message_bytes);
        let asked = written + unwritten;
        Stream {
            schedule: if request.interval.is_some() { "regular" } else { "flood" }.to_owned(),
            rate_pps: asked_pps,
            intended_pps: asked_pps,
            achieved_pps: rate(written, outcome),
            counts: StreamCounts { asked, sent: written, unsent: unwritten, ..StreamCounts::default() },
            ..plain((block, of), outcome, request.message_bytes, (Role::Send, by))
        }
    };
    StreamBlock {
        block,
        streams: outcomes.iter().map(row).collect(),
        sends: outcomes.iter().flat_map(departures).collect(),
        ..StreamBlock::default()
    }
}

/// Returns a receiver's rows: a stream per connection.
pub fn received((block, of): (u32, &Arrived), outcomes: &[Outcome], by: By<'_>) -> StreamBlock {
    let row = |outcome: &Outcome| {
        let first = (outcome.moved_bytes / u64::from(of.message_bytes.max(1))).min(of.sent);
        Stream {
            achieved_pps: rate(first, outcome),
            counts: StreamCounts { sent: of.sent, first, lost: of.sent - first, ..StreamCounts::default() },
            ..plain((block, &of.of), outcome, of.message_bytes, (Role::Receive, by))
        }
    };
    StreamBlock { block, streams: outcomes.iter().map(row).collect(), ..StreamBlock::default() }
}

/// Returns the numbers of messages that the kernel accepted completely, and of other messages that were due (none in
/// bulk transfer).
fn messages(outcome: &Outcome, message_bytes: u32) -> (u64, u64) {
    let in_bulk = (outcome.moved_bytes / u64::from(message_bytes.max(1)), 0);
    outcome.pacing.as_ref().map_or(in_bulk, |pacing| (pacing.written, pacing.unwritten))
}

fn rate(messages: u64, outcome: &Outcome) -> f64 {
    let span = outcome.last_moved_ns.zip(outcome.first_moved_ns).map_or(0, |(last, first)| last - first);
    if messages > 1 && span > 0 { (messages - 1) as f64 * 1e9 / span as f64 } else { 0.0 }
}

fn departures(outcome: &Outcome) -> impl Iterator<Item = Send> {
    let flow = flow(outcome);
    outcome.calls.iter().map(move |call| Send {
        flow,
        seq: call.seq,
        intended: call.due,
        send_call: call.at,
        scheduled: None,
        departure: Stamp { at: call.at, source: Source::User },
    })
}

/// Returns the flow number of a connection: flows are numbered from 1.
fn flow(outcome: &Outcome) -> u16 {
    u16::try_from(outcome.facts.connection).unwrap_or(u16::MAX).saturating_add(1)
}

fn plain(
    (block, of): (u32, &OfStream),
    outcome: &Outcome,
    message_bytes: u32,
    (role, (took, place)): (Role, By<'_>),
) -> Stream {
    let OfStream { device, round, visit, cell, purpose, frame_bytes } = of;
    let (device, purpose) = (device.clone(), purpose.clone());
    let head = Head { block, device, round: *round, visit: *visit, cell: *cell, purpose };
    let common = Common { head: &head, took, place: Some(place), clock_id: host::clock_id() };
    let nagle = if outcome.facts.is_nodelay { "no delay" } else { "Nagle" };
    let engine = format!("TCP {}, {nagle}", outcome.facts.congestion);
    let payload_bytes = message_bytes as usize;
    let what = What { role, port: 0, via: VIA, engine: &engine, frame_bytes: *frame_bytes, payload_bytes };
    Stream {
        flow: flow(outcome),
        first: outcome.first_moved_ns.map(Time),
        last: outcome.last_moved_ns.map(Time),
        ..blank(common, &what)
    }
}
