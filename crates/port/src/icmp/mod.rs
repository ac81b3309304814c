//! ICMP and ICMPv6 echo with one peer, whose kernel answers.
//!
//! Uses a raw socket where that is permitted, else the unprivileged echo (ping) socket, and hides the difference: each
//! port has its own identifier in requests (for an echo socket the kernel writes it) and receives only echo replies
//! with that identifier; the IPv4 header of a raw socket is removed. The kernel fragments a message that exceeds the
//! MTU; its TX timestamp is then that of the first fragment and its RX timestamp that of the last. Does not build echo
//! messages.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use sojourn_time::Time;

use crate::kernel::{FilterStep, Interface, Name, Opening, Socket, denied_raw, mark};
use crate::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, Stamps, TxTimestamp};

const IPV4_HEADER_BYTES: usize = 20;
const ECHO_HEADER_BYTES: usize = 8;
/// An IP packet has at most 65,535 bytes, with the header in IPv4 and without it in IPv6.
const MAX_MESSAGE_BYTES: [usize; 2] = [65_515, 65_535];
const ECHO_REPLY_4: u32 = 0;
const ECHO_REPLY_6: usize = 129;
/// `ICMP_FILTER` of `linux/icmp.h`, and `ICMPV6_FILTER` of `linux/icmpv6.h`: a set bit blocks a type.
const FILTER: i32 = 1;
const IDENTIFIER_AT: u32 = 4;

/// Sends echo requests to one peer and receives its replies.
#[derive(Debug)]
pub struct IcmpPort {
    socket: Socket,
    stamps: Stamps,
    framing: Framing,
    header_bytes: usize,
    /// Writes this port's identifier into a request; `None` where the kernel writes it.
    outgoing: Option<Outgoing>,
}

/// The kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpSocket {
    /// Carries any ICMP message; needs CAP_NET_RAW.
    Raw,
    /// Carries echo messages only; needs a group in `net.ipv4.ping_group_range`.
    Echo,
}

impl IcmpPort {
    /// Opens a port to a peer, on the named interface if there is one: a raw socket where permitted, else the echo
    /// socket.
    ///
    /// # Errors
    /// `Denied` when neither is permitted, `Wrong` when there is no such interface, `Unusable` when it has no carrier
    /// or there is no route.
    pub fn open(peer: IpAddr, interface: Option<&str>) -> Result<Self, PortError> {
        Self::open_with(peer, interface, Stamps::Departure, 0)
    }

    /// As [`Self::open`], with these late TX timestamps and this DSCP, which Linux copies into its replies.
    ///
    /// # Errors
    /// As [`Self::open`], and `Wrong` when the DSCP is out of range.
    pub fn open_with(peer: IpAddr, interface: Option<&str>, stamps: Stamps, dscp: u8) -> Result<Self, PortError> {
        let opened = match Self::open_so(IcmpSocket::Raw, peer, interface, stamps) {
            Err(PortError::Denied { .. }) => Self::open_so(IcmpSocket::Echo, peer, interface, stamps),
            opened => opened,
        }?;
        mark(&opened.socket, peer, dscp)?;
        Ok(opened)
    }

    /// Opens a port with this kind of socket.
    ///
    /// # Errors
    /// As [`Self::open`], but `Denied` when this kind is not permitted.
    pub fn open_as(kind: IcmpSocket, peer: IpAddr, interface: Option<&str>) -> Result<Self, PortError> {
        Self::open_so(kind, peer, interface, Stamps::Departure)
    }

