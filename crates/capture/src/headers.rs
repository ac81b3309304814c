//! Reduces frames to their headers, without user data, optionally with anonymised addresses. Pure.
//!
//! Untrusted bytes: whatever is not understood is omitted.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipcrypt_rs::IpcryptPfx;
use sojourn_wire::Layers;
use sojourn_wire::layers::protocol;

const ARP: u16 = 0x0806;
const ARP_BYTES: usize = 28;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
/// Type, code and checksum.
const ICMP_BYTES: usize = 4;
const ECHOES: [(u8, u8); 4] = [(ICMP, 0), (ICMP, 8), (ICMP6, 128), (ICMP6, 129)];
const MAC_BYTES: usize = 6;
const GROUP: u8 = 1;
const LOCAL: u8 = 2;
/// The most addresses in the cache; when it is full, it is cleared.
const MOST_KNOWN: usize = 1 << 16;

/// Returns the number of header bytes of a frame: Ethernet with its tags, ARP, IP, and TCP, UDP, ICMP, SCTP or DCCP.
pub fn length(frame: &[u8]) -> usize {
    let layers = Layers::of(frame);
    let end = match (layers.family, layers.transport) {
        (_, Some(at)) => at + transport_bytes(layers.protocol, frame.get(at..).unwrap_or_default()),
        (4, None) => layers.network + ipv4_bytes(frame, layers.network),
        (6, None) => layers.network + IPV6_BYTES,
        _ => layers.network + if layers.ethertype == ARP { ARP_BYTES } else { 0 },
    };
    end.min(frame.len())
}

fn ipv4_bytes(frame: &[u8], at: usize) -> usize {
    frame.get(at).map_or(0, |first| usize::from(first & 0x0F) * 4).max(IPV4_BYTES)
}

fn transport_bytes(kind: u8, header: &[u8]) -> usize {
    match kind {
        protocol::TCP => header.get(12).map_or(TCP_BYTES, |offset| usize::from(offset >> 4) * 4).max(TCP_BYTES),
        protocol::UDP | protocol::UDP_LITE | ICMP | ICMP6 => 8,
        protocol::SCTP | protocol::DCCP => 12,
        _ => 0,
    }
}

/// Replaces addresses consistently and preserves prefixes: two addresses that share a prefix of any length share one of
/// that length afterwards (ipcrypt-pfx, draft-denis-ipcrypt). Whoever has the key can reverse it.
pub struct Anonymiser {
    cipher: IpcryptPfx,
    known: HashMap<IpAddr, IpAddr>,
}

impl Anonymiser {
    /// Creates an anonymiser; `None` for a key whose halves are equal.
    pub fn new(key: [u8; IpcryptPfx::KEY_BYTES]) -> Option<Self> {
        (key[..16] != key[16..]).then(|| Self { cipher: IpcryptPfx::new(key), known: HashMap::new() })
    }

    /// Writes the headers of a frame into `to`, replacing its contents. Omits headers that may hold addresses
    /// elsewhere: options of IP and TCP, extension headers, ARP, the packet quoted by an ICMP message. Zeroes transport
    /// checksums, which depend on the true addresses; recalculates that of IPv4.
    pub fn headers(&mut self, frame: &[u8], to: &mut Vec<u8>) {
        let layers = Layers::of(frame);
        to.clear();
        to.extend_from_slice(&frame[..layers.network.min(frame.len())]);
        for at in [0, MAC_BYTES] {
            self.mac(to, at);
        }
        let Some(packet) = frame.get(layers.network..) else { return };
        let start = to.len();
        let is_followed = match layers.family {
            4 if packet.len() >= IPV4_BYTES => {
                to.extend_from_slice(&packet[..IPV4_BYTES]);
                self.ipv4(&mut to[start..]);
                ipv4_bytes(frame, layers.network) == IPV4_BYTES
            }
            6 if packet.len() >= IPV6_BYTES => {
                to.extend_from_slice(&packet[..IPV6_BYTES]);
                self.ipv6(&mut to[start..]);
                layers.transport == Some(layers.network + IPV6_BYTES)
            }
            _ => false,
        };
        if let Some(header) = layers.transport.filter(|_| is_followed).and_then(|at| frame.get(at..)) {
            transport(layers.protocol, header, to);
        }
    }

