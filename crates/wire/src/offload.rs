//! Completes checksums that were left to an offloading interface: frames from a neighbour on the same machine still
//! lack them.
//!
//! The kernel leaves the folded sum of the pseudo-header in the checksum field of TCP or UDP (`CHECKSUM_PARTIAL`), and
//! reports the range to sum outside the frame. [`finish`] needs that range; [`complete`] recognises an incomplete
//! checksum by its value. An incomplete CRC of SCTP is 0.

use crate::checksum::{crc32c, fold, sum};
use crate::layers::{Layers, protocol};

const SCTP_HEADER_BYTES: usize = 12;

/// Completes the checksum of a TCP segment, a UDP datagram or an SCTP packet if it is incomplete; returns whether it
/// was.
///
/// Leaves a correct checksum unchanged, whatever its value. Also "corrects" a wrong checksum that happens to equal an
/// incomplete one: one in 65,536 of the frames that were corrupted before. Leaves fragments unchanged: the kernel
/// completes a checksum before it fragments.
pub fn complete(frame: &mut [u8]) -> bool {
    let layers = Layers::of(frame);
    let (Some(start), false) = (layers.transport, layers.is_fragment) else { return false };
    let field = start
        + match layers.protocol {
            protocol::TCP => 16,
            protocol::UDP => 6,
            protocol::SCTP => return complete_sctp(frame, start, layers.end),
            _ => return false,
        };
    let Some(found) = word(&frame[..layers.end], field) else { return false };
    if found == 0 || found != fold(pseudo_header(frame, &layers)) {
        return false;
    }
    write(frame, field, !fold(sum(&frame[start..layers.end])));
    true
}

/// Completes a checksum as the kernel describes it: sums from `start` to the end of the frame and writes the result
/// `offset` bytes after `start`. Returns whether that field exists.
pub fn finish(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let field = start.saturating_add(offset);
    if start >= frame.len() || word(frame, field).is_none() {
        return false;
    }
    let whole = sum(&frame[start..]);
    write(frame, field, !fold(whole));
    true
}

/// Recomputes the checksum of the TCP segment or UDP datagram at `start`.
pub(crate) fn renew(frame: &mut [u8], layers: &Layers, start: usize, field: usize) {
    if word(&frame[..layers.end], field).is_some() {
        frame[field..field + 2].fill(0);
        let whole = pseudo_header(frame, layers) + sum(&frame[start..layers.end]);
        write(frame, field, !fold(whole));
    }
}

/// The sum over the pseudo-header: addresses, protocol and length (RFC 9293 §3.1, RFC 8200 §8.1).
fn pseudo_header(frame: &[u8], layers: &Layers) -> u64 {
    let addresses = match layers.family {
        4 => 12..20,
        _ => 8..40,
    };
    let addresses = frame.get(layers.network + addresses.start..layers.network + addresses.end).unwrap_or_default();
    let length = layers.end - layers.transport.unwrap_or(layers.end);
    sum(addresses) + u64::from(layers.protocol) + length as u64
}

