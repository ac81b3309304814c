//! Encodes probes into frames, and decodes replies.
//!
//! A reply is matched by its sequence number, its session's key and the other fields that it copies from the request.
//! The ICMP identifier belongs to the port, which writes its own and delivers only replies with it.

use std::sync::Arc;

use sojourn_port::Framing;
use sojourn_time::Time;
use sojourn_wire::ethernet::{self, PROBE_ETHERTYPE};
use sojourn_wire::icmp::{self, Echo, Version};
use sojourn_wire::stamp::{self, ErrorEstimate, Reflected};
use sojourn_wire::{Key, MacAddress, ProbeHeader, probe};

use crate::driver::Host;
use crate::respond::ClockState;
use crate::{Kind, Request, To};

/// Encodes the requests of one block and decodes their replies.
#[derive(Clone, Debug)]
pub struct Codec {
    framing: Framing,
    speech: Speech,
    request_bytes: usize,
    response_bytes: usize,
    addresses: (MacAddress, MacAddress),
    /// The ICMP sequence number of the first probe. It differs between blocks, so that a late reply to the previous
    /// block does not match this one.
    first_sequence: u16,
}

/// The contents of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The probe that it answers.
    pub seq: u32,
    /// The request's arrival at the responder and the reply's departure, where the reply has them.
    pub responder: Option<(Time, Time)>,
    /// The other contents of a STAMP reply.
    pub far: Option<Far>,
}

/// The contents of a STAMP reply besides its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// The reflector's sequence number; the sender's where the reflector is stateless.
    pub seq: u32,
    /// The error estimate of the reflector's clock, and whether it is synchronised.
    pub error: ErrorEstimate,
    /// The TTL or hop limit of the probe at the reflector.
    pub ttl: u8,
}

/// The protocol of the frames.
#[derive(Clone, Debug)]
enum Speech {
    /// This tool's own header.
    Probe { session: u64, key: Option<Arc<Key>> },
    /// STAMP.
    Stamp(Sender),
}

/// A STAMP session-sender.
#[derive(Clone, Debug)]
struct Sender {
    ssid: u16,
    clock: ClockState,
    key: Option<Arc<Key>>,
    /// The departure timestamp of each packet. A reply copies it, and a host off the path does not know it.
    sent: Vec<u64>,
}

impl Sender {
    fn new(request: &Request, host: &Host) -> Self {
        // 0 means "no session identifier".
        let ssid = request.stamp.ssid.unwrap_or_else(|| (host.session as u16).max(1));
        let scale = host.clock.scale.with(request.stamp.timestamps.into());
        let clock = ClockState::new(scale, host.clock.error.is_synchronised(), host.clock.error.error());
        Self { ssid, clock, key: host.key.clone(), sent: Vec::with_capacity(request.shape.count as usize) }
    }

    fn write(&mut self, seq: u32, now: Time, payload: &mut [u8]) {
        let timestamp = self.clock.scale.write(now);
        // A packet that a local queue refused is written again.
        self.sent.truncate(seq as usize);
        self.sent.push(timestamp);
        stamp::Sent { seq, timestamp, error: self.clock.error, ssid: self.ssid }.write(payload, self.key.as_deref());
    }

    fn read(&self, payload: &[u8], now: Time) -> Option<Answer> {
        let reflected = Reflected::read(payload, self.key.as_deref()).ok()?;
        let seq = reflected.sender.seq;
        let is_ours = self.sent.get(seq as usize) == Some(&reflected.sender.timestamp);
        // A reflector without session identifiers sends zeros.
        if !is_ours || (reflected.ssid != self.ssid && reflected.ssid != 0) {
            return None;
        }
        let scale = self.clock.scale.with(reflected.error.format());
        let times = (scale.read(reflected.receive, now), scale.read(reflected.timestamp, now));
        let far = Far { seq: reflected.seq, error: reflected.error, ttl: reflected.ttl };
        Some(Answer { seq, responder: Some(times), far: Some(far) })
    }
}

impl Codec {
    /// Returns the codec of a checked request, for a port of this framing on this host.
    pub fn new(request: &Request, framing: Framing, host: &Host) -> Self {
        let mac = host.mac;
        let speech = match request.kind {
            Kind::Stamp => Speech::Stamp(Sender::new(request, host)),
            _ => Speech::Probe { session: host.session, key: host.key.clone() },
        };
        let destination = match request.to {
            To::Ethernet(ref ethernet) => ethernet.mac,
            _ => MacAddress::default(),
        };
        Self {
            framing,
            speech,
            request_bytes: request.request_payload_bytes,
            response_bytes: request.response_payload_bytes,
            addresses: (destination, mac),
            first_sequence: (request.head.block.wrapping_mul(40_503) >> 3) as u16,
        }
    }