    fn mac(&mut self, to: &mut [u8], at: usize) {
        let Some(mac) = to.get_mut(at..at + MAC_BYTES).filter(|mac| mac.iter().any(|byte| *byte != 0xFF)) else {
            return;
        };
        // Encrypted as the last bits of an IPv6 address, so that vendor prefixes stay common prefixes.
        let mut address = [0xFF; 16];
        address[10..].copy_from_slice(mac);
        let group = mac[0] & GROUP;
        if let IpAddr::V6(changed) = self.address(IpAddr::V6(Ipv6Addr::from(address))) {
            mac.copy_from_slice(&changed.octets()[10..]);
            mac[0] = (mac[0] & !GROUP) | group | LOCAL;
        }
    }

    fn ipv4(&mut self, header: &mut [u8]) {
        // A header length of 20 bytes: options are omitted.
        header[0] = 0x45;
        for at in [12, 16] {
            let octets: [u8; 4] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if let IpAddr::V4(changed) = self.address(octets.into()) {
                header[at..at + 4].copy_from_slice(&changed.octets());
            }
        }
        header[10..12].fill(0);
        let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let folded = ((folded & 0xFFFF) + (folded >> 16)) as u16;
        header[10..12].copy_from_slice(&(!folded).to_be_bytes());
    }

    fn ipv6(&mut self, header: &mut [u8]) {
        for at in [8, 24] {
            let octets: [u8; 16] = std::array::from_fn(|nth| header[at + nth]);
            if let IpAddr::V6(changed) = self.address(octets.into()) {
                header[at..at + 16].copy_from_slice(&changed.octets());
            }
        }
    }

    fn address(&mut self, address: IpAddr) -> IpAddr {
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        *self.known.entry(address).or_insert_with(|| self.cipher.encrypt_ipaddr(address))
    }
}

impl fmt::Debug for Anonymiser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Anonymiser(..)")
    }
}

