//! The header fields of a packet that rules, masks and targeted losses read; parsed once.

use sojourn_wire::layers::protocol;
use sojourn_wire::{Layers, MacAddress};

use super::hash::Hash;

/// The header fields of a packet. Parsing cannot fail: a field that cannot be read is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Destination MAC address.
    pub destination_mac: MacAddress,
    /// Source MAC address.
    pub source_mac: MacAddress,
    /// VLAN ID of the outer tag; `None`: untagged.
    pub vlan: Option<u16>,
    /// EtherType after all VLAN tags.
    pub ethertype: u16,
    /// Offset of the network header, in bytes from the start of the frame.
    pub network_at: u16,
    /// IP version: 4, 6, or 0 for other protocols.
    pub family: u8,
    /// Source IP address; IPv4 in the first four bytes.
    pub source: [u8; 16],
    /// Destination IP address.
    pub destination: [u8; 16],
    /// IP protocol, after extension headers.
    pub protocol: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Whether it is a fragment of an IP packet, including the first one.
    pub is_fragment: bool,
    /// Offset of the transport header; 0: there is none (not IP, a later fragment, truncated).
    pub transport_at: u16,
    /// Source and destination port, if the protocol has ports (TCP, UDP, SCTP, DCCP, UDP-Lite).
    pub ports: Option<(u16, u16)>,
    /// TCP flags.
    pub tcp_flags: u8,
    /// TCP sequence number.
    pub tcp_seq: u32,
    /// Bytes of TCP payload, by the IP header's length.
    pub tcp_data: u32,
}

/// The ECN field (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT: dropped instead of marked.
    #[default]
    NotCapable,
    /// ECT(0): may be marked.
    Ect0,
    /// ECT(1): may be marked; L4S.
    Ect1,
    /// CE: marked.
    Marked,
}

impl Key {
    /// Parses a frame, from its destination MAC address on.
    pub fn of(frame: &[u8]) -> Self {
        let layers = Layers::of(frame);
        let mut key = Self {
            destination_mac: MacAddress(bytes(frame, 0).unwrap_or_default()),
            source_mac: MacAddress(bytes(frame, 6).unwrap_or_default()),
            vlan: layers.vlan,
            ethertype: layers.ethertype,
            network_at: place(layers.network),
            family: layers.family,
            protocol: layers.protocol,
            is_fragment: layers.is_fragment,
            transport_at: layers.transport.map_or(0, place),
            ..Self::default()
        };
        key.read_network(frame.get(layers.network..).unwrap_or_default());
        if let Some(at) = layers.transport {
            key.read_transport(frame.get(at..).unwrap_or_default(), layers.end - at);
        }
        key
    }

    /// Returns a hash over addresses, protocol and ports that never changes; flow queues use it. All fragments of a
    /// packet have the same hash, because ports are ignored for them. A packet that is not IP is identified by its MAC
    /// addresses and EtherType.
    pub fn flow(&self) -> u64 {
        let mut hash = Hash::default();
        if self.family == 0 {
            hash.add_mac(self.source_mac);
            hash.add_mac(self.destination_mac);
            hash.add(self.ethertype.into());
            return hash.finish();
        }
        hash.add_address(self.source);
        hash.add_address(self.destination);
        let (source, destination) = self.flow_ports();
        let [family, protocol] = [self.family, self.protocol].map(u64::from);
        hash.add(u64::from(source) << 48 | u64::from(destination) << 32 | protocol << 8 | family);
        hash.finish()
    }

    /// Returns the ports that identify a flow: zero for fragments, because only the first one has ports.
    pub(super) fn flow_ports(&self) -> (u16, u16) {
        self.ports.filter(|_| !self.is_fragment).unwrap_or_default()
    }

