//! Sends the streams of a request over ports of the kernel: opens ports, checks schedules, sends, and reports.

use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use sojourn_port::Batch;
use sojourn_record::stream::{Role, StreamBlock};
use sojourn_stream::{
    Auth, FlowReceived, FlowRequest, FlowSent, Keep, Pattern, ReceiveOutcome, Schedule, ScheduleError, SendOutcome,
    SendRequest, SyncRequest, Unexpected,
};
use sojourn_time::{HostClock, Nanos};
use sojourn_wire::SessionKey;

use super::clocks::{self, Known};
use super::host::{self, Meter, Took};
use super::kept::Kept;
use super::live::{self, Outlet};
use super::ports::{self, Open};
use super::receive;
use super::request::{self, ClockAsked, Flow, Send, SendOptions};
use super::rows::{self, Common, What};
use super::to::To;
use crate::failure::WrongRequest;
use crate::place::Place;

/// The maximum number of frames recorded individually.
const MOST_ROWS: u64 = 16_000_000;

/// The default time from the request to the first departure.
const START_IN: Nanos = Nanos::millis(1);

/// The number of clock exchanges before and after a stream, and their interval.
const EXCHANGES: u32 = 200;
const SPACING: Nanos = Nanos::millis(2);
/// The interval of clock exchanges during the stream, unless they would be more than the maximum.
const DURING: Nanos = Nanos::millis(50);
/// The maximum number of requests for a clock during the stream: those of 3.6 hours.
const MOST_DURING_EXCHANGES: i64 = 1 << 18;

/// Streams that are ready to be sent.
pub struct Sending<'a> {
    asked: &'a Send,
    place: &'a Place,
    request: SendRequest,
    ports: Vec<Open>,
    /// The kernel senders: one per flow, or none.
    live: Vec<Outlet>,
}

/// The results of sending, and the resources that it used.
#[derive(Debug)]
pub struct Sent {
    /// The results of the engine.
    pub outcome: SendOutcome,
    /// The resources used.
    pub took: Took,
    /// The estimates of the receivers' clocks.
    pub clocks: Vec<Known>,
    /// All rows for the records.
    pub rows: StreamBlock,
}

/// Sends, and returns the rows and the answer; keeps the ports in `kept` if the request says so.
///
/// # Errors
/// If the request is invalid, or the kernel refuses.
pub fn send(asked: &Send, place: &Place, kept: &mut Kept, halt: &AtomicBool) -> anyhow::Result<(StreamBlock, Value)> {
    let mut sending = Sending::open(asked, place, kept)?;
    let sent = sending.run(halt);
    sending.close(kept, sent.is_ok());
    let sent = sent?;
    let mut answer = answer(asked.head.block, &sent.outcome, &sent.clocks);
    if let Some(answers) = &sent.outcome.answers {
        let rows = sent.rows.streams.iter().filter(|row| row.role == Role::Answer);
        let told = answered(answers).zip(rows);
        let told = told.map(|(flow, row)| receive::flow_json(flow, number(flow.port), row.frame_bytes));
        answer["answers"] = told.collect();
    }
    Ok((sent.rows, answer))
}

impl<'a> Sending<'a> {
    /// Opens the ports, reusing those from `kept` if the request says so, and checks that the links can carry the schedules.
    ///
    /// # Errors
    /// If the request is invalid, or the kernel refuses a port.
    pub fn open(asked: &'a Send, place: &'a Place, kept: &mut Kept) -> anyhow::Result<Self> {
        if !asked.stay_open {
            kept.release();
        }
        let stamps = asked.options.stamps;
        let mut ports: Vec<(&To, Open)> = Vec::new();
        let mut flows = Vec::new();
        for flow in &asked.flows {
            let to = &flow.to;
            to.check()?;
            let index = match ports.iter().position(|(other, _)| ports::shares_port(other, to)) {
                Some(index) => index,
                None => {
                    let open = kept.take_sender(to, stamps).map_or_else(|| ports::open_sender(to, stamps), Ok)?;
                    ports.push((to, open));
                    ports.len() - 1
                }
            };
            let head = ports::head(to, ports[index].1.mac)?;
            flows.push(FlowRequest { port: index, head, ..flow.request()? });
        }
        let ports: Vec<Open> = ports.into_iter().map(|(_, port)| port).collect();
        for (flow, request) in asked.flows.iter().zip(&flows) {
            check_link(flow, request, &ports[request.port])?;
        }
        let options = SendOptions { at_most: asked.options.at_most(&asked.flows), ..asked.options };
        let request =
            SendRequest { auth: asked.auth.clone(), ..send_request((asked.head.block, asked.key), &options, flows) };
        let longest: Vec<usize> = ports.iter().map(|open| open.port.capabilities().max_frame).collect();
        request.check(&longest).map_err(|error| WrongRequest(error.to_string()))?;
        let live = open_live(asked, &request.flows, kept)?;
        Ok(Self { asked, place, request, ports, live })
    }

