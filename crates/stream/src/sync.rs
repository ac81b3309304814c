//! Time exchanges, which measure the offset of a receiver's clock to the sender's. The offset is computed elsewhere.
//!
//! Departures of request and reply have the same kind of timestamp: TX timestamps of both drivers (the replier sends
//! its own in a follow-up), or, if one of these is missing, the times of both programs' calls to send. A driver's
//! timestamp at one end and a program's at the other would bias the offset by half of the time between call and driver.

use sojourn_port::{Received, Sent, StampKind, TxTimestamp};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::stream::{Kind, SyncTail};
use sojourn_wire::{SessionKey, StreamHeader};

use crate::{Auth, Head, SendRequest};

/// How long to wait for the TX timestamp of a request that was answered.
const STAMP_PATIENCE: Nanos = Nanos::millis(20);

/// How long to wait for an answer.
const REPLY_PATIENCE: Nanos = Nanos::seconds(1);

/// Maximum number of outstanding requests.
const MOST_PENDING: usize = 64;

/// How many of the latest exchanges are searched for those of a request: the limit on receivers of a group.
const MOST_RECENT: usize = 1 << 10;

/// Maximum number of exchanges that are kept: 2^20 of 136 bytes. Who has the session's key could forge replies of many clocks.
const MOST_EXCHANGES: usize = 1 << 20;

/// Of these only for the phase after the stream: more than 200 requests to [`MOST_CLOCKS`] receivers.
const MOST_AFTER: usize = 1 << 16;

/// How many clocks may reply to one request: the limit on receivers of a group. Who has the session's key could forge
/// replies of others without end.
const MOST_CLOCKS: usize = 256;

/// The phase of a block in which an exchange took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first packet.
    Before,
    /// In a gap of the stream.
    During,
    /// After the last packet.
    After,
}

/// One exchange: request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its number in the block, from 0.
    pub number: u64,
    /// The flow whose receiver answered.
    pub flow: u16,
    /// The phase.
    pub phase: Phase,
    /// Departure of the request, on our clock; the timestamp is of the same kind as that of `t3`.
    pub t1: Stamp,
    /// Arrival of the request, on the replier's clock.
    pub t2: Stamp,
    /// Departure of the reply, on the replier's clock: the call to send if [`Source::User`], otherwise the driver's timestamp.
    pub t3: Stamp,
    /// Arrival of the reply, on our clock.
    pub t4: Stamp,
    /// The id of the replier's clock; if it is ours, both are the same clock.
    pub clock: u64,
    /// Time from our call to send until our driver's timestamp of the request, if there is one.
    pub lag: Option<Nanos>,
}

impl Phase {
    /// Returns the name that records use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// Sends time requests to receivers, and matches the replies.
#[derive(Debug)]
pub(crate) struct Syncer {
    key: SessionKey,
    auth: Auth,
    clock: u64,
    during: Option<Nanos>,
    peers: Vec<Peer>,
    /// The peer that was asked last.
    turn: usize,
    phase: Phase,
    number: u64,
    /// When the last request was sent.
    last: Time,
    pending: Vec<Pending>,
    exchanges: Vec<Held>,
}

/// An exchange, with TX timestamps of drivers as far as they have come.
#[derive(Debug)]
struct Held {
    /// The exchange with the calls to send as departures.
    exchange: Exchange,
    /// Departure of the request by our driver.
    t1: Option<Stamp>,
    /// Departure of the reply by the replier's driver.
    t3: Option<Stamp>,
}

#[derive(Debug)]
struct Peer {
    flow: u16,
    port: usize,
    head: Head,
    frame: Vec<u8>,
    has_stamps: bool,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    flow: u16,
    phase: Phase,
    /// Port and number of the transmission, while its TX timestamp is outstanding.
    stamp_due: Option<(usize, u32)>,
    called: Time,
    t1: Option<Stamp>,
    is_answered: bool,
    /// Number of clocks that have replied.
    clocks: usize,
    /// Number of replies that promised a follow-up which has not arrived.
    follow_ups_due: u32,
}

impl Syncer {
    /// Prepares the exchanges of a checked request; `None` if it requests none. `has_stamps` says for each port whether
    /// it provides TX timestamps.
    pub fn new(request: &SendRequest, has_stamps: &[bool]) -> Option<Self> {
        let sync = request.sync.as_ref().filter(|sync| !sync.flows.is_empty())?;
        let peers = sync.flows.iter().map(|place| {
            let flow = &request.flows[*place];
            let frame = vec![0; flow.head.bytes() + flow.head.sync_payload_bytes() + request.auth.bytes()];
            Peer { flow: flow.flow, port: flow.port, head: flow.head, frame, has_stamps: has_stamps[flow.port] }
        });
        Some(Self {
            key: request.key,
            auth: request.auth.clone(),
            clock: request.clock,
            during: sync.during,
            peers: peers.collect(),
            turn: 0,
            phase: Phase::Before,
            number: 0,
            last: Time(i64::MIN),
            pending: Vec::with_capacity(MOST_PENDING),
            exchanges: Vec::with_capacity(1 << 12),
        })
    }