    fn read_network(&mut self, packet: &[u8]) {
        let class = match self.family {
            4 => {
                self.source[..4].copy_from_slice(&bytes::<4>(packet, 12).unwrap_or_default());
                self.destination[..4].copy_from_slice(&bytes::<4>(packet, 16).unwrap_or_default());
                packet[1]
            }
            6 => {
                self.source = bytes(packet, 8).unwrap_or_default();
                self.destination = bytes(packet, 24).unwrap_or_default();
                packet[0] << 4 | packet[1] >> 4
            }
            _ => return,
        };
        self.dscp = class >> 2;
        self.ecn = match class & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Marked,
        };
    }

    /// Parses a transport header; `length` bytes of the packet follow from there.
    fn read_transport(&mut self, header: &[u8], length: usize) {
        use protocol::{DCCP, SCTP, TCP, UDP, UDP_LITE};
        if ![TCP, UDP, SCTP, DCCP, UDP_LITE].contains(&self.protocol) || length < 4 {
            return;
        }
        self.ports =
            bytes(header, 0).map(|[s0, s1, d0, d1]| (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])));
        if self.protocol != TCP || length < 20 {
            return;
        }
        if let (Some(seq), Some([offset, flags])) = (bytes(header, 4), bytes(header, 12)) {
            self.tcp_seq = u32::from_be_bytes(seq);
            self.tcp_flags = flags;
            self.tcp_data = length.saturating_sub(usize::from(offset >> 4).max(5) * 4) as u32;
        }
    }
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

/// Converts an offset within a frame; no frame is longer than 64 KiB.
fn place(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes a TCP segment over IPv4 with DSCP 46 and ECT(0), from port 5000 to 80, with `data` bytes of payload.
    fn segment(flags: u8, data: usize) -> Vec<u8> {
        let total = (40 + data as u16).to_be_bytes();
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x60, 7, 8, 0];
        frame.extend([0x45, 46 << 2 | 2, total[0], total[1], 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x13, 0x88, 0, 80, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.extend(vec![0; data]);
        frame
    }

    #[test]
    fn vlan_tagged_segment_is_parsed_down_to_its_data() {
        let mut frame = segment(0x18, 3);
        frame.resize(70, 0);
        let key = Key::of(&frame);
        assert_eq!((key.vlan, key.ethertype, key.network_at, key.transport_at), (Some(7), 0x0800, 18, 38));
        assert_eq!((key.family, key.protocol, key.dscp, key.ecn), (4, 6, 46, Ecn::Ect0));
        assert_eq!((&key.source[..5], &key.destination[..5]), (&[10, 0, 0, 1, 0][..], &[10, 0, 0, 2, 0][..]));
        assert_eq!((key.ports, key.tcp_flags, key.tcp_seq, key.tcp_data), (Some((5000, 80)), 0x18, 256, 3));
        assert_eq!(key.source_mac, MacAddress([2, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn the_traffic_class_of_ipv6_is_read() {
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..16].copy_from_slice(&[0x86, 0xDD, 0x60 | 0x0B, 0x90]);
        frame[18..21].copy_from_slice(&[0, 8, 17]);
        frame[22] = 0xFD;
        frame[54..58].copy_from_slice(&[0, 53, 0x80, 0]);
        let key = Key::of(&frame);
        assert_eq!((key.family, key.dscp, key.ecn, key.ports), (6, 46, Ecn::Ect1, Some((53, 0x8000))));
        assert_eq!(key.source[0], 0xFD);
    }

    #[test]
    fn a_flow_is_its_addresses_protocol_and_ports() {
        let first = Key::of(&segment(2, 0));
        assert_eq!(first.flow(), Key::of(&segment(0x18, 100)).flow());
        let mut other = segment(2, 0);
        other[39] ^= 1;
        assert_ne!(first.flow(), Key::of(&other).flow());
        // The order of queues depends on these values: a replay of an old log must compute the same hashes.
        assert_eq!(first.flow(), 10_797_768_350_150_608_993);
    }

    #[test]
    fn all_fragments_of_a_packet_are_one_flow() {
        let mut first = segment(2, 100);
        first[24] = 0x20;
        let mut second = first.clone();
        second[25] = 10;
        let [first, second] = [first, second].map(|frame| Key::of(&frame));
        assert_eq!((first.ports, second.ports), (Some((5000, 80)), None));
        assert_eq!(first.flow(), second.flow());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let key = Key::of(&bytes);
            prop_assert!(usize::from(key.network_at) <= bytes.len());
            prop_assert!(key.family != 0 || key.transport_at == 0);
            let _ = key.flow();
        }

        #[test]
        fn segments_with_any_byte_wrong_never_panic(at in 0_usize..58, byte: u8, cut in 0_usize..80) {
            let mut frame = segment(0x18, 22);
            frame[at] = byte;
            frame.truncate(cut);
            let key = Key::of(&frame);
            prop_assert!((key.tcp_data as usize) < 80 && usize::from(key.transport_at) <= frame.len());
        }
    }
}
