//! Locates the headers of a frame: Ethernet, stacked VLAN tags, IPv4 or IPv6 with extension headers, transport.
//!
//! Total: parsing ends at truncated or invalid bytes, and nothing panics. Callers interpret all other fields of the
//! headers.

use crate::ethernet::HEADER_BYTES;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86DD;
/// EtherTypes of tags: customer, service, and the one used for stacked tags before IEEE 802.1ad.
pub const TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];

/// IP protocols.
pub mod protocol {
    /// RFC 9293.
    pub const TCP: u8 = 6;
    /// RFC 768.
    pub const UDP: u8 = 17;
    /// RFC 4340.
    pub const DCCP: u8 = 33;
    /// RFC 9260.
    pub const SCTP: u8 = 132;
    /// RFC 3828.
    pub const UDP_LITE: u8 = 136;
}

const TAG_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The offsets of a frame's headers, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Identifier of the outer VLAN tag, where there is one.
    pub vlan: Option<u16>,
    /// EtherType after all tags; 0 where the frame is too short to have one.
    pub ethertype: u16,
    /// The offset of the header after the EtherType.
    pub network: usize,
    /// 4, 6, or 0: not IP, or a truncated IP header.
    pub family: u8,
    /// IP protocol after the extension headers, as far as these are complete.
    pub protocol: u8,
    /// Whether it is a fragment, including the first one.
    pub is_fragment: bool,
    /// The offset of the transport header; `None`: not IP, a fragment other than the first, or truncated.
    pub transport: Option<usize>,
    /// The end of the IP packet by its own length, or of the frame if that is shorter (or the packet states no length).
    pub end: usize,
}

impl Layers {
    /// Parses a frame that starts with its destination address.
    pub fn of(frame: &[u8]) -> Self {
        let mut layers = Self { end: frame.len(), ..Self::default() };
        let Some(ethertype) = word(frame, HEADER_BYTES - 2) else { return layers };
        (layers.ethertype, layers.network) = (ethertype, HEADER_BYTES);
        while TAGS.contains(&layers.ethertype) {
            let (Some(control), Some(behind)) = (word(frame, layers.network), word(frame, layers.network + 2)) else {
                return layers;
            };
            layers.vlan = layers.vlan.or(Some(control & 0xFFF));
            layers.ethertype = behind;
            layers.network += TAG_BYTES;
        }
        match (layers.ethertype, frame.get(layers.network..)) {
            (IPV4, Some(packet)) => layers.read4(packet),
            (IPV6, Some(packet)) => layers.read6(packet),
            _ => {}
        }
        layers
    }

    /// Parses an IP packet without an Ethernet header.
    pub fn of_packet(packet: &[u8]) -> Self {
        let mut layers = Self { end: packet.len(), ..Self::default() };
        match packet.first().map(|first| first >> 4) {
            Some(4) => {
                layers.ethertype = IPV4;
                layers.read4(packet);
            }
            Some(6) => {
                layers.ethertype = IPV6;
                layers.read6(packet);
            }
            _ => {}
        }
        layers
    }

    fn read4(&mut self, packet: &[u8]) {
        let Some(header) = packet.first_chunk::<IPV4_BYTES>() else { return };
        let length = usize::from(header[0] & 0xF) * 4;
        if header[0] >> 4 != 4 || length < IPV4_BYTES {
            return;
        }
        (self.family, self.protocol) = (4, header[9]);
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        self.end_after(packet, total);
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        self.is_fragment = fragment & 0x3FFF != 0;
        if fragment & 0x1FFF == 0 && self.network + length <= self.end {
            self.transport = Some(self.network + length);
        }
    }

    fn read6(&mut self, packet: &[u8]) {
        let Some(header) = packet.first_chunk::<IPV6_BYTES>() else { return };
        if header[0] >> 4 != 6 {
            return;
        }
        (self.family, self.protocol) = (6, header[6]);
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        self.end_after(packet, if payload == 0 { 0 } else { IPV6_BYTES + payload });
        let packet = &packet[..self.end - self.network];
        let mut at = IPV6_BYTES;
        while let Some(kind) = Extension::of(self.protocol) {
            let Some(extension) = packet.get(at..).and_then(<[u8]>::first_chunk::<8>) else { return };
            self.protocol = extension[0];
            at += kind.bytes(extension[1]);
            if matches!(kind, Extension::Fragment) {
                let fragment = u16::from_be_bytes([extension[2], extension[3]]);
                // An atomic fragment (RFC 6946) is a complete packet.
                self.is_fragment |= fragment & 0xFFF9 != 0;
                if fragment & 0xFFF8 != 0 {
                    return;
                }
            }
        }
        if self.network + at <= self.end {
            self.transport = Some(self.network + at);
        }
    }

    /// Sets the end of the IP packet; length 0: not stated (a super-frame or a jumbogram).
    fn end_after(&mut self, packet: &[u8], length: usize) {
        if length != 0 {
            self.end = self.network + length.min(packet.len());
        }
    }
}

