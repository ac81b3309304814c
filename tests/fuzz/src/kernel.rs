//! What the kernel says: netlink, control messages, files of /proc and /sys; and what it and BPF programs write into
//! memory that they share with the program. Names in it are those that users of the machine chose.

use std::net::IpAddr;

use sojourn_capture::foreign as taps;
use sojourn_live::FlowCount;
use sojourn_port::foreign as port;
use sojourn_wire::{Carrier, MacAddress, PeerAddress, Peers, Size};

use crate::Target;
use crate::chosen::{self, Reader, of_text};
use crate::frames::frames;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "kernel-answers", read: kernel_answers, seeds: || chosen::seeds(ANSWERS) },
    Target { name: "rings", read: rings, seeds: || chosen::seeds(RINGS) },
];

fn kernel_answers(bytes: &[u8]) {
    is_answer(bytes);
}

fn rings(bytes: &[u8]) {
    is_in_ring(bytes);
}

/// Whether an input of `kernel-answers` is understood.
pub fn is_answer(bytes: &[u8]) -> bool {
    chosen::is_read(ANSWERS, bytes)
}

/// Whether an input of `rings` is understood.
pub fn is_in_ring(bytes: &[u8]) -> bool {
    chosen::is_read(RINGS, bytes)
}

const ANSWERS: &[Reader] = &[
    Reader { read: port::links, seed: links },
    Reader { read: port::settings, seed: settings },
    Reader { read: port::control, seed: control },
    Reader { read: |bytes| of_text(port::counters, bytes), seed: || COUNTERS.into() },
    Reader { read: |bytes| of_text(port::sockets, bytes), seed: || SOCKETS.into() },
    Reader { read: |bytes| of_text(port::process, bytes), seed: || b"7 (a) b) Z 1 7 7 0 -1 4194308 95 0 0".into() },
    Reader { read: |bytes| of_text(port::users, bytes), seed: || b"0 100000 65536\n65536 7 1\n".into() },
    Reader { read: port::lock, seed: || b"4194304\n".into() },
    Reader { read: attachment, seed: || b"link_type:\ttcx\nprog_id:\t7\nifindex:\t3\n".into() },
    Reader { read: |bytes| of_text(port::processors, bytes), seed: || b"0-3,8-11\n".into() },
    Reader { read: mounts, seed: || MOUNTS.into() },
    Reader { read: tcp_info, seed: || (0..=255).collect() },
    Reader { read: message, seed: || [&[20, 60, 0x46][..], &[0; 23], &[8, 0, 1, 2, 3, 4, 5, 6]].concat() },
    Reader { read: time_namespace, seed: || b"monotonic           86400         5\nboottime 7 0\n".into() },
];

const RINGS: &[Reader] = &[
    Reader { read: taps::block, seed: block },
    Reader { read: taps::record, seed: record },
    Reader { read: packet, seed: || [&[1, 0x81, 0, 0, 7][..], &[0; 10], &frames()[0]].concat() },
    Reader { read: port::arrival, seed: arrival },
    Reader { read: counted, seed: || [&[1; 16][..], &[0, 0, 8, 1, 112, 0, 8, 5]].concat() },
    Reader { read: |bytes| of_text(peers, bytes), seed: || b"fd77::/16 fd77::1".into() },
    Reader { read: sizes, seed: || 64_u64.to_ne_bytes().into() },
];

// --- answers ----------------------------------------------------------------------------------------------------------

const COUNTERS: &str = "Inter-|   Receive                            |  Transmit\n face |bytes packets errs drop fifo frame\n\
                            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  a:b: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
const SOCKETS: &str = "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                       0000000000000000 3      3    05f7   11    1 0      64001  52134 \n";
const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw\n\
                      41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

fn attachment(bytes: &[u8]) -> bool {
    of_text(|told| port::attachment(told, 7), bytes)
}

fn mounts(bytes: &[u8]) -> bool {
    let found = sojourn_tcplog::kernel::find_root(bytes);
    // A byte that no text has takes three.
    found.is_some_and(|root| root.as_os_str().len() <= 3 * bytes.len())
}

