//! Masks: which packets share an instance of a pipe.

use super::Key;
use super::hash::Hash;
use crate::config::Mask;

/// Returns a hash of the fields that the mask keeps: equal for packets of one flow, never 0, and it never changes.
///
/// A field that a packet lacks counts as 0: with a mask on addresses, all packets that are not IP are one flow. Ports
/// of fragments are ignored, so that all fragments of a packet are in one flow.
pub fn flow_of(mask: &Mask, key: &Key) -> u64 {
    let mut hash = Hash::default();
    let (source_bits, destination_bits) = match key.family {
        4 => (mask.source4.min(32), mask.destination4.min(32)),
        6 => (mask.source6, mask.destination6),
        _ => (0, 0),
    };
    if source_bits > 0 || destination_bits > 0 {
        hash.add(key.family.into());
        hash.add_address(first_bits(key.source, source_bits));
        hash.add_address(first_bits(key.destination, destination_bits));
    }
    let (source, destination) = key.flow_ports();
    let ports = u64::from(source & mask.source_port) << 16 | u64::from(destination & mask.destination_port);
    let protocol = u64::from(if mask.protocol { key.protocol } else { 0 });
    let vlan = u64::from(if mask.vlan { key.vlan.unwrap_or(0) } else { 0 });
    hash.add(vlan << 40 | protocol << 32 | ports);
    if mask.macs {
        hash.add_mac(key.source_mac);
        hash.add_mac(key.destination_mac);
    }
    hash.finish().max(1)
}

fn first_bits(address: [u8; 16], bits: u8) -> [u8; 16] {
    let kept = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    (u128::from_be_bytes(address) & kept).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Key {
        let wide = |address: [u8; 4]| std::array::from_fn(|index| address.get(index).copied().unwrap_or(0));
        Key {
            family: 4,
            source: wide(source),
            destination: wide(destination),
            protocol: 6,
            ports: Some(ports),
            ..Key::default()
        }
    }

    #[test]
    fn flows_differ_only_in_masked_bits() {
        let mask = Mask { source4: 24, destination_port: 0xFF00, ..Mask::default() };
        let one = flow_of(&mask, &key([10, 0, 0, 1], [10, 1, 0, 1], (1, 0x1234)));
        assert_eq!(one, flow_of(&mask, &key([10, 0, 0, 200], [10, 9, 0, 1], (7, 0x12FF))));
        assert_ne!(one, flow_of(&mask, &key([10, 0, 1, 1], [10, 1, 0, 1], (1, 0x1234))));
        assert_ne!(one, flow_of(&mask, &key([10, 0, 0, 1], [10, 1, 0, 1], (1, 0x1334))));
    }

    #[test]
    fn absent_fields_do_not_distinguish_flows() {
        let mask = Mask { source4: 32, source6: 64, protocol: true, ..Mask::default() };
        let arp = Key { ethertype: 0x0806, ..Key::default() };
        let lldp = Key { ethertype: 0x88CC, vlan: Some(3), ..Key::default() };
        assert_eq!(flow_of(&mask, &arp), flow_of(&mask, &lldp));
        let first = Key { is_fragment: true, ..key([10, 0, 0, 1], [10, 0, 0, 2], (1, 2)) };
        let later = Key { ports: None, ..first };
        let all = Mask { source4: 32, destination4: 32, source_port: 0xFFFF, destination_port: 0xFFFF, ..mask };
        assert_eq!(flow_of(&all, &first), flow_of(&all, &later));
    }

    #[test]
    fn ipv4_and_ipv6_are_different_flows() {
        let mask = Mask { source4: 32, source6: 32, ..Mask::default() };
        let four = key([10, 0, 0, 1], [0; 4], (0, 0));
        assert_ne!(flow_of(&mask, &four), flow_of(&mask, &Key { family: 6, ..four }));
    }

    #[test]
    fn flow_hash_values_are_pinned() {
        let mask = Mask { source4: 32, macs: true, vlan: true, ..Mask::default() };
        assert_eq!(flow_of(&mask, &key([10, 0, 0, 1], [10, 0, 0, 2], (1, 2))), 10_693_515_908_188_873_483);
    }

    proptest! {
        #[test]
        fn flow_hash_is_never_0(source: [u8; 16], six: bool, bits: u8, port: u16, macs: bool) {
            let mask = Mask { source4: bits, source6: bits, source_port: port, macs, ..Mask::default() };
            let key = Key { family: if six { 6 } else { 4 }, source, ports: Some((port, 1)), ..Key::default() };
            prop_assert_ne!(flow_of(&mask, &key), 0);
        }
    }
}
