//! The Internet checksum (RFC 1071), CRC-32 (IEEE 802.3, reflected) and CRC-32C. Does not include pseudo-headers.

/// Returns the Internet checksum over `bytes`: the value to write into a zeroed checksum field. Over bytes that contain
/// a correct checksum, it is 0.
pub(crate) fn internet(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Returns the ones' complement sum of the 16-bit words of `bytes`, not yet folded. Sums of parts that start at even
/// offsets may be added.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // In native byte order, to which the sum is invariant (RFC 1071 §2), and 32 bits at a time.
    let mut sum: u64 = 0;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum += u64::from(u32::from_ne_bytes(last));
    u64::from(u16::from_be_bytes(fold(sum).to_ne_bytes()))
}

/// Folds a sum into 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// Returns the CRC-32 of `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Returns the CRC-32C of `bytes` (Castagnoli, reflected), bit by bit: only SCTP frames need it.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc32_has_its_check_value() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn internet_checksum_matches_rfc_1071() {
        assert_eq!(internet(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), !0xDDF2);
    }

    /// The reference: RFC 1071, two bytes at a time.
    fn plain(bytes: &[u8]) -> u16 {
        let word = |two: &[u8]| u64::from(two[0]) << 8 | u64::from(two.get(1).copied().unwrap_or(0));
        !fold(bytes.chunks(2).map(word).sum())
    }

    proptest! {
        #[test]
        fn wide_summation_gives_the_same_checksum(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(internet(&bytes), plain(&bytes));
        }

        #[test]
        fn bytes_with_their_checksum_sum_to_zero(mut bytes in proptest::collection::vec(any::<u8>(), 2..200)) {
            bytes[..2].fill(0);
            let sum = internet(&bytes);
            bytes[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert_eq!(internet(&bytes), 0);
        }
    }
}
