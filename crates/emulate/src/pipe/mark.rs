//! Sets the ECN field of a held frame to CE (RFC 3168), and updates IPv4's checksum (RFC 1624).

use crate::select::{Ecn, Key};

/// Marks a frame; a frame that is not IP stays unchanged.
pub(super) fn mark(frame: &mut [u8], key: &mut Key) {
    let header = frame.get_mut(usize::from(key.network_at)..).unwrap_or_default();
    match key.family {
        4 if header.len() >= 20 => mark_ipv4(header),
        // The two bits are in the middle of the second byte.
        6 if header.len() >= 2 => header[1] |= 0x30,
        _ => return,
    }
    key.ecn = Ecn::Marked;
}

fn mark_ipv4(header: &mut [u8]) {
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= 0x03;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    // HC' = ~(~HC + ~m + m'), equation 3 of RFC 1624.
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        !(((folded & 0xFFFF) + (folded >> 16)) as u16)
    }

    proptest! {
        #[test]
        fn marking_keeps_the_checksum_correct(mut header in any::<[u8; 20]>(), tags in 0..2_usize) {
            header[0] = 0x45;
            header[10..12].fill(0);
            let right = checksum(&header);
            header[10..12].copy_from_slice(&right.to_be_bytes());
            let network_at = 14 + 4 * tags;
            let mut frame = [vec![0xEE; network_at], header.to_vec()].concat();
            let mut key = Key { network_at: network_at as u16, family: 4, ..Key::default() };
            mark(&mut frame, &mut key);
            prop_assert_eq!(checksum(&frame[network_at..]), 0);
            prop_assert_eq!(frame[network_at + 1], header[1] | 3);
            prop_assert_eq!(key.ecn, Ecn::Marked);
        }

        #[test]
        fn marking_changes_no_other_bytes(frame in prop::collection::vec(any::<u8>(), 0..60), family in 0..8_u8) {
            let mut marked = frame.clone();
            mark(&mut marked, &mut Key { network_at: 14, family, ..Key::default() });
            for (place, (before, after)) in frame.iter().zip(&marked).enumerate() {
                let is_its_own = match family { 4 => [15, 24, 25].contains(&place), 6 => place == 15, _ => false };
                prop_assert!(before == after || is_its_own, "byte {}", place);
            }
        }
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        let mut frame = [vec![0; 14], vec![0x60, 0x0F, 0xFF, 0xFF], vec![0; 36]].concat();
        let mut key = Key { network_at: 14, family: 6, ..Key::default() };
        mark(&mut frame, &mut key);
        assert_eq!(frame[14..18], [0x60, 0x3F, 0xFF, 0xFF]);
    }
}
