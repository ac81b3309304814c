//! What arrives at a prober and at the sender of a stream: anything may, from anybody.
//!
//! Both targets begin with a byte of settings, and corrected checksums and tags follow another byte for each frame.

use std::sync::Arc;

use sojourn_port::sim::Line;
use sojourn_port::{Capabilities, Framing, Received, Sent};
use sojourn_probe::{Codec, Host, Kind as ProbeKind, Request, Shape, Simulated, To};
use sojourn_stream::{Auth, Ears, FlowRequest, Head, Keep, Pattern, Schedule, SendRequest, SentCount, SyncRequest};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::ethernet::{self, PROBE_ETHERTYPE};
use sojourn_wire::icmp::{Echo, Version};
use sojourn_wire::stamp::{BASE_BYTES, Reflected, Sent as StampSent};
use sojourn_wire::stream::{HEADER_BYTES, Kind, Link, SYNC_BYTES, SyncTail, fill};
use sojourn_wire::{Key, MacAddress, SessionKey, StreamHeader, answer, probe};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "probe-reply", read: probe_reply, seeds: probe_replies },
    Target { name: "stream-reply", read: stream_reply, seeds: stream_replies },
];

const FRAMINGS: [Framing; 4] = [Framing::Udp, Framing::Ethernet, Framing::Icmp4, Framing::Icmp6];
const SENT: u32 = 5;
const NOW: Time = Time(1_800_000_000_000_000_000);
/// The sender of a reply over Ethernet.
const FAR: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn key() -> Option<Key> {
    Key::new(&[9; 32]).ok()
}

/// A block of probes as the first byte of the input says.
struct Block {
    framing: Framing,
    kind: ProbeKind,
    key: Option<Arc<Key>>,
    codec: Codec,
}

impl Block {
    /// Two bits give the framing; over UDP one says whether it is STAMP; one whether there is a key.
    fn of(settings: u8) -> Self {
        let framing = FRAMINGS[usize::from(settings & 3)];
        let kind = match framing {
            Framing::Icmp4 | Framing::Icmp6 => ProbeKind::Icmp,
            Framing::Udp if settings & 4 != 0 => ProbeKind::Stamp,
            _ => ProbeKind::PingPong,
        };
        let key = key().filter(|_| settings & 8 != 0 && kind != ProbeKind::Icmp).map(Arc::new);
        let bytes = if kind == ProbeKind::Stamp { BASE_BYTES[usize::from(key.is_some())] } else { 60 };
        let to = match framing {
            Framing::Ethernet => {
                To::Ethernet(sojourn_probe::Ethernet { dev: "a".to_owned(), mac: FAR, qdisc_bypass: true })
            }
            _ => To::Sim(Simulated { line: Box::new(Line::constant(0, 0)), carries: None }),
        };
        let request = Request::new(7, to, kind, bytes, Shape::regular(SENT, Nanos(1), Nanos(1)));
        let host = Host { mac: OWN, session: 0x0123_4567_89AB_CDEF, key: key.clone(), ..Host::default() };
        let mut codec = Codec::new(&request, framing, &host);
        if codec.says_when() {
            let mut frame = vec![0; codec.frame_bytes()];
            (0..SENT).for_each(|seq| codec.stamp(seq, Time(NOW.0 + i64::from(seq)), &mut frame));
        }
        Self { framing, kind, key, codec }
    }

    /// Where the user data begins.
    fn header_bytes(&self) -> usize {
        match self.framing {
            Framing::Udp => 0,
            Framing::Ethernet => ethernet::HEADER_BYTES,
            Framing::Icmp4 | Framing::Icmp6 => sojourn_wire::icmp::HEADER_BYTES,
        }
    }

    /// Corrects what a search would not find: checksums and tags.
    fn correct(&self, frame: &mut [u8]) {
        let header_bytes = self.header_bytes();
        if let Some(payload) = frame.get_mut(header_bytes..) {
            correct_payload(payload, self.kind == ProbeKind::Stamp, self.key.as_deref());
        }
        let version = match self.framing {
            Framing::Icmp4 => Version::V4,
            Framing::Icmp6 => Version::V6,
            _ => return,
        };
        if let Some([i0, i1, s0, s1]) = frame.get(4..8) {
            let (identifier, sequence) = (u16::from_be_bytes([*i0, *i1]), u16::from_be_bytes([*s0, *s1]));
            Echo { is_reply: true, identifier, sequence }.write(version, frame);
        }
    }
}

