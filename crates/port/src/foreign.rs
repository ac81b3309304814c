//! Readers of what the kernel says and shares, apart from the calls that ask it: `tests/fuzz` gives them any bytes. Each
//! returns whether it found something. Nothing here opens a socket or a file.

use std::io::Cursor;

use crate::kernel::{Control, Counters};

/// Messages of rtnetlink, in answer to a request or as notifications.
pub fn links(bytes: &[u8]) -> bool {
    let (said, errors) = crate::kernel::netlink_reply(bytes);
    assert!(said.len() + errors.len() <= bytes.len());
    assert!(errors.iter().all(|error| !error.to_string().is_empty()));
    !said.is_empty() || !errors.is_empty()
}

/// A message of the family ethtool: its numbers and its features.
pub fn settings(message: &[u8]) -> bool {
    const MOST: u16 = 64;
    let Some((answer, features)) = crate::kernel::ethtool_reply(message) else { return false };
    assert!(features.len() <= message.len());
    let numbers = (0..MOST).filter_map(|kind| answer.number(kind)).count();
    numbers > 0 || !features.is_empty()
}

/// The control messages of a packet.
pub fn control(bytes: &[u8]) -> bool {
    Control::parse(bytes) != Control::default()
}

/// The counters of interfaces, `/proc/net/dev`: those of lo.
pub fn counters(text: &str) -> bool {
    let Some(counters) = Counters::parse(text, "lo") else { return false };
    assert_eq!(counters.passed_since(&counters), Some([0, 0]));
    true
}

/// The packet sockets of a network namespace, `/proc/net/packet`.
pub fn sockets(text: &str) -> bool {
    text.lines().filter_map(crate::bridge::mark::line).count() > 0
}

/// `/proc/PID/stat`: whether the process has ended.
pub fn process(stat: &str) -> bool {
    crate::bridge::lock::is_of_an_ended(stat)
}

/// `/proc/self/uid_map`: the user outside.
pub fn users(map: &str) -> bool {
    (0..3).any(|user| crate::bridge::lock::number_outside(map, user) != user)
}

/// A lock file, which names its holder.
pub fn lock(bytes: &[u8]) -> bool {
    crate::bridge::lock::holder(&mut Cursor::new(bytes)).is_some()
}

/// An ICMP packet behind so many bytes of an IPv4 header, for a buffer of so many bytes.
pub fn message(header_bytes: usize, room: usize, packet: &[u8]) -> bool {
    let Some((header, rest)) = packet.split_at_checked(header_bytes) else { return false };
    let mut buffer = vec![0; room];
    let read = room.min(rest.len());
    buffer[..read].copy_from_slice(&rest[..read]);
    let Some(length) = crate::icmp::without_header(header, packet.len(), &mut buffer) else { return false };
    assert!(length <= read && rest[..read].ends_with(&buffer[..length]));
    length > 0
}

/// A frame of a packet socket, behind what the kernel left undone in it, and its VLAN tag.
pub fn packet(message: &[u8], tag: Option<[u8; 4]>) -> bool {
    let (mut octets, mut most) = (0, 0);
    let mut message = message.to_vec();
    let is_done = crate::bridge::packet::finish(&mut message, tag, &mut Vec::new(), &mut |frame| {
        (octets, most) = (octets + frame.len(), most.max(frame.len()));
    });
    assert!(most <= message.len() + 4);
    is_done && octets > 0
}

/// `/proc/PID/fdinfo/FD` of a link: whether the program with this ID is attached by it.
pub fn attachment(told: &str, number: u32) -> bool {
    crate::bpf::is_hung(told, number)
}

/// A list of processors, `0-3,8-11`.
pub fn processors(list: &str) -> bool {
    crate::bpf::places(list).is_some()
}

/// A frame of AF_XDP, behind what the program wrote about it; returns whether that was there.
pub fn arrival(bytes: &[u8]) -> bool {
    let returned = sojourn_time::Time(9);
    let (mut bytes, mut has_stamp) = (bytes.to_vec(), false);
    let length = bytes.len();
    crate::bridge::xdp::show(&mut bytes, &sojourn_time::SteadyClock::begin(), returned, &mut |frame, received| {
        assert!(frame.len() == received.length && frame.len() < length);
        has_stamp = received.arrived.at != returned;
    });
    has_stamp
}
