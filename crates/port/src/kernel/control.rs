//! Control messages (cmsg(3)): the ancillary data of a packet.
//!
//! Reads RX and TX timestamps, the number of a TX timestamp and the local address of a datagram; writes the source
//! address of an answer. Pure: bytes in, values out; malformed bytes are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sojourn_time::Time;

use crate::StampKind;

/// A buffer for the control messages of one packet, aligned as the kernel requires.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct ControlBuffer(pub [u8; 256]);

impl Default for ControlBuffer {
    fn default() -> Self {
        Self([0; 256])
    }
}

const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;

/// The contents of one packet's control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The kernel's timestamp, on `CLOCK_REALTIME`.
    pub software: Option<Time>,
    /// The network interface's timestamp, on its own clock.
    pub hardware: Option<Time>,
    /// On the error queue: the transmission that the timestamps belong to.
    pub transmitted: Option<Transmitted>,
    /// The destination address and the receiving interface of a datagram.
    pub local: Option<Local>,
    /// The broadcast or multicast address that the datagram was sent to, if it was sent to one.
    pub group: Option<IpAddr>,
    /// The TTL or hop limit of the datagram on receipt.
    pub hop_limit: Option<u8>,
    /// The traffic class (DSCP and ECN bits) of the datagram on receipt, where it was requested.
    pub traffic_class: u8,
    /// The 802.1Q tag that the kernel removed from a frame: TPID and TCI, as on the wire.
    pub tag: Option<[u8; 4]>,
}

/// The transmission that a timestamp belongs to, and where the frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmitted {
    /// The kernel's number of the transmission.
    pub number: u32,
    /// Where the frame was at that time.
    pub kind: StampKind,
}

/// An address of this host, and the interface that received the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The destination address of the datagram.
    pub address: IpAddr,
    /// The interface's index.
    pub index: u32,
}

impl Control {
    /// Reads the control messages of one packet.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut control = Self::default();
        let mut rest = bytes;
        while let Some((level, kind, body, after)) = next(rest) {
            control.take(level, kind, body);
            rest = after;
        }
        control
    }

    fn take(&mut self, level: i32, kind: i32, body: &[u8]) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                self.software = timespec(body, 0);
                self.hardware = timespec(body, 2);
            }
            (libc::SOL_IP, libc::IP_RECVERR)
            | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            | (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP) => self.transmitted = transmission(body),
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                self.local = local4(body);
                self.group = group4(body);
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                self.local = local6(body);
                self.group = self.local.map(|local| local.address).filter(IpAddr::is_multicast);
            }
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => self.hop_limit = hop_limit(body),
            (libc::SOL_IP, libc::IP_TOS) => self.traffic_class = body.first().copied().unwrap_or(0),
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => self.traffic_class = hop_limit(body).unwrap_or(0),
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => self.tag = tag(body),
            _ => {}
        }
    }
}

impl Local {
    /// Writes the control message that sets an answer's source address and interface; returns its length.
    pub fn write(&self, buffer: &mut [u8; 48]) -> usize {
        let mut body = [0_u8; 20];
        let (level, kind, length) = match self.address {
            IpAddr::V4(address) => {
                body[..4].copy_from_slice(&self.index.to_ne_bytes());
                body[4..8].copy_from_slice(&address.octets());
                (libc::SOL_IP, libc::IP_PKTINFO, 12)
            }
            IpAddr::V6(address) => {
                body[..16].copy_from_slice(&address.octets());
                body[16..].copy_from_slice(&self.index.to_ne_bytes());
                (libc::SOL_IPV6, libc::IPV6_PKTINFO, 20)
            }
        };
        write(level, kind, &body[..length], buffer)
    }
}

/// Writes the control message that sets the traffic class of a datagram; returns its length.
pub fn write_traffic_class(class: u8, is_ipv4: bool, buffer: &mut [u8]) -> usize {
    let (level, kind) = if is_ipv4 { (libc::SOL_IP, libc::IP_TOS) } else { (libc::SOL_IPV6, libc::IPV6_TCLASS) };
    write(level, kind, &i32::from(class).to_ne_bytes(), buffer)
}

