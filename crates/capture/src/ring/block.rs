//! Parses a block of a ring: `struct tpacket_block_desc`, and for each frame a `struct tpacket3_hdr`, a `struct
//! sockaddr_ll` and a `struct virtio_net_hdr`. Bytes in, values out; invalid frames are counted.

use sojourn_port::pcap::Direction;
use sojourn_time::Time;
use sojourn_wire::stream::TAG_BYTES;

use crate::undone::Undone;

const COUNT_AT: usize = 12;
const FIRST_AT: usize = 16;
const ADDRESS_AT: usize = 48;
const KIND_AT: usize = ADDRESS_AT + 10;
const UNDONE_BYTES: usize = 10;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A frame as copied by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Its bytes, with tag and checksum as on the wire.
    pub frame: &'a [u8],
    /// Its original length, with its tag.
    pub length: usize,
    /// The timestamp: on `CLOCK_REALTIME`, or by the interface on its own clock.
    pub at: Time,
    /// The source of the timestamp.
    pub stamped: Stamped,
    /// Its direction.
    pub direction: Direction,
    /// Whether it is a super-frame.
    pub is_super: bool,
}

/// The source of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamped {
    /// The interface.
    Interface,
    /// The kernel: when it received the frame or passed it to the driver, else when it copied it.
    Kernel,
}

/// Passes the frames of a block to `show`, in order, and returns the number of valid ones and the number of invalid
/// ones.
pub fn each(block: &[u8], scratch: &mut Vec<u8>, mut show: impl FnMut(&Copied<'_>)) -> (usize, usize) {
    let [count, first] = [COUNT_AT, FIRST_AT].map(|at| word(block, at).unwrap_or(0) as usize);
    let mut at = first;
    for nth in 0..count {
        let Some(next) = word(block, at).map(|next| next as usize) else { return (nth, count - nth) };
        match copied(block.get(at..).unwrap_or_default(), scratch) {
            Some(copied) => show(&copied),
            None => return (nth, count - nth),
        }
        if next < ADDRESS_AT && nth + 1 < count {
            // The next one would begin in this one's header; a frame that leads to itself would be read without end.
            return (nth + 1, count - nth - 1);
        }
        at = at.saturating_add(next);
    }
    (count, 0)
}

/// Parses one frame, beginning with its header.
fn copied<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Copied<'a>> {
    let [seconds, nanos, kept, length, status] = [4, 8, 12, 16, 20].map(|at| word(bytes, at));
    let (kept, length, status) = (kept? as usize, length? as usize, status?);
    let start = usize::from(half(bytes, 24)?);
    let undone = undone(bytes.get(start.checked_sub(UNDONE_BYTES)?..start)?)?;
    let frame = bytes.get(start..start.checked_add(kept)?)?;
    let direction = if *bytes.get(KIND_AT)? == libc::PACKET_OUTGOING { Direction::Out } else { Direction::In };
    let tag = tag(bytes, status);
    let is_interface = status & libc::TP_STATUS_TS_RAW_HARDWARE != 0;
    Some(Copied {
        frame: undone.finish(frame, length, tag, scratch),
        length: length + tag.map_or(0, |_| TAG_BYTES),
        at: Time(i64::from(seconds?) * NANOS_PER_SECOND + i64::from(nanos?)),
        stamped: if is_interface { Stamped::Interface } else { Stamped::Kernel },
        direction,
        is_super: undone.is_super,
    })
}

/// The tag that the kernel removed: TPID and TCI, as on the wire.
fn tag(bytes: &[u8], status: u32) -> Option<[u8; TAG_BYTES]> {
    let both = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
    let [control, kind] = [half(bytes, 32)?, half(bytes, 36)?].map(u16::to_be_bytes);
    (status & both == both).then_some([kind[0], kind[1], control[0], control[1]])
}

