//! The cookies that senders return. Each is computed again when it returns: nothing is remembered of who greeted.

use std::net::IpAddr;

use sojourn_wire::{Key, PeerAddress, StreamHeader};

/// The cookie of a sender that has none yet.
pub const NO_COOKIE: u64 = 0;

/// Makes the cookies of one receiver.
#[derive(Debug)]
pub struct Cookies(Key);

impl Cookies {
    /// Returns the cookies that belong to a random secret; `None` if it is too short.
    pub fn new(secret: &[u8]) -> Option<Self> {
        Key::new(secret).ok().map(Self)
    }

    /// Returns the cookie of a greeting: a tag of its source address, its flow and its session key. So it is of no use at
    /// another address. The port is no part of it: behind an address translator it may change.
    pub fn of(&self, peer: Option<PeerAddress>, header: &StreamHeader) -> u64 {
        let (kind, address) = bytes_of(peer);
        let tag = self.0.tag(&[&[kind], &address, &header.flow.to_be_bytes(), &header.key.0.to_be_bytes()]);
        let [cookie @ .., _, _, _, _, _, _, _, _] = tag;
        u64::from_be_bytes(cookie).max(NO_COOKIE + 1)
    }
}

/// Returns the kind of an address and its bytes, whose number is always the same.
fn bytes_of(peer: Option<PeerAddress>) -> (u8, [u8; 16]) {
    let mut bytes = [0; 16];
    let (kind, address): (u8, &[u8]) = match &peer {
        None => (0, &[]),
        Some(PeerAddress::Internet(address)) => match address.ip() {
            IpAddr::V4(ip) => (4, &ip.octets()),
            IpAddr::V6(ip) => (6, &ip.octets()),
        },
        Some(PeerAddress::Ethernet(mac)) => (2, &mac.0),
    };
    bytes[..address.len()].copy_from_slice(address);
    (kind, bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sojourn_time::Time;
    use sojourn_wire::stream::Kind;
    use sojourn_wire::{MacAddress, SessionKey};

    use super::*;

    fn header(flow: u16, key: u64) -> StreamHeader {
        let key = SessionKey(key);
        StreamHeader { kind: Kind::Greeting, node: 0, flow, key, seq: 0, intended: Time(1), sent: Time(2) }
    }

    fn internet(address: &str) -> Option<PeerAddress> {
        Some(PeerAddress::Internet(address.parse().unwrap()))
    }

    #[test]
    fn cookies_differ_by_secret_address_flow_and_key_and_are_made_again() {
        let [first, second] = [1, 2].map(|byte| Cookies::new(&[byte; 32]).unwrap());
        let one = internet("10.0.0.1:40000");
        let mut made = HashSet::from([first.of(one, &header(1, 7)), second.of(one, &header(1, 7))]);
        made.extend([(2, 7), (1, 8)].map(|(flow, key)| first.of(one, &header(flow, key))));
        let zero = Some(PeerAddress::Ethernet(MacAddress([0; 6])));
        let others =
            [None, internet("0.0.0.0:1"), internet("[::]:1"), internet("10.0.0.2:1"), internet("[fd77::1]:1"), zero];
        made.extend(others.map(|peer| first.of(peer, &header(1, 7))));
        assert_eq!(made.len(), 4 + others.len());
        assert!(!made.contains(&NO_COOKIE));
        assert_eq!(first.of(one, &header(1, 7)), first.of(internet("10.0.0.1:50000"), &header(1, 7)));
        assert!(Cookies::new(&[1; 8]).is_none());
    }
}
