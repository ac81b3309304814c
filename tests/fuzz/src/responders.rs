//! What strangers send to a responder of probes and to a session-reflector of STAMP: one of them, its guard and its
//! sessions, and many frames in a row.
//!
//! The first byte of an input has the settings. Each frame follows seven bytes: what is done to it, how many hundredths
//! of a second later it comes, who sent it, from which port (two), and its length (two).

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use sojourn_port::{Framing, Route};
use sojourn_probe::respond::{Asked, ClockState, Guard, Numbering, Policy, Reflector, Refusal, Reply, Responder};
use sojourn_time::{Nanos, Time};
use sojourn_wire::ethernet::{self, Header, PROBE_ETHERTYPE};
use sojourn_wire::probe::{self, AUTHENTICATED_BYTES, HEADER_BYTES};
use sojourn_wire::stamp::{BASE_BYTES, ErrorEstimate, Format, Reflected, Scale, Sent, is_reflected};
use sojourn_wire::{Key, MacAddress, Peers, ProbeHeader};

use crate::Target;
use crate::replies::correct_payload;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "responder", read: responder, seeds: requests },
    Target { name: "reflector", read: reflector, seeds: test_packets },
];

// Settings.
const KEYED: u8 = 1;
/// A responder answers Ethernet frames; a reflector numbers the packets of each session.
const OTHER: u8 = 2;
const ALLOWED: u8 = 4;
const AMPLIFIED: u8 = 8;
const PEER_RATE: u8 = 16;
const RATE: u8 = 32;

// What is done to a frame.
/// Its checksum and tag are made right.
const CORRECTED: u8 = 1;
const TO_GROUP: u8 = 2;
/// It comes many times, each in another session.
const REPEATED: u8 = 4;
const SHORT_ROOM: u8 = 8;
/// The clock is set back by an hour before.
const SET_BACK: u8 = 16;

const REPETITIONS: u32 = 300;
/// The most frames of an input.
const MOST_FRAMES: u32 = 10_000;
const NOW: Time = Time(1_800_000_000_000_000_000);
const CLOCK_ID: u32 = 7;
const OWN_PORT: u16 = 7_707;
/// Ports of services that answer any datagram, and our own.
const PORTS_NOT_ANSWERED: [u16; 7] = [1_900, 3_478, 3_702, 5_353, 5_683, 11_211, OWN_PORT];
/// The longest answer to a shorter request, and a header of Ethernet.
const LONGEST: usize = 9_216 + ethernet::HEADER_BYTES;

const PROBER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// May ask for longer answers.
const NAMED: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const ALLOWED_PEERS: [&str; 3] = ["10.0.0.0/24", "02:00:00:00:00:01", "02:00:00:00:00:09"];
const AMPLIFIED_PEERS: [&str; 2] = ["10.0.0.9", "02:00:00:00:00:09"];

