//! Digests of frames over what a kind of box leaves unchanged: two taps know a packet again by them.
//!
//! A digest is XXH3-64 of the *content* of a frame, which [`Key`] defines. Bits that the box may rewrite are zero in it, and
//! what is no part of the packet is not in it: the FCS, padding to the least frame, what follows the IP packet. Content that is
//! masked or put together is hashed in two parts: its first 128 octets, and, with that as the seed, what follows them.
//!
//! Foreign bytes: nothing here panics. No rule is guessed: where a frame cannot carry a key there is no digest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::ethernet::HEADER_BYTES;
use crate::layers::Layers;

mod masks;
mod tunnel;

/// What is hashed first, and where bits may be masked.
const HEAD_BYTES: usize = 128;

/// The least frame without FCS: shorter ones are padded on the wire.
const LEAST_FRAME_BYTES: usize = 60;

/// What a box leaves unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// The whole frame, as XXH3-64 of its octets from the destination address on.
    #[default]
    Bridge,
    /// The IP packet without TTL or hop limit, IPv4 header checksum, DSCP and ECN.
    Router,
    /// As [`Key::Router`], and without addresses, ports or ICMP identifiers, and the transport's checksum. Of an ICMP error, also
    /// without those of the packet that it quotes.
    Nat,
    /// The frame without 802.1Q and 802.1ad tags.
    Vlan,
    /// The innermost IP packet (of IPIP, 6in4, GRE, VXLAN, Geneve), as [`Key::Router`] has it.
    Tunnel,
}

/// A frame by what does not change on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Of its content.
    pub value: u64,
    /// Whether it is an IP fragment: at the other tap it may be in another piece, or whole.
    pub is_fragment: bool,
    /// Whether octets of its content are missing from the digest.
    pub is_truncated: bool,
}

/// Returns the digest of a frame that was `wire_length` octets long without FCS, of which `frame` was kept; `None` where the frame
/// cannot carry such a key.
pub fn digest(key: Key, frame: &[u8], wire_length: usize) -> Option<Digest> {
    digest_within(key, frame, wire_length, None)
}

/// As [`digest`], of the first `most` octets of the content: two captures that kept different lengths agree on these. `None` also
/// where fewer were kept.
pub fn digest_within(key: Key, frame: &[u8], wire_length: usize, most: Option<usize>) -> Option<Digest> {
    let layers = Layers::of(frame);
    if layers.network < HEADER_BYTES {
        return None;
    }
    let is_kept = frame.len() >= wire_length;
    match key {
        Key::Bridge => of_frame(frame, None, &layers, wire_length, most),
        Key::Vlan => of_frame(frame, Some(layers.network - HEADER_BYTES), &layers, wire_length, most),
        Key::Router => of_packet(frame, &layers, (is_kept, most), false),
        Key::Nat => of_packet(frame, &layers, (is_kept, most), true),
        Key::Tunnel => {
            let (packet, layers) = tunnel::innermost(frame, layers);
            of_packet(packet, &layers, (is_kept, most), false)
        }
    }
}

/// Returns the sender and the receiver of a frame: MAC addresses, or IP addresses where a box rewrites the former. Numbers for
/// comparison only; `None` where there are none. Under [`Key::Nat`] the two taps may have different ones.
pub fn endpoints(key: Key, frame: &[u8]) -> Option<(u64, u64)> {
    let of = |bytes: Option<&[u8]>| bytes.map(XxHash3_64::oneshot);
    match key {
        Key::Bridge | Key::Vlan => Some((of(frame.get(6..12))?, of(frame.get(..6))?)),
        Key::Router | Key::Nat | Key::Tunnel => {
            let layers = Layers::of(frame);
            let (packet, layers) = if key == Key::Tunnel { tunnel::innermost(frame, layers) } else { (frame, layers) };
            let (from, bytes) = match layers.family {
                4 => (layers.network + 12, 4),
                6 => (layers.network + 8, 16),
                _ => return None,
            };
            Some((of(packet.get(from..from + bytes))?, of(packet.get(from + bytes..from + 2 * bytes))?))
        }
    }
}