    /// Returns the length of a request's frame.
    pub fn frame_bytes(&self) -> usize {
        self.header_bytes() + self.request_bytes
    }

    /// Returns the length of the longest expected reply frame.
    pub fn reply_frame_bytes(&self) -> usize {
        self.header_bytes() + self.response_bytes
    }

    /// Returns whether its frames carry their departure time: [`Self::stamp`] must then follow [`Self::write`].
    pub const fn says_when(&self) -> bool {
        matches!(self.speech, Speech::Stamp(_))
    }

    /// Writes the departure time into an encoded frame.
    pub fn stamp(&mut self, seq: u32, now: Time, frame: &mut [u8]) {
        if let Speech::Stamp(sender) = &mut self.speech {
            sender.write(seq, now, frame);
        }
    }

    /// Encodes the request with number `seq` into the whole of `frame`, which is [`Self::frame_bytes`] long.
    pub fn write(&self, seq: u32, frame: &mut [u8]) {
        let payload = &mut frame[self.header_bytes()..];
        if let Speech::Probe { session, key } = &self.speech {
            self.header(*session, seq).write(payload);
            if let Some(key) = key {
                probe::authenticate(payload, key);
            }
        }
        match self.framing {
            Framing::Udp => {}
            Framing::Icmp4 => self.echo(seq).write(Version::V4, frame),
            Framing::Icmp6 => self.echo(seq).write(Version::V6, frame),
            Framing::Ethernet => {
                let (destination, source) = self.addresses;
                let header = ethernet::Header { destination, source, ethertype: PROBE_ETHERTYPE };
                frame[..ethernet::HEADER_BYTES].copy_from_slice(&header.to_bytes());
            }
        }
    }

    /// Decodes a frame received at about `now` as a reply to one of the first `sent` probes; `None` when it is not one.
    pub fn read(&self, frame: &[u8], sent: u32, now: Time) -> Option<Answer> {
        match self.framing {
            Framing::Udp => self.read_answer(frame, now),
            Framing::Icmp4 => self.read_echo(Version::V4, frame, sent),
            Framing::Icmp6 => self.read_echo(Version::V6, frame, sent),
            Framing::Ethernet => {
                let (header, payload) = ethernet::Header::split(frame)?;
                if header.ethertype != PROBE_ETHERTYPE || header.source != self.addresses.0 {
                    return None;
                }
                self.read_answer(payload, now)
            }
        }
        .filter(|answer| answer.seq < sent)
    }

    fn read_answer(&self, payload: &[u8], now: Time) -> Option<Answer> {
        let (session, key) = match &self.speech {
            Speech::Stamp(sender) => return sender.read(payload, now),
            Speech::Probe { session, key } => (*session, key),
        };
        let header = ProbeHeader::read(payload)?;
        let times = header.times()?;
        let is_authentic = key.as_ref().is_none_or(|key| probe::is_authentic(payload, key));
        let is_ours = header.session == session && is_authentic && payload.len() >= self.response_bytes;
        is_ours.then_some(Answer { seq: header.seq, responder: Some(times), far: None })
    }

    /// An echo reply copies the request's user data. If the probe header fits, its sequence number identifies the
    /// probe; else the 16-bit ICMP sequence number denotes the latest probe that had it.
    fn read_echo(&self, version: Version, message: &[u8], sent: u32) -> Option<Answer> {
        let (echo, payload) = Echo::split(version, message)?;
        let Speech::Probe { session, .. } = self.speech else { return None };
        if !echo.is_reply || payload.len() != self.request_bytes {
            return None;
        }
        let seq = match ProbeHeader::read(payload) {
            Some(header) => header.seq,
            None => latest(sent, echo.sequence.wrapping_sub(self.first_sequence))?,
        };
        let repeated = payload.len().min(probe::HEADER_BYTES);
        let is_ours = payload[..repeated] == self.header(session, seq).to_bytes()[..repeated];
        (is_ours && self.sequence(seq) == echo.sequence).then_some(Answer { seq, responder: None, far: None })
    }

    fn header(&self, session: u64, seq: u32) -> ProbeHeader {
        // At most 65,535 in a checked request.
        ProbeHeader::request(session, seq, self.response_bytes as u16)
    }

    fn echo(&self, seq: u32) -> Echo {
        Echo { is_reply: false, identifier: 0, sequence: self.sequence(seq) }
    }

    fn sequence(&self, seq: u32) -> u16 {
        self.first_sequence.wrapping_add(seq as u16)
    }

