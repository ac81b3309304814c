//! Exchanges with one peer: a greeting that returns its clock ID, then blocks of probes.
//!
//! Requests and replies are stamped by the programs just before the send call, arrivals by the kernel at both ends. The delay
//! between timestamp and wire is therefore the same in both directions; better timestamps at one end would make it asymmetric.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sojourn_clock::{Exchange, Sources};
use sojourn_port::udp::UdpPort;
use sojourn_port::{Port, PortError};
use sojourn_probe::{Kind, Peer, Request, Shape, To, Udp};
use sojourn_record::Probe;
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};
use sojourn_wire::probe::{AUTHENTICATED_BYTES, HEADER_BYTES, authenticate, is_authentic};
use sojourn_wire::{Key, ProbeHeader};

use super::request::Watch;
use crate::failure::NotTrusted;
use crate::place::Place;
use crate::probe::measure::Session;
use crate::secret;
use crate::sys::STOP;

/// The timeout of a reply.
const PATIENCE: Nanos = Nanos::millis(500);
const GREETINGS: u32 = 4;

/// The interval of reports.
const UPDATE: Nanos = Nanos::seconds(1);

/// The longest sleep at a time, so that a signal is noticed.
const NAP: Nanos = Nanos::millis(100);

/// The results of the exchanges of one interval.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The exchanges, in order.
    pub exchanges: Vec<Exchange>,
    /// The number of requests without a reply.
    pub lost: u64,
    /// The number of frames that are no reply to a request of ours.
    pub unexpected: u64,
}

/// Exchanges probes with one peer, batch by batch.
#[derive(Debug)]
pub struct Exchanger {
    /// The peer.
    pub peer: Peer,
    /// The peer's clock ID; 0 if the peer reports none.
    pub clock: u32,
    place: Place,
    key: Option<Arc<Key>>,
    interval: Nanos,
    in_batch: u32,
    left: Option<u64>,
    block: u32,
    next: Time,
    /// Unexpected frames that arrived instead of the reply to a greeting, until a batch reports them.
    unexpected: u64,
}

impl Exchanger {
    /// Sends greetings to a peer and learns its clock ID. With a key, both requests and accepted replies are authenticated.
    ///
    /// # Errors
    /// If there is no route to the peer, or it does not reply.
    pub fn greet(peer: Peer, place: Place, key: Option<Arc<Key>>, arguments: &Watch) -> anyhow::Result<Self> {
        let (clock, unexpected) = greet(peer, secret::random()?, key.as_deref())?;
        let interval = arguments.interval;
        let in_batch = (UPDATE.0 / interval.0).max(1);
        let left = match (arguments.until_interrupted, arguments.count) {
            (true, _) => None,
            (false, Some(count)) => Some(count),
            (false, None) => Some((arguments.span.0 / interval.0).max(2) as u64),
        };
        let (in_batch, next) = (in_batch as u32, HostClock.now());
        Ok(Self { peer, clock, place, key, interval, in_batch, left, block: 0, next, unexpected })
    }

    /// Runs all exchanges, until a signal arrives, the kernel refuses, or `tell` returns `false`.
    pub fn run(mut self, mut tell: impl FnMut(anyhow::Result<Batch>) -> bool) {
        let mut session = Session::new(self.place, self.key.clone());
        while let Some(batch) = self.next(&mut session) {
            let is_last = batch.is_err();
            if !tell(batch) || is_last {
                return;
            }
        }
    }

    /// Runs the next batch; `None` when all exchanges are done or a signal arrived.
    fn next(&mut self, session: &mut Session) -> Option<anyhow::Result<Batch>> {
        let count = self.left.map_or(u64::from(self.in_batch), |left| left.min(u64::from(self.in_batch)));
        self.rest();
        if count == 0 || STOP.load(Ordering::Relaxed) {
            return None;
        }
        self.left = self.left.map(|left| left - count);
        self.block = (self.block + 1) & 0x7FFF_FFFF;
        let request = self.request(count as u32);
        Some(session.measure(&request, &STOP).map(|measured| Batch {
            exchanges: measured.probes.iter().filter_map(exchange).collect(),
            lost: measured.block.counts.lost,
            unexpected: measured.block.counts.unexpected + mem::take(&mut self.unexpected),
        }))
    }

    /// Waits until the next batch is due.
    fn rest(&mut self) {
        let now = HostClock.now();
        while !STOP.load(Ordering::Relaxed) {
            let now = HostClock.now();
            if now >= self.next || self.next - now > self.interval + UPDATE {
                break;
            }
            HostClock.wait_until(self.next.min(now + NAP), Nanos::ZERO);
        }
        self.next = now.max(self.next) + Nanos(self.interval.0 * i64::from(self.in_batch));
    }

    fn request(&self, count: u32) -> Request {
        let to = To::Udp(Udp { peer: self.peer, dev: None, dscp: None });
        let payload_bytes = payload_bytes(self.key.is_some());
        Request::new(self.block, to, Kind::PingPong, payload_bytes, Shape::regular(count, self.interval, PATIENCE))
    }
}

fn exchange(probe: &Probe) -> Option<Exchange> {
    let reply = probe.reply?;
    let (t2, t3) = reply.responder?;
    let sources = Sources { local: Source::User.max(reply.arrival.source), remote: Source::User };
    Some(Exchange { t1: probe.send_call, t2, t3, t4: reply.arrival.at, sources })
}

/// The length of the shortest request: a header and, with a key, the authentication tag.
fn payload_bytes(is_keyed: bool) -> usize {
    if is_keyed { AUTHENTICATED_BYTES } else { HEADER_BYTES }
}

/// Returns the peer's clock ID, and the number of unexpected frames that arrived before it.
fn greet(peer: Peer, session: u64, key: Option<&Key>) -> anyhow::Result<(u32, u64)> {
    let mut unexpected = 0;
    let address = SocketAddr::from(peer);
    let mut port = UdpPort::open(address, None)?;
    let mut request = vec![0; payload_bytes(key.is_some())];
    for seq in 0..GREETINGS {
        ProbeHeader::request(session, seq, request.len() as u16).write(&mut request);
        if let Some(key) = key {
            authenticate(&mut request, key);
        }
        port.transmit(&request)?;
        if let Some(reply) = await_reply(&mut port, session, key, &mut unexpected)? {
            return Ok((reply.clock, unexpected));
        }
    }
    let advice =
        "does `sojourn probe respond` run there, with the same key or none, and does a firewall let it through?";
    Err(NotTrusted(format!("{address} answered none of {GREETINGS} requests: {advice}")).into())
}

/// Waits for the reply to a greeting; counts all other frames as unexpected.
fn await_reply(
    port: &mut UdpPort,
    session: u64,
    key: Option<&Key>,
    unexpected: &mut u64,
) -> Result<Option<ProbeHeader>, PortError> {
    let until = HostClock.now() + PATIENCE;
    let mut buffer = [0; 2 * AUTHENTICATED_BYTES];
    while HostClock.now() < until && !STOP.load(Ordering::Relaxed) {
        if let Some(received) = port.receive(&mut buffer)? {
            let payload = &buffer[..received.length];
            let is_authentic = key.is_none_or(|key| is_authentic(payload, key));
            let header = ProbeHeader::read(payload).filter(|_| is_authentic);
            if let Some(header) = header.filter(|header| header.times().is_some() && header.session == session) {
                return Ok(Some(header));
            }
            *unexpected += 1;
        } else {
            port.wait(until)?;
        }
    }
    Ok(None)
}