const SOURCES: [IpAddr; 16] = [
    v4(10, 0, 0, 1),
    v4(10, 0, 0, 9),
    v4(10, 0, 1, 1),
    v4(192, 0, 2, 1),
    v4(127, 0, 0, 1),
    v4(0, 0, 0, 0),
    v4(0, 1, 2, 3),
    v4(255, 255, 255, 255),
    v4(224, 0, 0, 1),
    v4(239, 255, 255, 250),
    v6([0xFD77, 0, 0, 0, 0, 0, 0, 1]),
    v6([0xFD77, 0, 0, 0, 0, 0, 0, 2]),
    v6([0xFE80, 0, 0, 0, 0, 0, 0, 1]),
    v6([0xFF02, 0, 0, 0, 0, 0, 0, 1]),
    v6([0; 8]),
    v6([0, 0, 0, 0, 0, 0, 0, 1]),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// Frames that arrive at a responder of probes.
fn responder(bytes: &[u8]) {
    give_all(Kind::Probes, bytes);
}

/// Packets that arrive at a session-reflector.
fn reflector(bytes: &[u8]) {
    give_all(Kind::Stamp, bytes);
}

/// Whether any of these frames is answered by a responder of probes.
pub fn is_probe_answered(bytes: &[u8]) -> bool {
    give_all(Kind::Probes, bytes) > 0
}

/// Whether any of these packets is answered by a session-reflector.
pub fn is_stamp_answered(bytes: &[u8]) -> bool {
    give_all(Kind::Stamp, bytes) > 0
}

/// Gives frames as an input describes them; returns the number of answers.
fn give_all(kind: Kind, bytes: &[u8]) -> u64 {
    let Some(([settings], mut rest)) = bytes.split_first_chunk::<1>() else { return 0 };
    let mut far = Far::new(kind, *settings);
    let mut left = MOST_FRAMES;
    while let Some(([what, later, who, p0, p1, l0, l1], behind)) = rest.split_first_chunk::<7>() {
        let length = usize::from(u16::from_be_bytes([*l0, *l1])).min(behind.len());
        let (frame, behind) = behind.split_at(length);
        rest = behind;
        let back = if what & SET_BACK != 0 { Nanos::seconds(3_600) } else { Nanos::ZERO };
        far.now = far.now + Nanos::millis(10 * i64::from(*later)) - back;
        let from = SocketAddr::new(source(*who), u16::from_be_bytes([*p0, *p1]));
        let times = if what & REPEATED != 0 { REPETITIONS } else { 1 }.min(left);
        left -= times;
        for nth in 0..times {
            let mut frame = frame.to_vec();
            far.change_session(&mut frame, nth as u16);
            if what & CORRECTED != 0 {
                far.correct(&mut frame);
            }
            far.give(*what, from, &frame);
        }
    }
    far.guard.borrow().answered()
}

fn source(who: u8) -> IpAddr {
    let (group, nth) = (who >> 4, who & 15);
    if group == 0 { SOURCES[usize::from(nth)] } else { v4(10, 0, group, nth) }
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Probes,
    Stamp,
}

/// Who sent a request: where it may be answered once, and its session.
type Sender = (Option<SocketAddr>, Vec<u8>);

/// A responder or a reflector, and what it has answered.
struct Far {
    kind: Kind,
    settings: u8,
    framing: Framing,
    key: Option<Arc<Key>>,
    reply: Box<dyn Reply>,
    guard: Rc<RefCell<Guard>>,
    now: Time,
    room: Vec<u8>,
    sessions: HashSet<Sender>,
    /// What was answered and may not be answered again, with the sender's time as it was read.
    once: HashSet<(Sender, Option<Time>)>,
}

impl Far {
    fn new(kind: Kind, settings: u8) -> Self {
        let guard = Rc::new(RefCell::new(Guard::new(policy(settings), 1)));
        let key = if settings & KEYED != 0 { Key::new(&[9; 32]).ok().map(Arc::new) } else { None };
        let is_other = settings & OTHER != 0;
        let reply: Box<dyn Reply> = match kind {
            Kind::Probes => Box::new(Responder::new(CLOCK_ID, None, Rc::clone(&guard), key.clone())),
            Kind::Stamp => {
                let numbering = if is_other { Numbering::Stateful } else { Numbering::Stateless };
                let clock = Rc::new(Cell::new(ClockState::new(SCALE, true, Nanos::micros(50))));
                Box::new(Reflector::new(numbering, key.clone(), clock, Rc::clone(&guard)))
            }
        };
        let framing = if kind == Kind::Probes && is_other { Framing::Ethernet } else { Framing::Udp };
        let (sessions, once, room) = (HashSet::new(), HashSet::new(), Vec::new());
        Self { kind, settings, framing, key, reply, guard, now: NOW, room, sessions, once }
    }

    /// Gives one frame, and checks what comes of it.
    fn give(&mut self, what: u8, from: SocketAddr, frame: &[u8]) {
        let is_short = what & SHORT_ROOM != 0;
        let room = if is_short { frame.len() / 2 } else { frame.len().max(LONGEST) };
        let (before, after, length) = self.ask(from, what & TO_GROUP != 0, frame, room);
        let is_admitted = after.0 > before.0;
        let is_repeated = is_admitted && !self.remember(from, frame);
        if is_short {
            // A program's own room holds any datagram: a shorter one only must not panic.
            assert!(after.0 + after.1 <= before.0 + before.1 + 1);
            assert!(length.is_none_or(|length| length <= room));
            return;
        }
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1, "each frame is in one count");
        assert_eq!(length.is_some(), is_admitted);
        let may = self.may_be_answered(from, what & TO_GROUP != 0, frame);
        if self.remembers_nothing() {
            assert_eq!(length.is_some(), may && self.is_request(from, frame));
        }
        let Some(length) = length else { return };
        assert!(may, "{from} is answered");
        let is_named = self.is_named(from, frame);
        assert!(length <= frame.len() || is_named && length <= LONGEST, "{length} for {}", frame.len());
        assert!(self.key.is_none() || !is_repeated, "a request is answered twice");
        let answer = self.room[..length].to_vec();
        self.check(frame, &answer);
        let (_, _, again) = self.ask(from, false, &answer, LONGEST.max(length));
        assert_eq!(again, None, "an answer is answered");
    }

    /// Returns the numbers of answered and refused frames before and after this one, and the length of its answer.
    fn ask(
        &mut self,
        from: SocketAddr,
        to_group: bool,
        frame: &[u8],
        room: usize,
    ) -> ((u64, u64), (u64, u64), Option<usize>) {
        let route = Route { from, to: Some(v4(10, 0, 0, 2)), to_group, hop_limit: Some(61) };
        let (framing, now) = (self.framing, self.now);
        let route = (framing == Framing::Udp).then_some(route);
        let asked = Asked { framing, route, request: frame, arrived: now, now: &|| now };
        self.room.resize(room, 0);
        self.room.fill(0xFF);
        let before = self.counts();
        let length = self.reply.reply(&asked, &mut self.room);
        (before, self.counts(), length)
    }

    fn counts(&self) -> (u64, u64) {
        let guard = self.guard.borrow();
        (guard.answered(), Refusal::ALL.into_iter().map(|refusal| guard.refused(refusal)).sum())
    }

    /// Whether it answers each request as if it were the first.
    fn remembers_nothing(&self) -> bool {
        let is_stateful = self.kind == Kind::Stamp && self.settings & OTHER != 0;
        self.settings & (KEYED | PEER_RATE | RATE) == 0 && !is_stateful
    }

    /// Whether whoever a frame states to come from may be answered at all (decision 45).
    fn may_be_answered(&self, from: SocketAddr, to_group: bool, frame: &[u8]) -> bool {
        let is_open = self.settings & ALLOWED == 0;
        if self.framing == Framing::Ethernet {
            let Some((Header { destination, source, .. }, _)) = Header::split(frame) else { return false };
            let is_group = |mac: MacAddress| mac.0[0] & 1 == 1;
            let is_of_a_host = !is_group(destination) && !is_group(source) && source.0 != [0; 6];
            return is_of_a_host && (is_open || [PROBER, NAMED].contains(&source));
        }
        let (is_of_a_host, is_allowed) = match from.ip() {
            IpAddr::V4(ip) => {
                let octets = ip.octets();
                (!ip.is_multicast() && !ip.is_broadcast() && octets[0] != 0, octets[..3] == [10, 0, 0])
            }
            IpAddr::V6(ip) => (!ip.is_multicast() && !ip.is_unspecified(), false),
        };
        let port = from.port();
        let is_prober = port >= 1_024 && !PORTS_NOT_ANSWERED.contains(&port);
        !to_group && is_of_a_host && is_prober && (is_open || is_allowed)
    }

    /// Whether whoever a frame states to come from may get more bytes than it sent.
    fn is_named(&self, from: SocketAddr, frame: &[u8]) -> bool {
        let is_named = match self.framing {
            Framing::Ethernet => Header::split(frame).is_some_and(|(header, _)| header.source == NAMED),
            _ => from.ip() == v4(10, 0, 0, 9),
        };
        is_named && self.settings & AMPLIFIED != 0
    }

    /// Whether a frame is a request, without a key.
    fn is_request(&self, from: SocketAddr, frame: &[u8]) -> bool {
        if self.kind == Kind::Stamp {
            return frame.len() >= BASE_BYTES[0] && !is_reflected(frame, None);
        }
        let payload = match self.framing {
            Framing::Ethernet => Header::split(frame).filter(|(header, _)| header.ethertype == PROBE_ETHERTYPE),
            _ => Some((Header { destination: STATION, source: PROBER, ethertype: PROBE_ETHERTYPE }, frame)),
        };
        let Some((_, payload)) = payload else { return false };
        let asks = ProbeHeader::read(payload).and_then(|header| header.asked_bytes());
        let is_named = self.is_named(from, frame);
        asks.map(|bytes| usize::from(bytes).max(HEADER_BYTES))
            .is_some_and(|bytes| bytes <= payload.len() || is_named && bytes <= LONGEST - ethernet::HEADER_BYTES)
    }

    /// Remembers an answered request; returns whether it is the first. Of many sessions some may have been forgotten.
    fn remember(&mut self, from: SocketAddr, frame: &[u8]) -> bool {
        let start = self.start();
        let (session, identity, stamp) = match self.kind {
            Kind::Probes => {
                let of = |range: std::ops::Range<usize>| (None, frame.get(range).unwrap_or_default().to_vec());
                (of(start + 4..start + 12), of(start + 4..start + 16), None)
            }
            Kind::Stamp => {
                let key = self.key.as_deref();
                let Ok(sent) = Sent::read(frame, key) else { return true };
                if key.is_some() {
                    // From whichever address; of fewer packets than it remembers.
                    return self.once.insert(((None, frame[..BASE_BYTES[1]].to_vec()), None));
                }
                let stamp = SCALE.with(sent.error.format()).read(sent.timestamp, self.now);
                let base = frame[..BASE_BYTES[0]].to_vec();
                ((Some(from), sent.ssid.to_be_bytes().to_vec()), (Some(from), base), Some(stamp))
            }
        };
        self.sessions.insert(session);
        let is_new = self.once.insert((identity, stamp));
        is_new || self.sessions.len() >= MOST_OF_A_PEER
    }

    /// Checks an answer against its request.
    fn check(&self, frame: &[u8], answer: &[u8]) {
        let key = self.key.as_deref();
        if self.kind == Kind::Stamp {
            assert_eq!(answer.len(), frame.len());
            let of = |sent: Sent| (sent.seq, sent.timestamp, sent.error);
            let reflected = Reflected::read(answer, key).map(|reflected| (of(reflected.sender), reflected.ttl));
            assert_eq!(reflected, Sent::read(frame, key).map(|sent| (of(sent), 61)));
            return;
        }
        let start = self.start();
        if start > 0 {
            assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        }
        let (request, payload) = (ProbeHeader::read(&frame[start..]), &answer[start..]);
        let told = ProbeHeader::read(payload);
        let identity = |header: Option<ProbeHeader>| header.map(|header| (header.session, header.seq));
        assert_eq!(identity(told), identity(request));
        let asked = request.and_then(|header| header.asked_bytes()).map(|bytes| usize::from(bytes).max(HEADER_BYTES));
        assert_eq!(asked, Some(payload.len()));
        assert_eq!(told.map(|header| header.clock), Some(CLOCK_ID));
        assert_eq!(told.and_then(|header| header.times()), Some((self.now, self.now)));
        let end = if key.is_some() { AUTHENTICATED_BYTES } else { HEADER_BYTES };
        assert!(key.is_none_or(|key| probe::is_authentic(payload, key)));
        assert!(payload[end..].iter().all(|byte| *byte == 0), "nothing of a request comes back but its header");
    }

    /// Where the user data begins.
    fn start(&self) -> usize {
        if self.framing == Framing::Ethernet { ethernet::HEADER_BYTES } else { 0 }
    }

    /// Changes the session of a frame.
    fn change_session(&self, frame: &mut [u8], by: u16) {
        let at = match (self.kind, &self.key) {
            (Kind::Probes, _) => self.start() + 4,
            (Kind::Stamp, None) => 14,
            (Kind::Stamp, Some(_)) => 26,
        };
        if let Some([high, low]) = frame.get_mut(at..at + 2) {
            *high ^= by.to_be_bytes()[0];
            *low ^= by.to_be_bytes()[1];
        }
    }

    /// Corrects what a search would not find: checksum and tag.
    fn correct(&self, frame: &mut [u8]) {
        let start = self.start();
        if let Some(payload) = frame.get_mut(start..) {
            correct_payload(payload, self.kind == Kind::Stamp, self.key.as_deref());
        }
    }
}