/// Parses a `struct virtio_net_hdr`.
fn undone(bytes: &[u8]) -> Option<Undone> {
    const NEEDS_CHECKSUM: u8 = 1;
    let [flags, kind] = *bytes.first_chunk()?;
    let [start, offset] = [half(bytes, 6)?, half(bytes, 8)?].map(usize::from);
    Some(Undone { checksum: (flags & NEEDS_CHECKSUM != 0).then_some((start, offset)), is_super: kind != 0 })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a frame as the kernel stores it, padded to the start of the next one.
    fn laid(frame: &[u8], length: u32, status: u32, kind: u8, undone: [u8; 10], tag: [u16; 2]) -> Vec<u8> {
        let mut bytes = vec![0; 96];
        let start = 96_u16;
        bytes.extend_from_slice(frame);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let words = [bytes.len() as u32, 7, 5, frame.len() as u32, length, status];
        for (target, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *target = word.to_ne_bytes();
        }
        bytes[24..26].copy_from_slice(&start.to_ne_bytes());
        bytes[32..36].copy_from_slice(&u32::from(tag[1]).to_ne_bytes());
        bytes[36..38].copy_from_slice(&tag[0].to_ne_bytes());
        bytes[KIND_AT] = kind;
        bytes[86..96].copy_from_slice(&undone);
        bytes
    }

    fn block(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        bytes[FIRST_AT..FIRST_AT + 4].copy_from_slice(&48_u32.to_ne_bytes());
        frames.iter().for_each(|frame| bytes.extend_from_slice(frame));
        bytes
    }

    fn read(block: &[u8]) -> Vec<(Vec<u8>, usize, Time, Stamped, Direction, bool)> {
        let mut seen = Vec::new();
        each(block, &mut Vec::new(), |it| {
            seen.push((it.frame.to_vec(), it.length, it.at, it.stamped, it.direction, it.is_super))
        });
        seen
    }

    #[test]
    fn frames_are_read_in_order_with_the_source_of_their_timestamp() {
        let frame: Vec<u8> = (0..60).collect();
        let incoming = laid(&frame, 60, libc::TP_STATUS_TS_RAW_HARDWARE, 0, [0; 10], [0; 2]);
        let outgoing = laid(&frame[..20], 60, libc::TP_STATUS_TS_SOFTWARE, libc::PACKET_OUTGOING, [0; 10], [0; 2]);
        let at = Time(7_000_000_005);
        let expected = [
            (frame.clone(), 60, at, Stamped::Interface, Direction::In, false),
            (frame[..20].to_vec(), 60, at, Stamped::Kernel, Direction::Out, false),
        ];
        assert_eq!(read(&block(&[incoming, outgoing])), expected);
    }

    #[test]
    fn vlan_tag_and_checksum_are_restored_as_on_the_wire() {
        let mut frame = vec![0; 60];
        frame[20..24].copy_from_slice(&[1, 2, 3, 4]);
        let [start, offset] = [20_u16, 10].map(u16::to_ne_bytes);
        let undone = [1, 0, 0, 0, 0, 0, start[0], start[1], offset[0], offset[1]];
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let seen = read(&block(&[laid(&frame, 60, status, 0, undone, [0x8100, 10])]));
        assert_eq!((seen[0].1, &seen[0].0[12..16]), (64, &[0x81, 0, 0, 10][..]));
        assert_eq!(seen[0].0[34..36], (!0x0406_u16).to_be_bytes());
    }

    #[test]
    fn super_frame_is_flagged_and_its_checksum_is_not_completed() {
        let frame = vec![7; 100];
        let seen = read(&block(&[laid(&frame, 100, 0, 0, [1, 1, 0, 0, 0, 0, 20, 0, 10, 0], [0; 2])]));
        assert_eq!((seen[0].0.clone(), seen[0].5), (frame, true));
    }

    #[test]
    fn malformed_records_are_counted() {
        let whole = laid(&[0; 60], 60, 0, 0, [0; 10], [0; 2]);
        let mut bad = whole.clone();
        bad[12..16].copy_from_slice(&9_999_u32.to_ne_bytes());
        assert_eq!(each(&block(&[whole.clone(), bad, whole]), &mut Vec::new(), |_| ()), (1, 2));
    }

    #[test]
    fn block_whose_frame_leads_to_itself_is_read_once() {
        let mut turning = block(&[laid(&[0; 60], 60, 0, 0, [0; 10], [0; 2])]);
        turning[48..52].copy_from_slice(&0_u32.to_ne_bytes());
        assert_eq!(each(&turning, &mut Vec::new(), |_| ()), (1, 0), "the kernel's mark of the last frame");
        turning[COUNT_AT..COUNT_AT + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(each(&turning, &mut Vec::new(), |_| ()), (1, u32::MAX as usize - 1));
    }

    proptest! {
        #[test]
        fn arbitrary_blocks_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), count in 0..4_u32) {
            if bytes.len() > 20 {
                bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_ne_bytes());
                bytes[FIRST_AT..FIRST_AT + 4].copy_from_slice(&(count % 64).to_ne_bytes());
            }
            let (read, bad) = each(&bytes, &mut Vec::new(), |_| ());
            prop_assert!(bytes.len() <= 20 || read + bad == count as usize);
        }
    }
}