    fn open_so(kind: IcmpSocket, peer: IpAddr, interface: Option<&str>, stamps: Stamps) -> Result<Self, PortError> {
        let interface = interface.map(Interface::usable).transpose()?;
        let socket = open_socket(kind, peer, interface.as_ref(), stamps)?;
        if let Some(interface) = &interface {
            socket.keep_to(interface, peer)?;
        }
        let outgoing = (kind == IcmpSocket::Raw).then(Outgoing::new);
        if let Some(Outgoing { identifier, .. }) = outgoing {
            keep_out_all_but_replies(&socket, peer, identifier).map_err(|error| socket.refused("filter", error))?;
        }
        let scope = interface.map_or(0, |interface| interface.index);
        let name = Name::internet(SocketAddr::new(peer, 0), scope);
        socket.connect(&name).map_err(|error| socket.refused("connect", error))?;
        Ok(Self {
            socket,
            stamps,
            framing: if peer.is_ipv4() { Framing::Icmp4 } else { Framing::Icmp6 },
            header_bytes: if peer.is_ipv4() && kind == IcmpSocket::Raw { IPV4_HEADER_BYTES } else { 0 },
            outgoing,
        })
    }
}

impl Port for IcmpPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        self.socket.check_length(frame.len(), self.max_frame())?;
        match &mut self.outgoing {
            Some(outgoing) => self.socket.send(outgoing.prepare(frame, self.framing)),
            None => self.socket.send(frame),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let mut header = [0_u8; IPV4_HEADER_BYTES];
        while let Some(arrival) = self.socket.receive(&mut header[..self.header_bytes], buffer)? {
            let header = &header[..self.header_bytes];
            let Some(length) = without_header(header, arrival.length, buffer) else { continue };
            // A message longer than the buffer was truncated.
            let length = length.min(buffer.len());
            return Ok(Some(Received {
                length,
                arrived: arrival.arrived,
                returned: arrival.returned,
                from: None,
                to_group: false,
            }));
        }
        Ok(None)
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        self.socket.tx_timestamp()
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.socket.wait(deadline)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: self.framing, max_frame: self.max_frame(), tx_timestamps: self.stamps != Stamps::None }
    }

    fn local_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl Batch for IcmpPort {
    fn engine(&self) -> &str {
        if self.outgoing.is_some() { "ICMP raw socket" } else { "ICMP echo socket" }
    }
}

impl IcmpPort {
    fn max_frame(&self) -> usize {
        MAX_MESSAGE_BYTES[usize::from(self.framing == Framing::Icmp6)]
    }
}

/// Returns the length of the ICMP message of a packet of `length` bytes, whose IPv4 header, without options, was read
/// into `header` (empty: it has none) and whose rest into `buffer`; moves the message to the start behind options.
pub(crate) fn without_header(header: &[u8], length: usize, buffer: &mut [u8]) -> Option<usize> {
    // A message longer than the buffer was truncated.
    let length = length.checked_sub(header.len())?.min(buffer.len());
    let Some(first) = header.first() else { return Some(length) };
    let options = (usize::from(first & 0x0F) * 4).checked_sub(IPV4_HEADER_BYTES)?;
    let message = length.checked_sub(options)?;
    buffer.copy_within(options..length, 0);
    Some(message)
}

/// The buffer of an outgoing request with this port's identifier.
#[derive(Debug)]
struct Outgoing {
    identifier: u16,
    message: Box<[u8]>,
}

impl Outgoing {
    fn new() -> Self {
        Self { identifier: new_identifier(), message: vec![0; usize::from(u16::MAX)].into_boxed_slice() }
    }

    /// Copies a request, truncated to the size of an IP packet, and writes the identifier.
    fn prepare(&mut self, frame: &[u8], framing: Framing) -> &[u8] {
        let length = frame.len().min(self.message.len());
        let message = &mut self.message[..length];
        message.copy_from_slice(&frame[..length]);
        write_identifier(message, self.identifier, framing);
        message
    }
}