const SCALE: Scale = Scale { format: Format::Ntp, tai_offset_s: 37 };
/// From this many sessions of a peer on, idle ones are forgotten.
const MOST_OF_A_PEER: usize = 256;

fn policy(settings: u8) -> Policy {
    let of = |flag: u8, names: &[&str]| -> Vec<Peers> {
        let names = names.iter().filter(|_| settings & flag != 0);
        names.filter_map(|name| name.parse().ok()).collect()
    };
    let (allowed, amplified) = (of(ALLOWED, &ALLOWED_PEERS), of(AMPLIFIED, &AMPLIFIED_PEERS));
    Policy {
        allowed: if allowed.is_empty() { vec![Peers::Any] } else { allowed },
        amplified,
        own_ports: vec![OWN_PORT],
        peer_rate: if settings & PEER_RATE != 0 { 50 } else { 0 },
        rate: if settings & RATE != 0 { 200 } else { 0 },
    }
}

/// A frame of an input.
fn turn(what: u8, later: u8, who: u8, port: u16, frame: &[u8]) -> Vec<u8> {
    let ([p0, p1], [l0, l1]) = (port.to_be_bytes(), (frame.len() as u16).to_be_bytes());
    [&[what, later, who, p0, p1, l0, l1][..], frame].concat()
}

