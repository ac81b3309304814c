//! Decode the kernel's struct tcp_info (include/uapi/linux/tcp.h) into the columns of `tcp_readings`.
//!
//! An older kernel returns a shorter structure: values that it lacks are absent, never 0.

use sojourn_record::tcp_readings::Info;

/// Larger than any kernel's structure, so that its full length is returned.
pub const ROOM_BYTES: usize = 512;

/// The offset and encoding of a value.
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
    /// Bytes per second; all ones mean no limit.
    Rate(usize),
}

use Place::{Bits, Byte, Half, Long, Rate, Word};

/// Decode a structure, of which the kernel returned these bytes.
pub fn decode(bytes: &[u8]) -> Info {
    let at = |place| value(bytes, place);
    Info {
        state: at(Byte(0)),
        ca_state: at(Byte(1)),
        retransmits: at(Byte(2)),
        probes_out: at(Byte(3)),
        backoff: at(Byte(4)),
        options: at(Byte(5)),
        snd_wscale: at(Bits { at: 6, shift: 0, mask: 15 }),
        rcv_wscale: at(Bits { at: 6, shift: 4, mask: 15 }),
        app_limited: at(Bits { at: 7, shift: 0, mask: 1 }),
        fastopen_client_fail: at(Bits { at: 7, shift: 1, mask: 3 }),
        rto_us: at(Word(8)),
        ato_us: at(Word(12)),
        mss_bytes: at(Word(16)),
        rcv_mss_bytes: at(Word(20)),
        packets_out: at(Word(24)),
        sacked_out: at(Word(28)),
        lost_out: at(Word(32)),
        retrans_out: at(Word(36)),
        fackets: at(Word(40)),
        last_data_sent_ms: at(Word(44)),
        last_ack_sent_ms: at(Word(48)),
        last_data_received_ms: at(Word(52)),
        last_ack_received_ms: at(Word(56)),
        pmtu_bytes: at(Word(60)),
        rcv_ssthresh_bytes: at(Word(64)),
        srtt_us: at(Word(68)),
        mdev_us: at(Word(72)),
        snd_ssthresh: at(Word(76)),
        snd_cwnd: at(Word(80)),
        advmss_bytes: at(Word(84)),
        reordering: at(Word(88)),
        rcv_rtt_us: at(Word(92)),
        rcv_space_bytes: at(Word(96)),
        total_retrans: at(Word(100)),
        pacing_rate_bps: at(Rate(104)),
        max_pacing_rate_bps: at(Rate(112)),
        acked_bytes: at(Long(120)),
        received_bytes: at(Long(128)),
        segs_out: at(Word(136)),
        segs_in: at(Word(140)),
        not_sent_bytes: at(Word(144)),
        rtt_min_us: at(Word(148)),
        data_segs_in: at(Word(152)),
        data_segs_out: at(Word(156)),
        delivery_rate_bps: at(Rate(160)),
        busy_us: at(Long(168)),
        receiver_limited_us: at(Long(176)),
        buffer_limited_us: at(Long(184)),
        delivered: at(Word(192)),
        delivered_ce: at(Word(196)),
        sent_bytes: at(Long(200)),
        retransmitted_bytes: at(Long(208)),
        dsack_dups: at(Word(216)),
        reord_seen: at(Word(220)),
        rcv_ooopack: at(Word(224)),
        snd_wnd_bytes: at(Word(228)),
        rcv_wnd_bytes: at(Word(232)),
        rehash: at(Word(236)),
        total_rto: at(Half(240)),
        total_rto_recoveries: at(Half(242)),
        total_rto_time_ms: at(Word(244)),
        received_ce: at(Word(248)),
        delivered_e1_bytes: at(Word(252)),
        delivered_e0_bytes: at(Word(256)),
        delivered_ce_bytes: at(Word(260)),
        received_e1_bytes: at(Word(264)),
        received_e0_bytes: at(Word(268)),
        received_ce_bytes: at(Word(272)),
        accecn_fail_mode: at(Half(276)),
        accecn_opt_seen: at(Half(278)),
    }
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

/// Return a bit field; its first bit is the lowest, on big-endian machines the highest.
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

    use super::*;

    /// Return names and values in order, as `{:?}` prints them.
    fn told(info: &Info) -> Vec<(String, String)> {
        let shown = format!("{info:?}");
        let values = shown.trim_start_matches("Info { ").trim_end_matches(" }").split(", ");
        values.filter_map(|value| value.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn tcp_info_fields_are_decoded_under_their_names() {
        // From the type information of Linux 6.18: name, offset, size; each field gets a unique number.
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
            let expected = (0..width).fold(0_u64, |value, _| value << 8 | 0x11);
            let values = told(&decode(&bytes));
            let others: Vec<_> = values.into_iter().filter(|(_, value)| value != "Some(0)").collect();
            assert_eq!(others, [(name.to_owned(), format!("Some({expected})"))]);
        }
    }

    #[test]
    fn bit_fields_and_rates_are_decoded() {
        let mut bytes = [0_u8; 280];
        (bytes[6], bytes[7]) = (0x97, 0b101);
        bytes[104..112].copy_from_slice(&1_000_u64.to_ne_bytes());
        bytes[112..120].fill(0xff);
        let values = decode(&bytes);
        assert_eq!((values.snd_wscale, values.rcv_wscale), (Some(7), Some(9)));
        assert_eq!((values.app_limited, values.fastopen_client_fail), (Some(1), Some(2)));
        assert_eq!((values.pacing_rate_bps, values.max_pacing_rate_bps), (Some(8_000), Some(-1)));
    }

    proptest! {
        #[test]
        fn shorter_tcp_info_lacks_only_its_last_fields(length in 0_usize..=ROOM_BYTES) {
            let values = told(&decode(&vec![0x22; length]));
            let there = values.iter().take_while(|(_, value)| value != "None").count();
            prop_assert!(values[there..].iter().all(|(_, value)| value == "None"));
            prop_assert_eq!(there == values.len(), length >= 280);
        }
    }
}
