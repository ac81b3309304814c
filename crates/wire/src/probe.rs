//! The probe header, at the start of a probe's user data. 40 bytes, big endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic "SOJ2" |
//! | 4–11 | session key: a random number that the prober draws and the responder repeats |
//! | 12–15 | sequence number |
//! | 16 | 1 request, 2 reply |
//! | 17–23 | request: requested payload bytes of the reply; reply: ns from its arrival to its departure, signed |
//! | 24–31 | reply: the request's arrival at the responder, ns TAI; request: 0 |
//! | 32–35 | CRC-32 over bytes 0–31 |
//! | 36–39 | the clock of the responder's times: equal numbers mean the same clock; 0: not stated, and in a request |
//!
//! Where both ends share a secret, an HMAC over these 40 bytes follows ([`authenticate`]): 16 more bytes.
//!
//! Key and sequence number come first: an ICMP echo in a frame of 64 bytes has room for 18 bytes, and still carries
//! both.

use std::ops::Range;

use sojourn_time::{Nanos, Time};

use crate::auth::{Key, TAG_BYTES};
use crate::checksum::crc32;

/// The length of the header.
pub const HEADER_BYTES: usize = 40;

const MAGIC: [u8; 4] = *b"SOJ2";
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const CHECKED_BYTES: usize = 32;
const CLOCK_BYTES: Range<usize> = 36..40;
/// The maximum of a signed 56-bit number.
const LONGEST_STAY: i64 = (1 << 55) - 1;

/// The probe header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHeader {
    /// The session's key: a host off the path does not know it, so it cannot forge a reply.
    pub session: u64,
    /// The sequence number within the session, from 0.
    pub seq: u32,
    /// Request or reply, with its fields.
    pub kind: Kind,
    /// The clock of a reply's times: equal numbers mean the same clock. 0: not stated, and in a request. The CRC does
    /// not cover it.
    pub clock: u32,
}

/// The kind of a probe message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request {
        /// The requested number of bytes of user data in the reply.
        response_bytes: u16,
    },
    /// A reply.
    Reply {
        /// The request's RX timestamp at the responder.
        arrival: Time,
        /// The time just before the responder sent the reply, at most 416 days before or after the arrival.
        departure: Time,
    },
}

impl ProbeHeader {
    /// Returns the header of a request.
    pub const fn request(session: u64, seq: u32, response_bytes: u16) -> Self {
        Self { session, seq, kind: Kind::Request { response_bytes }, clock: 0 }
    }

    /// Returns the header of the reply to this request; `None` where this is a reply.
    pub const fn reply(self, arrival: Time, departure: Time) -> Option<Self> {
        match self.kind {
            Kind::Request { .. } => Some(Self { kind: Kind::Reply { arrival, departure }, ..self }),
            Kind::Reply { .. } => None,
        }
    }

    /// Returns the user data in bytes that a request asks for; `None` where it is a reply.
    pub const fn asked_bytes(&self) -> Option<u16> {
        match self.kind {
            Kind::Request { response_bytes } => Some(response_bytes),
            Kind::Reply { .. } => None,
        }
    }

    /// Returns a reply's arrival and departure; `None` where it is a request.
    pub const fn times(&self) -> Option<(Time, Time)> {
        match self.kind {
            Kind::Reply { arrival, departure } => Some((arrival, departure)),
            Kind::Request { .. } => None,
        }
    }

    /// Parses the header at the start of `payload`; `None` when it is not a probe header or is damaged.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes = payload.first_chunk::<HEADER_BYTES>()?;
        let check = u32::from_be_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]);
        (crc32(&bytes[..CHECKED_BYTES]) == check).then(|| Self::read_unchecked(bytes)).flatten()
    }

    /// Parses a header without verifying its CRC.
    fn read_unchecked(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if bytes[..4] != MAGIC {
            return None;
        }
        let word = read_u64(bytes, 16);
        let kind = match bytes[16] {
            REQUEST => Kind::Request { response_bytes: u16::from_be_bytes([bytes[22], bytes[23]]) },
            REPLY => {
                let arrival = Time(read_u64(bytes, 24) as i64);
                // Shift up and back down to extend the sign.
                let stay = Nanos((word << 8) as i64 >> 8);
                Kind::Reply { arrival, departure: Time(arrival.0.wrapping_add(stay.0)) }
            }
            _ => return None,
        };
        Some(Self {
            session: read_u64(bytes, 4),
            seq: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            kind,
            clock: u32::from_be_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]),
        })
    }

    /// Returns the header's bytes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&self.session.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seq.to_be_bytes());
        match self.kind {
            Kind::Request { response_bytes } => {
                bytes[16] = REQUEST;
                bytes[22..24].copy_from_slice(&response_bytes.to_be_bytes());
            }
            Kind::Reply { arrival, departure } => {
                let stay = departure.0.wrapping_sub(arrival.0).clamp(-LONGEST_STAY, LONGEST_STAY);
                bytes[16..24].copy_from_slice(&stay.to_be_bytes());
                bytes[16] = REPLY;
                bytes[24..32].copy_from_slice(&arrival.0.to_be_bytes());
            }
        }
        let check = crc32(&bytes[..CHECKED_BYTES]);
        bytes[32..36].copy_from_slice(&check.to_be_bytes());
        bytes[CLOCK_BYTES].copy_from_slice(&self.clock.to_be_bytes());
        bytes
    }

    /// Writes the header, truncated if needed, at the start of `payload`.
    pub fn write(self, payload: &mut [u8]) {
        let length = payload.len().min(HEADER_BYTES);
        payload[..length].copy_from_slice(&self.to_bytes()[..length]);
    }
}

