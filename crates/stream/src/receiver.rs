//! The receiver's engine. Pure: frames and times in; counts, rows and answers out.
//!
//! A source address may be forged. Therefore an address that did not prove that it receives our frames gets nothing
//! longer than what it sent. A greeting proves it, by a cookie that was sent to that address alone, and from then on its
//! flow is answered there alone.
//! What was sent to a broadcast address, or to a group that its port did not join, is counted and nothing else: an answer
//! by each host that it reaches would multiply it.
//! A receiver that was given the key is not greeted: its caller vouches for the path.

use std::net::SocketAddr;

use sojourn_port::guard::{Case, Guard, Lengths, Policy};
use sojourn_port::{Framing, Received, Sent, TxTimestamp};
use sojourn_time::Time;
use sojourn_wire::ethernet::{self, LEAST_PAYLOAD_BYTES};
use sojourn_wire::stream::{
    GREETING_BYTES, GreetingTail, GreetingWord, HEADER_BYTES, Kind, Link, SYNC_BYTES, SyncTail, TAG_BYTES, end_text,
    fill,
};
use sojourn_wire::{PeerAddress, Peers, SessionKey, StreamHeader};

use crate::accounting::{Accounting, Counting, Whose};
use crate::follow_up::{FollowUp, FollowUps};
use crate::frame;
use crate::request::{Answering, PortRequest, Senders};
use crate::{Auth, End, Head, ReceiveOutcome, ReceiveRequest, SentCount};
use cookies::{Cookies, NO_COOKIE};

mod cookies;

/// Rate limits of answers to greetings, time requests and ends, per second: for one peer, and for all.
const PEER_RATE: u32 = 100_000;
const RATE: u32 = 500_000;

/// The same for answers to packets of a sender that greeted, whose limit is separate: one sender may send all of them, and
/// its time requests are answered at any rate of its packets. Where the key was given there are no strangers, and an
/// answer that is left out would be taken for a loss: there is no limit.
const ANSWER_RATES: (u32, u32) = (RATE, RATE);

/// The same for greetings without our shared key. Their limits are separate, so that peers with the key are answered
/// whatever the number of others.
const STRANGER_RATE: u32 = 100;
const STRANGERS_RATE: u32 = 1_000;

/// An Ethernet header with a VLAN tag.
const LONGEST_HEAD_BYTES: usize = ethernet::HEADER_BYTES + TAG_BYTES;

/// Counts every arriving frame, and decides what to answer.
#[derive(Debug)]
pub struct Receiver {
    senders: Senders,
    /// `None` if nobody is greeted.
    cookies: Option<Cookies>,
    guard: Guard,
    /// Limits answers to packets.
    answers: Guard,
    /// Limits answers to peers without our key.
    strangers: Guard,
    auth: Auth,
    clock: u64,
    ports: Vec<PortRequest>,
    accounting: Accounting,
    /// The ends reported by senders, by flow.
    ends: Vec<(u16, End)>,
    /// Flows whose senders have greeted and which were not yet reported by [`Receiver::greeted`].
    greeted: Vec<(u16, SessionKey)>,
    /// The source addresses of accepted greetings, by flow.
    accepted: Vec<(u16, PeerAddress)>,
    follow_ups: FollowUps,
}

impl Receiver {
    /// Prepares a receiver. All memory is allocated here.
    pub fn new(request: &ReceiveRequest) -> Self {
        let (keep, late_after, clock_offset) = (request.keep, request.late_after, request.clock_offset);
        let counting = Counting { keep, late_after, clock_offset };
        let (key, cookies, answer_rates) = match request.senders {
            Senders::Known(key) => (Some(key), None, (0, 0)),
            Senders::Greeting { secret } => (None, Cookies::new(&secret), ANSWER_RATES),
        };
        Self {
            senders: request.senders,
            cookies,
            guard: Guard::new(policy(&request.allowed, (PEER_RATE, RATE)), request.seed),
            answers: Guard::new(policy(&request.allowed, answer_rates), request.seed),
            strangers: Guard::new(policy(&request.allowed, (STRANGER_RATE, STRANGERS_RATE)), request.seed),
            auth: request.auth.clone(),
            clock: request.clock,
            accounting: Accounting::new(counting, &request.flows, request.ports.len(), key),
            ports: request.ports.clone(),
            ends: Vec::with_capacity(request.flows.len()),
            greeted: Vec::with_capacity(request.flows.len()),
            accepted: Vec::with_capacity(request.flows.len()),
            follow_ups: FollowUps::new(request.auth.clone()),
        }
    }

