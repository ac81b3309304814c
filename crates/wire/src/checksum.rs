//! The Internet checksum (RFC 1071) and CRC-32 (IEEE 802.3, reflected). Knows no pseudo headers.

/// Returns the Internet checksum over `bytes`: the value to write where zeros stood. Over bytes that contain a right
/// checksum it is 0.
pub(crate) fn internet(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    if let [last] = words.remainder() {
        sum += u32::from(*last) << 8;
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    // At most 0xFFFF after the folding above.
    !(sum as u16)
}

/// Returns the CRC-32 of `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
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

    proptest! {
        #[test]
        fn bytes_with_their_checksum_sum_to_zero(mut bytes in proptest::collection::vec(any::<u8>(), 2..200)) {
            bytes[..2].fill(0);
            let sum = internet(&bytes);
            bytes[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert_eq!(internet(&bytes), 0);
        }
    }
}