/// The length of a header with its tag, where both ends share a key.
pub const AUTHENTICATED_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Writes the tag of the header in `payload` after it; call it last before sending. Leaves a payload without room for
/// the tag unchanged.
pub fn authenticate(payload: &mut [u8], key: &Key) {
    if let Some(bytes) = payload.first_chunk_mut::<AUTHENTICATED_BYTES>() {
        let (header, tag) = bytes.split_at_mut(HEADER_BYTES);
        tag.copy_from_slice(&key.tag(&[header]));
    }
}

/// Returns whether the header in `payload` has a valid tag.
pub fn is_authentic(payload: &[u8], key: &Key) -> bool {
    let Some(bytes) = payload.first_chunk::<AUTHENTICATED_BYTES>() else { return false };
    let Some((header, tag)) = bytes.split_last_chunk::<TAG_BYTES>() else { return false };
    key.verifies(&[header], tag)
}

fn read_u64(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            any::<u16>().prop_map(|response_bytes| Kind::Request { response_bytes }),
            (any::<i64>(), -LONGEST_STAY..=LONGEST_STAY).prop_map(|(arrival, stay)| Kind::Reply {
                arrival: Time(arrival),
                departure: Time(arrival.wrapping_add(stay)),
            }),
        ]
    }

    prop_compose! {
        fn header()(session: u64, seq: u32, kind in kind(), clock: u32) -> ProbeHeader {
            ProbeHeader { session, seq, kind, clock }
        }
    }

    proptest! {
        #[test]
        fn headers_round_trip(header in header(), rest: Vec<u8>) {
            let mut payload = header.to_bytes().to_vec();
            payload.extend(rest);
            prop_assert_eq!(ProbeHeader::read(&payload), Some(header));
        }

        #[test]
        fn any_damaged_byte_is_noticed(header in header(), at in 0..36_usize, by in 1..=255_u8) {
            let mut payload = header.to_bytes();
            payload[at] ^= by;
            prop_assert_eq!(ProbeHeader::read(&payload), None);
        }

        /// Bytes with valid magic, kind and CRC: what is parsed is written back identically, apart from unused bytes.
        #[test]
        fn any_header_with_a_valid_crc_round_trips(mut bytes: [u8; HEADER_BYTES], is_reply: bool) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[16] = if is_reply { REPLY } else { REQUEST };
            let check = crc32(&bytes[..CHECKED_BYTES]);
            bytes[32..36].copy_from_slice(&check.to_be_bytes());
            let header = ProbeHeader::read(&bytes).expect("a header");
            prop_assert_eq!(header.times().is_some(), is_reply);
            prop_assert_eq!(header.asked_bytes().is_some(), !is_reply);
            let written = header.to_bytes();
            prop_assert_eq!(&written[..17], &bytes[..17]);
            if is_reply && bytes[17..24] != [0x80, 0, 0, 0, 0, 0, 0] {
                prop_assert_eq!(written, bytes);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, header in header()) {
            let key = Key::new(&[7; 16]).expect("long enough");
            let _ = (ProbeHeader::read(&bytes), is_authentic(&bytes, &key));
            header.write(&mut bytes);
            authenticate(&mut bytes, &key);
        }

        #[test]
        fn any_damaged_byte_of_an_authenticated_header_is_detected(
            header in header(), at in 0..AUTHENTICATED_BYTES, by in 1..=255_u8, rest: Vec<u8>,
        ) {
            let (key, other) = (Key::new(&[7; 16]).expect("long enough"), Key::new(&[8; 16]).expect("long enough"));
            let mut payload = [&header.to_bytes()[..], &[0; TAG_BYTES], &rest].concat();
            prop_assert!(!is_authentic(&payload, &key));
            authenticate(&mut payload, &key);
            prop_assert!(is_authentic(&payload, &key) && !is_authentic(&payload, &other));
            payload[at] ^= by;
            prop_assert!(!is_authentic(&payload, &key));
        }
    }

    #[test]
    fn field_offsets_are_those_of_the_table() {
        let request = ProbeHeader::request(0x0102_0304_0506_0708, 0x0A0B_0C0D, 0x5678).to_bytes();
        assert_eq!(request[..24], *b"SOJ2\x01\x02\x03\x04\x05\x06\x07\x08\x0A\x0B\x0C\x0D\x01\0\0\0\0\0\x56\x78");
        let header = ProbeHeader::read(&request).expect("a request");
        let reply = header.reply(Time(0x1111_2222), Time(0x1111_2222 - 2)).expect("a reply").to_bytes();
        assert_eq!(reply[..16], request[..16]);
        assert_eq!(reply[16..32], *b"\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFE\0\0\0\0\x11\x11\x22\x22");
        assert_eq!(ProbeHeader::read(&reply).expect("a reply").reply(Time(1), Time(2)), None);
    }
}