    /// Processes a frame that arrived at a port. Returns the length of the answer to its source, if there is one:
    /// written into `reply`, complete except for its departure time, which [`Self::stamp`] writes.
    pub fn on_frame(&mut self, port: usize, frame: &[u8], received: &Received, reply: &mut [u8]) -> Option<usize> {
        let request = *self.ports.get(port)?;
        if received.to_group {
            self.accounting.on_to_group(port);
            return None;
        }
        let Some((head, payload)) = frame::split(request.framing, frame) else {
            self.accounting.on_unexpected(port, None);
            return None;
        };
        let header = match StreamHeader::read(payload) {
            Ok(header) => header,
            Err(unread) => {
                self.accounting.on_unread(port, unread);
                return None;
            }
        };
        let back = head.back(request.mac);
        match header.kind {
            Kind::SyncRequest | Kind::End | Kind::Greeting => {
                self.on_control((port, back), (header, payload), received, reply)
            }
            Kind::Data | Kind::Live => {
                let is_first = self.accounting.on_packet(port, &header, payload, received);
                let answering = request.answer.filter(|_| is_first)?;
                self.answer((port, back), (header, payload.len()), answering, received, reply)
            }
            // A sender to a group gets many answers, so a receiver that does not answer may see and count them.
            Kind::Answer if request.answer.is_none() => {
                self.accounting.on_packet(port, &header, payload, received);
                None
            }
            Kind::Answer | Kind::EndAck | Kind::SyncReply | Kind::SyncFollowUp | Kind::GreetingReply => {
                self.accounting.on_unexpected(port, Some(header.kind));
                None
            }
        }
    }

    /// Processes a greeting, time request or end: one with another session key or a wrong tag is refused, and so is a
    /// time request or end from another address than the sender's, or shorter than its answer.
    fn on_control(
        &mut self,
        (port, back): (usize, Head),
        (header, payload): (StreamHeader, &[u8]),
        received: &Received,
        reply: &mut [u8],
    ) -> Option<usize> {
        let is_ours = self.accounting.is_ours(&header) && self.is_of_sender(header.flow, peer_of(back, received));
        let is_believed = header.kind == Kind::Greeting || is_ours;
        let said = if is_believed { self.auth.open(payload) } else { None };
        let length = match (header.kind, said) {
            (Kind::Greeting, Some(said)) => return self.greet((port, back), (header, said), received, reply),
            (Kind::Greeting, None) => return self.refuse_unkeyed((port, back), (header, payload), received, reply),
            (Kind::SyncRequest, Some(said))
                if admits(&mut self.guard, back, received, (said.len(), back.sync_payload_bytes())) =>
            {
                self.sync((port, back), (header, said), received, reply)
            }
            (Kind::End, Some(said))
                if read_end(said).is_some()
                    && admits(&mut self.guard, back, received, (said.len(), back.least_payload_bytes())) =>
            {
                self.on_end(back, (header, said), reply)
            }
            _ => {
                self.accounting.on_unexpected(port, Some(header.kind));
                return None;
            }
        };
        self.accounting.on_control(port);
        length
    }

    /// Writes the departure time into an answer. Only time replies contain it: other answers repeat the times of their request.
    pub fn stamp(&self, port: usize, reply: &mut [u8], now: Time) {
        let Some(PortRequest { framing, .. }) = self.ports.get(port) else { return };
        let at = reply_head_bytes(*framing, reply);
        let Some(payload) = reply.get_mut(at..) else { return };
        match StreamHeader::read(payload) {
            Ok(header) if header.kind == Kind::SyncReply => {
                StreamHeader { sent: now, ..header }.write(payload);
                self.auth.seal(payload);
            }
            _ => {}
        }
    }

