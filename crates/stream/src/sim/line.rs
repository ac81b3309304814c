//! The path itself: frames in transit, in true time, and the near end as a port and a clock.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use sojourn_port::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, StampKind, TxTimestamp};
use sojourn_time::{Clock, Nanos, Source, Stamp, Time};
use sojourn_wire::stream::Kind;
use sojourn_wire::{Carrier, StreamHeader};

use super::draw::{Disposition, Draw};
use super::{Path, PathError, Skewed};
use crate::frame::split;
use crate::{ReceiveOutcome, Receiver, SentCount};

/// The longest frame that the path carries.
pub const MAX_FRAME_BYTES: usize = 65_549;

/// The FCS, which frames have on a wire but not here.
const FCS_BYTES: usize = 4;
const LEAST_FRAME_BYTES: usize = 64;

/// The path and its far end.
#[derive(Debug)]
pub struct Line {
    draw: Draw,
    send_ns: i64,
    sender_clock: Skewed,
    receiver_clock: Skewed,
    truth_ns: i64,
    /// Taken out at the end.
    receiver: Option<Receiver>,
    reply: Vec<u8>,
    events: BinaryHeap<Reverse<Event>>,
    /// Orders events at the same time by insertion.
    order: u64,
    /// Frames that have returned to each near port.
    inboxes: Vec<VecDeque<(i64, Vec<u8>)>>,
    /// Drops by the socket of each far port.
    dropped: Vec<u64>,
}

/// The arrival of a frame. Ordered by time, then by insertion.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: i64,
    order: u64,
    to: End,
    near: usize,
    frame: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Near,
    Far(usize),
}

impl Line {
    /// Creates a path with a receiver of `far_ports` ports at its end, and `near_ports` ports to send from.
    pub fn new(
        path: &Path,
        block: u32,
        receiver: Receiver,
        far_ports: usize,
        near_ports: usize,
    ) -> Result<Self, PathError> {
        let clocks = path.clocks;
        Ok(Self {
            draw: Draw::new(path, block)?,
            send_ns: path.send_ns,
            sender_clock: clocks.sender,
            receiver_clock: if clocks.shared { clocks.sender } else { clocks.receiver },
            truth_ns: 0,
            reply: vec![0; receiver.longest_reply()],
            receiver: Some(receiver),
            events: BinaryHeap::new(),
            order: 0,
            inboxes: vec![VecDeque::new(); near_ports],
            dropped: vec![0; far_ports],
        })
    }

    /// Delivers everything in transit, and finishes the receiver's counts.
    pub fn finish(&mut self, sent: &[SentCount]) -> ReceiveOutcome {
        while let Some(Reverse(event)) = self.events.pop() {
            self.truth_ns = self.truth_ns.max(event.at_ns);
            self.arrive(event);
        }
        self.receiver.take().map(|receiver| receiver.finish(sent, &self.dropped)).unwrap_or_default()
    }

    /// Returns the reading of the sender's clock.
    fn now(&self) -> Time {
        Time(self.sender_clock.reading(self.truth_ns))
    }

    /// Advances true time, and delivers the frames that arrive meanwhile.
    fn advance_to(&mut self, truth_ns: i64) {
        while self.events.peek().is_some_and(|Reverse(next)| next.at_ns <= truth_ns) {
            let Some(Reverse(event)) = self.events.pop() else { break };
            self.truth_ns = self.truth_ns.max(event.at_ns);
            self.arrive(event);
        }
        self.truth_ns = self.truth_ns.max(truth_ns);
    }

    /// Advances time until the sender's clock reads `reading`.
    fn wait_until(&mut self, reading: Time) {
        self.advance_to(self.end_of_wait(reading));
    }

    /// Returns when a wait for a reading of the sender's clock ends. As in a kernel, the wait is for a span, so that a
    /// clock that is set back meanwhile does not prolong it.
    fn end_of_wait(&self, reading: Time) -> i64 {
        let span = (reading - self.now()).0.max(0);
        let span_end = self.truth_ns.saturating_add(span).saturating_add(span / 100);
        self.sender_clock.first_at(self.truth_ns, reading.0).min(span_end)
    }

    /// Advances time until the sender's clock reads `reading`, or a frame has returned to a near port.
    fn wait_for(&mut self, port: usize, reading: Time) {
        let until = self.end_of_wait(reading);
        while self.inboxes[port].is_empty() && self.events.peek().is_some_and(|Reverse(next)| next.at_ns <= until) {
            let next = self.events.peek().map_or(until, |Reverse(next)| next.at_ns);
            self.advance_to(next);
        }
        if self.inboxes[port].is_empty() {
            self.advance_to(until);
        }
    }

    /// Sends a frame into the path.
    fn depart(&mut self, near: usize, framing: Framing, frame: &[u8]) -> Time {
        let late = self.draw.sender_late();
        self.advance_to(self.truth_ns.saturating_add(late.0));
        let called = self.now();
        let bytes = wire_bytes(framing, frame);
        if let Some(through_ns) = self.draw.serialise(self.truth_ns, bytes) {
            let is_packet = split(framing, frame)
                .and_then(|(_, payload)| StreamHeader::read(payload).ok())
                .is_some_and(|header| header.kind == Kind::Data);
            for port in 0..self.dropped.len() {
                if let Some(disposition) = self.draw.forward(through_ns, bytes, is_packet) {
                    self.meet(disposition, near, port, frame);
                }
            }
        }
        self.advance_to(self.truth_ns.saturating_add(self.send_ns));
        called
    }

