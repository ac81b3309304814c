//! The sender's engine. Pure: times in; frames, counts and rows out.

use sojourn_port::{Capabilities, Sent, StampKind, TxTimestamp};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::SessionKey;

use crate::departed::{Departure, FlowSent};
use crate::frame::{BATCH, BATCH_BESIDE, Template};
use crate::merge::Merge;
use crate::request::{FlowRequest, Keep, touched};
use crate::schedule::Pattern;
use crate::track::{Ring, Track};
use crate::{SendRequest, SentCount, SentCounts};

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the next packet of a stream (by index) at a time.
    Depart(Time, usize),
    /// Send some packets of a maximum-rate stream (by index) now.
    Flood(usize),
    /// Send nothing until a time.
    Wait(Time),
    /// All packets were sent.
    Done,
}

/// Decides which packet leaves when, and counts what was sent.
#[derive(Debug)]
pub struct Sender {
    start: Time,
    end: Time,
    due: Merge,
    flows: Vec<Flow>,
    /// The indices of maximum-rate streams, and which of them sent last.
    floods: Vec<usize>,
    turn: usize,
    /// For each port with TX timestamps, the packets sent recently.
    rings: Vec<Option<Ring>>,
    lead: Lead,
    rows: Vec<Departure>,
    room: usize,
    not_kept: u64,
    is_stopped: bool,
}

#[derive(Debug)]
struct Flow {
    flow: u16,
    port: usize,
    asked_pps: f64,
    is_flood: bool,
    template: Template,
    counts: SentCounts,
    /// Departures by the calls to send.
    calls: Track,
    /// Departures by TX timestamps.
    stamps: Track,
    first_intended: Option<Time>,
    last_intended: Time,
}

impl Sender {
    /// Prepares a checked request for ports with these capabilities. All memory is allocated here.
    pub fn new(request: &SendRequest, ports: &[Capabilities]) -> Self {
        let total = request.flows.iter().fold(0_u64, |sum, flow| sum.saturating_add(flow.schedule.count));
        let room = match request.keep {
            Keep::Packets { room } => room.min(usize::try_from(total).unwrap_or(room)),
            Keep::Histograms => 0,
        };
        let is_flood = |flow: &FlowRequest| flow.schedule.pattern == Pattern::Flood;
        let floods = request.flows.iter().enumerate().filter(|(_, flow)| is_flood(flow)).map(|(place, _)| place);
        Self {
            start: Time::NEVER,
            end: request.at_most.map_or(Time::NEVER, |at_most| Time(at_most.0)),
            // A maximum-rate stream keeps its index but has no due times.
            due: Merge::new(request.flows.iter().map(|flow| flow.schedule.timed_departures()).collect()),
            flows: request.flows.iter().map(|flow| Flow::new(request.key, flow)).collect(),
            floods: floods.collect(),
            turn: 0,
            rings: ports.iter().map(|port| port.tx_timestamps.then(Ring::new)).collect(),
            lead: Lead::default(),
            rows: touched(room, Departure::NONE),
            room,
            not_kept: 0,
            is_stopped: false,
        }
    }

    /// Sets the time of offset 0 of all schedules.
    pub fn begin(&mut self, start: Time) {
        self.start = start;
        self.end = if self.end == Time::NEVER { self.end } else { start + Nanos(self.end.0) };
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Time) -> Step {
        if self.is_stopped || now >= self.end {
            return Step::Done;
        }
        let due = self.due.peek().map(|(offset, place)| (self.start + offset, place)).filter(|(at, _)| *at < self.end);
        match (due, self.flood()) {
            (Some((at, place)), None) => Step::Depart(at, place),
            (Some((at, place)), Some(_)) if at <= now => Step::Depart(at, place),
            (_, Some(_)) if now < self.start => Step::Wait(self.start),
            (_, Some(flood)) => Step::Flood(flood),
            (None, None) => Step::Done,
        }
    }

    /// Returns the port of a stream.
    pub fn port(&self, place: usize) -> usize {
        self.flows[place].port
    }

    /// Returns the frame of a stream's next packet.
    pub fn frame(&mut self, place: usize, intended: Time, now: Time) -> &[u8] {
        let flow = &mut self.flows[place];
        flow.template.one(flow.counts.sent, intended, now)
    }

