//! Whole Ethernet frames over AF_PACKET: one EtherType, one interface ([`PacketPort`]) or all of them ([`PacketListener`]).
//!
//! Hides the packet socket and its options. Frames that are addressed to other stations are passed over, which a
//! promiscuous interface would show. Does not build or read Ethernet headers.

use sojourn_time::Time;
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::{HEADER_BYTES, PROBE_ETHERTYPE};

use crate::kernel::{Interface, Name, Opening, Socket, denied_raw};
use crate::{Capabilities, Framing, Listener, Port, PortError, Received, Sent, TransmitStamp};

/// Frames of one EtherType on one interface.
#[derive(Debug)]
pub struct PacketPort {
    socket: Socket,
    interface: Interface,
}

impl PacketPort {
    /// Opens a port on an interface. With `qdisc_bypass` frames go straight to the driver, past the queueing discipline.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it carries nothing, `Denied` without CAP_NET_RAW.
    pub fn open(interface: &str, qdisc_bypass: bool) -> Result<Self, PortError> {
        let interface = Interface::usable(interface)?;
        let object = format!("a packet socket on {}", interface.name);
        let socket = open(&object, Some(&interface), true)?;
        let bypass = i32::from(qdisc_bypass);
        socket
            .set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bypass)
            .map_err(|error| socket.refused("set the queueing of", error))?;
        bind(&socket, interface.index)?;
        Ok(Self { socket, interface })
    }

    /// The MAC address of its interface.
    pub fn mac(&self) -> MacAddress {
        self.interface.mac
    }

    fn max_frame(&self) -> usize {
        self.interface.mtu + HEADER_BYTES
    }
}

impl Port for PacketPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        if frame.len() <= self.max_frame() {
            return self.socket.send(frame);
        }
        let needed = frame.len() - HEADER_BYTES;
        let Interface { name, mtu, .. } = &self.interface;
        Err(PortError::Wrong {
            object: name.clone(),
            problem: format!(
                "its MTU of {mtu} bytes is too small for {needed} bytes of user data; \
                 ask for less, or `ip link set dev {name} mtu {needed}`"
            ),
        })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        Ok(receive(&mut self.socket, buffer)?.map(|(received, _)| received))
    }

    fn transmit_stamp(&mut self) -> Result<Option<TransmitStamp>, PortError> {
        self.socket.transmit_stamp()
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.socket.wait(deadline)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Ethernet, max_frame: self.max_frame(), transmit_stamps: true }
    }

    fn own_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

/// Frames of one EtherType on several interfaces, or on all of this network namespace, each answered by the one that it came
/// in by. One socket, however many interfaces: looking for a request costs the same.
#[derive(Debug)]
pub struct PacketListener {
    socket: Socket,
    /// The indices of the interfaces that it listens to; empty: all of them.
    only: Vec<i32>,
}

impl PacketListener {
    /// Opens a listener on these interfaces; with none named, on all that there are and will be.
    ///
    /// # Errors
    /// As [`PacketPort::open`].
    pub fn open(interfaces: &[&str]) -> Result<Self, PortError> {
        let interfaces = interfaces.iter().map(|name| Interface::usable(name)).collect::<Result<Vec<_>, _>>()?;
        let single = if let [interface] = interfaces.as_slice() { Some(interface) } else { None };
        let socket = open("a packet socket", single, false)?;
        bind(&socket, single.map_or(0, |interface| interface.index))?;
        Ok(Self { socket, only: interfaces.iter().map(|interface| signed(interface.index)).collect() })
    }
}

impl Listener for PacketListener {
    /// The interface's index.
    type Peer = i32;

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, i32)>, PortError> {
        while let Some((received, index)) = receive(&mut self.socket, buffer)? {
            if self.only.is_empty() || self.only.contains(&index) {
                return Ok(Some((received, index)));
            }
        }
        Ok(None)
    }

    fn answer(&mut self, peer: &i32, frame: &[u8]) -> Result<(), PortError> {
        self.socket.send_to(frame, Some(&Name::link(*peer, PROBE_ETHERTYPE)), &[]).map(drop)
    }

    fn framing(&self) -> Framing {
        Framing::Ethernet
    }

    fn own_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl std::os::fd::AsFd for PacketListener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a packet socket that hears nothing yet, so that no frame comes in before it is bound.
fn open(object: &str, interface: Option<&Interface>, transmit_stamps: bool) -> Result<Socket, PortError> {
    let kind = [libc::AF_PACKET, libc::SOCK_RAW, 0];
    let socket = Socket::open(Opening { kind, object, transmit_stamps, interface }).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => denied_raw("open", object, None),
            _ => PortError::System { operation: "open", object: object.to_owned(), source: error },
        }
    })?;
    socket
        .set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
        .map_err(|error| socket.refused("ignore outgoing frames on", error))?;
    Ok(socket)
}

fn bind(socket: &Socket, index: u32) -> Result<(), PortError> {
    socket.bind(&Name::link(signed(index), PROBE_ETHERTYPE)).map_err(|error| socket.refused("bind", error))
}

/// An interface's index as socket names have it.
fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Takes the next frame that is for this station, and the index of the interface that it came in by.
fn receive(socket: &mut Socket, buffer: &mut [u8]) -> Result<Option<(Received, i32)>, PortError> {
    while let Some(arrival) = socket.receive(&mut [], buffer)? {
        let Some(link) = socket.from().as_link() else { continue };
        if link.kind == libc::PACKET_OTHERHOST {
            continue;
        }
        let received = Received { length: arrival.length, arrived: arrival.arrived, returned: arrival.returned };
        return Ok(Some((received, link.index)));
    }
    Ok(None)
}
