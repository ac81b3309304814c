//! Socket names: the kernel's `sockaddr` of the three families that ports use, as bytes.
//!
//! Hides the layouts, so that no other code needs a C structure. Does not use sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket name: an Internet address and port, or an interface (AF_PACKET).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Name {
    storage: [u8; Name::CAPACITY],
    length: usize,
}

/// The part of an AF_PACKET name that a receiver needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's index.
    pub index: i32,
    /// `PACKET_HOST`, `PACKET_OTHERHOST`, …
    pub kind: u8,
}

impl Name {
    /// The longest name: `sockaddr_in6`, 28 bytes.
    pub const CAPACITY: usize = 28;

    /// Names an Internet address; `scope` is the interface's index for a link-local IPv6 address, else 0.
    pub fn internet(address: SocketAddr, scope: u32) -> Self {
        let mut name = Self::default();
        match address.ip() {
            IpAddr::V4(ip) => {
                name.put(0, &family(libc::AF_INET));
                name.put(4, &ip.octets());
                name.length = 16;
            }
            IpAddr::V6(ip) => {
                name.put(0, &family(libc::AF_INET6));
                name.put(8, &ip.octets());
                if needs_scope(ip) {
                    name.put(24, &scope.to_ne_bytes());
                }
                name.length = 28;
            }
        }
        name.put(2, &address.port().to_be_bytes());
        name
    }

    /// Names an interface (0: all interfaces) and an EtherType for AF_PACKET.
    pub fn link(index: i32, ethertype: u16) -> Self {
        let mut name = Self::default();
        name.put(0, &family(libc::AF_PACKET));
        name.put(2, &ethertype.to_be_bytes());
        name.put(4, &index.to_ne_bytes());
        name.length = 20;
        name
    }

    /// Reads an AF_PACKET name.
    pub fn as_link(&self) -> Option<Link> {
        (self.length >= 12 && self.family() == libc::AF_PACKET)
            .then(|| Link { index: i32::from_ne_bytes(self.array(4)), kind: self.storage[10] })
    }

    /// Reads an Internet name.
    pub fn as_internet(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.array(2));
        match self.family() {
            libc::AF_INET if self.length >= 16 => Some(SocketAddr::from((Ipv4Addr::from(self.array::<4>(4)), port))),
            libc::AF_INET6 if self.length >= 28 => Some(SocketAddr::from((Ipv6Addr::from(self.array::<16>(8)), port))),
            _ => None,
        }
    }

    /// The port of an Internet name; 0 in any other.
    pub fn port(&self) -> u16 {
        self.as_internet().map_or(0, |address| address.port())
    }

    /// The bytes that the kernel reads.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[..self.length]
    }

    /// The bytes that the kernel may write; call `set_length` afterwards.
    pub fn storage(&mut self) -> &mut [u8; Self::CAPACITY] {
        &mut self.storage
    }

    /// Sets how many bytes of the storage the kernel wrote.
    pub fn set_length(&mut self, length: usize) {
        self.length = length.min(Self::CAPACITY);
    }

    fn family(&self) -> i32 {
        if self.length < 2 { libc::AF_UNSPEC } else { u16::from_ne_bytes(self.array(0)).into() }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.storage[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.storage[at + index])
    }
}

/// Whether an address is valid on one link only: `fe80::/10`, and interface-local or link-local multicast.
fn needs_scope(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || (ip.is_multicast() && ip.octets()[1] & 0x0F <= 2)
}

fn family(family: i32) -> [u8; 2] {
    (family as u16).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internet_addresses_round_trip() {
        for text in ["10.77.1.2:7707", "[fd77::2]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(Name::internet(address, 0).as_internet(), Some(address));
            assert_eq!(Name::internet(address, 0).as_link(), None);
        }
    }

    #[test]
    fn a_scope_belongs_to_link_local_addresses_only() {
        let local: SocketAddr = "[fe80::1]:1".parse().expect("an address");
        let global: SocketAddr = "[fd77::1]:1".parse().expect("an address");
        let group: SocketAddr = "[ff02::1]:1".parse().expect("an address");
        assert_eq!(&Name::internet(group, 9).bytes()[24..], 9_u32.to_ne_bytes());
        assert_eq!(&Name::internet(local, 9).bytes()[24..], 9_u32.to_ne_bytes());
        assert_eq!(&Name::internet(global, 9).bytes()[24..], [0; 4]);
    }

    #[test]
    fn link_layer_addresses_carry_the_interface() {
        let name = Name::link(7, 0x88B5);
        assert_eq!(name.as_link(), Some(Link { index: 7, kind: 0 }));
        assert_eq!(name.bytes()[2..4], [0x88, 0xB5]);
        assert_eq!(name.as_internet(), None);
    }
}
