//! Sets of peers: address prefixes, MAC addresses, or all.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::MacAddress;

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// An IP address and port.
    Internet(SocketAddr),
    /// The MAC address of a peer that sends raw Ethernet frames.
    Ethernet(MacAddress),
}

impl PeerAddress {
    /// Returns whether both are of one host: the same IP address, of any port, or the same MAC address.
    pub fn is_same_host(self, other: Self) -> bool {
        match (self, other) {
            (Self::Internet(one), Self::Internet(other)) => one.ip() == other.ip(),
            (Self::Ethernet(one), Self::Ethernet(other)) => one == other,
            _ => false,
        }
    }
}

/// A set of peers, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// All peers.
    Any,
    /// Those whose address shares this prefix; its length in bits.
    Prefix(IpAddr, u32),
    /// The peer with this MAC address.
    Ethernet(MacAddress),
}

impl Peers {
    /// Returns whether the set contains a peer.
    pub fn have(self, peer: PeerAddress) -> bool {
        match (self, peer) {
            (Self::Any, _) => true,
            (Self::Prefix(prefix, bits), PeerAddress::Internet(address)) => begins_with(address.ip(), prefix, bits),
            (Self::Ethernet(mac), PeerAddress::Ethernet(other)) => mac == other,
            _ => false,
        }
    }
}

/// The bits of an address, left-aligned, and its width.
fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

fn begins_with(address: IpAddr, prefix: IpAddr, bits: u32) -> bool {
    let ((address, width), (prefix, other)) = (bits_of(address), bits_of(prefix));
    // A shift by 128 is undefined: a prefix of length 0 matches everything.
    width == other && (address ^ prefix).checked_shr(128 - bits).is_none_or(|differs| differs == 0)
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(formatter),
            Self::Ethernet(mac) => mac.fmt(formatter),
        }
    }
}

impl FromStr for Peers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || {
            format!("{text:?}: expected an address (10.0.0.2), a prefix (10.0.0.0/8, fd00::/8), a MAC address or any")
        };
        if text == "any" {
            return Ok(Self::Any);
        }
        if let Ok(mac) = text.parse() {
            return Ok(Self::Ethernet(mac));
        }
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| refusal())?;
        let (value, width) = bits_of(address);
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| refusal())?;
        if bits > width {
            return Err(format!("{text:?}: an address of this kind has {width} bits"));
        }
        if value.checked_shl(bits).is_some_and(|host| host != 0) {
            return Err(format!("{text:?}: bits are set behind the first {bits}; which prefix is meant?"));
        }
        Ok(Self::Prefix(address, bits))
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("any"),
            Self::Prefix(address, bits) => write!(formatter, "{address}/{bits}"),
            Self::Ethernet(mac) => write!(formatter, "{mac}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress::Internet(SocketAddr::new(address.parse().expect("an address"), 40_000))
    }

    #[test]
    fn prefix_contains_the_addresses_that_begin_with_it() {
        for (peers, one, has) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.2", "10.0.0.2", true),
            ("10.0.0.2", "10.0.0.3", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "fd77::1", false),
            ("::/0", "fd77::1", true),
            ("::/0", "10.0.0.1", false),
            ("fd77::/16", "fd77:1::1", true),
            ("fd77::/16", "fd78::1", false),
            ("any", "10.0.0.1", true),
        ] {
            assert_eq!(peers.parse::<Peers>().expect(peers).have(peer(one)), has, "{peers} {one}");
        }
        let mac: Peers = "02:77:00:00:01:02".parse().expect("a MAC address");
        assert!(mac.have(PeerAddress::Ethernet(MacAddress([2, 0x77, 0, 0, 1, 2]))));
        assert!(!mac.have(PeerAddress::Ethernet(MacAddress([2, 0x77, 0, 0, 1, 3]))) && !mac.have(peer("10.0.0.1")));
    }

    #[test]
    fn addresses_of_one_host_may_differ_in_their_port() {
        let mac = |last| PeerAddress::Ethernet(MacAddress([2, 0, 0, 0, 0, last]));
        let other_port = PeerAddress::Internet("10.0.0.1:9".parse().expect("an address"));
        assert!(peer("10.0.0.1").is_same_host(other_port) && mac(1).is_same_host(mac(1)));
        for (one, other) in [(peer("10.0.0.1"), peer("10.0.0.2")), (mac(1), mac(2)), (peer("10.0.0.1"), mac(1))] {
            assert!(!one.is_same_host(other) && !other.is_same_host(one), "{one} {other}");
        }
    }

    #[test]
    fn invalid_peers_are_refused() {
        for text in ["", "10.0.0.0/33", "fd00::/129", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/x", "host", "all"] {
            assert!(text.parse::<Peers>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prefixes_round_trip_as_text(bits in 0..=128_u32, address: u128, four: bool) {
            let kept = |address: u128, bits: u32| if bits == 0 { 0 } else { address >> (128 - bits) << (128 - bits) };
            let (address, bits) = if four {
                let bits = bits % 33;
                (IpAddr::from(((kept(address, bits) >> 96) as u32).to_be_bytes()), bits)
            } else {
                (IpAddr::from(kept(address, bits).to_be_bytes()), bits)
            };
            let peers = Peers::Prefix(address, bits);
            prop_assert_eq!(peers.to_string().parse(), Ok(peers));
            prop_assert!(peers.have(PeerAddress::Internet(SocketAddr::new(address, 1))));
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Peers>();
        }
    }
}
