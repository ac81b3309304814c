//! Written files can be read back; arbitrary bytes never panic.

use proptest::prelude::*;
use sojourn_time::Time;

use super::*;

/// Returns every frame of a file, and the error that ended it.
fn read_all(bytes: &[u8]) -> (Vec<(Time, Vec<u8>)>, Option<PcapError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    let mut frame = Vec::new();
    loop {
        match reader.next(&mut frame) {
            Ok(Some(record)) => frames.push((record.at, frame.clone())),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

fn written(frames: &[(Time, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for (at, frame) in frames {
        writer.write(*at, frame).unwrap();
    }
    writer.finish().unwrap()
}

prop_compose! {
    fn frame()(at in 0..4_000_000_000_000_000_000_i64, bytes in proptest::collection::vec(any::<u8>(), 0..200))
        -> (Time, Vec<u8>)
    {
        (Time(at), bytes)
    }
}

proptest! {
    #[test]
    fn frames_round_trip_through_the_file(frames in proptest::collection::vec(frame(), 0..20)) {
        let (read, error) = read_all(&written(&frames));
        prop_assert_eq!(read, frames);
        prop_assert!(error.is_none());
    }

    #[test]
    fn truncated_file_gives_its_complete_frames(frames in proptest::collection::vec(frame(), 1..10), cut in 1..1000_usize) {
        let bytes = written(&frames);
        let length = bytes.len().saturating_sub(cut);
        let (read, error) = read_all(&bytes[..length]);
        prop_assert!(frames.starts_with(&read));
        prop_assert!(read.len() < frames.len());
        if let Some(error) = error {
            prop_assert!(matches!(error, PcapError::Truncated { .. } | PcapError::Read(_)), "{}", error);
        }
    }

    #[test]
    fn damaged_files_never_panic(frames in proptest::collection::vec(frame(), 0..5), at: usize, by: u8) {
        let mut bytes = written(&frames);
        let at = at % bytes.len();
        bytes[at] ^= by;
        read_all(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(magic in 0..4_usize, rest: Vec<u8>) {
        let magic = [[0xA1, 0xB2, 0xC3, 0xD4], [0x4D, 0x3C, 0xB2, 0xA1], [0x0A, 0x0D, 0x0D, 0x0A], [0; 4]][magic];
        let mut bytes = magic.to_vec();
        bytes.extend(rest);
        read_all(&bytes);
    }
}

#[test]
fn microsecond_resolution_and_the_other_byte_order_are_parsed() {
    let mut bytes = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0002_0004, 0, 0, 65_535, 1, 10, 999_999, 2, 60] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend([7, 8]);
    let (frames, error) = read_all(&bytes);
    assert_eq!(frames, [(Time(10_999_999_000), vec![7, 8])]);
    assert!(error.is_none());
}

#[test]
fn frame_above_the_maximum_length_is_damage_and_allocates_no_memory() {
    for (length, is_damage) in [(LONGEST_FRAME_BYTES, false), (LONGEST_FRAME_BYTES + 1, true), (u32::MAX, true)] {
        let words = [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, u32::MAX, 1, 10, 0, length, length];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let mut frame = Vec::new();
        let error = reader.next(&mut frame).unwrap_err();
        assert_eq!(matches!(error, PcapError::Damaged { number: 1 }), is_damage, "{length}: {error}");
        assert_eq!(matches!(error, PcapError::Truncated { number: 1 }), !is_damage, "{length}: {error}");
        assert!(frame.capacity() <= 2 * LONGEST_FRAME_BYTES as usize);
    }
}

#[test]
fn unreadable_files_are_named() {
    let header = |magic: u32, link: u32| -> Vec<u8> {
        [magic, 0, 0, 0, 0, link].iter().flat_map(|word| word.to_le_bytes()).collect()
    };
    assert!(matches!(Reader::new([].as_slice()), Err(PcapError::Truncated { number: 0 })));
    assert!(matches!(Reader::new(header(0xA1B2_C3D4, 113).as_slice()), Err(PcapError::LinkType(113))));
    assert!(matches!(Reader::new(header(0x0A0D_0D0A, 1).as_slice()), Err(PcapError::Pcapng)));
    assert!(matches!(Reader::new(header(0x1234_5678, 1).as_slice()), Err(PcapError::Magic(_))));
}