/// IPv6 extension headers, after which another header follows.
enum Extension {
    /// Hop-by-hop, destination, routing, mobility, HIP, shim6 (RFC 6564).
    Common,
    Fragment,
    Authentication,
}

impl Extension {
    fn of(protocol: u8) -> Option<Self> {
        match protocol {
            0 | 43 | 60 | 135 | 139 | 140 => Some(Self::Common),
            44 => Some(Self::Fragment),
            51 => Some(Self::Authentication),
            _ => None,
        }
    }

    fn bytes(&self, length: u8) -> usize {
        match self {
            Self::Common => (usize::from(length) + 1) * 8,
            Self::Fragment => 8,
            Self::Authentication => (usize::from(length) + 2) * 4,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        [&MACS[..], &parts.concat()].concat()
    }

    fn ipv4(protocol: u8, fragment: u16, payload: usize) -> Vec<u8> {
        let total = (20 + payload as u16).to_be_bytes();
        let fragment = fragment.to_be_bytes();
        let head = [0x45, 0, total[0], total[1], 0, 1, fragment[0], fragment[1], 64, protocol, 0, 0];
        [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], &vec![7; payload]].concat()
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, length[0], length[1], next, 64][..], &[1; 16], &[2; 16], payload].concat()
    }

    #[test]
    fn stacked_vlan_tags_are_skipped_and_the_outer_one_reported() {
        let tagged = frame(&[&[0x88, 0xA8, 0x30, 0x0A, 0x81, 0, 0, 20, 8, 0], &ipv4(17, 0, 8)]);
        let layers = Layers::of(&tagged);
        assert_eq!((layers.vlan, layers.ethertype, layers.network), (Some(10), IPV4, 22));
        assert_eq!((layers.family, layers.protocol, layers.transport, layers.end), (4, 17, Some(42), 50));
        let cut = Layers::of(&tagged[..17]);
        assert_eq!((cut.vlan, cut.ethertype, cut.network), (None, 0x88A8, 14));
    }

    #[test]
    fn padding_is_no_part_of_a_packet() {
        let mut padded = frame(&[&[8, 0], &ipv4(6, 0, 20)]);
        padded.resize(60, 0);
        assert_eq!(Layers::of(&padded).end, 54);
    }

    #[test]
    fn later_fragments_have_no_transport() {
        for (fragment, is_fragment, has_transport) in
            [(0x4000, false, true), (0x2000, true, true), (0x2001, true, false), (1, true, false)]
        {
            let layers = Layers::of(&frame(&[&[8, 0], &ipv4(17, fragment, 8)]));
            assert_eq!((layers.is_fragment, layers.transport.is_some()), (is_fragment, has_transport), "{fragment:x}");
        }
        for (offset, is_fragment, has_transport) in [(0, false, true), (1, true, true), (8, true, false)] {
            let payload = [&[17, 0, 0, offset, 0, 0, 0, 1][..], &[0; 8]].concat();
            let layers = Layers::of(&frame(&[&[0x86, 0xDD], &ipv6(44, &payload)]));
            assert_eq!((layers.is_fragment, layers.transport.is_some()), (is_fragment, has_transport), "{offset}");
            assert_eq!(layers.protocol, 17);
        }
    }

    #[test]
    fn ipv6_extension_headers_are_skipped() {
        let hop_by_hop = [51, 0, 0, 0, 0, 0, 0, 0];
        let authentication = [60, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let destination = [6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let payload = [&hop_by_hop[..], &authentication, &destination, &[9; 20]].concat();
        let whole = frame(&[&[0x86, 0xDD], &ipv6(0, &payload)]);
        let layers = Layers::of(&whole);
        assert_eq!((layers.family, layers.protocol, layers.transport), (6, 6, Some(14 + 40 + 48)));
        let cut = Layers::of(&whole[..14 + 40 + 10]);
        assert_eq!((cut.family, cut.protocol, cut.transport), (6, 51, None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let layers = Layers::of(&bytes);
            prop_assert!(layers.network <= bytes.len() && layers.end <= bytes.len());
            prop_assert!(layers.transport.is_none_or(|at| layers.network <= at && at <= layers.end));
        }

        /// Bytes with valid first headers, so that parsing reaches deeper ones.
        #[test]
        fn arbitrary_packets_never_panic(
            tags in 0_usize..4, six: bool, next in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 60, 132]),
            mut rest in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..260,
        ) {
            let ethertype = if six { IPV6 } else { IPV4 };
            if let Some(first) = rest.first_mut() {
                *first = if six { 0x60 } else { 0x40 | (*first & 0xF) };
            }
            if let Some(byte) = rest.get_mut(if six { 6 } else { 9 }) {
                *byte = next;
            }
            let mut bytes = frame(&[&[0x81, 0, 0, 1].repeat(tags), &ethertype.to_be_bytes(), &rest]);
            bytes.truncate(cut);
            let layers = Layers::of(&bytes);
            prop_assert!(layers.network <= bytes.len() && layers.end <= bytes.len());
            prop_assert!(layers.transport.is_none_or(|at| layers.network <= at && at <= layers.end));
        }
    }
}