/// The digest of a frame as it is, or without so many octets of tags.
fn of_frame(
    frame: &[u8],
    without: Option<usize>,
    layers: &Layers,
    wire_length: usize,
    most: Option<usize>,
) -> Option<Digest> {
    let tags = without.unwrap_or(0);
    let mut content = Content { first: frame.get(..HEADER_BYTES - 2)?, rest: frame.get(HEADER_BYTES - 2 + tags..)? };
    let is_ip = layers.family != 0;
    let is_kept = frame.len() >= wire_length;
    let length = wire_length.max(frame.len()) - tags;
    let is_missing = if is_ip {
        content.truncate(layers.end - tags);
        !is_kept && layers.end == frame.len()
    } else {
        if is_kept && length <= LEAST_FRAME_BYTES {
            content.trim_zeros();
        }
        !is_kept
    };
    let is_truncated = content.cut(is_missing, most)?;
    // An IP packet says how long it is.
    let seed = if is_truncated && !is_ip { length as u64 } else { 0 };
    let value = if without.is_none() {
        XxHash3_64::oneshot_with_seed(seed, &frame[..content.len()])
    } else {
        content.hash(seed, |_| Some(()))?
    };
    Some(Digest { value, is_fragment: layers.is_fragment, is_truncated })
}

/// The digest of an IP packet; `None` where there is none.
fn of_packet(
    frame: &[u8],
    layers: &Layers,
    (is_kept, most): (bool, Option<usize>),
    is_translated: bool,
) -> Option<Digest> {
    if layers.family == 0 {
        return None;
    }
    let mut content = Content { first: &[], rest: frame.get(layers.network..layers.end)? };
    let is_truncated = content.cut(!is_kept && layers.end == frame.len(), most)?;
    let transport = layers.transport.map(|at| (layers.protocol, at - layers.network));
    let value = content.hash(0, |head| {
        masks::router(head, layers.family);
        if is_translated { masks::nat(head, layers.family, transport) } else { Some(()) }
    })?;
    Some(Digest { value, is_fragment: layers.is_fragment, is_truncated })
}

/// What is hashed: two stretches of a frame, one behind the other.
struct Content<'a> {
    first: &'a [u8],
    rest: &'a [u8],
}

impl Content<'_> {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn truncate(&mut self, length: usize) {
        self.first = &self.first[..self.first.len().min(length)];
        self.rest = &self.rest[..self.rest.len().min(length - self.first.len())];
    }

    /// Leaves out zeros at the end, which may be padding.
    fn trim_zeros(&mut self) {
        let kept = self.rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.rest = &self.rest[..kept];
    }

    /// Leaves `most` octets; returns whether any are missing, `None` where fewer were kept.
    fn cut(&mut self, is_missing: bool, most: Option<usize>) -> Option<bool> {
        let Some(most) = most else { return Some(is_missing) };
        if self.len() < most {
            return (!is_missing).then_some(false);
        }
        let is_cut = is_missing || self.len() > most;
        self.truncate(most);
        Some(is_cut)
    }

    /// Hashes it, its beginning as `mask` leaves that.
    fn hash(&self, seed: u64, mask: impl FnOnce(&mut [u8]) -> Option<()>) -> Option<u64> {
        let mut head = [0; HEAD_BYTES];
        let of_rest = self.rest.len().min(HEAD_BYTES - self.first.len());
        let length = self.first.len() + of_rest;
        head[..self.first.len()].copy_from_slice(self.first);
        head[self.first.len()..length].copy_from_slice(&self.rest[..of_rest]);
        mask(&mut head[..length])?;
        let value = XxHash3_64::oneshot_with_seed(seed, &head[..length]);
        let tail = &self.rest[of_rest..];
        Some(if tail.is_empty() { value } else { XxHash3_64::oneshot_with_seed(value, tail) })
    }
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Bridge, Self::Router, Self::Nat, Self::Vlan, Self::Tunnel];

    /// Returns the name that records and the command line have.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Router => "router",
            Self::Nat => "nat",
            Self::Vlan => "vlan",
            Self::Tunnel => "tunnel",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A word that names no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no key; there are bridge, router, nat, vlan and tunnel")]
pub struct UnknownKey(pub String);

impl FromStr for Key {
    type Err = UnknownKey;

    fn from_str(name: &str) -> Result<Self, UnknownKey> {
        Self::ALL.into_iter().find(|key| key.name() == name).ok_or_else(|| UnknownKey(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
