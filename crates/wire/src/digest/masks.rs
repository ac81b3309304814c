//! Zeroes the bits of an IP packet that devices rewrite, within its first octets. Ranges beyond the packet's end are
//! ignored.

use std::ops::Range;

use super::HEAD_BYTES;
use crate::layers::protocol;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ICMP_BYTES: usize = 8;
/// Offsets within transport headers: ports and checksums.
const PORTS: Range<usize> = 0..4;
const TCP_CHECKSUM: Range<usize> = 16..18;
const UDP_CHECKSUM: Range<usize> = 6..8;
const SCTP_CHECKSUM: Range<usize> = 8..12;
const ICMP_CHECKSUM: Range<usize> = 2..4;
const ICMP_IDENTIFIER: Range<usize> = 4..6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Zeroes what a router changes: DSCP and ECN, TTL or hop limit, the header checksum.
pub(super) fn router(packet: &mut [u8], family: u8) {
    if family == 4 {
        clear(packet, 1..2);
        clear(packet, 8..9);
        clear(packet, 10..12);
    } else {
        [(0, 0xF0), (1, 0x0F)].into_iter().for_each(|(at, kept)| {
            if let Some(byte) = packet.get_mut(at) {
                *byte &= kept;
            }
        });
        clear(packet, 7..8);
    }
}

/// Zeroes what a NAT changes in addition, given the protocol and the offset of its header. `None` where that is beyond
/// the mask.
pub(super) fn nat(packet: &mut [u8], family: u8, transport: Option<(u8, usize)>) -> Option<()> {
    addresses(packet, 0, family);
    let Some((protocol, at)) = transport else { return Some(()) };
    let within = |range: &Range<usize>| at + range.end <= HEAD_BYTES;
    let masked: &[Range<usize>] = match protocol {
        protocol::TCP => &[PORTS, TCP_CHECKSUM],
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => &[PORTS, UDP_CHECKSUM],
        protocol::SCTP => &[PORTS, SCTP_CHECKSUM],
        ICMP | ICMPV6 => return icmp(packet, family, at),
        _ => &[],
    };
    masked.iter().all(within).then(|| masked.iter().for_each(|range| clear(packet, from(at, range))))
}

/// Zeroes an echo message's checksum and identifier; in an error also those of the quoted packet.
fn icmp(packet: &mut [u8], family: u8, at: usize) -> Option<()> {
    let Some(&kind) = packet.get(at) else { return Some(()) };
    let is_error = if family == 4 { matches!(kind, 3 | 4 | 5 | 11 | 12) } else { kind < 128 };
    let quoted = at + ICMP_BYTES;
    let last = if is_error { quoted + IPV6_BYTES + TCP_CHECKSUM.end } else { quoted };
    if last > HEAD_BYTES {
        return None;
    }
    clear(packet, from(at, &ICMP_CHECKSUM));
    if !is_error {
        clear(packet, from(at, &ICMP_IDENTIFIER));
        return Some(());
    }
    addresses(packet, quoted, family);
    let inner = match packet.get(quoted) {
        Some(first) if family == 4 => quoted + usize::from(first & 0xF) * 4,
        _ => quoted + IPV6_BYTES,
    };
    if family == 4 {
        clear(packet, quoted + 10..quoted + 12);
    }
    // These octets hold ports, identifiers and checksums of any protocol.
    clear(packet, inner..inner + 8);
    clear(packet, from(inner, &TCP_CHECKSUM));
    Some(())
}

fn addresses(packet: &mut [u8], at: usize, family: u8) {
    clear(packet, if family == 4 { at + 12..at + IPV4_BYTES } else { at + 8..at + IPV6_BYTES });
}

fn from(at: usize, range: &Range<usize>) -> Range<usize> {
    at + range.start..at + range.end
}

/// Zeroes a range of octets, as far as it exists.
fn clear(packet: &mut [u8], range: Range<usize>) {
    let end = range.end.min(packet.len());
    if let Some(octets) = packet.get_mut(range.start..end) {
        octets.fill(0);
    }
}
