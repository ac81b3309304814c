//! Parses a record of `bpf/tap.bpf.c`. Bytes in, values out.

use sojourn_port::pcap::Direction;
use sojourn_time::Time;
use sojourn_wire::stream::TAG_BYTES;

use crate::undone::Undone;

/// `struct passed`.
const HEADER_BYTES: usize = 32;
const SENT: u32 = 1;
const SUPER: u32 = 2;
const TAGGED: u32 = 4;
const UNSUMMED: u32 = 8;

/// A frame as copied by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Its bytes, with tag and checksum as on the wire.
    pub frame: &'a [u8],
    /// Its original length, with its tag.
    pub length: usize,
    /// When it passed, on `CLOCK_TAI`.
    pub at: Time,
    /// Its direction.
    pub direction: Direction,
    /// Whether it is a super-frame.
    pub is_super: bool,
}

/// Parses a record; `None` where it is invalid.
pub fn read<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Copied<'a>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [length, kept, flags] = [8, 12, 24].map(|at| word(header, at));
    let (length, frame) = (length as usize, rest.get(..kept as usize)?);
    let half = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    // The TPID is in network byte order already.
    let control = u16::from_ne_bytes([header[18], header[19]]).to_be_bytes();
    let tag: Option<[u8; TAG_BYTES]> =
        (flags & TAGGED != 0).then_some([header[16], header[17], control[0], control[1]]);
    let undone =
        Undone { checksum: (flags & UNSUMMED != 0).then(|| (half(20), half(22))), is_super: flags & SUPER != 0 };
    let at = header.first_chunk::<8>().map_or(0, |at| i64::from_ne_bytes(*at));
    Some(Copied {
        frame: undone.finish(frame, length, tag, scratch),
        length: length + tag.map_or(0, |_| TAG_BYTES),
        at: Time(at),
        direction: if flags & SENT != 0 { Direction::Out } else { Direction::In },
        is_super: undone.is_super,
    })
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    header[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(at: u64, [length, kept, flags]: [u32; 3], [control, from, sum_at]: [u16; 3], frame: &[u8]) -> Vec<u8> {
        let words = [length, kept].map(u32::to_ne_bytes).concat();
        let halves = [control, from, sum_at].map(u16::to_ne_bytes).concat();
        let flags = [flags, 0].map(u32::to_ne_bytes).concat();
        [&at.to_ne_bytes()[..], &words, &[0x81, 0x00], &halves, &flags, frame].concat()
    }

    #[test]
    fn record_is_parsed_in_the_layout_that_the_bpf_program_writes() {
        let frame: Vec<u8> = (0..64).collect();
        let scratch = &mut Vec::new();
        let plain = record(2003, [1_000, 60, SENT | SUPER], [0; 3], &frame);
        let told = read(&plain, scratch).expect("a record");
        assert_eq!((told.frame, told.length, told.at), (&frame[..60], 1_000, Time(2003)));
        assert_eq!((told.direction, told.is_super), (Direction::Out, true));
    }

    #[test]
    fn vlan_tag_removed_by_the_kernel_is_reinserted() {
        let bytes = record(1, [60, 60, TAGGED], [0x2007, 0, 0], &[0xAB; 64]);
        let scratch = &mut Vec::new();
        let told = read(&bytes, scratch).expect("a record");
        assert_eq!((told.frame.len(), told.length, told.direction), (64, 64, Direction::In));
        assert_eq!(told.frame[12..16], [0x81, 0x00, 0x20, 0x07]);
    }

    #[test]
    fn partial_checksum_is_completed_if_the_frame_is_not_truncated() {
        // Words that sum to 0x0304 + 0x0506; the complement goes into the field after them.
        let frame = [&[0; 34][..], &[3, 4, 5, 6, 0, 0]].concat();
        let scratch = &mut Vec::new();
        let whole = record(1, [40, 40, UNSUMMED], [0, 34, 4], &frame);
        let told = read(&whole, scratch).expect("a record");
        assert_eq!(told.frame[38..], (!0x080A_u16).to_be_bytes());
        let cut = record(1, [90, 40, UNSUMMED], [0, 34, 4], &frame);
        assert_eq!(read(&cut, &mut Vec::new()).expect("a record").frame, frame);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let scratch = &mut Vec::new();
            if let Some(told) = read(&bytes, scratch) {
                prop_assert!(told.frame.len() <= bytes.len() - HEADER_BYTES + TAG_BYTES);
            }
        }
    }
}
