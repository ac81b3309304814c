//! Defines sizes: user data, ICMP message, Ethernet frame with FCS. The same definition everywhere.

use crate::{ethernet, icmp};

const FCS_BYTES: usize = 4;
const LEAST_FRAME_BYTES: usize = 64;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// The protocol that carries the user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// ICMP echo over IPv4.
    Icmp4,
    /// ICMP echo over IPv6.
    Icmp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// An Ethernet frame of our own EtherType.
    Ethernet,
}

/// A size, and the layer at which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// User data, after the ICMP, UDP or Ethernet header.
    Payload(usize),
    /// The ICMP message with its header: the "64 bytes" of ping.
    Icmp(usize),
    /// The Ethernet frame with its FCS.
    Frame(usize),
}

/// The error of a size that a carrier does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// `icmp_bytes` for a carrier other than ICMP.
    #[error("icmp_bytes is a size of ICMP probes only; give payload_bytes or frame_bytes")]
    NoIcmp,
    /// The size is smaller than the headers.
    #[error("{0} bytes are fewer than the headers take")]
    TooSmall(usize),
    /// The user data is shorter than the probe's minimum.
    #[error("{0} bytes of payload are fewer than the {1} that this probe needs")]
    Least(usize, usize),
    /// The packet would exceed 65,535 bytes.
    #[error("{0} bytes of payload are more than a packet can have")]
    TooLarge(usize),
}

impl Carrier {
    /// Returns the bytes before the user data in an Ethernet frame.
    pub const fn header_bytes(self) -> usize {
        ethernet::HEADER_BYTES
            + match self {
                Self::Icmp4 => IPV4_BYTES + icmp::HEADER_BYTES,
                Self::Icmp6 => IPV6_BYTES + icmp::HEADER_BYTES,
                Self::Udp4 => IPV4_BYTES + UDP_BYTES,
                Self::Udp6 => IPV6_BYTES + UDP_BYTES,
                Self::Ethernet => 0,
            }
    }

    /// Returns the length of the Ethernet frame, with FCS, that carries this user data. A packet that will be
    /// fragmented counts as one long frame.
    pub const fn frame_bytes(self, payload_bytes: usize) -> usize {
        let bytes = payload_bytes + self.header_bytes() + FCS_BYTES;
        if bytes < LEAST_FRAME_BYTES { LEAST_FRAME_BYTES } else { bytes }
    }

    /// Returns the minimum user data of a probe over this carrier, in bytes.
    pub const fn least_payload_bytes(self) -> usize {
        match self {
            Self::Icmp4 | Self::Icmp6 => 0,
            Self::Udp4 | Self::Udp6 => crate::probe::HEADER_BYTES,
            Self::Ethernet => ethernet::LEAST_PAYLOAD_BYTES,
        }
    }

    /// Returns the user data, in bytes, of a packet of this size.
    ///
    /// # Errors
    /// When the carrier does not allow that size.
    pub fn payload_bytes(self, size: Size) -> Result<usize, SizeError> {
        let payload = match (size, self) {
            (Size::Payload(bytes), _) => bytes,
            (Size::Icmp(bytes), Self::Icmp4 | Self::Icmp6) => {
                bytes.checked_sub(icmp::HEADER_BYTES).ok_or(SizeError::TooSmall(bytes))?
            }
            (Size::Icmp(_), _) => return Err(SizeError::NoIcmp),
            (Size::Frame(bytes), _) => {
                bytes.checked_sub(self.header_bytes() + FCS_BYTES).ok_or(SizeError::TooSmall(bytes))?
            }
        };
        self.check(payload)
    }

    /// Returns `payload_bytes` if the carrier allows it.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(self, payload_bytes: usize) -> Result<usize, SizeError> {
        if payload_bytes < self.least_payload_bytes() {
            Err(SizeError::Least(payload_bytes, self.least_payload_bytes()))
        } else if payload_bytes > usize::from(u16::MAX) - self.header_bytes() {
            Err(SizeError::TooLarge(payload_bytes))
        } else {
            Ok(payload_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_of_the_paper_have_the_documented_meaning() {
        assert_eq!(Carrier::Icmp4.payload_bytes(Size::Icmp(64)), Ok(56));
        assert_eq!(Carrier::Icmp4.frame_bytes(56), 102);
        assert_eq!(Carrier::Icmp4.frame_bytes(1472), 1518);
        assert_eq!(Carrier::Icmp6.frame_bytes(56), 122);
        assert_eq!(Carrier::Ethernet.frame_bytes(46), 64);
        assert_eq!(Carrier::Ethernet.frame_bytes(40), 64);
        assert_eq!(Carrier::Udp4.frame_bytes(40), 86);
        assert_eq!(Carrier::Udp4.payload_bytes(Size::Icmp(64)), Err(SizeError::NoIcmp));
        assert_eq!(Carrier::Ethernet.payload_bytes(Size::Payload(45)), Err(SizeError::Least(45, 46)));
        assert_eq!(Carrier::Icmp4.payload_bytes(Size::Icmp(7)), Err(SizeError::TooSmall(7)));
        assert_eq!(Carrier::Icmp4.payload_bytes(Size::Payload(usize::MAX)), Err(SizeError::TooLarge(usize::MAX)));
    }

    proptest! {
        #[test]
        fn frame_and_payload_sizes_are_consistent(payload in 46..9000_usize) {
            for carrier in [Carrier::Icmp4, Carrier::Icmp6, Carrier::Udp4, Carrier::Udp6, Carrier::Ethernet] {
                let frame = carrier.frame_bytes(payload);
                prop_assert_eq!(carrier.payload_bytes(Size::Frame(frame)), Ok(payload));
            }
        }
    }
}