/// A frame that arrives at a prober, as it is and with checksum and tag corrected.
fn probe_reply(bytes: &[u8]) {
    let Some(([settings], frame)) = bytes.split_first_chunk::<1>() else { return };
    let block = Block::of(*settings);
    let mut corrected = frame.to_vec();
    block.correct(&mut corrected);
    for frame in [frame, &corrected] {
        for now in [NOW, Time(i64::MAX)] {
            let found = block.codec.read(frame, SENT, now);
            assert!(found.is_none_or(|found| found.seq < SENT));
            assert_eq!(found.is_some_and(|found| found.far.is_some()), found.is_some() && block.codec.says_when());
            assert_eq!(block.codec.read(frame, 0, now), None, "nothing was sent");
        }
    }
}

/// A true reply for each setting.
fn probe_replies() -> Vec<Vec<u8>> {
    [0, 1, 2, 3, 4, 8, 9, 12].map(|settings| [vec![settings], true_reply(settings)].concat()).to_vec()
}

fn true_reply(settings: u8) -> Vec<u8> {
    let mut block = Block::of(settings);
    let mut frame = vec![0; block.codec.frame_bytes()];
    block.codec.write(3, &mut frame);
    if block.codec.says_when() {
        // The codec forgets what it wrote after this probe, so the block that reads the reply is another one.
        block.codec.stamp(3, Time(NOW.0 + 3), &mut frame);
        if let Ok(sender) = StampSent::read(&frame, block.key.as_deref()) {
            let StampSent { seq, timestamp, error, ssid } = sender;
            let reflected = Reflected { seq, timestamp, error, ssid, receive: timestamp, sender, ttl: 64 };
            reflected.write(&mut frame, block.key.as_deref());
        }
        return frame;
    }
    let at = block.header_bytes();
    if block.framing == Framing::Ethernet {
        let header = ethernet::Header { destination: OWN, source: FAR, ethertype: PROBE_ETHERTYPE };
        frame[..at].copy_from_slice(&header.to_bytes());
    }
    if matches!(block.framing, Framing::Udp | Framing::Ethernet) {
        let request = frame[at..].to_vec();
        answer(&request, Time(1_000), Time(2_000), &mut frame[at..]);
    }
    block.correct(&mut frame);
    frame
}

/// Whether a reply is one of the probes that were sent.
pub fn is_reply(bytes: &[u8]) -> bool {
    let Some(([settings], frame)) = bytes.split_first_chunk::<1>() else { return false };
    Block::of(*settings).codec.read(frame, SENT, NOW).is_some()
}

const SESSION: SessionKey = SessionKey(0x0123_4567_89AB_CDEF);
const REQUESTS: u32 = 3;
const LINK: Link = Link { destination: OWN, source: FAR, tag: None };
/// Corrects the frame's checksum and tag.
const CORRECTED: u8 = 1;
/// Asks for the time before the frame arrives.
const ASKS: u8 = 2;

fn listening(settings: u8) -> (Ears, Capabilities, Auth) {
    let framing = if settings & 1 == 0 { Framing::Udp } else { Framing::Ethernet };
    let auth = Auth::from(key().filter(|_| settings & 2 != 0));
    let head = if framing == Framing::Udp { Head::Udp } else { Head::Link(LINK) };
    let flow = |flow| {
        let schedule = Schedule::new(Pattern::Regular, 1_000.0, 9, 1);
        FlowRequest { flow, port: 0, head, payload_bytes: 60, schedule }
    };
    let port = Capabilities { framing, max_frame: 1_500, tx_timestamps: settings & 4 == 0 };
    let request = SendRequest {
        block: 1,
        key: SESSION,
        auth: auth.clone(),
        flows: vec![flow(1), flow(2)],
        keep: if settings & 8 == 0 { Keep::Histograms } else { Keep::Packets { room: 4 } },
        start_in: Nanos::ZERO,
        at_most: None,
        sync: Some(SyncRequest { flows: vec![0, 1], before: 1, during: None, after: 1, spacing: Nanos::millis(1) }),
        answers_late_after: (settings & 16 == 0).then_some(Nanos::seconds(1)),
        clock: 7,
    };
    let mut ears = Ears::new(&request, &[port]);
    (0..REQUESTS).for_each(|number| ask(&mut ears, number));
    (ears, port, auth)
}

fn ask(ears: &mut Ears, number: u32) {
    if ears.request(NOW).is_some() {
        ears.asked(Sent { number, called: NOW });
    }
}

/// Frames that arrive at the sender of streams: each is preceded by what to do with it, its delay in ms and its length.
/// Every frame is counted at most once.
fn stream_reply(bytes: &[u8]) {
    let Some(([settings], rest)) = bytes.split_first_chunk::<1>() else { return };
    let (ears, frames) = hear(*settings, rest);
    let sent = [1, 2].map(|flow| SentCount { flow, port: Some(0), sent: 9, next: None });
    let heard = ears.finish(&sent, &[1]);
    let answers = heard.answers.map_or(0, |answers| {
        assert!(answers.rows.len() <= 4);
        let counted: u64 = answers.flows.iter().map(|flow| flow.counts.frames()).sum();
        assert_eq!(counted, answers.ports[0].frames);
        counted
    });
    let counted = heard.exchanges.len() as u64 + heard.unexpected.total() + answers;
    assert!(counted <= frames, "{counted} of {frames}");
}

