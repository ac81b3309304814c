//! Bits that a device may change do not change a digest; any other bit does. Expected values come from another
//! implementation of XXH3-64 (Python's `xxhash` 3, which uses its authors' C code).

use proptest::prelude::*;

use super::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
const BRIDGE_SHORT: u64 = 0x510C_B7E7_E582_4685;
const BRIDGE_LONG: u64 = 0x25DD_2F55_05E4_3A5E;
const ROUTER_SHORT: u64 = 0x9E60_E2BB_6A03_664E;
const ROUTER_LONG: u64 = 0x94FB_A80A_AA9D_A760;
const ROUTER_SIX: u64 = 0xD833_7871_1006_8C29;
const NAT_SHORT: u64 = 0xBA9B_3172_8D6F_0C7A;
const NAT_LONG: u64 = 0xEEEF_D2B9_200F_B6B5;
const VLAN_LONG: u64 = 0x940F_5925_F7FC_9FE3;

fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&MACS[..], &ethertype.to_be_bytes(), packet].concat()
}

fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let head = [0x45, 0xB8, total[0], total[1], 0x12, 0x34, fragment[0], fragment[1], 64, protocol, 0xAB, 0xCD];
    [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], payload].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    [&[0x6B, 0x81, 0x23, 0x45, length[0], length[1], next, 64][..], &[1; 16], &[2; 16], payload].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    [&[0x12, 0x34, 0x00, 0x35, length[0], length[1], 0x77, 0x88][..], payload].concat()
}

fn tcp(payload: &[u8]) -> Vec<u8> {
    let head = [0x12, 0x34, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10, 9, 9, 0x77, 0x88, 0, 0];
    [&head[..], payload].concat()
}

fn value(key: Key, frame: &[u8]) -> u64 {
    digest(key, frame, frame.len()).unwrap().value
}

fn counting(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn digests_equal_those_of_another_implementation() {
    let short = ethernet(0x0800, &ipv4(17, 0x4000, &udp(&counting(18))));
    let long = ethernet(0x0800, &ipv4(6, 0x4000, &tcp(&counting(1_200))));
    let six = ethernet(0x86DD, &ipv6(17, &udp(&counting(300))));
    let tagged = [&long[..12], &[0x81, 0, 0x20, 7], &long[12..]].concat();
    assert_eq!(value(Key::Bridge, &short), BRIDGE_SHORT);
    assert_eq!(value(Key::Bridge, &long), BRIDGE_LONG);
    assert_eq!(value(Key::Router, &short), ROUTER_SHORT);
    assert_eq!(value(Key::Router, &long), ROUTER_LONG);
    assert_eq!(value(Key::Router, &six), ROUTER_SIX);
    assert_eq!(value(Key::Nat, &short), NAT_SHORT);
    assert_eq!(value(Key::Nat, &long), NAT_LONG);
    assert_eq!(value(Key::Vlan, &tagged), VLAN_LONG);
    assert_eq!(value(Key::Vlan, &long), VLAN_LONG);
}

#[test]
fn vlan_tags_do_not_change_the_digest() {
    for packet in [ipv4(17, 0, &udp(&[7; 300])), ipv4(17, 0, &udp(&[7; 3])), ipv6(6, &tcp(&[1; 40]))] {
        let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86DD };
        let plain = ethernet(ethertype, &packet);
        let one = [&plain[..12], &[0x81, 0, 0xE0, 7], &plain[12..]].concat();
        let two = [&one[..12], &[0x88, 0xA8, 0, 9], &one[12..]].concat();
        for tagged in [&one, &two] {
            for key in [Key::Vlan, Key::Router, Key::Nat, Key::Tunnel] {
                assert_eq!(value(key, tagged), value(key, &plain), "{key}");
            }
            assert_ne!(value(Key::Bridge, tagged), value(Key::Bridge, &plain));
        }
    }
    let arp = ethernet(0x0806, &counting(28));
    let tagged = [&arp[..12], &[0x81, 0, 0, 7], &arp[12..], &[0; 18]].concat();
    assert_eq!(value(Key::Vlan, &tagged), value(Key::Vlan, &arp));
}

