//! Receives the streams of a request at ports of the kernel: opens ports, receives frames, and accounts for them.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sojourn_live::LiveCounter;
use sojourn_port::{Batch, PortError};
use sojourn_record::stream::{Role, StreamBlock};
use sojourn_stream::{
    Answering, Auth, FlowReceived, Keep, Observer, PortRequest, ReceiveOutcome, ReceiveRequest, Receiver, Senders,
    SentCount,
};
use sojourn_time::{HostClock, Nanos, Pace, Wait, classes};
use sojourn_wire::SessionKey;
use sojourn_wire::stream::HEADER_BYTES;

use super::host::{self, Meter, Took};
use super::kept::Kept;
use super::live;
use super::ports::{self, Open};
use super::request::{self, Receive, ReceiveOptions};
use super::rows::{self, Common, What};
use crate::failure::WrongRequest;
use crate::place::Place;
use crate::secret;

/// The maximum number of frames recorded individually.
const MOST_ROWS: usize = 16_000_000;

/// The open ports, and the frames received so far.
pub struct Reception<'a> {
    asked: &'a Receive,
    place: &'a Place,
    ports: Vec<Open>,
    /// The frames that each port had dropped before the reception began, for example while it was opened.
    dropped_before: Vec<u64>,
    receiver: Receiver,
    meter: Meter,
}

/// The results of a reception, and the resources that it used.
#[derive(Debug)]
pub struct Received {
    /// The results of the engine.
    pub outcome: ReceiveOutcome,
    /// The resources used.
    pub took: Took,
    /// All rows for the records.
    pub rows: StreamBlock,
}

impl<'a> Reception<'a> {
    /// Opens the ports, reusing those from `kept` if the request says so; frames are received from then on.
    ///
    /// # Errors
    /// If the request is invalid, or the kernel refuses a port.
    pub fn open(asked: &'a Receive, place: &'a Place, kept: &mut Kept) -> anyhow::Result<Self> {
        if asked.ports.is_empty() || asked.flows.is_empty() {
            return Err(WrongRequest("receive: name at least one port and one flow".to_owned()).into());
        }
        let mut numbers = HashSet::new();
        if let Some(twice) = asked.ports.iter().find(|port| !numbers.insert(port.port)) {
            return Err(WrongRequest(format!("receive: port {} is named twice", twice.port)).into());
        }
        if !asked.stay_open {
            kept.release();
        }
        let open = |port| kept.take_receiver(port).map_or_else(|| ports::open_receiver(port), Ok);
        let mut ports = asked.ports.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        if let Senders::Known(key) = asked.senders {
            asked.flows.iter().try_for_each(|flow| expect(&mut counters(&mut ports), *flow, key))?;
        }
        let of_ports = asked.ports.iter().zip(&ports).map(|(asked_port, open)| PortRequest {
            framing: open.port.capabilities().framing,
            mac: open.mac,
            answer: asked_port.answer.map(|node| answering(node, &asked.options)),
            tx_timestamps: open.port.capabilities().tx_timestamps,
        });
        let request = receive_request(asked.senders, &asked.flows, &asked.options, of_ports.collect());
        let (auth, allowed, seed) = (asked.auth.clone(), asked.allowed.clone(), secret::random()?);
        let request = ReceiveRequest { auth, allowed, seed, ..request };
        let receiver = Receiver::new(&request);
        let dropped_before = ports.iter_mut().map(dropped).collect();
        Ok(Self { asked, place, ports, dropped_before, receiver, meter: Meter::start() })
    }

    /// Returns the answer that reception has begun.
    pub fn began(&self) -> Value {
        let of_port = |(asked, open): (&request::ReceivePort, &Open)| json!({ "port": asked.port, "engine": open.engine(), "dev": asked.dev, "via": open.via });
        let ports: Vec<Value> = self.asked.ports.iter().zip(&self.ports).map(of_port).collect();
        json!({ "event": "receiving", "block": self.asked.head.block, "ports": ports })
    }

