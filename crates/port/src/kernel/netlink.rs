//! Reads the state of interfaces over rtnetlink, by request and by notification.
//!
//! Uses the network namespace in which the socket was opened, whichever one `/sys` shows. Untrusted bytes: truncated
//! and unknown messages are ignored.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send, socket_with,
    sockopt,
};

use super::sys;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_DUMP: u16 = 0x300;
/// Flag of an error message: attributes follow the copied request header, among them the kernel's message.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
/// `RTPROT_KERNEL`: a route that the kernel added by itself, with an address or with IPv6.
const MADE_BY_KERNEL: u8 = 2;

/// The two highest bits of an attribute's type are flags; this masks them.
const TYPE: u16 = 0x3fff;
/// The netlink header, and the offsets of the attributes of a link, an address and a route.
pub(super) const HEAD: usize = 16;
const LINK: usize = HEAD + 16;
const ADDRESS: usize = HEAD + 8;
const ROUTE: usize = HEAD + 12;
/// A next hop: its length, and the offset of its interface's index.
const HOP: usize = 8;
const HOP_INDEX: usize = 4;
/// The offsets of the flags and of the sequence number in a header.
const FLAGS: usize = 6;
const NUMBER: usize = 8;
/// The buffer's size, larger than the description of one interface.
const ROOM: usize = 1 << 16;
/// The receive buffer for unread notifications: enough for a machine that sets up a thousand interfaces at once.
const BUFFER_BYTES: usize = 1 << 20;
/// The longest wait for a reply.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The multicast groups: links, and addresses and routes of either family (`RTMGRP_…`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100 | 0x40 | 0x400;

/// The state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub is_running: bool,
    /// Its MTU.
    pub mtu: usize,
    /// Its master, and the kind of that: "bridge", "bond"; empty where the kernel does not report it.
    pub master: Option<(u32, String)>,
    /// The kind of link: "veth"; empty for hardware.
    pub kind: String,
    /// Its queueing discipline: "noqueue" where frames go to the driver at once.
    pub qdisc: String,
    /// The interface of this namespace that is its peer, or that it is stacked on.
    pub lower: Option<u32>,
    /// The XDP program attached to it.
    pub program: Option<u32>,
}

impl LinkState {
    /// Whether it is stacked on another interface, as a VLAN or a macvlan is. For an end of a pair, `lower` is its peer.
    pub fn is_stacked_on(&self, lower: u32) -> bool {
        self.lower == Some(lower) && !matches!(self.kind.as_str(), "veth" | "netkit")
    }

    /// Its queueing discipline, if frames may wait in one.
    pub fn queue(&self) -> Option<&str> {
        Some(self.qdisc.as_str()).filter(|qdisc| !matches!(*qdisc, "" | "noqueue" | "noop"))
    }
}

/// A message of rtnetlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The present state of an interface.
    Link(LinkState),
    /// The interface with this index was deleted or moved to another namespace.
    Gone(u32),
    /// The interface with this index got an address (`true`) or lost it (`false`).
    Address(u32, IpAddr, bool),
    /// A route by the interfaces with these indices, to a prefix as text, was added (`true`) or deleted (`false`).
    Route(Vec<u32>, String, bool),
    /// Notifications were lost: read the state again.
    Overrun,
}

/// A socket for requests and notifications.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The sequence number of the last request: replies with another number are late and ignored.
    number: u32,
}

