//! Packets byte by byte as in the diagrams of RFC 8762 (§§4.2.1, 4.2.2, 4.3.1, 4.3.2), with RFC 8972's SSID (§3).

use proptest::prelude::*;

use super::*;

fn key() -> Key {
    Key::new(&[0x0B; 20]).expect("long enough")
}

const ESTIMATE: ErrorEstimate = ErrorEstimate(0x8A07);
const SENT: Sent = Sent { seq: 0x0102_0304, timestamp: 0x1112_1314_1516_1718, error: ESTIMATE, ssid: 0x2122 };
const REFLECTED: Reflected = Reflected {
    seq: 0x3132_3334,
    timestamp: 0x4142_4344_4546_4748,
    error: ErrorEstimate(0x4B09),
    ssid: 0x2122,
    receive: 0x5152_5354_5556_5758,
    sender: SENT,
    ttl: 0x61,
};

fn written(bytes: usize, write: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut payload = vec![0xEE; bytes];
    write(&mut payload);
    payload
}

fn diagram(parts: &[(&[u8], usize)]) -> Vec<u8> {
    let padded = |(bytes, zeros): &(&[u8], usize)| [*bytes, &vec![0; *zeros]].concat();
    parts.iter().flat_map(padded).collect()
}

#[test]
fn a_sender_packet_is_as_in_4_2_1() {
    let expected = diagram(&[
        (&[1, 2, 3, 4], 0),
        (&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18], 0),
        (&[0x8A, 7, 0x21, 0x22], 28),
    ]);
    assert_eq!(expected.len(), 44);
    assert_eq!(written(44, |payload| SENT.write(payload, None)), expected);
    assert_eq!(Sent::read(&expected, None), Ok(SENT));
}

#[test]
fn an_authenticated_sender_packet_is_as_in_4_2_2() {
    let covered = diagram(&[
        (&[1, 2, 3, 4], 12),
        (&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18], 0),
        (&[0x8A, 7, 0x21, 0x22], 68),
    ]);
    assert_eq!(covered.len(), 96);
    let expected = [&covered[..], &key().tag(&[&covered])].concat();
    assert_eq!(written(112, |payload| SENT.write(payload, Some(&key()))), expected);
    assert_eq!(Sent::read(&expected, Some(&key())), Ok(SENT));
}

#[test]
fn a_reflector_packet_is_as_in_4_3_1() {
    let expected = diagram(&[
        (&[0x31, 0x32, 0x33, 0x34], 0),
        (&[0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48], 0),
        (&[0x4B, 9, 0x21, 0x22], 0),
        (&[0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58], 0),
        (&[1, 2, 3, 4], 0),
        (&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18], 0),
        (&[0x8A, 7], 2),
        (&[0x61], 3),
    ]);
    assert_eq!(expected.len(), 44);
    assert_eq!(written(44, |payload| REFLECTED.write(payload, None)), expected);
    assert_eq!(Reflected::read(&expected, None), Ok(REFLECTED));
}

#[test]
fn an_authenticated_reflector_packet_is_as_in_4_3_2() {
    let covered = diagram(&[
        (&[0x31, 0x32, 0x33, 0x34], 12),
        (&[0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48], 0),
        (&[0x4B, 9, 0x21, 0x22], 4),
        (&[0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58], 8),
        (&[1, 2, 3, 4], 12),
        (&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18], 0),
        (&[0x8A, 7], 6),
        (&[0x61], 15),
    ]);
    assert_eq!(covered.len(), 96);
    let expected = [&covered[..], &key().tag(&[&covered])].concat();
    assert_eq!(written(112, |payload| REFLECTED.write(payload, Some(&key()))), expected);
    assert_eq!(Reflected::read(&expected, Some(&key())), Ok(REFLECTED));
}

#[test]
fn times_are_written_in_both_timestamp_formats() {
    // 2026-11-23T00:00:00.5 UTC, when TAI was 37 s ahead.
    let time = Time((1_795_392_000 + 37) * SECOND_NS + SECOND_NS / 2);
    let scale = Scale { format: Format::Ntp, tai_offset_s: 37 };
    assert_eq!(scale.write(time), (1_795_392_000 + 2_208_988_800) << 32 | 1 << 31);
    assert_eq!(scale.with(Format::Ptp).write(time), 1_795_392_037 << 32 | 500_000_000);
    // NTP's second era begins on 2036-02-07T06:28:16 UTC: the seconds restart at 0, and reading restores the era.
    let late = Time((2_085_978_496 + 37) * SECOND_NS + 1);
    assert_eq!(scale.write(late) >> 32, 0);
    assert_eq!(scale.read(scale.write(late), Time(late.0 - 3_600 * SECOND_NS)), late);
}

#[test]
fn an_error_estimate_is_never_smaller_than_the_error() {
    let estimate = ErrorEstimate::new(Format::Ptp, true, Nanos::micros(100));
    assert!(estimate.is_synchronised() && estimate.format() == Format::Ptp);
    assert!((100_000..101_000).contains(&estimate.error().0), "{estimate:?}");
    let least = ErrorEstimate::new(Format::Ntp, false, Nanos::ZERO);
    assert_eq!((least.to_bits(), least.is_synchronised(), least.format()), (0x0001, false, Format::Ntp));
    assert_eq!(ErrorEstimate::from_bits(0x3FFF).error(), Nanos(i64::MAX));
}

