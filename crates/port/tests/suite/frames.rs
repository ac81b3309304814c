//! Builds requests of each framing, and parses their replies.

#![allow(dead_code, reason = "each test program uses a part of it")]

use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::icmp::{Echo, Version};
use sojourn_wire::{MacAddress, ProbeHeader};

/// The MAC address of the prober's end of the link.
pub const NEAR: MacAddress = MacAddress([2, 0x77, 0, 0, 1, 1]);
/// The MAC address of the far end.
pub const FAR: MacAddress = MacAddress([2, 0x77, 0, 0, 1, 2]);

/// Functions that build requests and parse replies, and the lengths to test.
pub struct Frames {
    pub request: fn(u16, usize) -> Vec<u8>,
    pub sequence: fn(&[u8]) -> Option<u16>,
    pub lengths: [usize; 3],
}

/// ICMP over IPv4: the 64 bytes of ping, a message that fills an Ethernet frame, one that is fragmented.
pub const ICMP4: Frames = Frames {
    request: |sequence, length| echo(Version::V4, sequence, length),
    sequence: |frame| echoed(Version::V4, frame),
    lengths: [64, 1480, 1488],
};

/// ICMP over IPv6: the same.
pub const ICMP6: Frames = Frames {
    request: |sequence, length| echo(Version::V6, sequence, length),
    sequence: |frame| echoed(Version::V6, frame),
    lengths: [64, 1460, 1468],
};

/// UDP payloads.
pub const UDP: Frames = Frames { request: probe, sequence: probed, lengths: [40, 1452, 1480] };

/// Whole Ethernet frames, the last one of the longest length at the usual MTU.
pub const ETHERNET: Frames = Frames {
    request: |sequence, length| {
        let header = Header { destination: FAR, source: NEAR, ethertype: PROBE_ETHERTYPE };
        let mut frame = header.to_bytes().to_vec();
        frame.extend(probe(sequence, length - frame.len()));
        frame
    },
    sequence: |frame| Header::split(frame).and_then(|(_, payload)| probed(payload)),
    lengths: [60, 1000, 1514],
};

fn echo(version: Version, sequence: u16, length: usize) -> Vec<u8> {
    let mut message = vec![0xA5; length];
    Echo { is_reply: false, identifier: 0, sequence }.write(version, &mut message);
    message
}

fn echoed(version: Version, frame: &[u8]) -> Option<u16> {
    let (echo, _) = Echo::split(version, frame)?;
    echo.is_reply.then_some(echo.sequence)
}

fn probe(sequence: u16, length: usize) -> Vec<u8> {
    let mut payload = vec![0; length];
    let response_bytes = u16::try_from(length).expect("a short probe");
    ProbeHeader::request(1, sequence.into(), response_bytes).write(&mut payload);
    payload
}

fn probed(payload: &[u8]) -> Option<u16> {
    let header = ProbeHeader::read(payload)?;
    header.times().and(u16::try_from(header.seq).ok())
}