impl Netlink {
    /// Opens a socket; with `is_told`, it receives a notification of every change from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(is_told: bool) -> io::Result<Self> {
        let opened = Self::of(None)?;
        if is_told {
            let _ = sockopt::set_socket_recv_buffer_size(&opened.socket, BUFFER_BYTES);
            bind(&opened.socket, &SocketAddrNetlink::new(0, GROUPS))?;
        }
        Ok(opened)
    }

    /// Opens a socket for generic netlink, whose errors include the kernel's message.
    pub(super) fn generic() -> io::Result<Self> {
        let opened = Self::of(Some(netlink::GENERIC))?;
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK] {
            sys::set_option(opened.as_fd(), libc::SOL_NETLINK, option, &1_i32.to_ne_bytes())?;
        }
        Ok(opened)
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket, buffer: vec![0; ROOM], number: 0 })
    }

    /// Reads the notifications since the last call; never waits.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn changes(&mut self, mut each: impl FnMut(Said)) -> io::Result<()> {
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => {
                    each_message(&self.buffer[..length.min(ROOM)], |kind, message| read(kind, message).map(&mut each));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => each(Said::Overrun),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the state of an interface.
    ///
    /// # Errors
    /// `ENODEV` when there is no interface of that index, or when the kernel does not answer.
    pub fn link(&mut self, index: u32) -> io::Result<LinkState> {
        let mut body = [0; LINK - HEAD];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut found = None;
        self.ask(RTM_GETLINK, 0, &body, &mut |said| {
            if let Said::Link(link) = said
                && link.index == index
            {
                found = Some(link);
            }
        })?;
        found.ok_or_else(odd)
    }

    /// Lists the interfaces of this namespace that are stacked on an interface: their indices and names.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn stacked(&mut self, index: u32) -> io::Result<Vec<(u32, String)>> {
        let mut stacked = Vec::new();
        self.ask(RTM_GETLINK, NLM_F_DUMP, &[0; LINK - HEAD], &mut |said| match said {
            Said::Link(link) if link.is_stacked_on(index) => stacked.push((link.index, link.name)),
            _ => {}
        })?;
        Ok(stacked)
    }

    /// Lists the addresses of an interface.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<IpAddr>> {
        let mut addresses = Vec::new();
        self.ask(RTM_GETADDR, NLM_F_DUMP, &[0; ADDRESS - HEAD], &mut |said| match said {
            Said::Address(of, address, true) if of == index => addresses.push(address),
            _ => {}
        })?;
        Ok(addresses)
    }

    /// Lists the prefixes of the routes by an interface, except routes that the kernel added by itself.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes(&mut self, index: u32) -> io::Result<Vec<String>> {
        let mut routes = Vec::new();
        self.ask(RTM_GETROUTE, NLM_F_DUMP, &[0; ROUTE - HEAD], &mut |said| match said {
            Said::Route(by, to, true) if by.contains(&index) => routes.push(to),
            _ => {}
        })?;
        Ok(routes)
    }

    /// Sends an rtnetlink request and passes every reply to `each`. Only for sockets without notifications.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8], each: &mut dyn FnMut(Said)) -> io::Result<()> {
        self.exchange(kind, flags, body, &mut |kind, message| {
            read(kind, message).map(&mut *each);
        })
    }

    /// Sends a request and passes each message of the reply to `each`: its type and all its bytes.
    pub(super) fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        send(&self.socket, &request((kind, NLM_F_REQUEST | flags), self.number, body), SendFlags::empty())?;
        let is_dump = flags & NLM_F_DUMP != 0;
        loop {
            let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => length.min(ROOM),
                Err(Errno::AGAIN | Errno::INTR) => {
                    match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&PATIENCE)) {
                        Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                        _ => continue,
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let (mut ended, mut refused) = (false, None);
            each_message(&self.buffer[..length], |kind, message| {
                if word(message, NUMBER) != Some(self.number) {
                    return None;
                }
                ended |= !is_dump;
                match kind {
                    NLMSG_DONE => ended = true,
                    NLMSG_ERROR => refused = refusal(message),
                    kind => each(kind, message),
                }
                Some(())
            });
            match refused {
                Some(error) => return Err(error),
                None if ended => return Ok(()),
                None => {}
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(super) fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is none")
}

/// The error of an error message, with the kernel's text where it has one; `None` for an acknowledgement.
fn refusal(message: &[u8]) -> Option<io::Error> {
    const CODE: usize = 4;
    let code = word(message, HEAD).unwrap_or_default().cast_signed();
    let error = io::Error::from_raw_os_error(code.wrapping_neg());
    let has_words = half(message, FLAGS).is_some_and(|flags| flags & NLM_F_ACK_TLVS != 0);
    let words = message.get(HEAD + CODE + HEAD..).filter(|_| has_words).map(|more| text_of(more, NLMSGERR_ATTR_MSG));
    match words.filter(|words| !words.is_empty()) {
        _ if code == 0 => None,
        Some(words) => Some(io::Error::new(error.kind(), format!("{words} ({error})"))),
        None => Some(error),
    }
}

fn request((kind, flags): (u16, u16), number: u32, body: &[u8]) -> Vec<u8> {
    let length = (HEAD + body.len()) as u32;
    let (kind, flags, number) = (kind.to_ne_bytes(), flags.to_ne_bytes(), number.to_ne_bytes());
    let head = [&length.to_ne_bytes()[..], &kind, &flags, &number, &[0; 4]].concat();
    [&head, body].concat()
}

/// Passes each complete message to `show`: its type and all its bytes.
fn each_message(mut bytes: &[u8], mut show: impl FnMut(u16, &[u8]) -> Option<()>) {
    while let (Some(length), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let length = length as usize;
        let Some(message) = bytes.get(..length).filter(|message| message.len() >= HEAD) else { return };
        show(kind, message);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Reads every message of a reply: what they say, and the errors among them.
#[cfg(feature = "bpf")]
pub(crate) fn reply(bytes: &[u8]) -> (Vec<Said>, Vec<io::Error>) {
    let (mut said, mut errors) = (Vec::new(), Vec::new());
    each_message(bytes, |kind, message| {
        errors.extend(refusal(message).filter(|_| kind == NLMSG_ERROR));
        read(kind, message).map(|one| said.push(one))
    });
    (said, errors)
}

fn read(kind: u16, message: &[u8]) -> Option<Said> {
    match kind {
        RTM_NEWLINK => link(message).map(Said::Link),
        // A bridge also sends this message when an interface leaves it; the interface itself stays.
        RTM_DELLINK if message.get(HEAD) == Some(&0) => Some(Said::Gone(word(message, HEAD + 4)?)),
        RTM_NEWADDR | RTM_DELADDR => {
            let attributes = message.get(ADDRESS..)?;
            let value = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
            Some(Said::Address(word(message, HEAD + 4)?, address(value)?, kind == RTM_NEWADDR))
        }
        RTM_NEWROUTE | RTM_DELROUTE => route(message, kind == RTM_NEWROUTE),
        _ => None,
    }
}

/// Parses the state of a link. Messages of a bridge about its ports (family `AF_BRIDGE`) are incomplete and ignored.
fn link(message: &[u8]) -> Option<LinkState> {
    if *message.get(HEAD)? != 0 {
        return None;
    }
    let attributes = message.get(LINK..)?;
    let flags = word(message, HEAD + 8)?;
    let number = |kind| attribute(attributes, kind).and_then(|value| word(value, 0));
    let about = attribute(attributes, IFLA_LINKINFO).unwrap_or_default();
    let index = word(message, HEAD + 4)?;
    let lower = number(IFLA_LINK).filter(|lower| *lower != 0 && *lower != index);
    Some(LinkState {
        index,
        name: text(attribute(attributes, IFLA_IFNAME)?),
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_running: flags & libc::IFF_RUNNING as u32 != 0,
        mtu: number(IFLA_MTU)? as usize,
        master: number(IFLA_MASTER).map(|master| (master, text_of(about, IFLA_INFO_SLAVE_KIND))),
        kind: text_of(about, IFLA_INFO_KIND),
        qdisc: text_of(attributes, IFLA_QDISC),
        lower: lower.filter(|_| attribute(attributes, IFLA_LINK_NETNSID).is_none()),
        program: attribute(attributes, IFLA_XDP)
            .and_then(|nested| attribute(nested, IFLA_XDP_PROG_ID))
            .and_then(|value| word(value, 0))
            .filter(|program| *program != 0),
    })
}

fn route(message: &[u8], is_there: bool) -> Option<Said> {
    let (family, length, by, kind) =
        (message.get(HEAD)?, message.get(HEAD + 1)?, message.get(HEAD + 5)?, message.get(HEAD + 7)?);
    const UNICAST: u8 = 1;
    let is_ours = [libc::AF_INET, libc::AF_INET6].contains(&i32::from(*family)) && *kind == UNICAST;
    if !is_ours || *by == MADE_BY_KERNEL {
        return None;
    }
    let attributes = message.get(ROUTE..)?;
    let alone = attribute(attributes, RTA_OIF).and_then(|value| word(value, 0));
    let by: Vec<u32> =
        alone.into_iter().chain(hops(attribute(attributes, RTA_MULTIPATH).unwrap_or_default())).collect();
    if by.is_empty() {
        return None;
    }
    let to = attribute(attributes, RTA_DST).and_then(address);
    let all = if i32::from(*family) == libc::AF_INET6 { "default of IPv6" } else { "default" };
    let to = to.map_or_else(|| all.to_owned(), |address| format!("{address}/{length}"));
    Some(Said::Route(by, to, is_there))
}

/// The interfaces of the next hops, each of which states its own length.
fn hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    while let (Some(length), Some(index)) = (half(bytes, 0), word(bytes, HOP_INDEX)) {
        found.push(index);
        let next = usize::from(length).max(HOP).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
    }
    found
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(value).map(IpAddr::from);
    <[u8; 16]>::try_from(value).map(IpAddr::from).or_else(|_| four()).ok()
}

fn text_of(attributes: &[u8], wanted: u16) -> String {
    attribute(attributes, wanted).map(text).unwrap_or_default()
}

pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

/// Returns an attribute's value.
pub(super) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Returns the type and value of every complete attribute.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(half(bytes, 0)?), half(bytes, 2)? & TYPE);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Writes an attribute; the kernel refuses one whose length exceeds the length field.
pub(super) fn attributed(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        request((kind, 0), 0, body)
    }

    fn all(bytes: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        each_message(bytes, |kind, message| read(kind, message).map(|one| said.push(one)));
        said
    }

    fn link_body(family: u8, index: u32, flags: u32) -> Vec<u8> {
        [&[family, 0, 0, 0][..], &index.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat()
    }

    fn port(more: &[Vec<u8>]) -> Vec<u8> {
        let name = attributed(IFLA_IFNAME, b"left\0");
        let mtu = attributed(IFLA_MTU, &1500_u32.to_ne_bytes());
        let flags = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        message(RTM_NEWLINK, &[&[link_body(0, 5, flags), name, mtu], more].concat().concat())
    }

    fn plain() -> LinkState {
        LinkState { index: 5, name: "left".into(), is_up: true, is_running: true, mtu: 1500, ..LinkState::default() }
    }

    #[test]
    fn link_reports_its_master_its_lower_device_and_its_xdp_program() {
        assert_eq!(all(&port(&[])), [Said::Link(plain())]);
        let info = [attributed(IFLA_INFO_KIND, b"veth\0"), attributed(IFLA_INFO_SLAVE_KIND, b"bridge\0")].concat();
        let of_port = [
            attributed(IFLA_MASTER, &7_u32.to_ne_bytes()),
            attributed(IFLA_LINKINFO | 0x8000, &info),
            attributed(IFLA_LINK, &6_u32.to_ne_bytes()),
            attributed(IFLA_QDISC, b"fq_codel\0"),
            attributed(IFLA_XDP, &attributed(IFLA_XDP_PROG_ID, &77_u32.to_ne_bytes())),
        ];
        let expected = LinkState {
            master: Some((7, "bridge".into())),
            qdisc: "fq_codel".into(),
            kind: "veth".into(),
            lower: Some(6),
            program: Some(77),
            ..plain()
        };
        assert_eq!(all(&port(&of_port)), [Said::Link(expected)]);
        // The same index in another namespace is another interface.
        let elsewhere = [attributed(IFLA_LINK, &6_u32.to_ne_bytes()), attributed(IFLA_LINK_NETNSID, &[0; 4])];
        assert_eq!(all(&port(&elsewhere)), [Said::Link(plain())]);
    }

    #[test]
    fn a_vlan_is_stacked_on_its_interface_and_the_end_of_a_pair_on_none() {
        for (kind, lower, is_stacked) in
            [("vlan", 2, true), ("macvlan", 2, true), ("vlan", 3, false), ("veth", 2, false), ("netkit", 2, false)]
        {
            let link = LinkState { kind: kind.to_owned(), lower: Some(lower), ..plain() };
            assert_eq!(link.is_stacked_on(2), is_stacked, "{kind} {lower}");
        }
        assert!(!plain().is_stacked_on(2));
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_not_gone_and_an_interface_that_is_deleted_is() {
        let (bridge, any) = (link_body(libc::AF_BRIDGE as u8, 5, 0), link_body(0, 5, 0));
        assert_eq!(all(&message(RTM_DELLINK, &bridge)), []);
        assert_eq!(all(&message(RTM_DELLINK, &any)), [Said::Gone(5)]);
    }

    #[test]
    fn addresses_and_routes_are_read() {
        let body = [&[2, 24, 0, 0][..], &5_u32.to_ne_bytes(), &attributed(IFA_LOCAL, &[10, 0, 0, 1])].concat();
        let address = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(all(&message(RTM_NEWADDR, &body)), [Said::Address(5, address, true)]);
        assert_eq!(all(&message(RTM_DELADDR, &body)), [Said::Address(5, address, false)]);
        let told = |message_kind, by, kind| {
            let to = [attributed(RTA_DST, &[10, 9, 0, 0]), attributed(RTA_OIF, &5_u32.to_ne_bytes())].concat();
            all(&message(message_kind, &[&[2, 16, 0, 0, 254, by, 0, kind, 0, 0, 0, 0][..], &to].concat()))
        };
        let route = |by, kind| told(RTM_NEWROUTE, by, kind);
        assert_eq!(route(3, 1), [Said::Route(vec![5], "10.9.0.0/16".into(), true)]);
        assert_eq!(told(RTM_DELROUTE, 3, 1), [Said::Route(vec![5], "10.9.0.0/16".into(), false)]);
        assert_eq!(route(MADE_BY_KERNEL, 1), [], "it came by itself");
        assert_eq!(route(3, 3), [], "a broadcast address");
    }

    #[test]
    fn a_route_over_several_paths_names_all_their_interfaces() {
        let hop = |index: u32, more: &[u8]| {
            let length = u16::try_from(HOP + more.len()).expect("short");
            [&length.to_ne_bytes()[..], &[0, 0], &index.to_ne_bytes(), more].concat()
        };
        const RTA_GATEWAY: u16 = 5;
        let paths = [hop(5, &attributed(RTA_GATEWAY, &[10, 0, 0, 1])), hop(6, &[])].concat();
        let body = [&[2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0][..], &attributed(RTA_MULTIPATH, &paths)].concat();
        assert_eq!(all(&message(RTM_NEWROUTE, &body)), [Said::Route(vec![5, 6], "default".into(), true)]);
    }

    #[test]
    fn reply_to_another_request_is_ignored() {
        let mut netlink = Netlink::open(false).expect("opens");
        let mut body = [0; LINK - HEAD];
        // A request whose reply nobody awaited, as after a timeout.
        body[4..8].copy_from_slice(&2_000_000_000_u32.to_ne_bytes());
        let late = request((RTM_GETLINK, NLM_F_REQUEST), 77, &body);
        send(&netlink.socket, &late, SendFlags::empty()).expect("asks");
        assert_eq!(netlink.link(1).expect("its own answer").name, "lo");
        send(
            &netlink.socket,
            &request((RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP), 78, &[0; ROUTE - HEAD]),
            SendFlags::empty(),
        )
        .expect("asks");
        assert_eq!(netlink.link(1).expect("its own answer").name, "lo");
    }

    #[test]
    fn kernel_answers_queries_of_links_addresses_and_routes() {
        let mut netlink = Netlink::open(false).expect("opens");
        let lo = netlink.link(1).expect("answers");
        assert_eq!((lo.name.as_str(), lo.master), ("lo", None));
        assert_eq!(netlink.link(2_000_000_000).expect_err("there is none").raw_os_error(), Some(libc::ENODEV));
        netlink.stacked(1).expect("answers");
        netlink.addresses(1).expect("answers");
        netlink.routes(1).expect("answers");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, kind in 0_u16..40) {
            all(&bytes);
            all(&message(kind, &bytes));
        }
    }
}
