//! The probe header: what our probes carry at the start of their user data. 40 bytes, big endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic "SOJ1" |
//! | 4 | flags: 1 request, 2 reply |
//! | 5 | reserved, 0 |
//! | 6–7 | payload bytes asked of the responder |
//! | 8–11, 12–15 | block, sequence number |
//! | 16–23, 24–31 | responder's arrival and departure, ns TAI; 0 in a request |
//! | 32–35 | CRC-32 over bytes 0–31 |
//! | 36–39 | whose clock the responder's times are on: equal numbers, one clock; 0: not said, and in a request |

use std::ops::Range;

use sojourn_time::Time;

use crate::checksum::crc32;

/// How long the header is.
pub const HEADER_BYTES: usize = 40;

const MAGIC: [u8; 4] = *b"SOJ1";
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const CHECKED_BYTES: usize = 32;
const CLOCK_BYTES: Range<usize> = 36..40;

/// The probe header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Whether it is a reply.
    pub is_reply: bool,
    /// How many bytes of user data the reply shall have.
    pub response_bytes: u16,
    /// The block it belongs to.
    pub block: u32,
    /// Its number in the block, from 0.
    pub seq: u32,
    /// When the request reached the responder; 0 in a request.
    pub responder_arrival: Time,
    /// When the responder was about to send the reply; 0 in a request.
    pub responder_departure: Time,
    /// Whose clock these two are on: equal numbers, one clock. 0: not said, as by older responders, and in a request. Not
    /// under the check, which older readers hold to what it covered.
    pub clock: u32,
}

impl ProbeHeader {
    /// Reads the header at the start of `payload`; `None` when it is not one of ours or was damaged.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes = payload.first_chunk::<HEADER_BYTES>()?;
        let check = u32::from_be_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]);
        if bytes[..4] != MAGIC || crc32(&bytes[..CHECKED_BYTES]) != check {
            return None;
        }
        let is_reply = match bytes[4] {
            REQUEST => false,
            REPLY => true,
            _ => return None,
        };
        Some(Self {
            is_reply,
            response_bytes: u16::from_be_bytes([bytes[6], bytes[7]]),
            block: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            seq: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            responder_arrival: Time(read_i64(bytes, 16)),
            responder_departure: Time(read_i64(bytes, 24)),
            clock: u32::from_be_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]),
        })
    }

    /// Returns the header as it goes over the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = if self.is_reply { REPLY } else { REQUEST };
        bytes[6..8].copy_from_slice(&self.response_bytes.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.block.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seq.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.responder_arrival.0.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.responder_departure.0.to_be_bytes());
        let check = crc32(&bytes[..CHECKED_BYTES]);
        bytes[32..36].copy_from_slice(&check.to_be_bytes());
        bytes[CLOCK_BYTES].copy_from_slice(&self.clock.to_be_bytes());
        bytes
    }

    /// Writes as much of the header as fits at the start of `payload`.
    pub fn write(self, payload: &mut [u8]) {
        let length = payload.len().min(HEADER_BYTES);
        payload[..length].copy_from_slice(&self.to_bytes()[..length]);
    }
}

/// Says in a written reply whose clock its times are on.
pub fn sign(reply: &mut [u8], clock: u32) {
    if let Some(bytes) = reply.get_mut(CLOCK_BYTES) {
        bytes.copy_from_slice(&clock.to_be_bytes());
    }
}

fn read_i64(bytes: &[u8; HEADER_BYTES], at: usize) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn header()(is_reply: bool, response_bytes: u16, block: u32, seq: u32, arrival: i64, departure: i64, clock: u32)
            -> ProbeHeader
        {
            ProbeHeader {
                is_reply, response_bytes, block, seq,
                responder_arrival: Time(arrival), responder_departure: Time(departure), clock,
            }
        }
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(header in header(), rest: Vec<u8>) {
            let mut payload = header.to_bytes().to_vec();
            payload.extend(rest);
            prop_assert_eq!(ProbeHeader::read(&payload), Some(header));
        }

        #[test]
        fn a_reader_that_knows_of_no_clock_reads_the_same(header in header()) {
            let mut payload = header.to_bytes();
            payload[36..].fill(0);
            prop_assert_eq!(ProbeHeader::read(&payload), Some(ProbeHeader { clock: 0, ..header }));
        }

        #[test]
        fn any_damaged_byte_is_noticed(header in header(), at in 0..36_usize, by in 1..=255_u8) {
            let mut payload = header.to_bytes();
            payload[at] ^= by;
            prop_assert_eq!(ProbeHeader::read(&payload), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, header in header()) {
            let _ = ProbeHeader::read(&bytes);
            header.write(&mut bytes);
        }
    }
}