#[test]
fn extra_bytes_and_tlvs_are_reflected_with_their_flags() {
    let mut payload = written(60, |payload| SENT.write(payload, None));
    assert_eq!(payload[44..48], [0x80, 1, 0, 12]);
    REFLECTED.write(&mut payload, None);
    assert_eq!((payload.len(), &payload[44..48]), (60, &[0, 1, 0, 12][..]));
    // A location TLV, which is not known here, then a TLV longer than the packet.
    payload[44..].copy_from_slice(&[0, 2, 0, 4, 9, 9, 9, 9, 0, 3, 0, 5, 1, 2, 3, 4]);
    REFLECTED.write(&mut payload, None);
    assert_eq!(payload[44..], [0x80, 2, 0, 4, 9, 9, 9, 9, 0x40, 3, 0, 5, 1, 2, 3, 4]);
}

fn sent() -> impl Strategy<Value = Sent> {
    (any::<u32>(), any::<u64>(), any::<u16>(), any::<u16>()).prop_map(|(seq, timestamp, error, ssid)| Sent {
        seq,
        timestamp,
        error: ErrorEstimate(error),
        ssid,
    })
}

proptest! {
    #[test]
    fn packets_round_trip(one in sent(), other in sent(), receive: u64, ttl: u8, more in 0..100_usize, keyed: bool) {
        let key = keyed.then(key);
        let mut payload = vec![0xEE; BASE_BYTES[usize::from(keyed)] + more];
        one.write(&mut payload, key.as_ref());
        prop_assert_eq!(Sent::read(&payload, key.as_ref()), Ok(one));
        let Sent { seq, timestamp, error, ssid } = other;
        let reflected = Reflected { seq, timestamp, error, ssid, receive, sender: Sent { ssid, ..one }, ttl };
        reflected.write(&mut payload, key.as_ref());
        prop_assert_eq!(Reflected::read(&payload, key.as_ref()), Ok(reflected));
    }

    /// Arbitrary bytes with a valid HMAC: every field is read, and nothing panics.
    #[test]
    fn arbitrary_authenticated_packets_are_parsed(mut bytes in prop::collection::vec(any::<u8>(), 112..300)) {
        let tag = key().tag(&[&bytes[..96]]);
        bytes[96..112].copy_from_slice(&tag);
        let one = Sent::read(&bytes, Some(&key()));
        prop_assert!(one.is_ok() && Reflected::read(&bytes, Some(&key())).is_ok());
        Reflected { sender: one.expect("it is read"), ..REFLECTED }.write(&mut bytes, Some(&key()));
        prop_assert!(Reflected::read(&bytes, Some(&key())).is_ok());
    }

    /// A reflector's two times are of one clock, whatever that shows; a sender has zeros in place of the first.
    #[test]
    fn reflected_packet_is_distinguished_from_a_sender_packet(one in sent(), at in 1..4_000_000_000_000_000_000_i64, stay in 0..50_000_000_000_i64, ptp: bool, keyed: bool) {
        let key = keyed.then(key);
        let scale = Scale { format: if ptp { Format::Ptp } else { Format::Ntp }, tai_offset_s: 37 };
        let mut payload = vec![0; BASE_BYTES[usize::from(keyed)]];
        one.write(&mut payload, key.as_ref());
        prop_assert!(!is_reflected(&payload, key.as_ref()));
        let (receive, timestamp) = (scale.write(Time(at)), scale.write(Time(at + stay)));
        Reflected { timestamp, receive, sender: one, ..REFLECTED }.write(&mut payload, key.as_ref());
        prop_assert!(is_reflected(&payload, key.as_ref()));
    }

    #[test]
    fn any_changed_byte_of_an_authenticated_packet_is_noticed(one in sent(), at in 0..112_usize, by in 1..=255_u8) {
        let mut payload = written(112, |payload| one.write(payload, Some(&key())));
        payload[at] ^= by;
        prop_assert_eq!(Sent::read(&payload, Some(&key())), Err(Unread::Unauthenticated));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, keyed: bool) {
        let key = keyed.then(key);
        let _ = (Sent::read(&bytes, key.as_ref()), Reflected::read(&bytes, key.as_ref()), is_reflected(&bytes, key.as_ref()));
        let length = bytes.len();
        REFLECTED.write(&mut bytes, key.as_ref());
        SENT.write(&mut bytes, key.as_ref());
        prop_assert_eq!(bytes.len(), length);
    }

    #[test]
    fn times_round_trip(at in 0..4_000_000_000_000_000_000_i64, ahead in -1_000_000_000_000_000_i64..1_000_000_000_000_000, ptp: bool) {
        let scale = Scale { format: if ptp { Format::Ptp } else { Format::Ntp }, tai_offset_s: 37 };
        prop_assert_eq!(scale.read(scale.write(Time(at)), Time(at + ahead)), Time(at));
    }

    #[test]
    fn arbitrary_timestamps_are_parsed(stamp: u64, near: i64, ptp: bool, estimate: u16) {
        let scale = Scale { format: if ptp { Format::Ptp } else { Format::Ntp }, tai_offset_s: 37 };
        let _ = (scale.read(stamp, Time(near)), ErrorEstimate(estimate).error());
    }

    #[test]
    fn an_estimate_is_within_one_part_in_128(error in 0..4_000_000_000_000_000_000_i64, synchronised: bool) {
        let estimate = ErrorEstimate::new(Format::Ntp, synchronised, Nanos(error));
        let told = estimate.error().0;
        prop_assert!(told >= error - 1 && told <= error + error / 100 + 2, "{} {}", told, error);
        prop_assert_eq!(estimate.is_synchronised(), synchronised);
        prop_assert!(estimate.to_bits() & 0xFF != 0);
    }
}