    /// Records that an answer was sent, `to` a socket's peer or to the address that it carries: if it is a reply that
    /// promised a follow-up, its TX timestamp is then awaited.
    pub fn answered(&mut self, port: usize, reply: &[u8], to: Option<SocketAddr>, sent: Sent) {
        let Some(PortRequest { framing, .. }) = self.ports.get(port) else { return };
        self.follow_ups.promise((port, to), reply, reply_head_bytes(*framing, reply), sent);
    }

    /// Processes the TX timestamp of an answer. Returns the follow-up to the answer, if there is one: written into `room`.
    pub fn on_stamp(&mut self, port: usize, stamp: &TxTimestamp, room: &mut [u8]) -> Option<FollowUp> {
        self.follow_ups.on_stamp(port, stamp, room)
    }

    /// Returns whether packets are answered.
    pub fn answers_packets(&self) -> bool {
        self.ports.iter().any(|port| port.answer.is_some())
    }

    /// Returns the maximum length of an answer.
    pub fn longest_reply(&self) -> usize {
        let answers = self.ports.iter().filter_map(|port| port.answer).map(|answer| answer.payload_bytes);
        let least = LEAST_PAYLOAD_BYTES.max(SYNC_BYTES).max(GREETING_BYTES) + self.auth.bytes();
        LONGEST_HEAD_BYTES + answers.max().unwrap_or_default().max(least)
    }

    /// Returns the end that a stream's sender reported, if it did.
    pub fn end(&self, flow: u16) -> Option<End> {
        self.ends.iter().find(|(of, _)| *of == flow).map(|(_, end)| *end)
    }

    /// Returns the next flow whose sender has greeted, and its key; each once.
    pub fn greeted(&mut self) -> Option<(u16, SessionKey)> {
        self.greeted.pop()
    }

    /// Returns the source address of the greeting by which a flow's sender was accepted, if one was.
    pub fn sender(&self, flow: u16) -> Option<PeerAddress> {
        self.accepted.iter().find(|(of, _)| *of == flow).map(|(_, peer)| *peer)
    }

    /// Returns how many packets of all streams have arrived so far, and when the last did.
    pub const fn progress(&self) -> (u64, Option<Time>) {
        self.accounting.progress()
    }

    /// Counts what did not arrive. `local_drops` has, for each port, the number of frames that our socket dropped.
    /// For flows that `sent` lacks, the ends reported by senders are used.
    pub fn finish(self, sent: &[SentCount], local_drops: &[u64]) -> ReceiveOutcome {
        let told =
            self.ends.iter().map(|(flow, end)| SentCount { flow: *flow, port: None, sent: end.sent, next: end.next });
        let unclaimed = told.filter(|end| sent.iter().all(|count| count.flow != end.flow));
        let sent: Vec<_> = sent.iter().copied().chain(unclaimed).collect();
        self.accounting.finish(&sent, local_drops)
    }

    /// Returns whether a frame with a flow's key comes from the flow's sender, who is known by the address of its
    /// greeting. Nobody greets a receiver that was given the key: there the key alone distinguishes the sender.
    fn is_of_sender(&self, flow: u16, peer: Option<PeerAddress>) -> bool {
        let is_same = |(sender, peer): (PeerAddress, PeerAddress)| sender.is_same_host(peer);
        matches!(self.senders, Senders::Known(_)) || self.sender(flow).zip(peer).is_some_and(is_same)
    }