#[test]
fn padding_and_trailers_do_not_change_the_digest() {
    for frame in [ethernet(0x0800, &ipv4(17, 0, &udp(&[5; 3]))), ethernet(0x0806, &counting(28))] {
        let mut padded = frame.clone();
        padded.resize(60, 0);
        assert_eq!(value(Key::Bridge, &padded), value(Key::Bridge, &frame));
        padded[59] = 1;
        let is_ip = frame[13] == 0;
        assert_eq!(value(Key::Bridge, &padded) == value(Key::Bridge, &frame), is_ip);
    }
}

#[test]
fn frames_without_the_fields_of_a_key_have_no_digest() {
    let arp = ethernet(0x0806, &counting(28));
    for key in [Key::Router, Key::Nat, Key::Tunnel] {
        assert_eq!(digest(key, &arp, arp.len()), None);
        assert_eq!(digest(key, &ethernet(0x0800, &ipv4(17, 0, &[])[..19]), 33), None);
    }
    for key in Key::ALL {
        assert_eq!(digest(key, &MACS, 12), None);
    }
    // A transport header beyond the octets that can be masked.
    let extensions = [&[60, 14][..], &[0; 118], &[6, 0, 0, 0, 0, 0, 0, 0], &tcp(&[])].concat();
    let far = ethernet(0x86DD, &ipv6(60, &extensions));
    assert_eq!(digest(Key::Nat, &far, far.len()), None);
    assert!(digest(Key::Router, &far, far.len()).is_some());
}

#[test]
fn fragments_and_truncated_frames_are_flagged() {
    let flags = |frame: &[u8], length| {
        digest(Key::Router, frame, length).map(|digest| (digest.is_fragment, digest.is_truncated))
    };
    let frame = |fragment| ethernet(0x0800, &ipv4(17, fragment, &udp(&[7; 300])));
    assert_eq!(flags(&frame(0x4000), 342), Some((false, false)));
    assert_eq!(flags(&frame(0x2000), 342), Some((true, false)));
    assert_eq!(flags(&frame(0x0010), 342), Some((true, false)));
    assert_eq!(flags(&frame(0x4000)[..100], 342), Some((false, true)));
    let six = ethernet(0x86DD, &ipv6(44, &[&[17, 0, 0, 9, 0, 0, 0, 1][..], &[3; 40]].concat()));
    assert_eq!(flags(&six, six.len()), Some((true, false)));
}

#[test]
fn digests_agree_between_different_snap_lengths() {
    let arp = ethernet(0x88B5, &counting(400));
    for frame in [ethernet(0x0800, &ipv4(6, 0x4000, &tcp(&counting(1_000)))), arp] {
        for key in Key::ALL {
            if digest(key, &frame, frame.len()).is_none() {
                continue;
            }
            let within = |kept: usize| digest_within(key, &frame[..kept], frame.len(), Some(80));
            let whole = within(frame.len()).unwrap();
            assert!(whole.is_truncated);
            assert_eq!(within(96), Some(whole), "{key}");
            assert_eq!(within(60), None, "{key}");
            let other = digest_within(key, &frame, frame.len(), Some(81)).unwrap();
            assert_ne!(other.value, whole.value);
        }
    }
    // Both captures kept all of a short frame.
    let short = ethernet(0x0800, &ipv4(17, 0, &udp(&[5; 3])));
    assert_eq!(digest_within(Key::Bridge, &short, 45, Some(80)), digest(Key::Bridge, &short, 45));
    // Frames with equal captured octets and different lengths.
    let cut = |length| digest(Key::Bridge, &ethernet(0x88B5, &[1; 60]), length).unwrap().value;
    assert_ne!(cut(500), cut(501));
}