/// A structure that is shorter than the kernel's lacks the last values, and no other.
fn tcp_info(bytes: &[u8]) -> bool {
    let (whole, cut) = (sojourn_tcp::info::decode(bytes), sojourn_tcp::info::decode(&bytes[..bytes.len() / 2]));
    assert!(cut.state == whole.state || bytes.len() < 2);
    assert!(whole.rto_us.is_none_or(|rto| (0..=u32::MAX.into()).contains(&rto)));
    assert!(whole.pacing_rate_bps.is_none_or(|rate| rate >= -1));
    whole.rto_us.is_some()
}

/// The first two bytes give the length of the IPv4 header that was asked for, and that of the buffer.
fn message(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<2>().is_some_and(|([header, room], packet)| {
        port::message(if header % 2 == 0 { 20 } else { 0 }, usize::from(*room), packet)
    })
}

fn time_namespace(bytes: &[u8]) -> bool {
    of_text(|text| sojourn_time::monotonic_offset(text).is_some(), bytes)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn netlink(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (16 + body.len() as u32).to_ne_bytes();
    [&length[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat()
}

/// A link, an address, a route by two next hops, and an error with a sentence.
fn links() -> Vec<u8> {
    let about = [attribute(1, b"vlan\0"), attribute(4, b"bridge\0")].concat();
    let numbers = [(4, 1500_u32), (5, 2), (10, 9)].map(|(kind, number)| attribute(kind, &number.to_ne_bytes()));
    let attributes = [attribute(3, b"eth1\0"), attribute(6, b"noqueue\0"), numbers.concat(), attribute(18, &about)];
    let link = [&[0; 4][..], &7_u32.to_ne_bytes(), &1_u32.to_ne_bytes(), &[0; 4], &attributes.concat()].concat();
    let address = [&[2, 24, 0, 0][..], &7_u32.to_ne_bytes(), &attribute(2, &[10, 0, 0, 1])].concat();
    let hop = |index: u32| [&[8, 0, 0, 0][..], &index.to_ne_bytes()].concat();
    let hops = attribute(9, &[hop(7), hop(8)].concat());
    let route = [&[2, 8, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0][..], &attribute(1, &[10, 0, 0, 0]), &hops].concat();
    let error = [&(-22_i32).to_ne_bytes()[..], &[0; 16], &attribute(1, b"no such thing\0")].concat();
    [netlink(16, 2, &link), netlink(20, 2, &address), netlink(24, 2, &route), netlink(2, 0x200, &error)].concat()
}

/// A message with numbers and with two features.
fn settings() -> Vec<u8> {
    let bit = |index: u32, name: &str| {
        let bit = [attribute(1, &index.to_ne_bytes()), attribute(2, name.as_bytes()), attribute(3, &[])].concat();
        attribute(1, &bit)
    };
    let set = |kind| attribute(kind, &attribute(3, &[bit(0, "tx-gso\0"), bit(1, "rx-gro\0")].concat()));
    let body = [vec![11, 1, 0, 0], set(2), set(3), set(4), attribute(6, &[7])].concat();
    netlink(0x14, 0, &body)
}

fn control_message(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + body.len()).to_ne_bytes().to_vec();
    [level, kind].iter().for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Timestamps, the error that names their packet, an address, a traffic class and a VLAN tag.
fn control() -> Vec<u8> {
    let (mut error, mut tag) = ([0; 16], [0; 20]);
    error[4] = 4;
    error[12] = 41;
    tag[..4].copy_from_slice(&0x50_u32.to_ne_bytes());
    tag[16..].copy_from_slice(&[7, 0, 0, 0x81]);
    [
        control_message(1, 37, &[3; 48]),
        control_message(0, 11, &error),
        control_message(0, 8, &[12, 0, 0, 0, 10, 0, 0, 2, 10, 0, 0, 2]),
        control_message(0, 1, &[0xB8]),
        control_message(263, 8, &tag),
    ]
    .concat()
}

// --- memory -----------------------------------------------------------------------------------------------------------

/// The first byte says whether the next four are a VLAN tag.
fn packet(bytes: &[u8]) -> bool {
    bytes
        .split_first_chunk::<5>()
        .is_some_and(|([has_tag, tag @ ..], message)| port::packet(message, (has_tag % 2 == 1).then_some(*tag)))
}

/// A flow of the counting program: its key, then what its value is filled with, as runs of bytes: place, length, byte.
fn counted(bytes: &[u8]) -> bool {
    /// The value's length: 14 numbers, two histograms of 35 octaves with 64 steps each, and a window.
    const VALUE_BYTES: usize = (14 + 2 * (35 << 6) + 64) * 8;
    let Some((key, runs)) = bytes.split_first_chunk::<16>() else { return false };
    let mut value = vec![0; VALUE_BYTES];
    for [p0, p1, length, byte] in runs.as_chunks().0 {
        let at = usize::from(u16::from_le_bytes([*p0, *p1])).min(VALUE_BYTES);
        let end = (at + usize::from(*length)).min(VALUE_BYTES);
        value[at..end].fill(*byte);
    }
    assert_eq!(FlowCount::parse(key, runs).is_some(), runs.len() >= VALUE_BYTES - 64 * 8);
    FlowCount::parse(key, &value).is_some_and(|flow| {
        assert!(flow.delay.steps().is_sorted_by_key(|step| step.low));
        assert!(flow.delay.steps().chain(flow.inter_arrival.steps()).all(|step| step.low <= step.high));
        flow.delay.count() > 0 || flow.frames > 0
    })
}

/// Two words: a set of peers, and an address.
fn peers(text: &str) -> bool {
    let (peers, address) = text.split_once(' ').unwrap_or((text, ""));
    let Ok(peers) = peers.parse::<Peers>() else { return false };
    assert_eq!(peers.to_string().parse(), Ok(peers));
    let internet = address.parse::<IpAddr>().map(|address| PeerAddress::Internet((address, 7).into()));
    let peer = internet.or_else(|_| address.parse::<MacAddress>().map(PeerAddress::Ethernet));
    peer.is_ok_and(|peer| peers.have(peer) || peers != Peers::Any)
}

/// A number, as each size of each carrier.
fn sizes(bytes: &[u8]) -> bool {
    let Some(size) = bytes.first_chunk().map(|size| u64::from_ne_bytes(*size) as usize) else { return false };
    let carriers = [Carrier::Icmp4, Carrier::Icmp6, Carrier::Udp4, Carrier::Udp6, Carrier::Ethernet];
    let sizes = [Size::Payload(size), Size::Icmp(size), Size::Frame(size)];
    let allowed = carriers.iter().flat_map(|carrier| sizes.map(|size| (carrier, carrier.payload_bytes(size))));
    allowed
        .filter_map(|(carrier, payload)| Some((carrier, payload.ok()?)))
        .map(|(carrier, payload)| assert!(carrier.frame_bytes(payload) <= 65_535 + 18))
        .count()
        > 0
}

/// A block with two frames, one of them with a VLAN tag and without a checksum.
fn block() -> Vec<u8> {
    let frame = |frame: &[u8], status: u32, needs: u8| {
        let mut bytes = vec![0; 96];
        bytes.extend_from_slice(frame);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let words = [bytes.len() as u32, 7, 5, frame.len() as u32, frame.len() as u32, status];
        bytes[..24].copy_from_slice(&words.map(u32::to_ne_bytes).concat());
        bytes[24] = 96;
        bytes[32..38].copy_from_slice(&[7, 0, 0, 0, 0, 0x81]);
        bytes[86..96].copy_from_slice(&[needs, 0, 0, 0, 0, 0, 34, 0, 6, 0]);
        bytes
    };
    let mut bytes = vec![0; 48];
    (bytes[12], bytes[16]) = (2, 48);
    let all = frames();
    [bytes, frame(&all[0], 0x50, 1), frame(&all[1], 0, 0)].concat()
}

/// A frame that was sent, with a VLAN tag and without a checksum.
fn record() -> Vec<u8> {
    let frame = &frames()[0];
    let length = (frame.len() as u32).to_ne_bytes();
    let halves = [0x81, 0, 7, 0, 34, 0, 6, 0];
    [&2003_u64.to_ne_bytes()[..], &length, &length, &halves, &13_u32.to_ne_bytes(), &[0; 4], frame].concat()
}

/// A frame behind the mark of the program (`crates/port/src/bridge/xdp.rs`), its tag and its time.
fn arrival() -> Vec<u8> {
    const MARK: u32 = 0x534F_4A42;
    [&MARK.to_ne_bytes()[..], &[0x81, 0, 0, 7], &7_i64.to_ne_bytes(), &frames()[0]].concat()
}