/// For each setting: requests, one again, one for more bytes, to a group, from sources and ports that are not answered,
/// many sessions, and a reply.
fn requests() -> Vec<Vec<u8>> {
    let of = |settings: u8| {
        let framed = |source: MacAddress, header: ProbeHeader| {
            let link = Header { destination: STATION, source, ethertype: PROBE_ETHERTYPE }.to_bytes();
            let link = if settings & OTHER != 0 { &link[..] } else { &[] };
            [link, &header.to_bytes(), &[0; 30]].concat()
        };
        let request = |seq, bytes| framed(PROBER, ProbeHeader::request(SESSION, seq, bytes));
        let longer = framed(NAMED, ProbeHeader::request(SESSION + 1, 0, 1_400));
        let reply = ProbeHeader::request(SESSION, 3, 60).reply(NOW, NOW).map(|header| framed(PROBER, header));
        let frames = [
            turn(CORRECTED, 1, 0, 40_000, &request(0, 60)),
            turn(CORRECTED, 1, 0, 40_000, &request(0, 60)),
            turn(CORRECTED, 0, 1, 40_000, &longer),
            turn(CORRECTED | TO_GROUP, 0, 0, 40_000, &request(1, 60)),
            turn(CORRECTED, 0, 9, 40_000, &request(2, 60)),
            turn(CORRECTED, 0, 0, 5_353, &request(2, 60)),
            turn(CORRECTED | REPEATED, 200, 3, 40_000, &request(0, 70)),
            turn(CORRECTED | SET_BACK, 0, 0, 40_000, &reply.unwrap_or_default()),
            turn(SHORT_ROOM, 0, 0, 40_000, &request(4, 60)),
        ];
        [vec![settings], frames.concat()].concat()
    };
    let named = ALLOWED | AMPLIFIED;
    [0, KEYED, OTHER, OTHER | KEYED, named, OTHER | named, PEER_RATE, RATE | KEYED].map(of).to_vec()
}

