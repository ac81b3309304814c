//! The frames of a stream: written once, with a new header for each packet.

use sojourn_port::Framing;
use sojourn_time::Time;
use sojourn_wire::stream::{Kind, Link, fill};
use sojourn_wire::{MacAddress, SessionKey, StreamHeader};

use crate::Head;

/// Frames of a maximum-rate stream per call (with this number, a frame costs a fifth less), and the number if
/// other streams must not wait that long.
pub const BATCH: usize = 256;
pub const BATCH_BESIDE: usize = 32;

/// The frames of one stream, contiguous for one call; they differ only in their headers.
#[derive(Debug)]
pub struct Template {
    frames: Vec<u8>,
    frame_bytes: usize,
    head_bytes: usize,
    header: StreamHeader,
}

impl Template {
    /// Writes `count` frames.
    pub fn new(head: Head, (key, flow): (SessionKey, u16), payload_bytes: usize, count: usize) -> Self {
        let header = StreamHeader { kind: Kind::Data, node: 0, flow, key, seq: 0, intended: Time(0), sent: Time(0) };
        let head_bytes = head.bytes();
        let mut frame = vec![0; head_bytes + payload_bytes];
        if let Head::Link(link) = head {
            link.write(&mut frame);
        }
        fill(&mut frame[head_bytes..]);
        header.write(&mut frame[head_bytes..]);
        Self { frame_bytes: frame.len(), frames: frame.repeat(count), head_bytes, header }
    }

    /// Returns the frame of one packet.
    pub fn one(&mut self, seq: u64, intended: Time, sent: Time) -> &[u8] {
        self.number(0, StreamHeader { seq, intended, sent, ..self.header });
        &self.frames[..self.frame_bytes]
    }

    /// Returns the frames of packets with consecutive numbers that all leave now.
    pub fn many(&mut self, first: u64, count: usize, now: Time) -> &[u8] {
        let count = count.min(self.frames.len() / self.frame_bytes);
        for place in 0..count {
            self.number(place, StreamHeader { seq: first + place as u64, intended: now, sent: now, ..self.header });
        }
        &self.frames[..count * self.frame_bytes]
    }

    /// Returns the length of a frame.
    pub const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn number(&mut self, place: usize, header: StreamHeader) {
        let at = place * self.frame_bytes + self.head_bytes;
        header.write(&mut self.frames[at..]);
    }
}

/// Splits a frame, as a port carries it, into header and payload; `None` if it cannot be a frame of a stream.
pub fn split(framing: Framing, frame: &[u8]) -> Option<(Head, &[u8])> {
    match framing {
        Framing::Ethernet => Link::split(frame).map(|(link, payload)| (Head::Link(link), payload)),
        Framing::Udp => Some((Head::Udp, frame)),
        Framing::Icmp4 | Framing::Icmp6 => None,
    }
}

impl Head {
    /// Returns the header of an answer from the address `own`.
    pub(crate) const fn back(self, own: MacAddress) -> Self {
        match self {
            Self::Link(link) => Self::Link(link.back(own)),
            Self::Udp => Self::Udp,
        }
    }
}