    /// Begins a phase.
    pub const fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Returns the number of receivers that are asked.
    pub const fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Returns whether an exchange during the stream is due.
    pub fn is_due(&self, now: Time) -> bool {
        self.during.is_some_and(|every| self.last == Time(i64::MIN) || now - self.last >= every)
    }

    /// Returns the port and the frame of the next request.
    pub fn request(&mut self, now: Time) -> (usize, &[u8]) {
        self.turn = (self.turn + 1) % self.peers.len();
        let peer = &mut self.peers[self.turn];
        if let Head::Link(link) = peer.head {
            link.write(&mut peer.frame);
        }
        let (number, flow, key) = (self.number, peer.flow, self.key);
        let payload = &mut peer.frame[peer.head.bytes()..];
        StreamHeader { kind: Kind::SyncRequest, node: 0, flow, key, seq: number, intended: now, sent: now }
            .write(payload);
        SyncTail { clock: self.clock, source: Source::User, follows_up: peer.has_stamps }.write(payload);
        self.auth.seal(payload);
        (peer.port, &peer.frame)
    }

    /// Records that the request was sent.
    pub fn asked(&mut self, sent: Sent) {
        self.expire(sent.called);
        let peer = &self.peers[self.turn];
        let stamp_due = peer.has_stamps.then_some((peer.port, sent.number));
        if self.pending.len() == MOST_PENDING {
            // The oldest request was never answered.
            self.pending.remove(0);
        }
        let (number, flow, phase) = (self.number, peer.flow, self.phase);
        let (called, t1, is_answered, clocks, follow_ups_due) = (sent.called, None, false, 0, 0);
        self.pending.push(Pending { number, flow, phase, stamp_due, called, t1, is_answered, clocks, follow_ups_due });
        self.number += 1;
        self.last = sent.called;
    }

    /// Records that our own kernel refused the request.
    pub const fn refused(&mut self, now: Time) {
        self.last = now;
    }

    /// Processes a reply. All receivers of a group reply to one request; the first reply of each clock counts. Beyond
    /// [`MOST_EXCHANGES`] a reply is only no longer waited for.
    pub fn on_reply(&mut self, header: &StreamHeader, payload: &[u8], received: &Received) {
        let Some(tail) = SyncTail::read(payload).filter(|_| header.key == self.key) else { return };
        let mut pending = self.pending.iter_mut();
        let Some(asked) = pending.find(|pending| pending.number == header.seq) else { return };
        let reserved = if asked.phase == Phase::After { 0 } else { MOST_AFTER };
        if self.exchanges.len() >= MOST_EXCHANGES - reserved {
            asked.is_answered = true;
            return;
        }
        let has_replied = recent(&mut self.exchanges, asked.number).any(|held| held.exchange.clock == tail.clock);
        if has_replied || asked.clocks == MOST_CLOCKS {
            return;
        }
        asked.clocks += 1;
        asked.is_answered = true;
        asked.follow_ups_due += u32::from(tail.follows_up);
        let by_program = |at: Time| Stamp { at, source: Source::User };
        let exchange = Exchange {
            number: asked.number,
            flow: asked.flow,
            phase: asked.phase,
            t1: by_program(asked.called),
            t2: Stamp { at: header.intended, source: tail.source },
            t3: by_program(header.sent),
            t4: received.arrived,
            clock: tail.clock,
            lag: None,
        };
        self.exchanges.push(Held { exchange, t1: asked.t1, t3: None });
    }