#[test]
fn the_innermost_packet_is_found_in_every_tunnel() {
    let inner = ipv4(17, 0, &udp(&counting(50)));
    let of_inner = value(Key::Router, &ethernet(0x0800, &inner));
    let frame = ethernet(0x0800, &inner);
    let vxlan = |port: u16| {
        let payload = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &frame].concat();
        let mut datagram = udp(&payload);
        datagram[2..4].copy_from_slice(&port.to_be_bytes());
        datagram
    };
    let geneve = |protocol: u16, carried: &[u8]| {
        let kind = protocol.to_be_bytes();
        let mut datagram = udp(&[&[1, 0, kind[0], kind[1], 0, 0, 5, 0, 9, 9, 9, 9][..], carried].concat());
        datagram[2..4].copy_from_slice(&6081_u16.to_be_bytes());
        datagram
    };
    let tunnels = [
        (4, inner.clone()),
        (47, [&[0, 0, 8, 0][..], &inner].concat()),
        (47, [&[0xB0, 0, 8, 0][..], &[1; 12], &inner].concat()),
        (47, [&[0, 0, 0x65, 0x58][..], &frame].concat()),
        (17, vxlan(4789)),
        (17, vxlan(8472)),
        (17, geneve(0x0800, &inner)),
        (17, geneve(0x6558, &frame)),
    ];
    for (protocol, payload) in &tunnels {
        assert_eq!(value(Key::Tunnel, &ethernet(0x0800, &ipv4(*protocol, 0, payload))), of_inner, "{protocol}");
        assert_eq!(value(Key::Tunnel, &ethernet(0x86DD, &ipv6(*protocol, payload))), of_inner, "{protocol}");
    }
    let twice = ipv4(4, 0, &ipv4(17, 0, &vxlan(4789)));
    assert_eq!(value(Key::Tunnel, &ethernet(0x0800, &twice)), of_inner);
    assert_eq!(value(Key::Tunnel, &frame), of_inner);
    let other = ethernet(0x0800, &ipv4(17, 0, &vxlan(4790)));
    assert_eq!(value(Key::Tunnel, &other), value(Key::Router, &other));
}

#[test]
fn icmp_error_translated_by_nat_keeps_its_digest() {
    for quoted in [udp(&[1; 20]), tcp(&[2; 20])] {
        let error = |changed: bool| {
            let protocol = if quoted.len() == 28 { 17 } else { 6 };
            let mut inside = ipv4(protocol, 0x4000, &quoted);
            if changed {
                inside[10..20].fill(0x5A);
                inside[20..24].fill(0x5B);
                let checksum = if protocol == 17 { 26..28 } else { 36..38 };
                inside[checksum].fill(0x5C);
            }
            ethernet(0x0800, &ipv4(1, 0, &[&[3, 4, 1, 1, 0, 0, 5, 220][..], &inside].concat()))
        };
        assert_eq!(value(Key::Nat, &error(false)), value(Key::Nat, &error(true)));
    }
    let echo = |identifier: u8, sequence: u8| {
        ethernet(0x0800, &ipv4(1, 0, &[8, 0, 3, identifier, 0, identifier, 0, sequence, 1, 2, 3]))
    };
    assert_eq!(value(Key::Nat, &echo(1, 1)), value(Key::Nat, &echo(2, 1)));
    assert_ne!(value(Key::Nat, &echo(1, 1)), value(Key::Nat, &echo(1, 2)));
}