    /// Answers a packet of `bytes` of payload. Only its sender gets an answer, and none that is longer than the packet.
    /// Whoever gives the receiver the key names the lengths, too.
    fn answer(
        &mut self,
        (port, back): (usize, Head),
        (header, bytes): (StreamHeader, usize),
        answering: Answering,
        received: &Received,
        reply: &mut [u8],
    ) -> Option<usize> {
        let payload_bytes = answering.payload_bytes.max(back.least_payload_bytes());
        let asked = if matches!(self.senders, Senders::Known(_)) { bytes.max(payload_bytes) } else { bytes };
        let is_answered = self.is_of_sender(header.flow, peer_of(back, received))
            && admits(&mut self.answers, back, received, (asked, payload_bytes));
        if !is_answered {
            self.accounting.on_unanswered(port);
            return None;
        }
        let length = back.bytes() + payload_bytes;
        let payload = open(back, reply, length)?;
        fill(payload);
        StreamHeader { kind: Kind::Answer, node: answering.node, ..header }.write(payload);
        Some(length)
    }

    /// Processes the end of a stream, and acknowledges it unless it is for another receiver of the group. The first
    /// valid end counts; impossible ones are ignored.
    fn on_end(&mut self, back: Head, (header, said): (StreamHeader, &[u8]), reply: &mut [u8]) -> Option<usize> {
        let end = read_end(said)?;
        if end.of.is_some_and(|of| of != self.clock) {
            return None;
        }
        if self.end(header.flow).is_none() {
            self.ends.push((header.flow, end));
        }
        let length = back.bytes() + back.least_payload_bytes() + self.auth.bytes();
        let payload = open(back, reply, length)?;
        payload[HEADER_BYTES..].fill(0);
        StreamHeader { kind: Kind::EndAck, ..header }.write(payload);
        self.auth.seal(payload);
        Some(length)
    }

    /// Replies to a greeting, with no more bytes than it has. The first greeting of a flow that returns the cookie of its
    /// source address sets the flow's key: its sender receives there. It must be an allowed address.
    fn greet(
        &mut self,
        (port, back): (usize, Head),
        (header, request): (StreamHeader, &[u8]),
        received: &Received,
        reply: &mut [u8],
    ) -> Option<usize> {
        let Some(asked) = asked(&mut self.guard, back, request, received) else {
            self.accounting.on_unexpected(port, Some(header.kind));
            return None;
        };
        let peer = peer_of(back, received);
        let cookie = self.cookies.as_ref().map(|cookies| cookies.of(peer, &header));
        let word = match self.accounting.whose(header.flow) {
            Whose::NotCounted => GreetingWord::NoSuchFlow,
            Whose::Of(key) if key == header.key => GreetingWord::Accepted,
            Whose::Of(_) => GreetingWord::Taken,
            Whose::Nobody if Some(asked.cookie) == cookie => {
                self.accounting.set_key(header.flow, header.key);
                self.accepted.extend(peer.map(|peer| (header.flow, peer)));
                self.greeted.push((header.flow, header.key));
                GreetingWord::Accepted
            }
            Whose::Nobody => GreetingWord::Again,
        };
        match word {
            GreetingWord::Taken | GreetingWord::NoSuchFlow => self.accounting.on_unexpected(port, Some(header.kind)),
            _ => self.accounting.on_control(port),
        }
        self.reply(back, header, GreetingTail { cookie: cookie.unwrap_or(NO_COOKIE), word }, reply)
    }

    /// Replies to a greeting without our shared key that a key is required: without a reply the sender would think that
    /// nobody is there. A sender with another shared key does not accept this reply, because it has no tag.
    fn refuse_unkeyed(
        &mut self,
        (port, back): (usize, Head),
        (header, request): (StreamHeader, &[u8]),
        received: &Received,
        reply: &mut [u8],
    ) -> Option<usize> {
        self.accounting.on_unexpected(port, Some(header.kind));
        asked(&mut self.strangers, back, request, received)?;
        let length = back.bytes() + back.greeting_payload_bytes();
        write_greeting(back, header, GreetingTail { cookie: NO_COOKIE, word: GreetingWord::Keyed }, reply, length)?;
        Some(length)
    }

    fn reply(&self, back: Head, header: StreamHeader, tail: GreetingTail, reply: &mut [u8]) -> Option<usize> {
        let length = back.bytes() + back.greeting_payload_bytes() + self.auth.bytes();
        self.auth.seal(write_greeting(back, header, tail, reply, length)?);
        Some(length)
    }

