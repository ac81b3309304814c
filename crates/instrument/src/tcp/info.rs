//! TCP_INFO as the kernel lays it out (include/uapi/linux/tcp.h), into the columns of `tcp_readings`.
//!
//! A kernel that is older than the structure here gives fewer bytes: what it does not give is absent, never 0.

use sojourn_record::tcp_readings::INFO;

/// More than any kernel's structure has, so that its whole length is learned.
pub const ROOM_BYTES: usize = 512;

/// Where a value lies, and what makes its unit of it.
#[derive(Clone, Copy)]
enum Place {
    Bits {
        at: usize,
        shift: u32,
        mask: u8,
    },
    Byte(usize),
    Half(usize),
    Word(usize),
    Long(usize),
    /// Bytes a second, all ones for none.
    Rate(usize),
}

use Place::{Bits, Byte, Half, Long, Rate, Word};

/// In the order of the columns.
const PLACES: [Place; INFO] = [
    Byte(0),
    Byte(1),
    Byte(2),
    Byte(3),
    Byte(4),
    Byte(5),
    Bits { at: 6, shift: 0, mask: 15 },
    Bits { at: 6, shift: 4, mask: 15 },
    Bits { at: 7, shift: 0, mask: 1 },
    Bits { at: 7, shift: 1, mask: 3 },
    Word(8),
    Word(12),
    Word(16),
    Word(20),
    Word(24),
    Word(28),
    Word(32),
    Word(36),
    Word(40),
    Word(44),
    Word(48),
    Word(52),
    Word(56),
    Word(60),
    Word(64),
    Word(68),
    Word(72),
    Word(76),
    Word(80),
    Word(84),
    Word(88),
    Word(92),
    Word(96),
    Word(100),
    Rate(104),
    Rate(112),
    Long(120),
    Long(128),
    Word(136),
    Word(140),
    Word(144),
    Word(148),
    Word(152),
    Word(156),
    Rate(160),
    Long(168),
    Long(176),
    Long(184),
    Word(192),
    Word(196),
    Long(200),
    Long(208),
    Word(216),
    Word(220),
    Word(224),
    Word(228),
    Word(232),
    Word(236),
    Half(240),
    Half(242),
    Word(244),
    Word(248),
    Word(252),
    Word(256),
    Word(260),
    Word(264),
    Word(268),
    Word(272),
    Half(276),
    Half(278),
];

/// Returns the values of a structure, of which the kernel gave so many bytes.
pub fn decode(bytes: &[u8]) -> [Option<i64>; INFO] {
    PLACES.map(|place| value(bytes, place))
}

fn value(bytes: &[u8], place: Place) -> Option<i64> {
    match place {
        Byte(at) => bytes.get(at).map(|byte| i64::from(*byte)),
        Bits { at, shift, mask } => bytes.get(at).map(|byte| i64::from(bits(*byte, shift, mask))),
        Half(at) => array(bytes, at).map(u16::from_ne_bytes).map(i64::from),
        Word(at) => array(bytes, at).map(u32::from_ne_bytes).map(i64::from),
        Long(at) => array(bytes, at).map(u64::from_ne_bytes).map(u64::cast_signed),
        Rate(at) => array(bytes, at).map(u64::from_ne_bytes).map(rate_bps),
    }
}

/// Returns a bit field; its first bit is the lowest, but on machines with the highest byte first.
fn bits(byte: u8, shift: u32, mask: u8) -> u8 {
    let width = mask.count_ones();
    let shift = if cfg!(target_endian = "big") { u8::BITS - width - shift } else { shift };
    (byte >> shift) & mask
}

fn rate_bps(bytes_a_second: u64) -> i64 {
    if bytes_a_second == u64::MAX { -1 } else { bytes_a_second.saturating_mul(8).min(i64::MAX as u64).cast_signed() }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_record::tcp_readings::info_names;

    use super::*;

    fn place_of(name: &str) -> usize {
        info_names().position(|column| column == name).expect("a column of that name")
    }

    #[test]
    fn values_stand_under_their_names() {
        // As Linux 6.18 has it, by its type information: offsetof, and a number that no other value has.
        let known = [
            ("rto_us", 8, 4),
            ("packets_out", 24, 4),
            ("pmtu_bytes", 60, 4),
            ("srtt_us", 68, 4),
            ("snd_cwnd", 80, 4),
            ("rcv_space_bytes", 96, 4),
            ("acked_bytes", 120, 8),
            ("not_sent_bytes", 144, 4),
            ("rtt_min_us", 148, 4),
            ("busy_us", 168, 8),
            ("delivered", 192, 4),
            ("sent_bytes", 200, 8),
            ("snd_wnd_bytes", 228, 4),
            ("rcv_wnd_bytes", 232, 4),
            ("total_rto", 240, 2),
            ("received_ce", 248, 4),
            ("received_ce_bytes", 272, 4),
            ("accecn_opt_seen", 278, 2),
        ];
        for (name, offset, width) in known {
            let mut bytes = [0_u8; 280];
            bytes[offset..offset + width].fill(0x11);
            let values = decode(&bytes);
            let expected = (0..width).fold(0, |value, _| value << 8 | 0x11);
            assert_eq!(values[place_of(name)], Some(expected), "{name}");
            assert_eq!(values.iter().filter(|value| **value != Some(0)).count(), 1, "{name} and another");
        }
    }

    #[test]
    fn bit_fields_and_rates_have_their_meaning() {
        let mut bytes = [0_u8; 280];
        (bytes[6], bytes[7]) = (0x97, 0b101);
        bytes[104..112].copy_from_slice(&1_000_u64.to_ne_bytes());
        bytes[112..120].fill(0xff);
        let values = decode(&bytes);
        let value = |name| values[place_of(name)];
        assert_eq!((value("snd_wscale"), value("rcv_wscale")), (Some(7), Some(9)));
        assert_eq!((value("app_limited"), value("fastopen_client_fail")), (Some(1), Some(2)));
        assert_eq!((value("pacing_rate_bps"), value("max_pacing_rate_bps")), (Some(8_000), Some(-1)));
    }

    proptest! {
        #[test]
        fn a_shorter_structure_lacks_the_end_and_no_more(length in 0_usize..=ROOM_BYTES) {
            let values = decode(&vec![0x22; length]);
            let there = values.iter().take_while(|value| value.is_some()).count();
            prop_assert!(values[there..].iter().all(Option::is_none));
            prop_assert_eq!(there == INFO, length >= 280);
        }
    }
}