#[test]
fn endpoints_are_symmetric_and_survive_rewriting() {
    let there = ethernet(0x0800, &ipv4(17, 0, &udp(&[5; 3])));
    let mut back = there.clone();
    back[..6].copy_from_slice(&MACS[6..]);
    back[6..12].copy_from_slice(&MACS[..6]);
    back[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    for key in Key::ALL {
        let (from, to) = endpoints(key, &there).unwrap();
        assert_eq!(endpoints(key, &back), Some((to, from)), "{key}");
        assert_ne!(from, to);
    }
    assert_eq!(endpoints(Key::Nat, &ethernet(0x0806, &counting(28))), None);
}

#[test]
fn keys_are_parsed_from_their_names() {
    for key in Key::ALL {
        assert_eq!(key.name().parse(), Ok(key));
    }
    assert!("switch".parse::<Key>().is_err());
}

/// Bits of a frame: octet offsets with masks.
type Bits = Vec<(usize, u8)>;

/// A frame, and the bits that a router and a NAT may change in it.
fn frames() -> impl Strategy<Value = (Vec<u8>, Bits, Bits)> {
    (any::<bool>(), 0_usize..3, prop::collection::vec(any::<u8>(), 0..400)).prop_map(|(six, transport, payload)| {
        let (protocol, body, ports, checksum) = match transport {
            0 => (17, udp(&payload), 0..4, 6..8),
            1 => (6, tcp(&payload), 0..4, 16..18),
            _ => (255, payload, 0..0, 0..0),
        };
        let (frame, at, router, addresses) = if six {
            let router = vec![(14, 0x0F), (15, 0xF0), (21, 0xFF)];
            (ethernet(0x86DD, &ipv6(protocol, &body)), 54, router, 22..54)
        } else {
            let router = [15, 22, 24, 25].map(|at| (at, 0xFF)).to_vec();
            (ethernet(0x0800, &ipv4(protocol, 0x4000, &body)), 34, router, 26..34)
        };
        let more = addresses.chain(at + ports.start..at + ports.end).chain(at + checksum.start..at + checksum.end);
        let nat = router.iter().copied().chain(more.map(|at| (at, 0xFF))).collect();
        let router = router.into_iter().chain((0..12).map(|at| (at, 0xFF))).collect();
        (frame, router, nat)
    })
}

proptest! {
    #[test]
    fn rewritten_fields_do_not_change_the_digest((frame, router, nat) in frames(), noise: [u8; 64]) {
        for (key, masks) in [(Key::Router, router), (Key::Tunnel, Vec::new()), (Key::Nat, nat)] {
            let mut changed = frame.clone();
            for ((at, mask), noise) in masks.into_iter().zip(noise.iter().cycle()) {
                changed[at] ^= noise & mask;
            }
            prop_assert_eq!(value(key, &changed), value(key, &frame), "{}", key);
        }
    }

    #[test]
    fn every_other_bit_changes_the_digest((frame, router, nat) in frames(), place: prop::sample::Index, bit in 0_u8..8) {
        let at = place.index(frame.len());
        let mut changed = frame.clone();
        changed[at] ^= 1 << bit;
        let is_masked = |masks: &[(usize, u8)]| masks.iter().any(|(place, mask)| *place == at && mask & (1 << bit) != 0);
        let changes = |key| digest(key, &changed, frame.len()).map(|digest| digest.value) != Some(value(key, &frame));
        prop_assert!(changes(Key::Bridge));
        // The digest depends on the EtherType, not on the MAC addresses.
        prop_assert_eq!(changes(Key::Router), at >= 12 && !is_masked(&router));
        let is_address = at < 12;
        prop_assert_eq!(changes(Key::Nat), !is_address && !is_masked(&nat));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, length: u16, most in prop::option::of(0_usize..200)) {
        for key in Key::ALL {
            let _ = digest_within(key, &bytes, length.into(), most);
            let _ = endpoints(key, &bytes);
        }
    }

    /// Bytes with valid first headers, so that parsing reaches deeper ones.
    #[test]
    fn arbitrary_packets_never_panic(
        six: bool, next in prop::sample::select(vec![1_u8, 4, 6, 17, 33, 41, 47, 58, 132, 136]),
        mut rest in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..320, most in prop::option::of(0_usize..200),
    ) {
        let first = if six { 0x60 } else { 0x45 };
        for (at, byte) in [(0, first), (if six { 6 } else { 9 }, next), (if six { 4 } else { 2 }, 0)] {
            if let Some(place) = rest.get_mut(at) {
                *place = byte;
            }
        }
        let mut bytes = ethernet(if six { 0x86DD } else { 0x0800 }, &rest);
        bytes.truncate(cut);
        for key in Key::ALL {
            let _ = digest_within(key, &bytes, rest.len(), most);
            let _ = endpoints(key, &bytes);
        }
    }
}
