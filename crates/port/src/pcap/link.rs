//! Converts frames of other link types to Ethernet frames: those that carry IP, and Linux's cooked captures.
//!
//! Sources: the list of link types at tcpdump.org; `draft-ietf-opsawg-pcaplinktype`.

use super::format::Direction;

/// Link types.
pub const ETHERNET: u32 = 1;
const NULL: u32 = 0;
const LOOP: u32 = 108;
const RAW: [u32; 3] = [12, 14, 101];
const IPV4: u32 = 228;
const IPV6: u32 = 229;
const COOKED: u32 = 113;
const COOKED2: u32 = 276;

const COOKED_BYTES: usize = 16;
const COOKED2_BYTES: usize = 20;
const ETHERNET_BYTES: usize = 14;
/// Packet type of a cooked header: sent by this host.
const OUTGOING: u16 = 4;

/// Converts a frame of another link type to an Ethernet frame; missing addresses become 0. Returns the increase of its
/// length in bytes, and the direction where the header has it; `None`: the link type or protocol is unsupported, or the
/// header is truncated.
pub fn to_ethernet(link_type: u32, frame: &mut Vec<u8>) -> Option<(isize, Option<Direction>)> {
    let (header, ethertype, direction) = match link_type {
        ETHERNET => return Some((0, None)),
        NULL | LOOP => (4, by_version(*frame.get(4)?)?, None),
        IPV4 | IPV6 => (0, by_version(*frame.first()?)?, None),
        link if RAW.contains(&link) => (0, by_version(*frame.first()?)?, None),
        COOKED => (COOKED_BYTES, word(frame, 14)?, Some(sent(word(frame, 0)?))),
        COOKED2 => {
            frame.get(..COOKED2_BYTES)?;
            (COOKED2_BYTES, word(frame, 0)?, Some(sent(u16::from(*frame.get(10)?))))
        }
        _ => return None,
    };
    let mut ethernet = [0; ETHERNET_BYTES];
    ethernet[12..].copy_from_slice(&ethertype.to_be_bytes());
    frame.splice(..header, ethernet);
    Some((ETHERNET_BYTES as isize - header.cast_signed(), direction))
}

fn sent(kind: u16) -> Direction {
    if kind == OUTGOING { Direction::Out } else { Direction::In }
}

fn by_version(first: u8) -> Option<u16> {
    match first >> 4 {
        4 => Some(0x0800),
        6 => Some(0x86DD),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}