    /// Returns the next frames of a maximum-rate stream, and the length of each.
    pub fn frames(&mut self, place: usize, now: Time) -> (&[u8], usize) {
        let most = if self.due.peek().is_some() { BATCH_BESIDE } else { BATCH };
        let flow = &mut self.flows[place];
        let left = flow.left().min(most as u64) as usize;
        let frame_bytes = flow.template.frame_bytes();
        (flow.template.many(flow.counts.sent, left, now), frame_bytes)
    }

    /// Records that a stream's next packet was handed to its port.
    pub fn departed(&mut self, place: usize, intended: Time, sent: Sent) {
        self.pass(place);
        let flow = &mut self.flows[place];
        if let Some(ring) = &mut self.rings[flow.port] {
            let row = if self.rows.len() < self.room { self.rows.len() as u32 } else { u32::MAX };
            ring.put(sent.number, place as u32, row, intended);
        }
        self.note(place, intended, sent.called);
    }

    /// Records that `taken` packets of a maximum-rate stream were handed to its port in one call.
    pub fn flooded(&mut self, place: usize, taken: usize, called: Time) {
        let flow = &mut self.flows[place];
        let seqs = flow.counts.sent..flow.counts.sent + taken as u64;
        if seqs.is_empty() {
            return;
        }
        flow.counts.sent = seqs.end;
        flow.first_intended.get_or_insert(called);
        flow.last_intended = called;
        flow.calls.record_burst(called, taken as u64);
        let kept = taken.min(self.room - self.rows.len());
        self.not_kept += if self.room > 0 { (taken - kept) as u64 } else { 0 };
        self.rows.extend(seqs.take(kept).map(|seq| Departure::called(flow.flow, seq, called, called)));
    }

    /// Records that our own kernel refused a stream's next packet. It is not retried.
    pub fn refused(&mut self, place: usize) {
        self.pass(place);
        self.flows[place].counts.refused += 1;
    }

    /// Records a TX timestamp.
    pub fn on_stamp(&mut self, port: usize, stamp: &TxTimestamp) {
        let Some(entry) = self.rings.get_mut(port).and_then(Option::as_mut).and_then(|ring| ring.take(stamp)) else {
            return;
        };
        let row = self.rows.get_mut(entry.row as usize);
        if stamp.kind == StampKind::Scheduled {
            if let Some(row) = row {
                row.scheduled = Some(stamp.left.at);
            }
            return;
        }
        if let Some(row) = row
            && (row.departure.source == Source::User || stamp.left.source < row.departure.source)
        {
            row.departure = stamp.left;
        }
        if entry.is_first_stamp {
            let flow = &mut self.flows[entry.place as usize];
            flow.stamps.record(entry.intended, stamp.left.at);
            if !flow.is_flood {
                self.lead.learn(stamp.left.at - entry.intended);
            }
        }
    }

    /// Returns how long before its departure to hand a packet to its port: the time from the call to the wire, as
    /// learnt from TX timestamps so far; 0 without them.
    pub const fn lead(&self) -> Nanos {
        self.lead.0
    }

    /// Returns whether TX timestamps are still expected.
    pub fn awaits_stamps(&self) -> bool {
        self.rings.iter().flatten().any(Ring::is_waiting)
    }

    /// Stops the streams: no more packets leave.
    pub const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns how many packets of each stream were sent, and by which port.
    pub fn sent(&self) -> impl Iterator<Item = SentCount> {
        self.flows.iter().map(|flow| SentCount {
            flow: flow.flow,
            port: Some(flow.port),
            sent: flow.counts.sent,
            next: None,
        })
    }

    /// Ends the streams: packets not tried count as unsent.
    pub fn finish(self) -> (Vec<FlowSent>, Vec<Departure>, u64) {
        (self.flows.into_iter().map(Flow::finish).collect(), self.rows, self.not_kept)
    }

    /// Advances to the next departure, if this one was scheduled.
    fn pass(&mut self, place: usize) {
        if !self.flows[place].is_flood {
            self.due.next();
        }
    }

