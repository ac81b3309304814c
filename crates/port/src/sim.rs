//! A simulated link: requests cross it in simulated time to an answering peer, and the replies come back.
//!
//! Exact and repeatable: the random draws of a block depend only on the link's seed and the block's number. Frames do
//! not queue behind each other (delays are independent), but frames held by a stall leave in order. There is no
//! bandwidth and no MTU.

mod clock;
mod draw;
mod line;

pub use clock::ProberClock;
pub use draw::Sampler;
pub use line::{ClockStep, Delay, Gamma, Hold, Line, LineError, Normal, Pareto, Ramp, SenderLate, Stall, TwoModes};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sojourn_time::{Clock, Nanos, SimulatedClock, Source, Stamp, Time};
use sojourn_wire::{Carrier, ProbeHeader, ethernet, icmp, probe};

use crate::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, StampKind, TxTimestamp};
use draw::Draw;

/// The longest frame that it carries.
pub const MAX_FRAME_BYTES: usize = 65_549;

/// The delay of a duplicate after the first reply.
const DUPLICATE_AFTER: Nanos = Nanos::micros(1);

/// A port at one end of a simulated link.
#[derive(Debug)]
pub struct Sim {
    clock: ProberClock,
    carrier: Carrier,
    draw: Draw,
    responder: Nanos,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    stamps: VecDeque<TxTimestamp>,
    sent: u32,
    /// Orders arrivals of equal time: first queued, first received.
    order: u64,
}

/// A reply in flight. Ordered by arrival time, then by the order of queueing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Time,
    order: u64,
    frame: Vec<u8>,
}

impl Sim {
    /// Returns a port over `line` that carries frames of `carrier`, in the simulated time of `clock`.
    ///
    /// # Errors
    /// When the link cannot be simulated.
    pub fn new(clock: &SimulatedClock, line: &Line, carrier: Carrier) -> Result<Self, LineError> {
        line.check()?;
        Ok(Self {
            clock: ProberClock::new(clock.clone(), line.clock_step),
            carrier,
            draw: Draw::new(line)?,
            responder: Nanos(line.responder_ns),
            arrivals: BinaryHeap::new(),
            stamps: VecDeque::new(),
            sent: 0,
            order: 0,
        })
    }

    /// Starts a block: reseeds the draws, and draws the values that are constant within a block.
    pub fn begin_block(&mut self, block: u32) {
        self.draw.begin_block(block);
    }

    /// Returns the clock that the prober reads, with the clock step of the link's model.
    pub fn clock(&self) -> ProberClock {
        self.clock.clone()
    }

    /// Queues the replies to `frame`. A frame that is no request is dropped.
    fn carry(&mut self, frame: &[u8]) {
        let departed = self.clock.true_time();
        let Some(reached) = self.draw.forward(departed, self.frame_bytes(frame)) else { return };
        let answered = reached + self.responder;
        let stamps = (self.clock.reading_at(reached), self.clock.reading_at(answered));
        let Some(reply) = answer(self.carrier, frame, stamps) else { return };
        let Some(arrived) = self.draw.backward(answered, self.frame_bytes(&reply)) else { return };
        if self.draw.duplicates() {
            self.put(arrived + DUPLICATE_AFTER, reply.clone());
        }
        self.put(arrived, reply);
    }

    fn put(&mut self, at: Time, frame: Vec<u8>) {
        self.order += 1;
        self.arrivals.push(Reverse(Arrival { at, order: self.order, frame }));
    }

    fn frame_bytes(&self, frame: &[u8]) -> usize {
        self.carrier.frame_bytes(frame.len().saturating_sub(header_bytes(self.carrier)))
    }
}

