//! UDP payloads over IPv4 and IPv6: with one peer ([`UdpPort`]), or from any sender ([`UdpListener`]).
//!
//! Hides the socket, the binding to an interface, and that an answer's source address must be the request's destination
//! address. The kernel fragments a payload that exceeds the MTU; the TX timestamp is then that of the first fragment
//! and the RX timestamp that of the last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sojourn_time::Time;

use crate::kernel::{Arrival, Control, Inbox, Interface, Local, Name, Opening, Socket, mark, write_traffic_class};
use crate::{Batch, Capabilities, Framing, Listener, Port, PortError, Received, Route, Sent, Stamps, TxTimestamp};

/// An IP packet has at most 65,535 bytes, with the header in IPv4 and without it in IPv6.
const MAX_PAYLOAD_BYTES: [usize; 2] = [65_507, 65_527];

/// The bits of the traffic class that an answer does not copy: ECN describes each direction's own path.
const ECN: u8 = 0b11;

/// Sends to and receives from one peer or group; with [`UdpPort::listen`], receives from any sender and answers it.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    max_frame: usize,
    options: UdpOptions,
    /// The destination of [`Port::transmit`].
    to: To,
    /// The index of the interface that it is restricted to; 0: none.
    interface: u32,
    /// The multicast groups that it joined.
    joined: Vec<IpAddr>,
    /// Allocated on first use: a sender needs none.
    inbox: Option<Inbox>,
}

/// How a UDP port is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpOptions {
    /// The DSCP of sent packets, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Which late TX timestamps to request.
    pub stamps: Stamps,
    /// The size of the receive buffer, in bytes; `None`: a large one.
    pub buffer_bytes: Option<usize>,
}

/// The destination of a port's packets.
#[derive(Debug)]
enum To {
    /// The connected peer; only its payloads are received.
    Peer,
    /// A multicast group; answers are received from any host.
    Group(Name),
    /// The sender of the last payload; the source address is that payload's destination address.
    LastSender(Option<Asker>),
}

impl UdpPort {
    /// Opens a port to a peer, on the named interface if there is one.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it has no carrier or there is no route.
    pub fn open(peer: SocketAddr, interface: Option<&str>) -> Result<Self, PortError> {
        Self::open_with(peer, interface, UdpOptions::default())
    }

    /// Opens a port to a peer or to a multicast group, on the named interface if there is one. Only with a group does
    /// it receive answers from other addresses than its destination.
    ///
    /// # Errors
    /// As [`Self::open`], and `Wrong` when the DSCP is out of range.
    pub fn open_with(peer: SocketAddr, interface: Option<&str>, options: UdpOptions) -> Result<Self, PortError> {
        let interface = interface.map(Interface::usable).transpose()?;
        let object = format!("UDP {peer}");
        let socket = open(family(peer.ip()), &object, interface.as_ref(), options.stamps)?;
        mark(&socket, peer.ip(), options.dscp)?;
        if let Some(interface) = &interface {
            socket.keep_to(interface, peer.ip())?;
        }
        let index = interface.map_or(0, |interface| interface.index);
        let name = Name::internet(peer, index);
        let to = if peer.ip().is_multicast() {
            send_groups_by(&socket, peer.ip(), index)
                .map_err(|error| socket.refused("choose the interface of", error))?;
            To::Group(name)
        } else {
            socket.connect(&name).map_err(|error| socket.refused("connect", error))?;
            To::Peer
        };
        let (max_frame, joined) = (max_payload(peer.ip()), Vec::new());
        Ok(Self { socket, max_frame, options, to, interface: index, joined, inbox: None })
    }

    /// Opens a port that receives payloads from any sender to `address`, on the named interface if there is one, and
    /// answers them.
    ///
    /// # Errors
    /// As [`Self::open_with`], and `Unusable` when the port is in use.
    pub fn listen(address: SocketAddr, interface: Option<&str>, options: UdpOptions) -> Result<Self, PortError> {
        let interface = interface.map(Interface::usable).transpose()?;
        let object = format!("UDP {address}");
        let socket = open(family(address.ip()), &object, interface.as_ref(), options.stamps)?;
        mark(&socket, address.ip(), options.dscp)?;
        if let Some(bytes) = options.buffer_bytes {
            socket.resize_receive_buffer(bytes).map_err(|error| socket.refused("size the buffer of", error))?;
        }
        if let Some(interface) = &interface {
            socket
                .set_bytes(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.name.as_bytes())
                .map_err(|error| socket.refused("bind to its interface", error))?;
        }
        listen_on(&socket, address)?;
        let interface = interface.map_or(0, |interface| interface.index);
        Ok(Self {
            socket,
            max_frame: max_payload(address.ip()),
            options,
            to: To::LastSender(None),
            interface,
            joined: Vec::new(),
            inbox: None,
        })
    }

