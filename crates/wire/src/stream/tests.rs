//! Stream headers are read as they were written, and arbitrary bytes never panic.

use proptest::prelude::*;
use sojourn_time::{Source, Time};

use super::*;

prop_compose! {
    fn header()(kind in 1..=10_u8, node: u8, flow: u16, key: u64, seq in 0..SEQ_LIMIT, intended: i64, sent: i64) -> StreamHeader {
        let kind = Kind::of(kind).unwrap();
        StreamHeader { kind, node, flow, key: SessionKey(key), seq, intended: Time(intended), sent: Time(sent) }
    }
}

prop_compose! {
    fn link()(d: [u8; 6], s: [u8; 6], is_tagged: bool, vlan in 0..4096_u16, priority in 0..8_u8) -> Link {
        let tag = is_tagged.then_some(Tag { vlan, priority });
        Link { destination: MacAddress(d), source: MacAddress(s), tag }
    }
}

proptest! {
    #[test]
    fn headers_round_trip(header in header(), rest: Vec<u8>) {
        let mut payload = header.to_bytes().to_vec();
        payload.extend(rest);
        prop_assert_eq!(StreamHeader::read(&payload), Ok(header));
    }

    #[test]
    fn any_damaged_byte_is_noticed(header in header(), at in 4..HEADER_BYTES, by in 1..=255_u8) {
        let mut payload = header.to_bytes();
        payload[at] ^= by;
        let read = StreamHeader::read(&payload);
        prop_assert!(matches!(read, Err(Unread::Damaged { .. })), "{:?}", read);
    }

    #[test]
    fn keys_that_differ_in_one_byte_are_near(key: u64, at in 0..64, by in 1..=255_u64, other: u64) {
        let damaged = key ^ by << (at / 8 * 8);
        prop_assert!(SessionKey(key).is_near(SessionKey(key)) && SessionKey(key).is_near(SessionKey(damaged)));
        let differing = (key ^ other).to_be_bytes().iter().filter(|byte| **byte != 0).count();
        prop_assert_eq!(SessionKey(key).is_near(SessionKey(other)), differing <= 1);
        prop_assert!(!SessionKey(key).is_near(SessionKey(damaged ^ 1_u64 << ((at + 8) % 64))));
    }

    #[test]
    fn greetings_round_trip_with_cookie_and_message(cookie: u64, word in 0..6_usize, cut in 0..GREETING_BYTES) {
        use GreetingWord::{Accepted, Again, Greet, Keyed, NoSuchFlow, Taken};
        let tail = GreetingTail { cookie, word: [Greet, Again, Accepted, Taken, NoSuchFlow, Keyed][word] };
        let mut payload = [0xFF; GREETING_BYTES];
        tail.write(&mut payload);
        prop_assert_eq!(GreetingTail::read(&payload), Some(tail));
        prop_assert_eq!(GreetingTail::read(&payload[..cut]), None);
        payload[GREETING_BYTES - 1] = 6;
        prop_assert_eq!(GreetingTail::read(&payload), None);
    }

    /// Headers with valid magic and check, which random bytes never reach.
    #[test]
    fn any_header_with_a_valid_crc_round_trips(
        mut bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES..120), kind in 1..=10_u8,
    ) {
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = kind;
        with_right_check(&mut bytes);
        let header = StreamHeader::read(&bytes).expect("its check is right");
        prop_assert_eq!(&header.to_bytes()[..], &bytes[..HEADER_BYTES]);
        let _ = (SyncTail::read(&bytes), GreetingTail::read(&bytes), end_text(&bytes), is_intact(&bytes));
    }

    #[test]
    fn frame_assembly_and_splitting_round_trip(link in link(), payload: Vec<u8>) {
        let mut frame = vec![0; link.header_bytes()];
        link.write(&mut frame);
        frame.extend(&payload);
        prop_assert_eq!(Link::split(&frame), Some((link, payload.as_slice())));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, header in header(), link in link()) {
        let _ = (StreamHeader::read(&bytes), Link::split(&bytes), SyncTail::read(&bytes), end_text(&bytes));
        let _ = is_intact(&bytes);
        link.write(&mut bytes);
        header.write(&mut bytes);
        fill(&mut bytes);
        prop_assert!(is_intact(&bytes));
    }

    #[test]
    fn any_damaged_byte_of_the_pattern_is_detected(length in HEADER_BYTES + 1..9000_usize, at: prop::sample::Index, by in 1..=255_u8) {
        let mut payload = vec![0; length];
        fill(&mut payload);
        prop_assert!(is_intact(&payload));
        payload[HEADER_BYTES + at.index(length - HEADER_BYTES)] ^= by;
        prop_assert!(!is_intact(&payload));
    }

    #[test]
    fn clock_exchanges_carry_clock_and_source(clock in 0..1_u64 << 48, source in 0..4_usize, follows_up: bool) {
        let source = Source::ALL[source];
        let mut payload = [0; SYNC_BYTES];
        SyncTail { clock, source, follows_up }.write(&mut payload);
        prop_assert_eq!(SyncTail::read(&payload), Some(SyncTail { clock, source, follows_up }));
    }
}

