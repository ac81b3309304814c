//! ICMP echo messages (RFC 792, RFC 4443) from their type byte on. Knows no other ICMP message.

use crate::checksum::internet;

/// How long an echo header is.
pub const HEADER_BYTES: usize = 8;

/// Which ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// ICMP over IPv4.
    V4,
    /// ICMPv6. Its checksum covers addresses that are not known here: the kernel writes and checks it.
    V6,
}

/// An echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Whether it is a reply.
    pub is_reply: bool,
    /// The identifier: whose probe it is. A ping socket writes its own.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

impl Echo {
    /// Splits a message into header and user data; `None` when it is no echo or its IPv4 checksum is wrong.
    pub fn split(version: Version, message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = message.split_first_chunk::<HEADER_BYTES>()?;
        let [kind, code, _, _, i0, i1, s0, s1] = *head;
        let is_reply = match (version, kind) {
            (Version::V4, 0) | (Version::V6, 129) => true,
            (Version::V4, 8) | (Version::V6, 128) => false,
            _ => return None,
        };
        if code != 0 || (version == Version::V4 && internet(message) != 0) {
            return None;
        }
        let echo = Self { is_reply, identifier: u16::from_be_bytes([i0, i1]), sequence: u16::from_be_bytes([s0, s1]) };
        Some((echo, payload))
    }

    /// Writes the header into the first bytes of `message`, whose user data is already there, with the checksum for
    /// IPv4. A message shorter than a header is left alone.
    pub fn write(self, version: Version, message: &mut [u8]) {
        let kind = match (version, self.is_reply) {
            (Version::V4, false) => 8,
            (Version::V4, true) => 0,
            (Version::V6, false) => 128,
            (Version::V6, true) => 129,
        };
        let Some(head) = message.first_chunk_mut::<HEADER_BYTES>() else {
            return;
        };
        let [i0, i1] = self.identifier.to_be_bytes();
        let [s0, s1] = self.sequence.to_be_bytes();
        *head = [kind, 0, 0, 0, i0, i1, s0, s1];
        if version == Version::V4 {
            let sum = internet(message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(six: bool) -> Version {
        if six { Version::V6 } else { Version::V4 }
    }

    proptest! {
        #[test]
        fn echoes_survive_the_wire(six: bool, is_reply: bool, identifier: u16, sequence: u16, payload: Vec<u8>) {
            let echo = Echo { is_reply, identifier, sequence };
            let mut message = vec![0; HEADER_BYTES];
            message.extend(&payload);
            echo.write(version(six), &mut message);
            prop_assert_eq!(Echo::split(version(six), &message), Some((echo, payload.as_slice())));
        }

        #[test]
        fn arbitrary_bytes_never_panic(six: bool, mut bytes: Vec<u8>) {
            let _ = Echo::split(version(six), &bytes);
            Echo { is_reply: false, identifier: 1, sequence: 2 }.write(version(six), &mut bytes);
        }
    }
}