    /// Sends all streams; ends early once `halt` is set.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn run(&mut self, halt: &AtomicBool) -> anyhow::Result<Sent> {
        let meter = Meter::start();
        let pace = self.place.pace();
        let mut each: Vec<&mut dyn Batch> = self.ports.iter_mut().map(|open| &mut *open.port as _).collect();
        let outcome = if self.live.is_empty() {
            sojourn_stream::send(&self.request, &mut each, &HostClock, pace, halt)?
        } else {
            live::send(&mut self.live, &mut each, &self.request, pace, halt)?
        };
        let took = meter.stop();
        let clocks = self.clocks(&outcome);
        let rows = self.rows(&outcome, &took, &clocks);
        Ok(Sent { outcome, took, clocks, rows })
    }

    /// Closes the ports, or keeps them in `kept` after success if the request says so. Senders of live frames are
    /// always kept: they are attached to no measured interface.
    fn close(self, kept: &mut Kept, went_well: bool) {
        self.live.into_iter().for_each(|outlet| outlet.keep(kept));
        if !self.asked.stay_open || !went_well {
            return;
        }
        let to = |port| self.request.flows.iter().position(|flow| flow.port == port).map(|at| &self.asked.flows[at].to);
        for (port, open) in self.ports.into_iter().enumerate() {
            if let Some(to) = to(port) {
                kept.leave_sender(to, self.asked.options.stamps, open);
            }
        }
    }

    /// Disables clock exchanges: there is no receiver that would answer.
    pub fn compare_no_clocks(&mut self) {
        self.request.sync = None;
    }

    /// Returns the transmit backend of each flow, with the modes that the kernel granted.
    pub fn engines(&self) -> Vec<String> {
        self.request.flows.iter().map(|flow| self.ports[flow.port].engine()).collect()
    }

    /// Returns the length of a flow's frames, with FCS.
    pub fn frame_bytes(&self, place: usize) -> usize {
        let flow = &self.request.flows[place];
        self.ports[flow.port].frame_bytes(flow.payload_bytes, Some(flow.head))
    }

    /// Returns the payload length of a flow's frames.
    pub fn payload_bytes(&self, place: usize) -> usize {
        self.request.flows[place].payload_bytes
    }

    /// Returns the intended departures of a flow.
    pub fn schedule(&self, place: usize) -> &Schedule {
        &self.request.flows[place].schedule
    }

    /// Returns the port and the request of a flow.
    pub fn flow(&mut self, place: usize) -> (&mut dyn Batch, &FlowRequest) {
        let flow = &self.request.flows[place];
        (&mut *self.ports[flow.port].port, flow)
    }

    fn clocks(&self, outcome: &SendOutcome) -> Vec<Known> {
        let known = |flow: &Flow| {
            let peer = flow.to.to_string();
            match self.asked.options.clock {
                ClockAsked::Shared => vec![clocks::asserted(flow.flow, &peer, self.request.clock)],
                ClockAsked::Exchange => clocks::learn(flow.flow, &peer, &outcome.exchanges, self.request.clock),
                ClockAsked::None => Vec::new(),
            }
        };
        self.asked.flows.iter().flat_map(known).collect()
    }

    fn rows(&self, outcome: &SendOutcome, took: &Took, clocks: &[Known]) -> StreamBlock {
        let common = Common { head: &self.asked.head, took, place: Some(self.place), clock_id: self.request.clock };
        let engines = self.engines();
        let row = |(place, sent): (usize, &FlowSent)| {
            let flow = &self.request.flows[place];
            let what = What {
                role: Role::Send,
                port: number(flow.port),
                via: self.ports[flow.port].via,
                engine: &engines[place],
                frame_bytes: self.frame_bytes(place),
                payload_bytes: flow.payload_bytes,
            };
            let unexpected = if place == 0 { outcome.unexpected } else { Unexpected::default() };
            rows::sent(common, &what, self.asked.flows[place].shape.schedule(), (sent, unexpected))
        };
        let rows = outcome.flows.iter().enumerate().map(row).collect();
        let sent = block_of_sender(self.asked.head.block, outcome, clocks, rows);
        match &outcome.answers {
            Some(answers) => with_answers(sent, self.answer_rows(common, answers)),
            None => sent,
        }
    }

    fn answer_rows(&self, common: Common<'_>, answers: &ReceiveOutcome) -> StreamBlock {
        let numbers: Vec<u16> = (0..self.ports.len()).map(number).collect();
        let row = |flow: &FlowReceived| {
            let open = &self.ports[flow.port];
            let payload_bytes = receive::payload_of(flow, None);
            let what = What {
                role: Role::Answer,
                port: number(flow.port),
                via: open.via,
                engine: &open.engine(),
                frame_bytes: open.frame_bytes(payload_bytes, None),
                payload_bytes,
            };
            rows::received(common, &what, flow)
        };
        receive::block_of_receiver(self.asked.head.block, answers, &numbers, answered(answers).map(row).collect())
    }
}