fn hear(settings: u8, mut rest: &[u8]) -> (Ears, u64) {
    let (mut ears, port, auth) = listening(settings);
    let (mut frames, mut now) = (0, NOW);
    while let Some(([what, delay_ms, l0, l1], behind)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([*l0, *l1])).min(behind.len());
        let (frame, behind) = behind.split_at(length);
        rest = behind;
        now = now + Nanos::millis(i64::from(*delay_ms));
        if what & ASKS != 0 {
            ask(&mut ears, REQUESTS + frames as u32);
        }
        let mut frame = frame.to_vec();
        if what & CORRECTED != 0 {
            correct(&mut frame, port.framing, &auth);
        }
        let arrived = Stamp { at: now, source: Source::Kernel };
        let received = Received { length, arrived, returned: now, from: None, to_group: false };
        ears.on_frame((0, &port), &frame, &received);
        frames += 1;
    }
    (ears, frames)
}

fn correct(frame: &mut [u8], framing: Framing, auth: &Auth) {
    let start = match framing {
        Framing::Ethernet => Link::split(frame).map_or(0, |(link, _)| link.header_bytes()),
        _ => 0,
    };
    let payload = &mut frame[start..];
    if let Some((checked, rest)) = payload.split_at_mut_checked(HEADER_BYTES - 4)
        && let Some(place) = rest.first_chunk_mut::<4>()
    {
        *place = crc32fast::hash(checked).to_be_bytes();
        auth.seal(payload);
    }
}

/// Whether something is heard of these frames: an exchange, an answer, or a message that is not expected.
pub fn is_heard(bytes: &[u8]) -> bool {
    let Some(([settings], rest)) = bytes.split_first_chunk::<1>() else { return false };
    let heard = hear(*settings, rest).0.finish(&[], &[0]);
    let answers = heard.answers.map_or(0, |answers| answers.ports[0].frames);
    !heard.exchanges.is_empty() || answers > 0 || heard.unexpected.total() > 0
}

/// For each framing, with and without a key: replies with their follow-ups, answers, and others.
fn stream_replies() -> Vec<Vec<u8>> {
    let of = |settings: u8| {
        let (_, port, auth) = listening(settings);
        let told = [
            (Kind::SyncReply, 0),
            (Kind::SyncFollowUp, 0),
            (Kind::Answer, 0),
            (Kind::Answer, 2),
            (Kind::EndAck, 0),
            (Kind::GreetingReply, 0),
            (Kind::SyncReply, 1),
        ];
        let frames = told.map(|(kind, seq)| {
            let frame = stream_frame(kind, seq, port.framing, &auth);
            [&[CORRECTED, 1, 0, frame.len() as u8][..], &frame].concat()
        });
        [vec![settings], frames.concat()].concat()
    };
    [0, 1, 2, 3, 4 | 8, 16].map(of).to_vec()
}

fn stream_frame(kind: Kind, seq: u64, framing: Framing, auth: &Auth) -> Vec<u8> {
    let start = if framing == Framing::Ethernet { LINK.header_bytes() } else { 0 };
    let mut frame = vec![0; start + SYNC_BYTES + auth.bytes()];
    if framing == Framing::Ethernet {
        LINK.write(&mut frame);
    }
    let payload = &mut frame[start..];
    if kind == Kind::Answer {
        fill(payload);
    } else {
        SyncTail { clock: 77, source: Source::Kernel, follows_up: true }.write(payload);
    }
    let sent = NOW + Nanos::micros(if kind == Kind::SyncFollowUp { 9 } else { 5 });
    StreamHeader { kind, node: 1, flow: 1, key: SESSION, seq, intended: NOW, sent }.write(payload);
    auth.seal(payload);
    frame
}

/// Corrects the checksum and the tag of user data: of a packet of STAMP, or of a probe of ours.
pub(crate) fn correct_payload(payload: &mut [u8], is_stamp: bool, key: Option<&Key>) {
    if is_stamp {
        if let (Some(key), Some(base)) = (key, payload.get_mut(..BASE_BYTES[1])) {
            let (covered, tag) = base.split_at_mut(base.len() - 16);
            tag.copy_from_slice(&key.tag(&[covered]));
        }
    } else if let Some((checked, rest)) = payload.split_at_mut_checked(32)
        && let Some(place) = rest.first_chunk_mut::<4>()
    {
        *place = crc32fast::hash(checked).to_be_bytes();
        if let Some(key) = key {
            probe::authenticate(payload, key);
        }
    }
}
