//! UDP payloads, IPv4 and IPv6: to one peer ([`UdpPort`]), or from whoever asks ([`UdpListener`]).
//!
//! Hides the socket, the binding to an interface, and that an answer must leave from the address that was asked. A payload
//! that does not fit the MTU is fragmented by the kernel; its transmit stamp is then that of the first fragment and its
//! receive stamp that of the last.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sojourn_time::Time;

use crate::kernel::{Interface, Local, Name, Opening, Socket};
use crate::{Batch, Capabilities, Framing, Listener, Port, PortError, Received, Sent, Stamps, TransmitStamp};

/// An IP packet is 65,535 bytes at most; IPv4 counts its header, IPv6 does not.
const MAX_PAYLOAD_BYTES: [usize; 2] = [65_507, 65_527];

/// Payloads to and from one peer.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    max_frame: usize,
}

impl UdpPort {
    /// Opens a port to a peer, by an interface where one is named.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it carries nothing or there is no route.
    pub fn open(peer: SocketAddr, interface: Option<&str>) -> Result<Self, PortError> {
        let interface = interface.map(Interface::usable).transpose()?;
        let object = format!("UDP {peer}");
        let socket = open(family(peer.ip()), &object, interface.as_ref(), Stamps::Departure)?;
        if let Some(interface) = &interface {
            socket.keep_to(interface, peer.ip())?;
        }
        let scope = interface.map_or(0, |interface| interface.index);
        socket.connect(&Name::internet(peer, scope)).map_err(|error| socket.refused("connect", error))?;
        Ok(Self { socket, max_frame: MAX_PAYLOAD_BYTES[usize::from(peer.is_ipv6())] })
    }
}

impl Port for UdpPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        self.socket.check_length(frame, self.max_frame)?;
        self.socket.send(frame)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let arrival = self.socket.receive(&mut [], buffer)?;
        Ok(arrival.map(|arrival| Received {
            length: arrival.length,
            arrived: arrival.arrived,
            returned: arrival.returned,
        }))
    }

    fn transmit_stamp(&mut self) -> Result<Option<TransmitStamp>, PortError> {
        self.socket.transmit_stamp()
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.socket.wait(deadline)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Udp, max_frame: self.max_frame, transmit_stamps: true }
    }

    fn own_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl Batch for UdpPort {
    fn engine(&self) -> &str {
        "UDP socket"
    }
}

/// Payloads from whoever asks, each answered from the address and the interface at which it came in.
#[derive(Debug)]
pub struct UdpListener {
    socket: Socket,
    address: SocketAddr,
}

/// Who asked, and where.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    name: Name,
    local: Option<Local>,
}

impl UdpListener {
    /// Listens on all IPv4 addresses of this host.
    ///
    /// # Errors
    /// `Unusable` when the port is in use.
    pub fn open4(port: u16) -> Result<Self, PortError> {
        Self::open(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
    }

    /// Listens on all IPv6 addresses of this host, and on no IPv4 address.
    ///
    /// # Errors
    /// `Unusable` when the port is in use.
    pub fn open6(port: u16) -> Result<Self, PortError> {
        Self::open(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
    }

    /// Listens on an address.
    ///
    /// # Errors
    /// `Unusable` when it is in use or not of this host.
    pub fn open(address: SocketAddr) -> Result<Self, PortError> {
        let object = format!("UDP {address}");
        let socket = open(family(address.ip()), &object, None, Stamps::None)?;
        let (level, option) = match address {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_PKTINFO),
            SocketAddr::V6(_) => {
                socket
                    .set(libc::SOL_IPV6, libc::IPV6_V6ONLY, 1)
                    .map_err(|error| socket.refused("keep IPv4 away from", error))?;
                (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO)
            }
        };
        socket.set(level, option, 1).map_err(|error| socket.refused("ask for the local address of", error))?;
        socket.bind(&Name::internet(address, 0)).map_err(|error| socket.refused("listen on", error))?;
        let bound = socket.local_name().map_err(|error| socket.refused("read the address of", error))?;
        Ok(Self { address: SocketAddr::new(address.ip(), bound.port()), socket })
    }

    /// The address that it listens on, with the port that the kernel chose where 0 was asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener for UdpListener {
    type Peer = Asker;

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, Asker)>, PortError> {
        let Some(arrival) = self.socket.receive(&mut [], buffer)? else { return Ok(None) };
        let asker = Asker { name: *self.socket.from(), local: arrival.control.local };
        let received = Received { length: arrival.length, arrived: arrival.arrived, returned: arrival.returned };
        Ok(Some((received, asker)))
    }

    fn answer(&mut self, peer: &Asker, frame: &[u8]) -> Result<(), PortError> {
        let mut control = [0; 48];
        let length = peer.local.map_or(0, |local| local.write(&mut control));
        self.socket.send_to(frame, Some(&peer.name), &control[..length]).map(drop)
    }

    fn framing(&self) -> Framing {
        Framing::Udp
    }

    fn own_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl std::os::fd::AsFd for UdpListener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(family: i32, object: &str, interface: Option<&Interface>, stamps: Stamps) -> Result<Socket, PortError> {
    let kind = [family, libc::SOCK_DGRAM, libc::IPPROTO_UDP];
    Socket::open(Opening { kind, object, stamps, interface }).map_err(|source| PortError::System {
        operation: "open",
        object: object.to_owned(),
        source,
    })
}

fn family(address: IpAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}
