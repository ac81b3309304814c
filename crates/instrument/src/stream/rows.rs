//! Converts the engines' results to rows of records.

use sojourn_record::stream::{Arrival, Bin, Role, Send, Stream, StreamCounts};
use sojourn_stream::{Cell, Departure, FlowReceived, FlowSent, ReceivedCounts, SentCounts, Unexpected};
use sojourn_time::Nanos;

use super::host::Took;
use super::request::Head;
use crate::place::Place;

/// The values that all rows of a block share.
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    /// The trial to which the rows belong.
    pub head: &'a Head,
    /// The resources that the trial used.
    pub took: &'a Took,
    /// The scheduling settings of the program; `None` in a simulation.
    pub place: Option<&'a Place>,
    /// The ID of the clock of its times.
    pub clock_id: u64,
}

/// The flow end that a row describes.
#[derive(Clone, Debug)]
pub struct What<'a> {
    /// The role: sender, receiver or answer.
    pub role: Role,
    /// The port's number.
    pub port: u16,
    /// The backend.
    pub via: &'static str,
    /// The backend's description, with the modes that the kernel granted.
    pub engine: &'a str,
    /// The frame length, with FCS.
    pub frame_bytes: usize,
    /// The payload length.
    pub payload_bytes: usize,
}

/// Returns a sender's row of a flow; `of` counts unexpected frames at the sender.
pub fn sent(common: Common<'_>, what: &What<'_>, schedule: &str, (flow, of): (&FlowSent, Unexpected)) -> Stream {
    let SentCounts { asked, sent, refused, unsent } = flow.counts;
    Stream {
        schedule: schedule.to_owned(),
        flow: flow.flow,
        rate_pps: flow.asked_pps,
        intended_pps: flow.intended_pps,
        achieved_pps: flow.achieved_pps,
        anderson_darling: flow.fit.map(|fit| (fit.a2, fit.p)),
        first: flow.first,
        last: flow.last,
        counts: StreamCounts { asked, sent, refused, unsent, ..unexpected_counts(of) },
        ..blank(common, what)
    }
}

/// Returns a receiver's row of a flow.
pub fn received(common: Common<'_>, what: &What<'_>, flow: &FlowReceived) -> Stream {
    Stream {
        flow: flow.flow,
        achieved_pps: flow.achieved_pps(),
        first: flow.first_arrival,
        last: flow.last_arrival,
        counts: counts(flow.counts),
        ..blank(common, what)
    }
}

fn counts(of: ReceivedCounts) -> StreamCounts {
    let ReceivedCounts { first, duplicated, reordered, late, corrupted, unexpected, local_drops, lost, excess } = of;
    let of_kinds = unexpected_counts(unexpected);
    StreamCounts {
        sent: of.packets(),
        first,
        duplicated,
        reordered,
        late,
        corrupted,
        local_drops,
        lost,
        excess,
        ..of_kinds
    }
}

fn unexpected_counts(of: Unexpected) -> StreamCounts {
    StreamCounts {
        unexpected: of.total(),
        unexpected_packets: of.packets,
        unexpected_exchanges: of.exchanges,
        unexpected_ends: of.ends,
        unexpected_greetings: of.greetings,
        ..StreamCounts::default()
    }
}

/// Returns a row without results.
pub fn blank(common: Common<'_>, what: &What<'_>) -> Stream {
    let Common { head, took, place, clock_id } = common;
    Stream {
        device: head.device.clone(),
        round: head.round,
        visit: head.visit,
        cell: head.cell,
        purpose: head.purpose.clone(),
        role: what.role,
        flow: 0,
        port: what.port,
        via: what.via,
        engine: what.engine.to_owned(),
        schedule: String::new(),
        frame_bytes: what.frame_bytes,
        payload_bytes: what.payload_bytes,
        rate_pps: 0.0,
        intended_pps: 0.0,
        achieved_pps: 0.0,
        anderson_darling: None,
        started: took.started.tai,
        ended: took.ended.tai,
        started_raw: took.started.monotonic_raw,
        ended_raw: took.ended.monotonic_raw,
        first: None,
        last: None,
        counts: StreamCounts::default(),
        cpu: place.and_then(|place| place.cpu),
        cpu_time: if place.is_some() { took.processor } else { Nanos::ZERO },
        fifo: place.is_some_and(|place| place.is_real_time),
        wait: place.map_or("simulated", |place| place.wait.name()),
        clock_id,
    }
}

/// Returns the row of a departure.
pub fn send(of: &Departure) -> Send {
    let Departure { flow, seq, intended, send_call, scheduled, departure } = *of;
    Send { flow, seq, intended, send_call, scheduled, departure }
}

/// Returns the row of an arrival, with the port's number instead of its index.
pub fn arrival(of: &sojourn_stream::Arrival, ports: &[u16]) -> Arrival {
    Arrival {
        flow: of.flow,
        port: ports.get(usize::from(of.port)).copied().unwrap_or(of.port),
        node: of.node,
        seq: of.seq,
        intended: of.intended,
        sent: of.sent,
        arrival: of.arrival,
        receive_call: of.receive_call,
        is_duplicate: of.is_duplicate,
        is_reordered: of.is_reordered,
        is_late: of.is_late,
        is_corrupted: of.is_corrupted,
    }
}

/// Returns the histogram bins of one flow at one port.
pub fn bins(
    (flow, port, role): (u16, u16, Role),
    histograms: impl IntoIterator<Item = (&'static str, &'static str, Vec<Cell>)>,
) -> Vec<Bin> {
    let bin = move |quantity, unit, cell: Cell| Bin {
        flow,
        port,
        role,
        quantity,
        unit,
        low: cell.low,
        high: cell.high,
        count: cell.count,
    };
    let all = histograms.into_iter();
    all.flat_map(|(quantity, unit, cells)| cells.into_iter().map(move |cell| bin(quantity, unit, cell))).collect()
}
