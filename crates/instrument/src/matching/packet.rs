//! A packet as a tap saw it, from a capture's frame or a row of records, and the tap's counters. Reads no file.

use sojourn_port::pcap::{self, Direction};
use sojourn_record::tap::{TAP_DIRECTIONS, Tapped};
use sojourn_time::Source;
use sojourn_wire::digest::{Key, digest, digest_within, endpoints};

/// A packet as a tap saw it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The timestamp, on the tap's clock. ns.
    pub time: i64,
    /// The time for ordering: the latest timestamp so far. ns.
    pub at: i64,
    pub digest: u64,
    pub length: u32,
    pub direction: Option<Direction>,
    pub endpoints: Option<(u64, u64)>,
    /// The source of the timestamp and other flags: see [`Note`].
    pub note: Note,
}

/// Flags of a packet, in one octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note(pub u8);

impl Note {
    const SOURCE: u8 = 7;
    const NO_SOURCE: u8 = 7;
    const FRAGMENT: u8 = 8;
    const SUPER_PACKET: u8 = 16;

    fn new(source: Option<Source>, is_fragment: bool, is_super: bool) -> Self {
        let source = source.map_or(Self::NO_SOURCE, |source| source as u8);
        let flag = |is: bool, flag| if is { flag } else { 0 };
        Self(source | flag(is_fragment, Self::FRAGMENT) | flag(is_super, Self::SUPER_PACKET))
    }

    pub fn source(self) -> Option<Source> {
        let all = Source::ALL;
        all.into_iter().find(|source| *source as u8 == self.0 & Self::SOURCE)
    }

    /// Whether the timestamps of two taps are known to have different sources.
    pub fn differs(self, other: Self) -> bool {
        let (one, other) = (self.0 & Self::SOURCE, other.0 & Self::SOURCE);
        one != other && one != Self::NO_SOURCE && other != Self::NO_SOURCE
    }

    pub fn is_fragment(self) -> bool {
        self.0 & Self::FRAGMENT != 0
    }

    pub fn is_super(self) -> bool {
        self.0 & Self::SUPER_PACKET != 0
    }
}

/// The counters of a tap besides its packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Packets with a digest.
    pub keyed: u64,
    /// Packets that cannot carry the key.
    pub without_key: u64,
    /// Frames that the capture truncated too much for a comparison.
    pub too_short: u64,
    /// Packets whose digest covers only their first octets.
    pub truncated: u64,
    pub fragments: u64,
    pub super_packets: u64,
    pub of_other_interfaces: u64,
    /// Packets with times beyond [`LONGEST`].
    pub malformed: u64,
    /// Times earlier than that of the packet before.
    pub stepped_back: u64,
}

/// Limits times to 146 years from 1970, so that the difference of two fits the type. ns.
const LONGEST: u64 = 1 << 62;

/// The parameters of digests.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub key: Key,
    /// The maximum number of octets covered.
    pub most: Option<usize>,
    pub mtu: u32,
}

/// Whether a time is out of range; counts it if so.
fn is_beyond(time: i64, told: &mut Told) -> bool {
    let is_beyond = time.unsigned_abs() >= LONGEST;
    told.malformed += u64::from(is_beyond);
    is_beyond
}

/// Returns the packet of a record's row; `None`: it cannot be matched, and is counted.
#[inline]
pub fn of_row(row: &Tapped, told: &mut Told) -> Option<Packet> {
    if is_beyond(row.at.at.0, told) {
        return None;
    }
    let Some(digest) = row.digest else {
        told.without_key += 1;
        return None;
    };
    let direction = row.direction.map(|name| if name == TAP_DIRECTIONS[0] { Direction::In } else { Direction::Out });
    count(told, row.is_truncated, row.is_fragment, row.is_super_packet);
    let note = Note::new(Some(row.at.source), row.is_fragment, row.is_super_packet);
    let time = row.at.at.0;
    Some(Packet { time, at: time, digest, length: row.length_bytes, direction, endpoints: None, note })
}

/// Returns the packet of a capture's frame; `None`: it cannot be matched, and is counted.
pub fn of_frame(frame: &[u8], taken: &pcap::Taken, rule: &Rule, told: &mut Told) -> Option<Packet> {
    if is_beyond(taken.at.0, told) {
        return None;
    }
    let wire = taken.wire_bytes as usize;
    let Some(found) = digest_within(rule.key, frame, wire, rule.most) else {
        if rule.most.is_some() && digest(rule.key, frame, wire).is_some() {
            told.too_short += 1;
        } else {
            told.without_key += 1;
        }
        return None;
    };
    // An Ethernet header and two tags.
    let is_super = taken.wire_bytes > rule.mtu.saturating_add(22);
    count(told, found.is_truncated, found.is_fragment, is_super);
    Some(Packet {
        time: taken.at.0,
        at: taken.at.0,
        digest: found.value,
        length: taken.wire_bytes,
        direction: taken.direction,
        endpoints: if taken.direction.is_some() { None } else { endpoints(rule.key, frame) },
        note: Note::new(None, found.is_fragment, is_super),
    })
}

fn count(told: &mut Told, is_truncated: bool, is_fragment: bool, is_super: bool) {
    told.keyed += 1;
    told.truncated += u64::from(is_truncated);
    told.fragments += u64::from(is_fragment);
    told.super_packets += u64::from(is_super);
}