fn write(level: i32, kind: i32, body: &[u8], buffer: &mut [u8]) -> usize {
    let total = HEADER + body.len();
    buffer[..WORD].copy_from_slice(&total.to_ne_bytes());
    buffer[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
    buffer[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
    buffer[HEADER..total].copy_from_slice(body);
    aligned(total)
}

/// Splits off the first control message: level, type, body and the bytes after it.
fn next(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let total = usize::from_ne_bytes(array(bytes, 0)?);
    let level = i32::from_ne_bytes(array(bytes, WORD)?);
    let kind = i32::from_ne_bytes(array(bytes, WORD + 4)?);
    let body = bytes.get(HEADER..total)?;
    let after = bytes.get(aligned(total)..).unwrap_or_default();
    Some((level, kind, body, after))
}

/// Reads one of the three `timespec`s of `SCM_TIMESTAMPING`; zero means no timestamp.
fn timespec(body: &[u8], which: usize) -> Option<Time> {
    let seconds = i64::from_ne_bytes(array(body, which * 16)?);
    let nanos = i64::from_ne_bytes(array(body, which * 16 + 8)?);
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (time != 0).then_some(Time(time))
}

/// `SCM_TSTAMP_SND` and `SCM_TSTAMP_SCHED` of `linux/errqueue.h`.
const STAMPED_AS_IT_LEFT: u32 = 0;
const STAMPED_AS_SCHEDULED: u32 = 1;

/// Reads the transmission that a `sock_extended_err` reports; other errors (ICMP) have none.
fn transmission(body: &[u8]) -> Option<Transmitted> {
    let [origin, _, _, _] = array(body, 4)?;
    (origin == libc::SO_EE_ORIGIN_TIMESTAMPING).then_some(())?;
    let kind = match u32::from_ne_bytes(array(body, 8)?) {
        STAMPED_AS_IT_LEFT => StampKind::Left,
        STAMPED_AS_SCHEDULED => StampKind::Scheduled,
        _ => return None,
    };
    Some(Transmitted { number: u32::from_ne_bytes(array(body, 12)?), kind })
}

fn local4(body: &[u8]) -> Option<Local> {
    // in_pktinfo: interface, the address to answer from, the address in the header (they differ for broadcasts).
    let index = u32::from_ne_bytes(array(body, 0)?);
    Some(Local { address: IpAddr::V4(Ipv4Addr::from(array::<4>(body, 4)?)), index })
}

/// The address in the header, if it is one that no answer can be sent from.
fn group4(body: &[u8]) -> Option<IpAddr> {
    let (local, header) = (array::<4>(body, 4)?, array::<4>(body, 8)?);
    let is_group = local != header || Ipv4Addr::from(header).is_multicast();
    is_group.then(|| Ipv4Addr::from(header).into())
}

fn hop_limit(body: &[u8]) -> Option<u8> {
    u8::try_from(i32::from_ne_bytes(array(body, 0)?)).ok()
}

fn local6(body: &[u8]) -> Option<Local> {
    let index = u32::from_ne_bytes(array(body, 16)?);
    Some(Local { address: IpAddr::V6(Ipv6Addr::from(array::<16>(body, 0)?)), index })
}

/// Reads the tag from `tpacket_auxdata`: status, three fields of lengths, TCI, TPID.
fn tag(body: &[u8]) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(array(body, 0)?);
    let control = u16::from_ne_bytes(array(body, 16)?).to_be_bytes();
    let kind = u16::from_ne_bytes(array(body, 18)?).to_be_bytes();
    let both = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
    (status & both == both).then_some([kind[0], kind[1], control[0], control[1]])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(WORD - 1) & !(WORD - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + body.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn stamps(software: [i64; 2], hardware: [i64; 2]) -> Vec<u8> {
        let body: Vec<u8> = [software, [0, 0], hardware].concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &body)
    }

    #[test]
    fn a_tx_timestamp_has_its_number() {
        let mut error = [0_u8; 16];
        error[4] = libc::SO_EE_ORIGIN_TIMESTAMPING;
        error[12..].copy_from_slice(&41_u32.to_ne_bytes());
        let bytes = [stamps([3, 7], [0, 0]), message(libc::SOL_IP, libc::IP_RECVERR, &error)].concat();
        let control = Control::parse(&bytes);
        assert_eq!(control.software, Some(Time(3_000_000_007)));
        assert_eq!(
            (control.hardware, control.transmitted),
            (None, Some(Transmitted { number: 41, kind: StampKind::Left }))
        );
    }

    #[test]
    fn an_icmp_error_on_the_error_queue_is_no_tx_timestamp() {
        let mut error = [0_u8; 16];
        error[4] = libc::SO_EE_ORIGIN_ICMP;
        assert_eq!(Control::parse(&message(libc::SOL_IP, libc::IP_RECVERR, &error)), Control::default());
    }

    #[test]
    fn stripped_vlan_tag_is_reported_as_on_the_wire() {
        let mut body = [0_u8; 20];
        body[..4].copy_from_slice(&(libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID).to_ne_bytes());
        body[16..18].copy_from_slice(&0x600A_u16.to_ne_bytes());
        body[18..].copy_from_slice(&0x8100_u16.to_ne_bytes());
        let parse = |body: &[u8]| Control::parse(&message(libc::SOL_PACKET, libc::PACKET_AUXDATA, body)).tag;
        assert_eq!(parse(&body), Some([0x81, 0x00, 0x60, 0x0A]));
        body[0] = 1;
        assert_eq!(parse(&body), None);
    }

    #[test]
    fn local_addresses_round_trip() {
        for address in ["10.77.1.2", "fd77::2"] {
            let local = Local { address: address.parse().expect("an address"), index: 12 };
            let mut buffer = [0; 48];
            let length = local.write(&mut buffer);
            assert_eq!(Control::parse(&buffer[..length]).local, Some(local));
        }
    }

    #[test]
    fn broadcast_and_multicast_are_distinguished_from_unicast() {
        let came = |local: [u8; 4], header: [u8; 4]| {
            let body = [&12_u32.to_ne_bytes()[..], &local, &header].concat();
            Control::parse(&message(libc::SOL_IP, libc::IP_PKTINFO, &body)).group
        };
        assert_eq!([[10, 0, 0, 2], [127, 0, 0, 5]].map(|own| came(own, own)), [None; 2]);
        for (local, header) in [
            ([10, 0, 0, 2], [10, 0, 0, 255]),
            ([10, 0, 0, 2], [255; 4]),
            ([10, 0, 0, 2], [224, 0, 0, 1]),
            ([224, 0, 0, 1], [224, 0, 0, 1]),
        ] {
            assert_eq!(came(local, header), Some(header.into()));
        }
        let came6 = |address: &str| {
            let address: Ipv6Addr = address.parse().expect("an address");
            let body = [&address.octets()[..], &12_u32.to_ne_bytes()].concat();
            Control::parse(&message(libc::SOL_IPV6, libc::IPV6_PKTINFO, &body)).group
        };
        assert_eq!((came6("ff02::1"), came6("fd77::2")), ("ff02::1".parse().ok(), None));
    }

    #[test]
    fn hop_limit_above_255_is_ignored() {
        let parse = |level, kind, value: i32| Control::parse(&message(level, kind, &value.to_ne_bytes())).hop_limit;
        assert_eq!(parse(libc::SOL_IP, libc::IP_TTL, 63), Some(63));
        assert_eq!(parse(libc::SOL_IPV6, libc::IPV6_HOPLIMIT, 255), Some(255));
        assert_eq!(parse(libc::SOL_IP, libc::IP_TTL, 256), None);
    }

    #[test]
    fn traffic_class_round_trips_after_the_address() {
        for address in ["10.77.1.2", "fd77::2"] {
            let local = Local { address: address.parse().expect("an address"), index: 12 };
            let (mut from, mut buffer) = ([0; 48], [0; 72]);
            let mut length = local.write(&mut from);
            buffer[..length].copy_from_slice(&from[..length]);
            length += write_traffic_class(46 << 2, local.address.is_ipv4(), &mut buffer[length..]);
            let control = Control::parse(&buffer[..length]);
            assert_eq!((control.local, control.traffic_class), (Some(local), 46 << 2));
        }
        // The kernel reports IPv4's traffic class in one byte.
        assert_eq!(Control::parse(&message(libc::SOL_IP, libc::IP_TOS, &[0xBA])).traffic_class, 0xBA);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Control::parse(&bytes);
        }
    }
}