    /// Writes the reply to a time request, which is at least as long. It promises a follow-up if the request can use one:
    /// both together are longer than the request, but go only to the flow's sender.
    fn sync(
        &self,
        (port, back): (usize, Head),
        (header, request): (StreamHeader, &[u8]),
        received: &Received,
        reply: &mut [u8],
    ) -> Option<usize> {
        let asks = SyncTail::read(request).is_some_and(|tail| tail.follows_up);
        let follows_up = asks && self.ports.get(port).is_some_and(|port| port.tx_timestamps);
        let length = back.bytes() + back.sync_payload_bytes() + self.auth.bytes();
        let payload = open(back, reply, length)?;
        let arrived = received.arrived;
        StreamHeader { kind: Kind::SyncReply, intended: arrived.at, sent: received.returned, ..header }.write(payload);
        SyncTail { clock: self.clock, source: arrived.source, follows_up }.write(payload);
        Some(length)
    }
}

/// Parses a greeting; `None`: it is invalid, or must not be answered.
fn asked(guard: &mut Guard, back: Head, request: &[u8], received: &Received) -> Option<GreetingTail> {
    let asked = GreetingTail::read(request).filter(|tail| tail.word == GreetingWord::Greet)?;
    admits(guard, back, received, (request.len(), back.greeting_payload_bytes())).then_some(asked)
}

/// Returns whether the source of a frame may be answered now, by the lengths of request and answer. If the port does
/// not report the source, everybody is answered, or nobody if peers are restricted.
fn admits(guard: &mut Guard, back: Head, received: &Received, (request, answer): (usize, usize)) -> bool {
    let Some(peer) = peer_of(back, received) else {
        return answer <= request && guard.policy().allowed == [Peers::Any];
    };
    // Also if sent to a group that was joined: this is how its receivers are asked. Other groups do not come here.
    let case = Case { peer, to_group: false, now: received.returned };
    guard.admits(&case, || Ok(((), Lengths { request, answer })), Ok).is_some()
}

/// Makes the policy: the peers that may be answered (all if none is named), and the rates for one peer and for all.
fn policy(allowed: &[Peers], (peer_rate, rate): (u32, u32)) -> Policy {
    let allowed = if allowed.is_empty() { vec![Peers::Any] } else { allowed.to_vec() };
    Policy { allowed, peer_rate, rate, ..Policy::default() }
}

/// Returns the source of a frame, as its header or socket reports it.
fn peer_of(back: Head, received: &Received) -> Option<PeerAddress> {
    match back {
        Head::Link(link) => Some(PeerAddress::Ethernet(link.destination)),
        Head::Udp => received.from.map(PeerAddress::Internet),
    }
}

/// Writes the reply to a greeting, without its tag.
fn write_greeting(
    back: Head,
    header: StreamHeader,
    tail: GreetingTail,
    reply: &mut [u8],
    length: usize,
) -> Option<&mut [u8]> {
    let payload = open(back, reply, length)?;
    payload.fill(0);
    StreamHeader { kind: Kind::GreetingReply, ..header }.write(payload);
    tail.write(payload);
    Some(payload)
}

/// Parses the end of a stream; `None`: it is invalid or impossible.
fn read_end(payload: &[u8]) -> Option<End> {
    let end: End = serde_json::from_str(end_text(payload)?).ok()?;
    end.is_possible().then_some(end)
}

/// Writes the header of an answer, and returns the room for its payload; `None`: it does not fit.
fn open(back: Head, reply: &mut [u8], length: usize) -> Option<&mut [u8]> {
    let reply = reply.get_mut(..length)?;
    if let Head::Link(link) = back {
        link.write(reply);
    }
    Some(&mut reply[back.bytes()..])
}

fn reply_head_bytes(framing: Framing, reply: &[u8]) -> usize {
    match framing {
        Framing::Ethernet => Link::split(reply).map_or(reply.len(), |(link, _)| link.header_bytes()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