    /// Its own address; its port is the one that the kernel chose where 0 was requested.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn address(&self) -> Result<SocketAddr, PortError> {
        let name = self.socket.local_name().map_err(|error| self.socket.refused("read the address of", error))?;
        name.as_internet().ok_or_else(|| self.socket.refused("read the address of", std::io::ErrorKind::Other.into()))
    }

    /// Joins a multicast group on its interface for as long as the port is open; from then on, payloads to groups that
    /// other programs joined are no longer received.
    ///
    /// # Errors
    /// `Wrong` when it is no group address, else when the kernel refuses.
    pub fn join(&mut self, group: IpAddr) -> Result<(), PortError> {
        if !group.is_multicast() {
            let problem = "this is no group's address; groups are 224.0.0.0/4 and ff00::/8".to_owned();
            return Err(PortError::Wrong { object: group.to_string(), problem });
        }
        join(&self.socket, group, self.interface).map_err(|error| self.socket.refused("join a group by", error))?;
        self.joined.push(group);
        Ok(())
    }

    fn send_to_asker(&mut self, asker: Option<Asker>, frame: &[u8]) -> Result<Sent, PortError> {
        let Some(asker) = asker else {
            let problem = "nobody has sent anything yet, so there is nobody to answer".to_owned();
            return Err(PortError::Unusable { object: "a listening UDP port".to_owned(), problem });
        };
        let mut control = [0; 48];
        let length = asker.local.map_or(0, |local| local.write(&mut control));
        self.socket.answer_to(frame, &asker.name, &control[..length])
    }

    /// The destination address of the last payload, unless it is a group address.
    fn local(&self, arrival: &Arrival) -> Option<Local> {
        arrival.control.local.filter(|local| !local.address.is_multicast())
    }
}

impl Port for UdpPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        self.socket.check_length(frame.len(), self.max_frame)?;
        match &self.to {
            To::Peer => self.socket.send(frame),
            To::Group(name) => self.socket.send_to(frame, Some(name), &[]),
            To::LastSender(asker) => self.send_to_asker(*asker, frame),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let Some(arrival) = self.socket.receive(&mut [], buffer)? else { return Ok(None) };
        if let To::LastSender(_) = self.to {
            self.to = To::LastSender(Some(Asker { name: *self.socket.from(), local: self.local(&arrival) }));
        }
        let to_group = is_to_group(&arrival.control, &self.joined);
        let Arrival { length, arrived, returned, .. } = arrival;
        Ok(Some(Received { length, arrived, returned, from: self.socket.from().as_internet(), to_group }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        self.socket.tx_timestamp()
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.socket.wait(deadline)
    }

    fn capabilities(&self) -> Capabilities {
        let tx_timestamps = self.options.stamps != Stamps::None;
        Capabilities { framing: Framing::Udp, max_frame: self.max_frame, tx_timestamps }
    }

    fn local_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl Batch for UdpPort {
    fn transmit_batch(&mut self, frames: &[u8], frame_bytes: usize) -> Result<usize, PortError> {
        self.socket.check_length(frame_bytes, self.max_frame)?;
        match &self.to {
            To::Peer => self.socket.send_batch(frames, frame_bytes, None),
            To::Group(name) => self.socket.send_batch(frames, frame_bytes, Some(name)),
            To::LastSender(asker) => {
                let name = asker.map(|asker| asker.name).unwrap_or_default();
                self.socket.send_batch(frames, frame_bytes, Some(&name))
            }
        }
    }

    fn receive_batch(&mut self, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let inbox = self.inbox.get_or_insert_with(|| Inbox::new(self.max_frame, 0));
        let count = self.socket.receive_batch(inbox)?;
        for nth in 0..count {
            let arrival = self.socket.arrival(inbox, nth);
            let to_group = is_to_group(&arrival.control, &self.joined);
            let from = inbox.from(nth).and_then(Name::as_internet);
            let payload = inbox.message(nth);
            let length = payload.len();
            each(payload, Received { length, arrived: arrival.arrived, returned: arrival.returned, from, to_group });
        }
        Ok(count)
    }

    fn answer(&mut self, nth: usize, frame: &[u8]) -> Result<Sent, PortError> {
        let asked = self.inbox.as_ref().and_then(|inbox| {
            let name = *inbox.from(nth)?;
            Some((name, self.socket.arrival_control(inbox, nth).local))
        });
        match (&self.to, asked) {
            (To::Peer, _) | (_, None) => self.transmit(frame),
            (_, Some((name, local))) => {
                let local = local.filter(|local| !local.address.is_multicast());
                self.send_to_asker(Some(Asker { name, local }), frame)
            }
        }
    }

    fn engine(&self) -> &str {
        "UDP sendmmsg"
    }

    fn receive_engine(&self) -> &str {
        "UDP recvmmsg"
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.socket))
    }
}

/// Receives payloads from any sender; answers each from the address and interface that received it, with its DSCP.
#[derive(Debug)]
pub struct UdpListener {
    socket: Socket,
    address: SocketAddr,
}

/// The sender of a request, and the local address that received it.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    name: Name,
    local: Option<Local>,
}

