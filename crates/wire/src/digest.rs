//! Digests of frames over the bits that a kind of device leaves unchanged, by which two taps identify the same packet.
//!
//! A digest is XXH3-64 over the *content* of a frame, which [`Key`] defines. Bits that the device may rewrite are zero
//! in it. It excludes what is not part of the packet: the FCS, padding to the minimum frame size, bytes after the IP
//! packet. Content that is masked or assembled is hashed in two parts: its first 128 octets, then the rest, with the
//! first hash as the seed.
//!
//! Untrusted bytes: nothing panics, and nothing is guessed: a frame to which a key does not apply has no digest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::ethernet::HEADER_BYTES;
use crate::layers::Layers;

mod masks;
mod tunnel;

/// The number of octets that are hashed first; only these may be masked.
const HEAD_BYTES: usize = 128;

/// The minimum frame without FCS: shorter ones are padded on the wire.
const LEAST_FRAME_BYTES: usize = 60;

/// The kind of device, and so what stays unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// The whole frame: XXH3-64 of its octets from the destination address on.
    #[default]
    Bridge,
    /// The IP packet without TTL or hop limit, IPv4 header checksum, DSCP and ECN.
    Router,
    /// As [`Key::Router`], also without addresses, ports or ICMP identifiers, and transport checksum; of an ICMP error,
    /// also without those of the quoted packet.
    Nat,
    /// The frame without 802.1Q and 802.1ad tags.
    Vlan,
    /// The innermost IP packet (of IPIP, 6in4, GRE, VXLAN, Geneve), as for [`Key::Router`].
    Tunnel,
}

/// The digest of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The hash of its content.
    pub value: u64,
    /// Whether it is an IP fragment: the other tap may see it fragmented differently, or whole.
    pub is_fragment: bool,
    /// Whether the digest lacks octets of the content.
    pub is_truncated: bool,
}

/// Returns the digest of a frame of `wire_length` octets without FCS, of which the capture kept `frame`; `None` where
/// the key does not apply to the frame.
pub fn digest(key: Key, frame: &[u8], wire_length: usize) -> Option<Digest> {
    digest_within(key, frame, wire_length, None)
}

/// As [`digest`], of the first `most` octets of the content: captures with different snapshot lengths agree on these.
/// `None` also where fewer were kept.
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

/// Returns source and destination of a frame: MAC addresses, or IP addresses where the device rewrites the former;
/// hashed, for comparison only. `None` where there are none. With [`Key::Nat`] the two taps may see different ones.
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

/// Returns the digest of a frame, unchanged or without `without` octets of tags.
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
    // An IP packet states its own length.
    let seed = if is_truncated && !is_ip { length as u64 } else { 0 };
    let value = if without.is_none() {
        XxHash3_64::oneshot_with_seed(seed, &frame[..content.len()])
    } else {
        content.hash(seed, |_| Some(()))?
    };
    Some(Digest { value, is_fragment: layers.is_fragment, is_truncated })
}

/// Returns the digest of an IP packet; `None` where there is none.
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

/// The octets to hash: two slices of a frame, concatenated.
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

    /// Removes trailing zeros, which may be padding.
    fn trim_zeros(&mut self) {
        let kept = self.rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.rest = &self.rest[..kept];
    }

    /// Truncates to `most` octets; returns whether any are missing, `None` where fewer were kept.
    fn cut(&mut self, is_missing: bool, most: Option<usize>) -> Option<bool> {
        let Some(most) = most else { return Some(is_missing) };
        if self.len() < most {
            return (!is_missing).then_some(false);
        }
        let is_cut = is_missing || self.len() > most;
        self.truncate(most);
        Some(is_cut)
    }

    /// Hashes it after `mask` has changed its first octets.
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
    /// Every key.
    pub const ALL: [Self; 5] = [Self::Bridge, Self::Router, Self::Nat, Self::Vlan, Self::Tunnel];

    /// Returns the name used in records and on the command line.
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

/// The error of a name that denotes no key.
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