/// Returns an identifier that is unique among this process's ports, and random with respect to other processes.
fn new_identifier() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
        let random = RandomState::new().build_hasher().finish();
        AtomicU16::new(random as u16)
    });
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes an identifier into an echo message and updates the checksum; the kernel computes that of ICMPv6.
fn write_identifier(message: &mut [u8], identifier: u16, framing: Framing) {
    let Some([_, _, check @ .., id0, id1, _, _]) = message.first_chunk_mut::<ECHO_HEADER_BYTES>() else { return };
    if framing == Framing::Icmp4 {
        let sum = u16::from_be_bytes([check[0], check[1]]);
        let sum = changed_checksum(sum, u16::from_be_bytes([*id0, *id1]), identifier);
        check.copy_from_slice(&sum.to_be_bytes());
    }
    [*id0, *id1] = identifier.to_be_bytes();
}

/// Updates an Internet checksum for one changed word (RFC 1624, equation 3).
fn changed_checksum(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total > 0xFFFF {
        total = (total & 0xFFFF) + (total >> 16);
    }
    !(total as u16)
}

fn open_socket(
    kind: IcmpSocket,
    peer: IpAddr,
    interface: Option<&Interface>,
    stamps: Stamps,
) -> Result<Socket, PortError> {
    let (family, protocol) =
        if peer.is_ipv4() { (libc::AF_INET, libc::IPPROTO_ICMP) } else { (libc::AF_INET6, libc::IPPROTO_ICMPV6) };
    let socket_type = match kind {
        IcmpSocket::Raw => libc::SOCK_RAW,
        IcmpSocket::Echo => libc::SOCK_DGRAM,
    };
    let object = format!("ICMP {peer}");
    let opening = Opening { kind: [family, socket_type, protocol], object: &object, stamps, interface };
    Socket::open(opening).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let other_way = "`sudo sysctl -w net.ipv4.ping_group_range='0 2147483647'`";
            denied_raw("open", &object, Some(other_way))
        }
        _ => PortError::System { operation: "open", object, source },
    })
}

/// Filters for echo replies with this identifier in the kernel, so that replies to other programs do not wake this one.
fn keep_out_all_but_replies(socket: &Socket, peer: IpAddr, identifier: u16) -> std::io::Result<()> {
    if peer.is_ipv4() {
        socket.set_bytes(libc::SOL_RAW, FILTER, &(!(1_u32 << ECHO_REPLY_4)).to_ne_bytes())?;
        // The filter sees the IPv4 header: load its length into X.
        return socket.filter(&[
            step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0),
            step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, IDENTIFIER_AT),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, identifier.into()),
            step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
            step(libc::BPF_RET | libc::BPF_K, 0, 0),
        ]);
    }
    let mut types = [u32::MAX; 8];
    types[ECHO_REPLY_6 / 32] &= !(1 << (ECHO_REPLY_6 % 32));
    socket.set_bytes(libc::SOL_ICMPV6, FILTER, &types.map(u32::to_ne_bytes).concat())?;
    socket.filter(&[
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, IDENTIFIER_AT),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, identifier.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ])
}

/// Builds a filter instruction; a failed comparison skips `else_skip` instructions.
const fn step(code: u32, else_skip: u8, operand: u32) -> FilterStep {
    FilterStep { code: code as u16, jt: 0, jf: else_skip, k: operand }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(message: &[u8]) -> u16 {
        let words = message.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from));
        let mut sum: u32 = words.sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn request_gets_the_identifier_of_the_port_and_a_valid_checksum() {
        let mut request = vec![8, 0, 0, 0, 0xAB, 0xCD, 0x00, 0x07, 1, 2, 3];
        let sum = checksum(&request);
        request[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut outgoing = Outgoing { identifier: 0x5566, ..Outgoing::new() };
        let sent = outgoing.prepare(&request, Framing::Icmp4);
        assert_eq!(sent[4..8], [0x55, 0x66, 0x00, 0x07]);
        assert_eq!(checksum(sent), 0);
    }

    #[test]
    fn short_messages_are_unchanged() {
        assert_eq!(Outgoing::new().prepare(&[8, 0, 1], Framing::Icmp4), [8, 0, 1]);
    }
}