impl Port for Sim {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        if frame.len() > MAX_FRAME_BYTES {
            let problem = format!("{} bytes do not fit; it holds {MAX_FRAME_BYTES}; ask for less", frame.len());
            return Err(PortError::Wrong { object: "the simulated line".to_owned(), problem });
        }
        self.clock.advance(self.draw.sender_late());
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        let called = self.clock.now();
        let left = Stamp { at: called, source: Source::Simulated };
        self.stamps.push_back(TxTimestamp { number, left, kind: StampKind::Left });
        self.carry(frame);
        Ok(Sent { number, called })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let now = self.clock.true_time();
        if self.arrivals.peek().is_none_or(|Reverse(next)| next.at > now) {
            return Ok(None);
        }
        let Some(Reverse(arrival)) = self.arrivals.pop() else { return Ok(None) };
        let length = arrival.frame.len().min(buffer.len());
        buffer[..length].copy_from_slice(&arrival.frame[..length]);
        let arrived = Stamp { at: self.clock.reading_at(arrival.at), source: Source::Simulated };
        Ok(Some(Received { length, arrived, returned: self.clock.now(), from: None, to_group: false }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(self.stamps.pop_front())
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        match self.arrivals.peek() {
            Some(Reverse(next)) if self.clock.reading_at(next.at) <= deadline => self.clock.advance_to(next.at),
            _ => {
                self.clock.wait_until(deadline, Nanos::ZERO);
            }
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        let framing = match self.carrier {
            Carrier::Icmp4 => Framing::Icmp4,
            Carrier::Icmp6 => Framing::Icmp6,
            Carrier::Udp4 | Carrier::Udp6 => Framing::Udp,
            Carrier::Ethernet => Framing::Ethernet,
        };
        Capabilities { framing, max_frame: MAX_FRAME_BYTES, tx_timestamps: true }
    }

    fn local_drops(&mut self) -> u64 {
        0
    }
}

impl Batch for Sim {
    fn engine(&self) -> &str {
        "simulated"
    }
}

/// Returns the number of header bytes before the user data in a frame of this carrier.
const fn header_bytes(carrier: Carrier) -> usize {
    match carrier {
        Carrier::Icmp4 | Carrier::Icmp6 => icmp::HEADER_BYTES,
        Carrier::Udp4 | Carrier::Udp6 => 0,
        Carrier::Ethernet => ethernet::HEADER_BYTES,
    }
}

/// Returns the peer's reply to `frame`: an echo reply of its kernel for ICMP, an answer of our responder otherwise.
fn answer(carrier: Carrier, frame: &[u8], (arrival, departure): (Time, Time)) -> Option<Vec<u8>> {
    match carrier {
        Carrier::Icmp4 => echo(icmp::Version::V4, frame),
        Carrier::Icmp6 => echo(icmp::Version::V6, frame),
        Carrier::Udp4 | Carrier::Udp6 => respond(frame, &[], arrival, departure),
        Carrier::Ethernet => {
            let (header, payload) = ethernet::Header::split(frame)?;
            if header.ethertype != ethernet::PROBE_ETHERTYPE {
                return None;
            }
            let back = ethernet::Header { destination: header.source, source: header.destination, ..header };
            respond(payload, &back.to_bytes(), arrival, departure)
        }
    }
}

fn echo(version: icmp::Version, frame: &[u8]) -> Option<Vec<u8>> {
    let (request, _) = icmp::Echo::split(version, frame).filter(|(echo, _)| !echo.is_reply)?;
    let mut reply = frame.to_vec();
    icmp::Echo { is_reply: true, ..request }.write(version, &mut reply);
    Some(reply)
}

fn respond(payload: &[u8], header: &[u8], arrival: Time, departure: Time) -> Option<Vec<u8>> {
    let asked = usize::from(ProbeHeader::read(payload)?.asked_bytes()?).max(probe::HEADER_BYTES);
    let mut reply = vec![0; header.len() + asked];
    sojourn_wire::answer(payload, arrival, departure, &mut reply[header.len()..])?;
    reply[..header.len()].copy_from_slice(header);
    Some(reply)
}

#[cfg(test)]
mod tests;
