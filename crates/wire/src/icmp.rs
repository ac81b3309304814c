//! ICMP echo messages (RFC 792, RFC 4443) from their type byte on. Handles no other ICMP message.

use crate::checksum::internet;

/// The length of an echo header.
pub const HEADER_BYTES: usize = 8;

/// The version of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// ICMP over IPv4.
    V4,
    /// ICMPv6. Its checksum covers addresses that are unknown here: the kernel writes and checks it.
    V6,
}

/// An echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Whether it is a reply.
    pub is_reply: bool,
    /// The identifier, which distinguishes the senders of a host. The kernel sets that of a ping socket.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

impl Echo {
    /// Splits a message into header and user data; `None` when it is not an echo message or its IPv4 checksum is wrong.
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

    /// Writes the header into the first bytes of `message`, which already holds the user data; computes the checksum
    /// for IPv4. Leaves a message shorter than a header unchanged.
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
        fn echo_messages_round_trip(six: bool, is_reply: bool, identifier: u16, sequence: u16, payload: Vec<u8>) {
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