/// The sender of a request, the local address, and header fields of the request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    asker: Asker,
    traffic_class: u8,
    to_group: bool,
    hop_limit: Option<u8>,
}

impl UdpListener {
    /// Listens on an address.
    ///
    /// # Errors
    /// `Unusable` when the address is in use or does not belong to this host.
    pub fn open(address: SocketAddr) -> Result<Self, PortError> {
        let object = format!("UDP {address}");
        let socket = open(family(address.ip()), &object, None, Stamps::None)?;
        listen_on(&socket, address)?;
        let (level, option) = match address {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVTOS),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVTCLASS),
        };
        socket.set(level, option, 1).map_err(|error| socket.refused("ask for the DSCPs of", error))?;
        let bound = socket.local_name().map_err(|error| socket.refused("read the address of", error))?;
        Ok(Self { address: SocketAddr::new(address.ip(), bound.port()), socket })
    }

    /// Requests the TTL or hop limit of each datagram from the kernel.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn ask_for_hop_limits(&self) -> Result<(), PortError> {
        let (level, option) = match self.address {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVTTL),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT),
        };
        self.socket.set(level, option, 1).map_err(|error| self.socket.refused("ask for the hop limits of", error))
    }

    /// The address that it listens on; its port is the one that the kernel chose where 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener for UdpListener {
    type Peer = Caller;

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, Caller)>, PortError> {
        let Some(arrival) = self.socket.receive(&mut [], buffer)? else { return Ok(None) };
        let asker = Asker { name: *self.socket.from(), local: arrival.control.local };
        let Arrival { length, arrived, returned, .. } = arrival;
        let Control { group, hop_limit, traffic_class, .. } = arrival.control;
        let to_group = group.is_some();
        let received = Received { length, arrived, returned, from: asker.name.as_internet(), to_group };
        Ok(Some((received, Caller { asker, traffic_class, to_group, hop_limit })))
    }

    fn answer(&mut self, peer: &Caller, frame: &[u8]) -> Result<(), PortError> {
        let Asker { name, local } = peer.asker;
        let (mut from, mut control) = ([0; 48], [0; 72]);
        let mut length = local.map_or(0, |local| local.write(&mut from));
        control[..length].copy_from_slice(&from[..length]);
        if peer.traffic_class & !ECN != 0 {
            length += write_traffic_class(peer.traffic_class & !ECN, self.address.is_ipv4(), &mut control[length..]);
        }
        self.socket.answer_to(frame, &name, &control[..length]).map(drop)
    }

    fn route(&self, peer: &Caller) -> Option<Route> {
        let Caller { asker, to_group, hop_limit, .. } = *peer;
        let to = asker.local.map(|local| local.address);
        Some(Route { from: asker.name.as_internet()?, to, to_group, hop_limit })
    }

    fn framing(&self) -> Framing {
        Framing::Udp
    }

    fn local_drops(&mut self) -> u64 {
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

/// Binds a socket to an address and requests the destination address of each datagram.
fn listen_on(socket: &Socket, address: SocketAddr) -> Result<(), PortError> {
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
    socket.bind(&Name::internet(address, 0)).map_err(|error| socket.refused("listen on", error))
}

/// Sets the interface for packets to groups; 0: the one that the routes determine.
fn send_groups_by(socket: &Socket, group: IpAddr, index: u32) -> std::io::Result<()> {
    match group {
        IpAddr::V4(group) => socket.set_bytes(libc::SOL_IP, libc::IP_MULTICAST_IF, &membership4(group, index)),
        IpAddr::V6(_) => socket.set_bytes(libc::SOL_IPV6, libc::IPV6_MULTICAST_IF, &index.to_ne_bytes()),
    }
}

fn join(socket: &Socket, group: IpAddr, index: u32) -> std::io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            socket.set(libc::SOL_IP, libc::IP_MULTICAST_ALL, 0)?;
            socket.set_bytes(libc::SOL_IP, libc::IP_ADD_MEMBERSHIP, &membership4(group, index))
        }
        IpAddr::V6(group) => {
            socket.set(libc::SOL_IPV6, libc::IPV6_MULTICAST_ALL, 0)?;
            let request = [&group.octets()[..], &index.to_ne_bytes()].concat();
            socket.set_bytes(libc::SOL_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
        }
    }
}

/// Builds the kernel's `ip_mreqn`: group, no local address, interface.
fn membership4(group: Ipv4Addr, index: u32) -> [u8; 12] {
    let mut request = [0; 12];
    request[..4].copy_from_slice(&group.octets());
    request[8..].copy_from_slice(&index.to_ne_bytes());
    request
}

/// Whether a payload was sent to a broadcast address, or to a group that was not joined.
fn is_to_group(control: &Control, joined: &[IpAddr]) -> bool {
    control.group.is_some_and(|group| !joined.contains(&group))
}

fn max_payload(address: IpAddr) -> usize {
    MAX_PAYLOAD_BYTES[usize::from(address.is_ipv6())]
}

fn family(address: IpAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}