    fn note(&mut self, place: usize, intended: Time, called: Time) {
        let flow = &mut self.flows[place];
        let seq = flow.counts.sent;
        flow.counts.sent += 1;
        flow.first_intended.get_or_insert(intended);
        flow.last_intended = intended;
        flow.calls.record(intended, called);
        if self.rows.len() < self.room {
            self.rows.push(Departure::called(flow.flow, seq, intended, called));
        } else {
            self.not_kept += u64::from(self.room > 0);
        }
    }

    /// Returns the maximum-rate stream to send next.
    fn flood(&mut self) -> Option<usize> {
        for _ in 0..self.floods.len() {
            self.turn = (self.turn + 1) % self.floods.len();
            let place = self.floods[self.turn];
            if self.flows[place].left() > 0 {
                return Some(place);
            }
        }
        None
    }
}

impl Flow {
    fn new(key: SessionKey, request: &FlowRequest) -> Self {
        let is_flood = request.schedule.pattern == Pattern::Flood;
        let batch = if is_flood { BATCH } else { 1 };
        let sampled = (request.schedule.pattern == Pattern::Poisson).then_some(request.schedule.count);
        Self {
            flow: request.flow,
            port: request.port,
            asked_pps: request.schedule.mean_pps(),
            is_flood,
            template: Template::new(request.head, (key, request.flow), request.payload_bytes, batch),
            counts: SentCounts { asked: request.schedule.count, ..SentCounts::default() },
            calls: Track::new(sampled, is_flood),
            stamps: Track::new(sampled, is_flood),
            first_intended: None,
            last_intended: Time(0),
        }
    }

    const fn left(&self) -> u64 {
        self.counts.asked - self.counts.sent - self.counts.refused
    }

    fn finish(mut self) -> FlowSent {
        self.counts.unsent = self.left();
        let sent = self.counts.sent;
        // If at least nine in ten packets have TX timestamps, these are used; otherwise the calls, for all packets.
        let by_stamps = self.stamps.count() > 0 && self.stamps.count() >= sent - sent / 10;
        let called = self.calls.span();
        let track = if by_stamps { self.stamps } else { self.calls };
        // Missing TX timestamps must neither reduce the number of packets nor shorten the span.
        let span = if track.count() < sent { track.span().max(called) } else { track.span() };
        let intended_span = self.first_intended.map_or(Nanos::ZERO, |first| self.last_intended - first);
        let intended_pps = if self.is_flood { 0.0 } else { rate(sent, intended_span) };
        FlowSent {
            flow: self.flow,
            port: self.port,
            counts: self.counts,
            next: sent,
            asked_pps: self.asked_pps,
            intended_pps,
            achieved_pps: rate(sent, span),
            first: track.first(),
            last: track.last(),
            within_1us: track.share_within(Nanos::micros(1)),
            within_10us: track.share_within(Nanos::micros(10)),
            is_by_stamps: by_stamps,
            fit: track.fit(),
            pacing_error: track.error,
            inter_departure: track.gaps,
        }
    }
}

/// The time from the call to the wire: adjusted so that as many packets leave too early as too late.
#[derive(Clone, Copy, Debug, Default)]
struct Lead(Nanos);

impl Lead {
    const STEP: Nanos = Nanos(10);
    const MOST: Nanos = Nanos::micros(4);
    /// Longer delays are scheduling delays, not the time from the call to the wire.
    const LATE: Nanos = Nanos::micros(8);

    fn learn(&mut self, error: Nanos) {
        if error > Nanos::ZERO && error < Self::LATE {
            self.0 = (self.0 + Self::STEP).min(Self::MOST);
        } else if error < Nanos::ZERO {
            self.0 = (self.0 - Self::STEP).max(Nanos::ZERO);
        }
    }
}

fn rate(count: u64, span: Nanos) -> f64 {
    if count > 1 && span.0 > 0 { (count - 1) as f64 * 1e9 / span.0 as f64 } else { 0.0 }
}

impl Departure {
    const NONE: Self = Self::called(0, 0, Time(0), Time(0));

    const fn called(flow: u16, seq: u64, intended: Time, called: Time) -> Self {
        let departure = Stamp { at: called, source: Source::User };
        Self { flow, seq, intended, send_call: called, scheduled: None, departure }
    }
}

#[cfg(test)]
mod tests;