/// Writes all ones instead of 0, which means "no checksum" in UDP (RFC 768).
fn write(frame: &mut [u8], field: usize, sum: u16) {
    let sum = if sum == 0 { 0xFFFF } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 9260 appendix A: CRC-32C, the least significant byte first.
fn complete_sctp(frame: &mut [u8], start: usize, end: usize) -> bool {
    let packet = &mut frame[start..end];
    if packet.len() < SCTP_HEADER_BYTES || packet[8..12] != [0; 4] {
        return false;
    }
    let crc = crc32c(packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    true
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a TCP segment or UDP datagram over IPv4 or IPv6 without its checksum.
    pub fn packet(six: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = match protocol {
            protocol::TCP => vec![0x13, 0x88, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0],
            protocol::UDP => {
                let [high, low] = (8 + payload.len() as u16).to_be_bytes();
                vec![0x13, 0x88, 0, 53, high, low, 0, 0]
            }
            _ => vec![0; 12],
        };
        header.extend(payload);
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let length = header.len() as u16;
        if six {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((1..=32).map(|byte: u8| byte.wrapping_mul(37)));
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.extend(header);
        frame
    }

    /// Whether the checksum of a TCP segment or UDP datagram is correct.
    pub fn is_right(frame: &[u8]) -> bool {
        let layers = Layers::of(frame);
        let start = layers.transport.expect("a transport header");
        fold(pseudo_header(frame, &layers) + sum(&frame[start..layers.end])) == 0xFFFF
    }

    /// Writes the incomplete checksum that the kernel leaves.
    fn leave_unfinished(frame: &mut [u8]) -> (usize, usize) {
        let layers = Layers::of(frame);
        let start = layers.transport.expect("a transport header");
        let offset = if layers.protocol == protocol::TCP { 16 } else { 6 };
        let left = fold(pseudo_header(frame, &layers));
        frame[start + offset..start + offset + 2].copy_from_slice(&left.to_be_bytes());
        (start, offset)
    }

    #[test]
    fn completed_checksum_equals_a_known_value() {
        // A DNS query as a capture shows it with the checksum computed by the sender.
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, 0, 0, 0x20, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend([0x30, 0x39, 0, 0x35, 0, 0x0C, 0, 0, b't', b'e', b's', b't']);
        let (start, offset) = leave_unfinished(&mut frame);
        assert!(complete(&mut frame));
        // By hand: 0xC000+0x0201+0xC000+0x0202+0x0011+0x000C + 0x3039+0x0035+0x000C+0x7465+0x7374.
        let whole: u64 = [0xC000, 0x0201, 0xC000, 0x0202, 0x11, 0x0C, 0x3039, 0x35, 0x0C, 0x7465, 0x7374].iter().sum();
        assert_eq!(word(&frame, start + offset), Some(!fold(whole)));
    }

    #[test]
    fn sctp_gets_the_crc32c_of_its_rfc() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut frame = packet(false, protocol::SCTP, b"payload.");
        assert!(complete(&mut frame));
        let mut zeroed = frame[34..].to_vec();
        zeroed[8..12].fill(0);
        assert_eq!(frame[42..46], crc32c(&zeroed).to_le_bytes());
        assert!(!complete(&mut frame), "it has one now");
    }

    #[test]
    fn fragments_and_absent_checksums_are_unchanged() {
        let mut fragment = packet(false, protocol::UDP, b"abcd");
        leave_unfinished(&mut fragment);
        fragment[20] = 0x20;
        assert!(!complete(&mut fragment));
        let mut absent = packet(false, protocol::UDP, b"abcd");
        assert!(!complete(&mut absent));
        assert_eq!(word(&absent, 40), Some(0));
    }

    proptest! {
        #[test]
        fn partial_checksums_are_completed_and_complete_ones_unchanged(
            six: bool, is_tcp: bool, payload in prop::collection::vec(any::<u8>(), 0..200), padding in 0_usize..20,
        ) {
            let protocol = if is_tcp { protocol::TCP } else { protocol::UDP };
            let mut frame = packet(six, protocol, &payload);
            let (start, offset) = leave_unfinished(&mut frame);
            let mut told = frame.clone();
            prop_assert!(finish(&mut told, start, offset));
            frame.resize(frame.len() + padding, 0);
            prop_assert!(complete(&mut frame));
            prop_assert!(is_right(&frame));
            prop_assert_eq!(&frame[..told.len()], &told[..]);
            let done = frame.clone();
            complete(&mut frame);
            prop_assert_eq!(frame, done);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, start: usize, offset: usize, six: bool, protocol: u8) {
            complete(&mut bytes);
            finish(&mut bytes, start, offset);
            finish(&mut bytes, start % 64, offset % 64);
            let mut frame = packet(six, protocol, &bytes);
            frame.truncate(start % 100);
            complete(&mut frame);
        }
    }
}