    const fn header_bytes(&self) -> usize {
        match self.framing {
            Framing::Udp => 0,
            Framing::Icmp4 | Framing::Icmp6 => icmp::HEADER_BYTES,
            Framing::Ethernet => ethernet::HEADER_BYTES,
        }
    }
}

/// Returns the largest number below `sent` whose low 16 bits are `low`.
fn latest(sent: u32, low: u16) -> Option<u32> {
    let last = sent.checked_sub(1)?;
    last.checked_sub(u32::from((last as u16).wrapping_sub(low)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_port::sim::Line;
    use sojourn_time::Nanos;

    use super::*;
    use crate::{Kind, Shape, Simulated};

    const FRAMINGS: [Framing; 4] = [Framing::Icmp4, Framing::Icmp6, Framing::Udp, Framing::Ethernet];

    fn codec(framing: Framing, block: u32, bytes: usize) -> Codec {
        let to = To::Sim(Simulated { line: Box::new(Line::constant(0, 0)), carries: None });
        let request = Request::new(block, to, Kind::Icmp, bytes, Shape::regular(1, Nanos(1), Nanos(1)));
        Codec::new(&request, framing, &Host { session: u64::from(block) << 32 | 7, ..Host::default() })
    }

    fn echoed(version: Version, mut message: Vec<u8>) -> Vec<u8> {
        let (echo, _) = Echo::split(version, &message).unwrap();
        Echo { is_reply: true, identifier: 99, ..echo }.write(version, &mut message);
        message
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic(frame: Vec<u8>, framing in 0..4_usize, sent: u32, bytes in 0..60_usize) {
            let _ = codec(FRAMINGS[framing], 1, bytes).read(&frame, sent, Time(0));
        }

        #[test]
        fn echoes_are_matched_whatever_their_size(
            six: bool, bytes in 0..100_usize, block: u32, seq in 0..200_000_u32, ahead in 1..60_000_u32,
        ) {
            let (framing, version) =
                if six { (Framing::Icmp6, Version::V6) } else { (Framing::Icmp4, Version::V4) };
            let codec = codec(framing, block, bytes);
            let mut frame = vec![0; codec.frame_bytes()];
            codec.write(seq, &mut frame);
            prop_assert_eq!(codec.read(&frame, seq + ahead, Time(0)), None, "a request is no reply");
            let answer = codec.read(&echoed(version, frame), seq + ahead, Time(0));
            prop_assert_eq!(answer, Some(Answer { seq, responder: None, far: None }));
        }

        #[test]
        fn late_reply_of_another_block_is_unexpected(bytes in 8..100_usize, block in 0..1000_u32, seq in 0..50_u32) {
            let mut frame = vec![0; codec(Framing::Icmp4, block, bytes).frame_bytes()];
            codec(Framing::Icmp4, block, bytes).write(seq, &mut frame);
            let frame = echoed(Version::V4, frame);
            prop_assert_eq!(codec(Framing::Icmp4, block + 1, bytes).read(&frame, 100, Time(0)), None);
        }

        #[test]
        fn sequence_number_is_restored_from_its_low_16_bits(sent in 1..1_000_000_u32, low: u16) {
            let found = latest(sent, low);
            let expected = (0..sent).rev().take(65_536).find(|seq| *seq as u16 == low);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_reply_is_matched_and_a_damaged_one_is_not() {
        let codec = codec(Framing::Udp, 5, 48);
        let mut request = vec![0; codec.frame_bytes()];
        codec.write(7, &mut request);
        let mut reply = vec![0; 48];
        sojourn_wire::answer(&request, Time(10), Time(20), &mut reply);
        let expected = Answer { seq: 7, responder: Some((Time(10), Time(20))), far: None };
        assert_eq!(codec.read(&reply, 8, Time(0)), Some(expected));
        assert_eq!(codec.read(&reply, 7, Time(0)), None, "not sent yet");
        reply[15] ^= 1;
        assert_eq!(codec.read(&reply, 8, Time(0)), None);
    }

    #[test]
    fn reply_without_the_key_of_the_session_is_ignored() {
        let codec = codec(Framing::Udp, 5, 48);
        let mut request = vec![0; codec.frame_bytes()];
        codec.write(7, &mut request);
        let asked = ProbeHeader::read(&request).unwrap();
        for session in [0, asked.session ^ 1, asked.session ^ 1 << 63, !asked.session] {
            let mut reply = vec![0; 48];
            ProbeHeader { session, ..asked }.reply(Time(10), Time(20)).unwrap().write(&mut reply);
            assert_eq!(codec.read(&reply, 8, Time(0)), None, "{session:x}");
        }
    }
}