    /// Receives frames until `halt` is set or `ended` returns true; a readable waker ends a sleep.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn run(
        &mut self,
        halt: &AtomicBool,
        wakers: &[BorrowedFd<'_>],
        ended: &mut dyn FnMut(&Receiver) -> bool,
    ) -> anyhow::Result<()> {
        let (mut each, mut counters) = (Vec::<&mut dyn Batch>::new(), Vec::new());
        for Open { port, counter, .. } in &mut self.ports {
            each.push(&mut **port);
            counters.extend(counter.as_mut());
        }
        // A real-time thread sleeps instead of polling, and rests under a flood.
        let wait = if self.place.is_real_time { Wait::Sleep } else { self.place.wait };
        let pace = Pace { wait, ..self.place.pace() };
        let mut watching = Watching { halt, ended, counters };
        Ok(sojourn_stream::receive(&mut self.receiver, &mut each, &HostClock, pace, wakers, &mut watching)?)
    }

    /// Returns the number of distinct packets received so far, over all flows and ports.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn arrived(&self) -> Result<u64, PortError> {
        let (mut arrived, _) = self.receiver.progress();
        for counter in self.ports.iter().filter_map(|open| open.counter.as_ref()) {
            arrived += counter.flows()?.iter().map(|flow| flow.first).sum::<u64>();
        }
        Ok(arrived)
    }

    /// Returns the receiver with the frames received so far.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Returns the receive backend of each port.
    pub fn engines(&self) -> Vec<String> {
        self.ports.iter().map(Open::receive_engine).collect()
    }

    /// Checks that announced flows and ports are being received: the counts of others would be silently lost.
    ///
    /// # Errors
    /// If one is not.
    pub fn check(&self, sent: &[request::SentCount]) -> Result<(), WrongRequest> {
        let has_port = |port: u16| self.asked.ports.iter().any(|asked| asked.port == port);
        let is_received =
            |count: &request::SentCount| self.asked.flows.contains(&count.flow) && count.port.is_none_or(has_port);
        match sent.iter().find(|count| !is_received(count)) {
            None => Ok(()),
            Some(count) => {
                let port = count.port.map_or(String::new(), |port| format!(" at port {port}"));
                Err(WrongRequest(format!("finish: flow {}{port} is not being received", count.flow)))
            }
        }
    }

    /// Returns an error if frames may have passed uncounted, because a program was detached.
    fn check_attached(&self) -> Result<(), PortError> {
        let hangs =
            |open: &Open| open.port.is_attached() && open.counter.as_ref().is_none_or(|counter| counter.is_attached());
        let Some(place) = self.ports.iter().position(|open| !hangs(open)) else { return Ok(()) };
        let object = self.asked.ports[place].dev.clone().unwrap_or_default();
        let problem =
            "the program that takes or counts its frames was detached or replaced meanwhile: what came since \
                       then was seen by nobody, and is not lost"
                .to_owned();
        Err(PortError::TakenAway { object, problem })
    }

    /// Ends the reception and computes what did not arrive; keeps the ports in `kept` if the request says so.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn finish(mut self, sent: &[request::SentCount], kept: &mut Kept) -> anyhow::Result<Received> {
        self.check_attached()?;
        let now: Vec<u64> = self.ports.iter_mut().map(dropped).collect();
        let local_drops: Vec<u64> =
            now.iter().zip(&self.dropped_before).map(|(now, then)| now.saturating_sub(*then)).collect();
        let index = |number: u16| self.asked.ports.iter().position(|port| port.port == number);
        let told = |count: &request::SentCount| {
            let request::SentCount { flow, sent, next, port } = *count;
            let port = match port {
                None => None,
                Some(port) => Some(index(port)?),
            };
            Some(SentCount { flow, port, sent, next })
        };
        let sent: Vec<SentCount> = sent.iter().filter_map(told).collect();
        let took = self.meter.stop();
        let mut outcome = self.receiver.finish(&sent, &local_drops);
        let late_after = self.asked.options.late_after;
        for (index, open) in self.ports.iter().enumerate() {
            let Some(counter) = &open.counter else { continue };
            let mut flows: Vec<&mut FlowReceived> =
                outcome.flows.iter_mut().filter(|flow| flow.port == index).collect();
            let told = |flow| sent.iter().any(|count| count.flow == flow);
            let unexpected = live::account(counter, late_after, local_drops[index], &mut flows, &told)?;
            outcome.add_unexpected(index, unexpected);
        }
        let rows = rows_of(self.asked, self.place, &self.ports, &outcome, &took);
        if self.asked.stay_open {
            for (asked, open) in self.asked.ports.iter().zip(self.ports) {
                kept.leave_receiver(asked, open);
            }
        }
        Ok(Received { outcome, took, rows })
    }
}

