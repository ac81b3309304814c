//! Ethernet headers and addresses. Does not handle VLAN tags, nor the FCS, which the kernel neither delivers nor
//! accepts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The length of an Ethernet header.
pub const HEADER_BYTES: usize = 14;

/// The EtherType of raw probes: IEEE 802 local experimental 1.
pub const PROBE_ETHERTYPE: u16 = 0x88B5;

/// The minimum user data of a frame on the wire: shorter frames are padded.
pub const LEAST_PAYLOAD_BYTES: usize = 46;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The destination address.
    pub destination: MacAddress,
    /// The source address.
    pub source: MacAddress,
    /// The type of the payload.
    pub ethertype: u16,
}

impl Header {
    /// Splits a frame into header and user data; `None` when it is too short.
    pub fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = frame.split_first_chunk::<HEADER_BYTES>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *head;
        let header = Self {
            destination: MacAddress([d0, d1, d2, d3, d4, d5]),
            source: MacAddress([s0, s1, s2, s3, s4, s5]),
            ethertype: u16::from_be_bytes([t0, t1]),
        };
        Some((header, payload))
    }

    /// Returns the header's bytes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        bytes
    }
}

/// The error of a text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address; write six hexadecimal bytes with colons, as 02:77:00:00:01:02")]
pub struct NotAMacAddress(String);

impl FromStr for MacAddress {
    type Err = NotAMacAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || NotAMacAddress(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(refusal)?;
            let digits = part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or_else(refusal)?;
        }
        if parts.next().is_some() { Err(refusal()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = NotAMacAddress;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_round_trip(d: [u8; 6], s: [u8; 6], ethertype: u16, rest: Vec<u8>) {
            let header = Header { destination: MacAddress(d), source: MacAddress(s), ethertype };
            let mut frame = header.to_bytes().to_vec();
            frame.extend(&rest);
            prop_assert_eq!(Header::split(&frame), Some((header, rest.as_slice())));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            prop_assert_eq!(Header::split(&bytes).is_some(), bytes.len() >= HEADER_BYTES);
        }

        #[test]
        fn addresses_round_trip_as_text(bytes: [u8; 6]) {
            let address = MacAddress(bytes);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<MacAddress>();
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in
            ["", "02:77:00:00:01", "02:77:00:00:01:02:03", "2:77:00:00:01:02", "+2:77:00:00:01:02", "02-77-00-00-01-02"]
        {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }
}