    fn meet(&mut self, disposition: Disposition, near: usize, port: usize, frame: &[u8]) {
        if disposition.is_dropped {
            self.dropped[port] += 1;
            return;
        }
        let mut arriving = frame.to_vec();
        if let Some(place) = disposition.damaged {
            // Only payload is damaged: a frame with a damaged address would go elsewhere.
            let head = split(Framing::Ethernet, frame).map_or(0, |(head, _)| head.bytes());
            let at = head + ((u64::from(place) * (frame.len() - head) as u64) >> 32) as usize;
            arriving[at] ^= 0x10;
        }
        if let Some(again_ns) = disposition.again_at_ns {
            self.put(again_ns, End::Far(port), near, arriving.clone());
        }
        self.put(disposition.at_ns, End::Far(port), near, arriving);
    }

    fn put(&mut self, at_ns: i64, to: End, near: usize, frame: Vec<u8>) {
        self.order += 1;
        self.events.push(Reverse(Event { at_ns, order: self.order, to, near, frame }));
    }

    fn arrive(&mut self, event: Event) {
        let Event { at_ns, to, near, frame, .. } = event;
        let End::Far(port) = to else {
            return self.inboxes[near].push_back((at_ns, frame));
        };
        let Some(receiver) = &mut self.receiver else { return };
        let now = Time(self.receiver_clock.reading(at_ns));
        let arrived = Stamp { at: now, source: Source::Simulated };
        let received = Received { length: frame.len(), arrived, returned: now, from: None, to_group: false };
        if let Some(length) = receiver.on_frame(port, &frame, &received, &mut self.reply) {
            let mut reply = self.reply[..length].to_vec();
            receiver.stamp(port, &mut reply, now);
            let back_ns = self.draw.backward(at_ns, reply.len().max(LEAST_FRAME_BYTES));
            // A reply leaves at the time of its call, and its follow-up arrives with it.
            receiver.answered(port, &reply, None, Sent { number: 0, called: now });
            let stamp = TxTimestamp { number: 0, left: arrived, kind: StampKind::Left };
            let follow_up = receiver
                .on_stamp(port, &stamp, &mut self.reply)
                .map(|follow_up| self.reply[..follow_up.length].to_vec());
            self.put(back_ns, End::Near, near, reply);
            if let Some(frame) = follow_up {
                self.put(back_ns, End::Near, near, frame);
            }
        }
    }
}

/// Returns the length of a frame on a wire, with FCS.
fn wire_bytes(framing: Framing, frame: &[u8]) -> usize {
    match framing {
        Framing::Udp => Carrier::Udp4.frame_bytes(frame.len()),
        _ => (frame.len() + FCS_BYTES).max(LEAST_FRAME_BYTES),
    }
}

/// A port at the near end.
#[derive(Debug)]
pub struct Near {
    line: Rc<RefCell<Line>>,
    index: usize,
    framing: Framing,
    stamps: VecDeque<TxTimestamp>,
    sent: u32,
}

impl Near {
    /// Returns a port with a framing.
    pub const fn new(line: Rc<RefCell<Line>>, index: usize, framing: Framing) -> Self {
        Self { line, index, framing, stamps: VecDeque::new(), sent: 0 }
    }
}

impl Port for Near {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        let called = self.line.borrow_mut().depart(self.index, self.framing, frame);
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        let left = Stamp { at: called, source: Source::Simulated };
        self.stamps.push_back(TxTimestamp { number, left, kind: StampKind::Left });
        Ok(Sent { number, called })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let mut line = self.line.borrow_mut();
        let Some((at_ns, frame)) = line.inboxes[self.index].pop_front() else { return Ok(None) };
        let length = frame.len().min(buffer.len());
        buffer[..length].copy_from_slice(&frame[..length]);
        let arrived = Stamp { at: Time(line.sender_clock.reading(at_ns)), source: Source::Simulated };
        Ok(Some(Received { length, arrived, returned: line.now(), from: None, to_group: false }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(self.stamps.pop_front())
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.line.borrow_mut().wait_for(self.index, deadline);
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: self.framing, max_frame: MAX_FRAME_BYTES, tx_timestamps: true }
    }

    fn local_drops(&mut self) -> u64 {
        0
    }
}

impl Batch for Near {
    fn engine(&self) -> &str {
        "simulated path"
    }
}

/// The sender's clock.
#[derive(Clone, Debug)]
pub struct NearClock {
    line: Rc<RefCell<Line>>,
}

impl NearClock {
    /// Returns the clock of the sender's end.
    pub const fn new(line: Rc<RefCell<Line>>) -> Self {
        Self { line }
    }
}

impl Clock for NearClock {
    fn now(&self) -> Time {
        self.line.borrow().now()
    }

    fn wait_until(&self, deadline: Time, _spin: Nanos) -> Time {
        let mut line = self.line.borrow_mut();
        line.wait_until(deadline);
        line.now()
    }
}