const SESSION: u64 = 0x0123_4567_89AB_CDEF;

/// The same of test packets, and a reflected one.
fn test_packets() -> Vec<Vec<u8>> {
    let of = |settings: u8| {
        let key = if settings & KEYED != 0 { Key::new(&[9; 32]).ok() } else { None };
        let key = key.as_ref();
        let sent = |seq: u32, ssid| {
            let error = ErrorEstimate::new(Format::Ntp, true, Nanos::micros(50));
            Sent { seq, timestamp: SCALE.write(NOW + Nanos::millis(i64::from(seq))), error, ssid }
        };
        let packet = |seq, ssid, bytes: usize| {
            let mut packet = vec![0; bytes];
            sent(seq, ssid).write(&mut packet, key);
            packet
        };
        let (mut reflected, sender, timestamp) = (packet(9, 1, 120), sent(9, 1), SCALE.write(NOW));
        let Sent { seq, error, ssid, .. } = sender;
        Reflected { seq, timestamp, error, ssid, receive: timestamp, sender, ttl: 64 }.write(&mut reflected, key);
        let frames = [
            turn(CORRECTED, 1, 0, 40_000, &packet(0, 1, 120)),
            turn(CORRECTED, 1, 0, 40_000, &packet(0, 1, 120)),
            turn(CORRECTED, 1, 0, 40_000, &packet(1, 1, 112)),
            turn(CORRECTED | TO_GROUP, 0, 0, 40_000, &packet(2, 1, 120)),
            turn(CORRECTED, 0, 7, 40_000, &packet(2, 1, 120)),
            turn(CORRECTED, 0, 0, 862, &packet(2, 1, 120)),
            turn(CORRECTED | REPEATED, 200, 3, 40_000, &packet(0, 2, 112)),
            turn(CORRECTED, 0, 0, 40_000, &reflected),
            turn(SHORT_ROOM, 0, 10, 40_000, &packet(4, 1, BASE_BYTES[usize::from(key.is_some())])),
        ];
        [vec![settings], frames.concat()].concat()
    };
    [0, KEYED, OTHER, OTHER | KEYED, ALLOWED, PEER_RATE | OTHER, RATE | KEYED].map(of).to_vec()
}