/// Corrects the check of a header with any contents.
fn with_right_check(bytes: &mut [u8]) {
    let head: [u8; HEADER_BYTES] = *bytes.first_chunk().unwrap();
    let check = if head[4] == Kind::Live as u8 {
        // The exclusive or of the words as on the wire, without the magic and with a 48-bit sequence number.
        let words = [&head[4..16], &[0, 0], &head[16..CHECKED_BYTES]].concat();
        words
            .chunks(4)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
            .fold(0, |all, word| all ^ word)
    } else {
        crc32(&head[..CHECKED_BYTES])
    };
    bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&check.to_be_bytes());
}

#[test]
fn payload_pattern_is_as_documented() {
    let mut payload = vec![0; 3000];
    fill(&mut payload);
    for (i, byte) in payload.iter().enumerate().skip(HEADER_BYTES) {
        assert_eq!(*byte, ((i * 167 + 13) & 0xFF) as u8);
    }
    assert!(payload[..HEADER_BYTES].iter().all(|byte| *byte == 0));
}

#[test]
fn foreign_frames_are_not_parsed_as_stream_frames() {
    let probe = ethernet::Header {
        destination: MacAddress::default(),
        source: MacAddress::default(),
        ethertype: ethernet::PROBE_ETHERTYPE,
    };
    assert_eq!(Link::split(&probe.to_bytes()), None);
    assert_eq!(StreamHeader::read(&[0; HEADER_BYTES]), Err(Unread::Foreign));
    assert_eq!(StreamHeader::read(b"SOJ3"), Err(Unread::Foreign));
}

#[test]
fn two_vlan_tags_are_skipped() {
    let mut frame = vec![0; 12];
    frame.extend([0x88, 0xA8, 0x00, 0x05, 0x81, 0x00, 0xA0, 0x07, 0x88, 0xB6, 1, 2, 3]);
    let (link, payload) = Link::split(&frame).unwrap();
    assert_eq!(link.tag, Some(Tag { vlan: 7, priority: 5 }));
    assert_eq!(payload, [1, 2, 3]);
}

#[test]
fn text_of_an_end_message_has_no_padding() {
    let mut payload = vec![0; 60];
    payload[HEADER_BYTES..HEADER_BYTES + 10].copy_from_slice(b"{\"sent\":1}");
    assert_eq!(end_text(&payload), Some("{\"sent\":1}"));
}

#[test]
fn every_kind_has_the_number_of_its_place() {
    for (place, kind) in (1..).zip(Kind::ALL) {
        assert_eq!((kind as u8, Kind::of(place)), (place, Some(kind)));
    }
    assert_eq!((Kind::of(0), Kind::of(11)), (None, None));
}
