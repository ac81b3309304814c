//! Splits super-frames, which the kernel passes as one packet (GSO), into the frames of the wire, as an interface
//! would.
//!
//! Handles TCP and UDP over IPv4 and IPv6, with tags and extension headers. Each frame is complete: it has its own
//! lengths, identification, sequence number, flags and checksums.

use crate::checksum::internet;
use crate::layers::{Layers, protocol};
use crate::offload::renew;

const UDP_HEADER_BYTES: usize = 8;
const TCP_HEADER_BYTES: usize = 20;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Splits a frame into frames with at most `most` bytes of TCP or UDP user data each, builds each in `scratch` and
/// passes it to `each`. Returns their number; `None` where the frame is no TCP or UDP packet, or is a fragment.
pub fn split(frame: &[u8], most: usize, scratch: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) -> Option<usize> {
    let layers = Layers::of(frame);
    let start = layers.transport.filter(|_| !layers.is_fragment && most > 0)?;
    let header = match layers.protocol {
        protocol::TCP => usize::from(frame.get(start + 12)? >> 4).max(TCP_HEADER_BYTES / 4) * 4,
        protocol::UDP => UDP_HEADER_BYTES,
        _ => return None,
    };
    let (headers, payload) = frame[..layers.end].split_at_checked(start + header)?;
    let pieces = payload.len().div_ceil(most).max(1);
    for nth in 0..pieces {
        let piece = &payload[nth * most..payload.len().min((nth + 1) * most)];
        scratch.clear();
        scratch.extend_from_slice(headers);
        scratch.extend_from_slice(piece);
        let place = Place { nth, skipped: nth * most, is_last: nth + 1 == pieces };
        if write(scratch, place, start).is_none() {
            return (nth > 0).then_some(nth);
        }
        each(scratch);
    }
    Some(pieces)
}

/// The position of a segment in its super-frame.
#[derive(Clone, Copy)]
struct Place {
    nth: usize,
    skipped: usize,
    is_last: bool,
}

/// Completes the headers of a segment, which holds the super-frame's headers and a piece of its user data.
fn write(frame: &mut [u8], place: Place, start: usize) -> Option<()> {
    let network = Layers::of(&frame[..start]).network;
    let packet = u16::try_from(frame.len() - network).ok()?;
    if frame[network] >> 4 == 4 {
        frame[network + 2..network + 4].copy_from_slice(&packet.to_be_bytes());
        add(&mut frame[network + 4..network + 6], place.nth as u16);
        frame[network + 10..network + 12].fill(0);
        let header = usize::from(frame[network] & 0xF) * 4;
        let sum = internet(&frame[network..network + header]);
        frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame[network + 4..network + 6].copy_from_slice(&(packet - 40).to_be_bytes());
    }
    let layers = Layers::of(frame);
    layers.transport.filter(|at| *at == start)?;
    if layers.protocol == protocol::UDP {
        let length = (frame.len() - start) as u16;
        frame[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
        renew(frame, &layers, start, start + 6);
        return Some(());
    }
    let seq: [u8; 4] = *frame.get(start + 4..)?.first_chunk()?;
    let seq = u32::from_be_bytes(seq).wrapping_add(place.skipped as u32);
    frame[start + 4..start + 8].copy_from_slice(&seq.to_be_bytes());
    // Only the last segment keeps FIN and PSH, only the first keeps CWR (RFC 3168 §6.1.2).
    let kept = !(if place.is_last { 0 } else { FIN | PSH } | if place.nth == 0 { 0 } else { CWR });
    frame[start + 13] &= kept;
    renew(frame, &layers, start, start + 16);
    Some(())
}

fn add(word: &mut [u8], number: u16) {
    if let [high, low] = word {
        [*high, *low] = u16::from_be_bytes([*high, *low]).wrapping_add(number).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::offload::tests::{is_right, packet};

    fn pieces(frame: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let count = split(frame, most, &mut Vec::new(), &mut |piece| pieces.push(piece.to_vec())).expect("splits");
        assert_eq!(count, pieces.len());
        pieces
    }

    fn user_data(frame: &[u8]) -> &[u8] {
        let layers = Layers::of(frame);
        let header = if layers.protocol == protocol::TCP { TCP_HEADER_BYTES } else { UDP_HEADER_BYTES };
        &frame[layers.transport.expect("a transport header") + header..layers.end]
    }

    #[test]
    fn super_frame_is_split_into_segments_in_sequence() {
        let payload: Vec<u8> = (0..250).map(|n| n as u8).collect();
        let mut whole = packet(false, protocol::TCP, &payload);
        whole[47] = FIN | PSH | CWR | 0x10;
        let pieces = pieces(&whole, 100);
        assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [154, 154, 104]);
        assert_eq!(pieces.concat().len(), 3 * 54 + 250);
        assert_eq!(pieces.iter().flat_map(|piece| user_data(piece)).copied().collect::<Vec<_>>(), payload);
        let byte = |at: usize| pieces.iter().map(|piece| piece[at]).collect::<Vec<_>>();
        assert_eq!(byte(41), [9, 109, 209], "sequence numbers");
        assert_eq!(byte(47), [CWR | 0x10, 0x10, FIN | PSH | 0x10], "flags");
        assert_eq!(byte(19), [1, 2, 3], "identification");
        assert_eq!(byte(17), [140, 140, 90], "length");
        for piece in &pieces {
            assert!(is_right(piece));
            assert_eq!(internet(&piece[14..34]), 0);
        }
    }

    #[test]
    fn ordinary_frames_are_not_segmented() {
        let mut frame = packet(false, 1, &[0; 100]);
        assert_eq!(split(&frame, 10, &mut Vec::new(), &mut |_| {}), None);
        frame = packet(false, protocol::UDP, &[0; 100]);
        frame[20] = 0x20;
        assert_eq!(split(&frame, 10, &mut Vec::new(), &mut |_| {}), None);
        assert_eq!(pieces(&packet(true, protocol::TCP, &[]), 10).len(), 1);
    }

    proptest! {
        #[test]
        fn segmentation_keeps_every_byte_once_and_checksums_valid(
            six: bool, is_tcp: bool, tags in 0_usize..3, most in 1_usize..1500,
            payload in prop::collection::vec(any::<u8>(), 1..3000),
        ) {
            let protocol = if is_tcp { protocol::TCP } else { protocol::UDP };
            let plain = packet(six, protocol, &payload);
            let whole = [&plain[..12], &[0x81, 0, 0, 5].repeat(tags), &plain[12..]].concat();
            let pieces = pieces(&whole, most);
            prop_assert_eq!(pieces.len(), payload.len().div_ceil(most));
            let data: Vec<u8> = pieces.iter().flat_map(|piece| user_data(piece)).copied().collect();
            prop_assert_eq!(data, payload);
            for piece in &pieces {
                prop_assert!(is_right(piece));
                prop_assert_eq!(Layers::of(piece).end, piece.len());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, most in 0_usize..100, six: bool, is_tcp: bool, cut in 0_usize..200) {
            let _ = split(&bytes, most, &mut Vec::new(), &mut |_| {});
            let mut frame = packet(six, if is_tcp { protocol::TCP } else { protocol::UDP }, &bytes);
            frame.truncate(cut);
            let _ = split(&frame, most, &mut Vec::new(), &mut |_| {});
        }
    }
}