/// Returns the flows that were answered.
fn answered(answers: &ReceiveOutcome) -> impl Iterator<Item = &FlowReceived> {
    answers.flows.iter().filter(|flow| flow.node > 0)
}

fn with_answers(sent: StreamBlock, answers: StreamBlock) -> StreamBlock {
    StreamBlock {
        arrivals: answers.arrivals,
        streams: [sent.streams, answers.streams].concat(),
        histograms: [sent.histograms, answers.histograms].concat(),
        ..sent
    }
}

/// Opens the kernel senders of a request: for all flows, or for none.
fn open_live(asked: &Send, flows: &[FlowRequest], kept: &mut Kept) -> anyhow::Result<Vec<Outlet>> {
    let mut live: Vec<Outlet> = Vec::new();
    let mut open = || -> anyhow::Result<()> {
        for (flow, request) in asked.flows.iter().zip(flows) {
            live.extend(live::open(&flow.to, request, asked.key, kept)?);
        }
        let problem = "flows of the engine live and of others cannot be sent at once; use two senders";
        let is_right = live.is_empty() || live.len() == flows.len();
        if is_right { Ok(()) } else { Err(WrongRequest(problem.to_owned()).into()) }
    };
    if let Err(error) = open() {
        live.into_iter().for_each(|outlet| outlet.keep(kept));
        return Err(error);
    }
    Ok(live)
}

/// Collects a sender's rows.
pub fn block_of_sender(
    block: u32,
    outcome: &SendOutcome,
    clocks: &[Known],
    streams: Vec<sojourn_record::stream::Stream>,
) -> StreamBlock {
    let bins = |sent: &FlowSent| rows::bins((sent.flow, number(sent.port), Role::Send), sent.histograms());
    StreamBlock {
        block,
        sends: outcome.rows.iter().map(rows::send).collect(),
        streams,
        histograms: outcome.flows.iter().flat_map(bins).collect(),
        exchanges: clocks::exchange_rows(&outcome.exchanges, clocks),
        clock_lines: clocks::line_rows(clocks, (outcome.started, outcome.ended)),
        ..StreamBlock::default()
    }
}

/// Returns the request to the engine.
pub fn send_request((block, key): (u32, SessionKey), asked: &SendOptions, flows: Vec<FlowRequest>) -> SendRequest {
    let count: u64 = flows.iter().map(|flow| flow.schedule.count).fold(0, u64::saturating_add);
    let room = count.min(MOST_ROWS) as usize;
    let is_flood = flows.iter().any(|flow| flow.schedule.pattern == Pattern::Flood);
    SendRequest {
        block,
        key,
        auth: Auth::default(),
        keep: match asked.keep {
            request::Keep::Packets => Keep::Packets { room },
            request::Keep::Histograms => Keep::Histograms,
        },
        start_in: asked.start_in.unwrap_or(START_IN),
        at_most: asked.at_most,
        sync: (asked.clock == ClockAsked::Exchange).then(|| SyncRequest {
            flows: (0..flows.len()).collect(),
            before: EXCHANGES,
            during: (!is_flood).then(|| interval_during(&flows, asked.at_most)),
            after: EXCHANGES,
            spacing: SPACING,
        }),
        answers_late_after: asked.answers_late_after,
        clock: host::clock_id(),
        flows,
    }
}

/// Returns the interval of clock exchanges during these flows: it is chosen once, and longer for a long stream.
fn interval_during(flows: &[FlowRequest], at_most: Option<Nanos>) -> Nanos {
    let lasts = |schedule: &Schedule| match schedule.offsets.last() {
        Some(last) => *last,
        // The conversion saturates.
        None => Nanos((schedule.count as f64 / schedule.mean_pps() * 1e9) as i64),
    };
    let longest = flows.iter().map(|flow| lasts(&flow.schedule)).max();
    let lasts = longest.into_iter().chain(at_most).min().unwrap_or(Nanos::ZERO);
    DURING.max(Nanos(lasts.0 / MOST_DURING_EXCHANGES))
}