    /// Processes a follow-up. Ignores one without a known reply, a late one, a repeated one, and one whose departure is
    /// impossible for its reply.
    pub fn on_follow_up(&mut self, header: &StreamHeader, payload: &[u8]) {
        let Some(tail) = SyncTail::read(payload).filter(|_| header.key == self.key) else { return };
        let mut pending = self.pending.iter_mut();
        let Some(asked) = pending.find(|pending| pending.number == header.seq) else { return };
        let is_of = |exchange: &Exchange| (exchange.clock, exchange.t2.at) == (tail.clock, header.intended);
        let Some(held) = recent(&mut self.exchanges, asked.number).find(|held| is_of(&held.exchange)) else { return };
        let after_call = header.sent - held.exchange.t3.at;
        if held.t3.is_none() && (Nanos::ZERO..STAMP_PATIENCE).contains(&after_call) && tail.source != Source::User {
            held.t3 = Some(Stamp { at: header.sent, source: tail.source });
            asked.follow_ups_due = asked.follow_ups_due.saturating_sub(1);
        }
    }

    /// Processes a TX timestamp, which replaces the call to send. Returns whether it belongs to a request.
    pub fn on_stamp(&mut self, port: usize, stamp: &TxTimestamp) -> bool {
        let asked = self.pending.iter_mut().find(|pending| pending.stamp_due == Some((port, stamp.number)));
        let Some(asked) = asked else { return false };
        if stamp.kind == StampKind::Left {
            asked.t1 = Some(stamp.left);
            asked.stamp_due = None;
            recent(&mut self.exchanges, asked.number).for_each(|held| held.t1 = Some(stamp.left));
        }
        true
    }

    /// Returns whether a reply, timestamp or follow-up of the latest request is outstanding.
    pub fn is_waiting(&self) -> bool {
        self.pending
            .last()
            .is_some_and(|pending| !pending.is_answered || pending.stamp_due.is_some() || pending.follow_ups_due > 0)
    }

    /// Removes requests and timestamps that are overdue.
    pub fn expire(&mut self, now: Time) {
        for pending in &mut self.pending {
            pending.stamp_due = pending.stamp_due.filter(|_| now - pending.called < STAMP_PATIENCE);
        }
        // An answered request is kept as long: other receivers of a group may still answer.
        self.pending.retain(|pending| now - pending.called < REPLY_PATIENCE || pending.stamp_due.is_some());
    }

    /// Returns the exchanges in the order of their requests.
    pub fn finish(mut self) -> Vec<Exchange> {
        self.exchanges.sort_by_key(|held| held.exchange.number);
        self.exchanges.into_iter().map(Held::alike).collect()
    }
}

impl Held {
    /// Returns the exchange with both departures of the same kind.
    fn alike(self) -> Exchange {
        let lag = self.t1.map(|left| left.at - self.exchange.t1.at);
        match (self.t1, self.t3) {
            (Some(t1), Some(t3)) => Exchange { t1, t3, lag, ..self.exchange },
            _ => Exchange { lag, ..self.exchange },
        }
    }
}

/// Returns the exchanges of a request, which are among the latest.
fn recent(exchanges: &mut [Held], number: u64) -> impl Iterator<Item = &mut Held> {
    let first = exchanges.len().saturating_sub(MOST_RECENT);
    exchanges[first..].iter_mut().filter(move |held| held.exchange.number == number)
}

#[cfg(test)]
mod tests;