/// The end condition of a reception; also passes flows to the kernel counters.
struct Watching<'a> {
    halt: &'a AtomicBool,
    ended: &'a mut dyn FnMut(&Receiver) -> bool,
    counters: Vec<&'a mut LiveCounter>,
}

impl Observer for Watching<'_> {
    fn is_over(&mut self, receiver: &Receiver) -> bool {
        self.halt.load(Ordering::Relaxed) || (self.ended)(receiver)
    }

    fn greeted(&mut self, flow: u16, key: SessionKey) -> Result<(), PortError> {
        expect(&mut self.counters, flow, key)
    }
}

fn counters(ports: &mut [Open]) -> Vec<&mut LiveCounter> {
    ports.iter_mut().filter_map(|open| open.counter.as_mut()).collect()
}

fn expect(counters: &mut [&mut LiveCounter], flow: u16, key: SessionKey) -> Result<(), PortError> {
    counters.iter_mut().try_for_each(|counter| counter.expect(key, flow))
}

/// Returns the frames dropped by this machine at a port so far.
fn dropped(open: &mut Open) -> u64 {
    match &open.counter {
        Some(counter) => counter.dropped_before().unwrap_or(0),
        None => open.port.local_drops(),
    }
}

/// Returns the request to the engine.
pub fn receive_request(
    senders: Senders,
    flows: &[u16],
    options: &ReceiveOptions,
    ports: Vec<PortRequest>,
) -> ReceiveRequest {
    ReceiveRequest {
        senders,
        auth: Auth::default(),
        allowed: Vec::new(),
        seed: 0,
        ports,
        flows: flows.to_vec(),
        keep: match options.keep {
            request::Keep::Packets => Keep::Packets { room: options.room.min(MOST_ROWS) },
            request::Keep::Histograms => Keep::Histograms,
        },
        late_after: options.late_after,
        clock_offset: Nanos::ZERO,
        clock: host::clock_id(),
    }
}

fn answering(node: u8, options: &ReceiveOptions) -> Answering {
    // The header alone is the shortest answer, and no packet is shorter.
    let asked = options.answer_payload_bytes.or(options.payload_bytes);
    Answering { node, payload_bytes: asked.unwrap_or(HEADER_BYTES) }
}

fn rows_of(asked: &Receive, place: &Place, ports: &[Open], outcome: &ReceiveOutcome, took: &Took) -> StreamBlock {
    let common = Common { head: &asked.head, took, place: Some(place), clock_id: host::clock_id() };
    let numbers: Vec<u16> = asked.ports.iter().map(|port| port.port).collect();
    let row = |flow: &FlowReceived| {
        let open = &ports[flow.port];
        let engine = open.engine();
        let payload_bytes = payload_of(flow, asked.options.payload_bytes);
        let what = What {
            role: role(flow),
            port: numbers[flow.port],
            via: open.via,
            engine: &engine,
            frame_bytes: open.frame_bytes(payload_bytes, None),
            payload_bytes,
        };
        rows::received(common, &what, flow)
    };
    block_of_receiver(asked.head.block, outcome, &numbers, outcome.flows.iter().map(row).collect())
}

/// Collects a receiver's rows.
pub fn block_of_receiver(
    block: u32,
    outcome: &ReceiveOutcome,
    numbers: &[u16],
    streams: Vec<sojourn_record::stream::Stream>,
) -> StreamBlock {
    let bins = |flow: &FlowReceived| rows::bins((flow.flow, numbers[flow.port], role(flow)), flow.histograms());
    StreamBlock {
        block,
        arrivals: outcome.rows.iter().map(|row| rows::arrival(row, numbers)).collect(),
        streams,
        histograms: outcome.flows.iter().flat_map(bins).collect(),
        ..StreamBlock::default()
    }
}