fn check_link(flow: &Flow, request: &FlowRequest, port: &Open) -> anyhow::Result<()> {
    let dev = flow.to.dev.as_deref();
    let link = dev.and_then(host::link_bps);
    let bytes = port.frame_bytes(request.payload_bytes, Some(request.head));
    let of = |error: &ScheduleError| match (dev, error) {
        (Some(dev), ScheduleError::TooFast { .. }) => format!("{dev}: "),
        _ => String::new(),
    };
    request.schedule.check(bytes, link).map_err(|error| WrongRequest(of(&error) + &error.to_string()).into())
}

/// Returns the answer to a `send` request.
pub fn answer(block: u32, outcome: &SendOutcome, clocks: &[Known]) -> Value {
    let clock: Vec<Value> = clocks.iter().map(Known::json).collect();
    json!({
        "event": "sent",
        "block": block,
        "flows": outcome.flows.iter().map(flow_json).collect::<Vec<_>>(),
        "not_kept": outcome.not_kept,
        "unexpected": outcome.unexpected.total(),
        "unexpected_of": outcome.unexpected,
        "clock": if clock.is_empty() { Value::Null } else { json!(clock) },
    })
}

/// Returns a sent flow's results for answers.
pub fn flow_json(flow: &FlowSent) -> Value {
    let error = &flow.pacing_error;
    json!({
        "flow": flow.flow,
        "asked": flow.counts.asked,
        "sent": flow.counts.sent,
        "next": flow.next,
        "refused": flow.counts.refused,
        "unsent": flow.counts.unsent,
        "asked_pps": flow.asked_pps,
        "intended_pps": flow.intended_pps,
        "achieved_pps": flow.achieved_pps,
        "pacing_error_ns": {
            "p50": error.quantile(0.5), "p99": error.quantile(0.99), "max": error.max(), "min": error.min(),
        },
        "departures_by": if flow.is_by_stamps { "stamps" } else { "calls" },
        "within_1us": flow.within_1us,
        "within_10us": flow.within_10us,
        "anderson_darling": flow.fit.map(|fit| json!({ "a2": fit.a2, "p": fit.p, "n": fit.n })),
        "first_ns": flow.first,
        "last_ns": flow.last,
    })
}

/// Returns a port's index as in records.
fn number(port: usize) -> u16 {
    u16::try_from(port).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use sojourn_stream::Head;

    use super::*;

    #[test]
    fn clock_exchanges_during_a_stream_of_a_week_are_limited_in_number() {
        const HOUR_S: u64 = 3_600;
        const WEEK_S: u64 = 168 * HOUR_S;
        let regular = |seconds| Schedule::new(Pattern::Regular, 10.0, 10 * seconds, 0);
        let during = |schedules: Vec<Schedule>, at_most| {
            let flow = |schedule| FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 46, schedule };
            let options = SendOptions { clock: ClockAsked::Exchange, at_most, ..SendOptions::default() };
            let request = send_request((1, SessionKey(1)), &options, schedules.into_iter().map(flow).collect());
            request.sync.and_then(|sync| sync.during)
        };
        assert_eq!(during(vec![regular(HOUR_S)], None), Some(DURING));
        let of_a_week = Some(Nanos(WEEK_S as i64 * 1_000_000_000 / MOST_DURING_EXCHANGES));
        assert_eq!(during(vec![regular(HOUR_S), regular(WEEK_S)], None), of_a_week);
        let replayed = Schedule::replay(vec![Nanos::ZERO, Nanos::seconds(WEEK_S as i64)]);
        assert_eq!(during(vec![replayed], None), of_a_week);
        assert_eq!(during(vec![regular(WEEK_S)], Some(Nanos::seconds(60))), Some(DURING));
        let endless = Schedule::new(Pattern::Regular, 1e-9, u64::MAX, 0);
        assert_eq!(during(vec![endless], None), Some(Nanos(i64::MAX / MOST_DURING_EXCHANGES)));
        let flood = Schedule::new(Pattern::Flood, 0.0, 10, 0);
        assert_eq!(during(vec![flood], Some(Nanos::seconds(WEEK_S as i64))), None);
    }

    #[test]
    fn rows_of_sent_packets_are_capped_at_the_maximum() {
        let flow = |count| {
            let schedule =
                Schedule { pattern: Pattern::Regular, rate_pps: 1.0, count, seed: 0, offsets: Vec::new().into() };
            FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 46, schedule }
        };
        for (counts, kept) in
            [(vec![3, 4], 7), (vec![MOST_ROWS, 1], MOST_ROWS as usize), (vec![u64::MAX, u64::MAX], MOST_ROWS as usize)]
        {
            let flows = counts.into_iter().map(flow).collect();
            let options = SendOptions { keep: request::Keep::Packets, ..SendOptions::default() };
            assert_eq!(send_request((1, SessionKey(1)), &options, flows).keep, Keep::Packets { room: kept });
        }
    }
}