/// Appends the part of a transport header that is kept: without options and checksum.
fn transport(kind: u8, header: &[u8], to: &mut Vec<u8>) {
    let start = to.len();
    let is_echo = header.first().is_some_and(|first| ECHOES.contains(&(kind, *first)));
    let (length, sum) = match kind {
        protocol::TCP => (TCP_BYTES, 16..18),
        protocol::UDP | protocol::UDP_LITE => (8, 6..8),
        ICMP | ICMP6 => (if is_echo { 8 } else { ICMP_BYTES }, 2..4),
        protocol::SCTP => (12, 8..12),
        _ => return,
    };
    to.extend_from_slice(&header[..length.min(header.len())]);
    if let Some(sum) = to.get_mut(start + sum.start..start + sum.end) {
        sum.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key of the draft's examples.
    fn key() -> [u8; 32] {
        let digits = b"0123456789abcdeffedcba98765432101032547698badcfeefcdab8967452301";
        std::array::from_fn(|nth| {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).unwrap() as u8;
            digit(2 * nth) << 4 | digit(2 * nth + 1)
        })
    }

    #[test]
    fn address_cache_is_bounded_and_anonymised_addresses_stay_the_same() {
        let mut own = Anonymiser::new(key()).unwrap();
        let address = IpAddr::from([10, 0, 0, 1]);
        let hidden = own.address(address);
        let crowd = (0..2 * MOST_KNOWN as u32).map(|number| IpAddr::from(number.to_be_bytes()));
        own.known.extend(crowd.map(|one| (one, one)).take(MOST_KNOWN - 1));
        assert_eq!(own.known.len(), MOST_KNOWN);
        own.address(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(own.known.len(), 1);
        assert_eq!(own.address(address), hidden);
    }

    fn udp4(from: [u8; 4], to: [u8; 4], options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45 + (options.len() / 4) as u8, 0, 0, (28 + options.len() + payload.len()) as u8]);
        frame.extend([0, 1, 0, 0, 64, 17, 0xAA, 0xAA]);
        frame.extend(from);
        frame.extend(to);
        frame.extend(options);
        frame.extend([0, 53, 0, 99, 0, (8 + payload.len()) as u8, 0xBB, 0xBB]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn anonymised_addresses_equal_the_examples_of_the_draft() {
        let mut anonymiser = Anonymiser::new(key()).unwrap();
        let examples = [
            ("0.0.0.0", "151.82.155.134"),
            ("255.255.255.255", "94.185.169.89"),
            ("192.0.2.1", "100.115.72.131"),
            ("2001:db8::1", "c180:5dd4:2587:3524:30ab:fa65:6ab6:f88"),
        ];
        for (address, becomes) in examples {
            assert_eq!(anonymiser.address(address.parse().unwrap()), becomes.parse::<IpAddr>().unwrap());
        }
        assert!(Anonymiser::new([7; 32]).is_none());
    }

    #[test]
    fn headers_end_where_payload_begins() {
        let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], &[], b"secret");
        assert_eq!(length(&frame), 42);
        let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], &[1; 8], b"secret");
        assert_eq!(length(&frame), 50);
        let mut arp = vec![0xFF; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!((length(&arp), length(&arp[..20])), (42, 20));
    }

    #[test]
    fn broadcast_and_multicast_addresses_stay_such_and_checksums_are_zeroed() {
        let mut frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], &[], b"secret");
        frame[..6].fill(0xFF);
        let (mut anonymiser, mut to) = (Anonymiser::new(key()).unwrap(), Vec::new());
        anonymiser.headers(&frame, &mut to);
        assert_eq!((to.len(), &to[..6], to[6] & 3), (42, &[0xFF; 6][..], 2));
        assert_eq!(to[40..42], [0, 0]);
        let sum: u32 = to[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "the sum of the header is right");
    }

    proptest! {
        #[test]
        fn anonymisation_preserves_the_length_of_common_prefixes(first: u32, shared in 0..=32_u32, other: u32) {
            let mask = u32::MAX.checked_shl(32 - shared).unwrap_or(0);
            let second = (first & mask) | (other & !mask);
            let mut anonymiser = Anonymiser::new(key()).unwrap();
            let mut changed = |address: u32| match anonymiser.address(IpAddr::V4(address.into())) {
                IpAddr::V4(address) => u32::from(address),
                IpAddr::V6(_) => unreachable!("IPv4 stays IPv4"),
            };
            prop_assert_eq!((changed(first) ^ changed(second)).leading_zeros(), (first ^ second).leading_zeros());
        }

        #[test]
        fn options_and_payload_are_removed(
            options in proptest::collection::vec(any::<u8>(), 8), payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let frame = |options: &[u8], payload: &[u8]| udp4([10, 0, 0, 1], [10, 0, 0, 2], options, payload);
            let mut anonymiser = Anonymiser::new(key()).unwrap();
            let (mut one, mut two) = (Vec::new(), Vec::new());
            anonymiser.headers(&frame(&options, &payload), &mut one);
            anonymiser.headers(&frame(&[0; 8], &vec![0; payload.len()]), &mut two);
            prop_assert_eq!(one, two);
        }

        #[test]
        fn arbitrary_frames_never_panic_and_no_frame_grows(frame in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
            let mut frame = frame;
            if frame.len() > 34 {
                frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xDD], [0x81, 0], [8, 6]][kind]);
                frame[14] = [0x45, 0x60, 0, 0][kind];
            }
            prop_assert!(length(&frame) <= frame.len());
            let mut to = Vec::new();
            Anonymiser::new(key()).unwrap().headers(&frame, &mut to);
            prop_assert!(to.len() <= frame.len());
        }
    }
}