/// Returns the role of a flow: answers have the number of the node that sent them.
pub fn role(flow: &FlowReceived) -> Role {
    if flow.node == 0 { Role::Receive } else { Role::Answer }
}

/// Returns the payload length of a flow's frames: as received, or the expected one if none arrived.
pub fn payload_of(flow: &FlowReceived, expected: Option<usize>) -> usize {
    match flow.counts.first {
        0 => expected.unwrap_or(0),
        first => (flow.payload_bytes / first) as usize,
    }
}

/// Returns the answer to a `finish` request.
pub fn answer(asked: &Receive, received: &Received) -> Value {
    let numbers: Vec<u16> = asked.ports.iter().map(|port| port.port).collect();
    let of_flow = |(flow, row): (&FlowReceived, &sojourn_record::stream::Stream)| {
        flow_json(flow, numbers[flow.port], row.frame_bytes)
    };
    let flows: Vec<Value> = received.outcome.flows.iter().zip(&received.rows.streams).map(of_flow).collect();
    json!({
        "event": "received",
        "block": asked.head.block,
        "flows": flows,
        "ports": ports_json(&received.outcome, &numbers),
        "not_kept": received.outcome.not_kept,
        "stepped": received.took.step().is_some(),
    })
}

/// Returns the ports' counters for answers.
pub fn ports_json(outcome: &ReceiveOutcome, numbers: &[u16]) -> Vec<Value> {
    let of_port = |(port, number): (&sojourn_stream::PortReceived, &u16)| {
        json!({
            "port": number, "frames": port.frames, "unexpected": port.unexpected.total(),
            "unexpected_of": port.unexpected, "local_drops": port.local_drops, "control": port.control,
            "unanswered": port.unanswered,
        })
    };
    outcome.ports.iter().zip(numbers).map(of_port).collect()
}

/// Returns a flow's results at a port for answers. Lost packets count as infinite; an infinite quantile is null.
pub fn flow_json(flow: &FlowReceived, port: u16, frame_bytes: usize) -> Value {
    let counts = flow.counts;
    let all = counts.packets().max(flow.delay.count());
    let quantile = |q: f64| flow.delay.quantile_among(q, all).flatten();
    let delay = flow.delay.min().map(|min| {
        json!({
            "min": min, "p50": quantile(0.5), "p99": quantile(0.99), "max": flow.delay.max(), "mean": flow.delay.mean(),
        })
    });
    json!({
        "flow": flow.flow,
        "port": port,
        "node": flow.node,
        "first": counts.first,
        "duplicated": counts.duplicated,
        "reordered": counts.reordered,
        "late": counts.late,
        "corrupted": counts.corrupted,
        "unexpected": counts.unexpected.total(),
        "local_drops": counts.local_drops,
        "lost": counts.lost,
        "excess": counts.excess,
        "achieved_pps": flow.achieved_pps(),
        "delay_ns": delay,
        "delay_classes": classes(flow.delay.cells().iter().map(|cell| (cell.low + (cell.high - cell.low) / 2, cell.count))),
        "throughput_bps": flow.achieved_pps() * (frame_bytes * 8) as f64,
        "first_ns": flow.first_arrival,
        "last_ns": flow.last_arrival,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_rows_are_capped_at_the_maximum() {
        for (asked, kept) in [(0, 0), (MOST_ROWS, MOST_ROWS), (MOST_ROWS + 1, MOST_ROWS), (usize::MAX, MOST_ROWS)] {
            let options = ReceiveOptions { room: asked, keep: request::Keep::Packets, ..ReceiveOptions::default() };
            let request = receive_request(Senders::Known(SessionKey(1)), &[1], &options, Vec::new());
            assert_eq!(request.keep, Keep::Packets { room: kept });
        }
    }
}
