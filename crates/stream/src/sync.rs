//! Exchanges that tell how a receiver's clock stands to the sender's. What follows from them is computed elsewhere.
//!
//! The departures of request and reply are stamped alike: both by the driver, which each end learns late (the replier tells
//! it by a follow-up), or, where one of these two stamps is missing, both as the programs called to send. A stamp by the
//! driver at one end and by the program at the other would move the offset by half of what lies between.

use sojourn_port::{Received, Sent, StampKind, TxTimestamp};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::stream::{Kind, SyncTail};
use sojourn_wire::{SessionKey, StreamHeader};

use crate::{Auth, Head, SendRequest};

/// How long to wait for the late stamp of a request that was answered.
const STAMP_PATIENCE: Nanos = Nanos::millis(20);

/// How long an answer may take.
const REPLY_PATIENCE: Nanos = Nanos::seconds(1);

/// How many requests may be out.
const MOST_PENDING: usize = 64;

/// Among how many exchanges those of a request are looked for: so many receivers of a group can be distinguished.
const MOST_RECENT: usize = 1 << 10;

/// When, beside the stream, an exchange took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first packet.
    Before,
    /// In a gap of the stream.
    During,
    /// After the last packet.
    After,
}

/// One exchange: there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its number in the block, from 0.
    pub number: u64,
    /// The flow whose receiver answered.
    pub flow: u16,
    /// When.
    pub phase: Phase,
    /// The request's departure, on our clock, by a stamp like that of `t3`.
    pub t1: Stamp,
    /// The request's arrival, on the replier's clock.
    pub t2: Stamp,
    /// The reply's departure, on the replier's clock: [`Source::User`] as its program called to send, else by its driver.
    pub t3: Stamp,
    /// The reply's arrival, on our clock.
    pub t4: Stamp,
    /// The replier's clock, by its id: equal to ours, it is ours.
    pub clock: u64,
    /// How long the request took from our program's call to our driver, where that was stamped.
    pub lag: Option<Nanos>,
}

impl Phase {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// Asks receivers for their time, and puts the answers together.
#[derive(Debug)]
pub(crate) struct Syncer {
    key: SessionKey,
    auth: Auth,
    clock: u64,
    during: Option<Nanos>,
    peers: Vec<Peer>,
    /// Whose turn it is.
    turn: usize,
    phase: Phase,
    number: u64,
    /// When the last request left.
    last: Time,
    pending: Vec<Pending>,
    exchanges: Vec<Held>,
}

/// An exchange with the stamps that came late, if they did.
#[derive(Debug)]
struct Held {
    /// With the departures as the programs called.
    exchange: Exchange,
    /// When the request left by our driver.
    t1: Option<Stamp>,
    /// When the reply left by the replier's.
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
    /// Port and number of the transmission, while its late stamp is out.
    stamp_due: Option<(usize, u32)>,
    called: Time,
    t1: Option<Stamp>,
    is_answered: bool,
    /// How many of its replies promised a follow-up that has not come.
    follow_ups_due: u32,
}

impl Syncer {
    /// Prepares the exchanges of a checked request; `None` when it asks for none. `has_stamps` says of each port
    /// whether it gives late stamps.
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

    /// Says what comes next.
    pub const fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Returns how many receivers are asked.
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

    /// Notes that the request was sent.
    pub fn asked(&mut self, sent: Sent) {
        self.expire(sent.called);
        let peer = &self.peers[self.turn];
        let stamp_due = peer.has_stamps.then_some((peer.port, sent.number));
        if self.pending.len() == MOST_PENDING {
            // The oldest was never answered.
            self.pending.remove(0);
        }
        let (number, flow, phase) = (self.number, peer.flow, self.phase);
        let (called, t1, is_answered, follow_ups_due) = (sent.called, None, false, 0);
        self.pending.push(Pending { number, flow, phase, stamp_due, called, t1, is_answered, follow_ups_due });
        self.number += 1;
        self.last = sent.called;
    }

    /// Notes that our own machine refused the request.
    pub const fn refused(&mut self, now: Time) {
        self.last = now;
    }

    /// Takes a reply. To a request to a group each receiver replies: of one clock the first reply counts.
    pub fn on_reply(&mut self, header: &StreamHeader, payload: &[u8], received: &Received) {
        let Some(tail) = SyncTail::read(payload).filter(|_| header.key == self.key) else { return };
        let mut pending = self.pending.iter_mut();
        let Some(asked) = pending.find(|pending| pending.number == header.seq) else { return };
        let of_request = recent(&mut self.exchanges, asked.number);
        if of_request.into_iter().any(|held| held.exchange.clock == tail.clock) {
            return;
        }
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

    /// Takes a follow-up. One of no reply that is known, one that is late, a second one, and one whose departure cannot be
    /// that reply's are passed over.
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

    /// Takes a late stamp, which is better than the one that its exchanges have. Returns whether it was of a request.
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

    /// Returns whether something of the latest request is still awaited.
    pub fn is_waiting(&self) -> bool {
        self.pending
            .last()
            .is_some_and(|pending| !pending.is_answered || pending.stamp_due.is_some() || pending.follow_ups_due > 0)
    }

    /// Gives up what will not come any more.
    pub fn expire(&mut self, now: Time) {
        for pending in &mut self.pending {
            pending.stamp_due = pending.stamp_due.filter(|_| now - pending.called < STAMP_PATIENCE);
        }
        // One that was answered is kept for as long: of a group others may answer too.
        self.pending.retain(|pending| now - pending.called < REPLY_PATIENCE || pending.stamp_due.is_some());
    }

    /// Ends it.
    pub fn finish(mut self) -> Vec<Exchange> {
        self.exchanges.sort_by_key(|held| held.exchange.number);
        self.exchanges.into_iter().map(Held::alike).collect()
    }
}

impl Held {
    /// Returns the exchange with its departures stamped alike.
    fn alike(self) -> Exchange {
        let lag = self.t1.map(|left| left.at - self.exchange.t1.at);
        match (self.t1, self.t3) {
            (Some(t1), Some(t3)) => Exchange { t1, t3, lag, ..self.exchange },
            _ => Exchange { lag, ..self.exchange },
        }
    }
}

/// Returns the exchanges that a request led to: all of them are among the latest.
fn recent(exchanges: &mut [Held], number: u64) -> impl Iterator<Item = &mut Held> {
    let first = exchanges.len().saturating_sub(MOST_RECENT);
    exchanges[first..].iter_mut().filter(move |held| held.exchange.number == number)
}

#[cfg(test)]
mod tests;
