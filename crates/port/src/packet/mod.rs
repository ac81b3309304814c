//! Whole Ethernet frames over AF_PACKET: one EtherType, on one interface ([`PacketPort`]) or on all
//! ([`PacketListener`]).
//!
//! Hides the packet socket and its options. Ignores frames to other hosts' MAC addresses, which a promiscuous interface
//! would deliver. Does not build or parse Ethernet headers.

pub(crate) mod sys;

use sojourn_time::Time;
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::{HEADER_BYTES, PROBE_ETHERTYPE};

use crate::kernel::{FilterStep, Inbox, Interface, Name, Opening, Socket, denied_raw};
use crate::{Batch, Capabilities, Framing, Listener, Port, PortError, Received, Route, Sent, Stamps, TxTimestamp};

/// The length of the two MAC addresses, which a tag follows.
const ADDRESS_BYTES: usize = 12;
/// The length of an 802.1Q tag.
const TAG_BYTES: usize = 4;
/// How often the kernel is asked to send the frames of a ring before the queue counts as full.
const PUSHES: usize = 1000;
/// The most batches of frames for other hosts that one call discards, and frames where they are read one by one.
const BATCHES_OF_OTHERS: usize = 64;
const FRAMES_OF_OTHERS: usize = 4096;

/// Frames of one EtherType on one interface.
#[derive(Debug)]
pub struct PacketPort {
    socket: Socket,
    interface: Interface,
    options: PacketOptions,
    /// Allocated on first use: a sender needs none.
    inbox: Option<Inbox>,
    /// The transmit ring of batches: only a sender that bypasses the queueing discipline and requests no timestamps has
    /// one.
    ring: Option<sys::TransmitRing>,
}

/// How a packet port is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// Whether frames go directly to the driver, past the queueing discipline.
    pub qdisc_bypass: bool,
    /// Which late TX timestamps to request.
    pub stamps: Stamps,
    /// Whether frames with an 802.1Q tag are received too, with the tag where it was on the wire.
    pub tagged: bool,
    /// The size of the receive buffer, in bytes; `None`: a large one.
    pub buffer_bytes: Option<usize>,
}

impl PacketPort {
    /// Opens a port on an interface. With `qdisc_bypass`, frames go directly to the driver, past the queueing
    /// discipline.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it has no carrier, `Denied` without CAP_NET_RAW.
    pub fn open(interface: &str, qdisc_bypass: bool) -> Result<Self, PortError> {
        Self::open_for(interface, PROBE_ETHERTYPE, PacketOptions { qdisc_bypass, ..PacketOptions::default() })
    }

    /// Opens a port on an interface for the frames of one EtherType.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for(interface: &str, ethertype: u16, options: PacketOptions) -> Result<Self, PortError> {
        let interface = Interface::usable(interface)?;
        let object = format!("a packet socket on {}", interface.name);
        let socket = open(&object, Some(&interface), options.stamps)?;
        if let Some(bytes) = options.buffer_bytes {
            socket.resize_receive_buffer(bytes).map_err(|error| socket.refused("size the buffer of", error))?;
        }
        let bypass = i32::from(options.qdisc_bypass);
        socket
            .set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bypass)
            .map_err(|error| socket.refused("set the queueing of", error))?;
        if options.tagged {
            take_tagged(&socket, ethertype).map_err(|error| socket.refused("filter", error))?;
        }
        // The kernel passes the tag only to sockets that receive all EtherTypes.
        let listened_to = if options.tagged { libc::ETH_P_ALL as u16 } else { ethertype };
        bind(&socket, interface.index, listened_to)?;
        let is_flood = options.qdisc_bypass && options.stamps == Stamps::None;
        let ring = if is_flood { open_ring(&interface).ok() } else { None };
        Ok(Self { socket, interface, options, inbox: None, ring })
    }

    /// Joins a multicast group (a MAC address) for as long as the port is open.
    ///
    /// # Errors
    /// `Wrong` when it is no group address, else when the kernel refuses.
    pub fn join(&self, group: MacAddress) -> Result<(), PortError> {
        if group.0[0] & 1 == 0 {
            let problem = "this is the address of one station, not of a group; a group's first byte is odd".to_owned();
            return Err(PortError::Wrong { object: group.to_string(), problem });
        }
        self.socket
            .set_bytes(
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                &membership(self.interface.index, libc::PACKET_MR_MULTICAST, group),
            )
            .map_err(|error| self.socket.refused("join a group by", error))
    }

    /// The MAC address of its interface.
    pub fn mac(&self) -> MacAddress {
        self.interface.mac
    }

    /// Its interface, in the state when the port was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    fn max_frame(&self) -> usize {
        self.interface.mtu + HEADER_BYTES
    }
}

impl Port for PacketPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        self.interface.check_length(frame, frame.len())?;
        self.socket.send(frame)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        Ok(receive(&mut self.socket, buffer)?.map(|(received, _)| received))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        self.socket.tx_timestamp()
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.socket.wait(deadline)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            framing: Framing::Ethernet,
            max_frame: self.max_frame(),
            tx_timestamps: self.options.stamps != Stamps::None,
        }
    }

    fn local_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl Batch for PacketPort {
    fn transmit_batch(&mut self, frames: &[u8], frame_bytes: usize) -> Result<usize, PortError> {
        self.interface.check_length(frames, frame_bytes)?;
        match &mut self.ring {
            Some(ring) => {
                send_by_ring(ring, frames, frame_bytes.max(1)).map_err(|error| self.socket.refused("send on", error))
            }
            None => self.socket.send_batch(frames, frame_bytes, None),
        }
    }

    fn receive_batch(&mut self, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let longest = self.max_frame();
        let inbox = self.inbox.get_or_insert_with(|| Inbox::new(longest, TAG_BYTES));
        let mut count = 0;
        // If a whole batch is for other hosts, receive the next: 0 means that nothing is waiting. Their flood has no end.
        for _ in 0..BATCHES_OF_OTHERS {
            let taken = self.socket.receive_batch(inbox)?;
            for nth in 0..taken {
                if inbox.from(nth).and_then(Name::as_link).is_none_or(|link| link.kind == libc::PACKET_OTHERHOST) {
                    continue;
                }
                let arrival = self.socket.arrival(inbox, nth);
                let frame = with_tag(inbox.message(nth), arrival.control.tag);
                each(
                    frame,
                    Received {
                        length: frame.len(),
                        arrived: arrival.arrived,
                        returned: arrival.returned,
                        from: None,
                        to_group: false,
                    },
                );
                count += 1;
            }
            if count > 0 || taken == 0 {
                break;
            }
        }
        Ok(count)
    }

    fn engine(&self) -> &str {
        match (&self.ring, self.options.qdisc_bypass) {
            (Some(_), _) => "AF_PACKET TX_RING, qdisc bypassed",
            (None, true) => "AF_PACKET sendmmsg, qdisc bypassed",
            (None, false) => "AF_PACKET sendmmsg",
        }
    }

    fn receive_engine(&self) -> &str {
        "AF_PACKET recvmmsg"
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.socket))
    }
}

/// Opens a transmit ring that bypasses the queueing discipline of an interface.
pub(crate) fn open_ring(interface: &Interface) -> std::io::Result<sys::TransmitRing> {
    let object = "a transmit ring";
    let opening = Opening { kind: [libc::AF_PACKET, libc::SOCK_RAW, 0], object, stamps: Stamps::None, interface: None };
    let socket = Socket::open(opening)?;
    socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0)?;
    socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
    socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    let place_bytes = sys::TransmitRing::place_bytes(interface.mtu + HEADER_BYTES + TAG_BYTES);
    socket.set_bytes(libc::SOL_PACKET, libc::PACKET_TX_RING, &sys::TransmitRing::request(place_bytes))?;
    // Bound to no EtherType: it receives nothing.
    socket.bind(&Name::link(signed(interface.index), 0))?;
    sys::TransmitRing::map(socket.into_descriptor(), place_bytes)
}

/// Sends frames by a ring; returns how many the kernel accepted. The others are withdrawn, so that none is sent late.
fn send_by_ring(ring: &mut sys::TransmitRing, frames: &[u8], frame_bytes: usize) -> std::io::Result<usize> {
    let whole = frames.len() / frame_bytes;
    let mut put = 0;
    let mut pushed = Ok(());
    for _ in 0..PUSHES {
        put += ring.put(&frames[put * frame_bytes..], frame_bytes);
        pushed = match ring.push() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) => Ok(()),
            pushed => pushed,
        };
        if pushed.is_err() || (put == whole && !ring.is_waiting()) {
            break;
        }
    }
    match (put - ring.withdraw(), pushed) {
        (0, Err(error)) => Err(error),
        (taken, _) => Ok(taken),
    }
}

/// Reinserts the tag that the kernel removed from a frame; [`TAG_BYTES`] are free before the frame.
pub(crate) fn with_tag(room: &mut [u8], tag: Option<[u8; TAG_BYTES]>) -> &[u8] {
    let Some(tag) = tag.filter(|_| room.len() >= TAG_BYTES + ADDRESS_BYTES) else {
        return room.get(TAG_BYTES..).unwrap_or_default();
    };
    room.copy_within(TAG_BYTES..TAG_BYTES + ADDRESS_BYTES, 0);
    room[ADDRESS_BYTES..ADDRESS_BYTES + TAG_BYTES].copy_from_slice(&tag);
    room
}

/// Receives frames of one EtherType on several interfaces, or on all of this network namespace, and answers each by the
/// interface that received it. One socket for all interfaces: polling costs the same for any number of them.
#[derive(Debug)]
pub struct PacketListener {
    socket: Socket,
    /// The indices of the interfaces that it receives from; empty: all.
    only: Vec<i32>,
}

impl PacketListener {
    /// Opens a listener on these interfaces; if none is named, on all present and future ones.
    ///
    /// # Errors
    /// As [`PacketPort::open`].
    pub fn open(interfaces: &[&str]) -> Result<Self, PortError> {
        let interfaces = interfaces.iter().map(|name| Interface::usable(name)).collect::<Result<Vec<_>, _>>()?;
        let single = if let [interface] = interfaces.as_slice() { Some(interface) } else { None };
        let socket = open("a packet socket", single, Stamps::None)?;
        bind(&socket, single.map_or(0, |interface| interface.index), PROBE_ETHERTYPE)?;
        Ok(Self { socket, only: interfaces.iter().map(|interface| signed(interface.index)).collect() })
    }
}

impl Listener for PacketListener {
    /// The interface's index.
    type Peer = i32;

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, i32)>, PortError> {
        for _ in 0..FRAMES_OF_OTHERS {
            let Some((received, index)) = receive(&mut self.socket, buffer)? else { break };
            if self.only.is_empty() || self.only.contains(&index) {
                return Ok(Some((received, index)));
            }
        }
        Ok(None)
    }

    fn answer(&mut self, peer: &i32, frame: &[u8]) -> Result<(), PortError> {
        self.socket.answer_to(frame, &Name::link(*peer, PROBE_ETHERTYPE), &[]).map(drop)
    }

    fn route(&self, _peer: &i32) -> Option<Route> {
        None
    }

    fn framing(&self) -> Framing {
        Framing::Ethernet
    }

    fn local_drops(&mut self) -> u64 {
        self.socket.drops()
    }
}

impl std::os::fd::AsFd for PacketListener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a packet socket that receives nothing yet, so that no frame arrives before it is bound.
pub(crate) fn open(object: &str, interface: Option<&Interface>, stamps: Stamps) -> Result<Socket, PortError> {
    let kind = [libc::AF_PACKET, libc::SOCK_RAW, 0];
    let socket =
        Socket::open(Opening { kind, object, stamps, interface }).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => denied_raw("open", object, None),
            _ => PortError::System { operation: "open", object: object.to_owned(), source: error },
        })?;
    socket
        .set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
        .map_err(|error| socket.refused("ignore outgoing frames on", error))?;
    Ok(socket)
}

pub(crate) fn bind(socket: &Socket, index: u32, ethertype: u16) -> Result<(), PortError> {
    socket.bind(&Name::link(signed(index), ethertype)).map_err(|error| socket.refused("bind", error))
}

/// Builds the kernel's `packet_mreq`, the argument of `PACKET_ADD_MEMBERSHIP`.
pub fn membership(index: u32, kind: i32, group: MacAddress) -> [u8; 16] {
    let mut request = [0; 16];
    request[..4].copy_from_slice(&index.to_ne_bytes());
    request[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
    request[6..8].copy_from_slice(&6_u16.to_ne_bytes());
    request[8..14].copy_from_slice(&group.0);
    request
}

/// Reinserts the tag into the frame of `length` bytes at the start of `buffer`; returns the new length.
fn insert_tag(buffer: &mut [u8], length: usize, tag: Option<[u8; TAG_BYTES]>) -> usize {
    let Some(tag) = tag.filter(|_| length >= ADDRESS_BYTES && buffer.len() >= ADDRESS_BYTES + TAG_BYTES) else {
        return length;
    };
    let longer = (length + TAG_BYTES).min(buffer.len());
    buffer.copy_within(ADDRESS_BYTES..longer - TAG_BYTES, ADDRESS_BYTES + TAG_BYTES);
    buffer[ADDRESS_BYTES..ADDRESS_BYTES + TAG_BYTES].copy_from_slice(&tag);
    longer
}

/// Filters for frames of one EtherType, tagged or not, and requests the tags as metadata.
fn take_tagged(socket: &Socket, ethertype: u16) -> std::io::Result<()> {
    let step = |code: u32, else_skip: u8, k: u32| FilterStep { code: code as u16, jt: 0, jf: else_skip, k };
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    socket.filter(&[
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, protocol),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, ethertype.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ])?;
    socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)
}

/// An interface's index in the type that socket names use.
pub(crate) fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Receives the next frame to this host, and the index of the interface that received it.
fn receive(socket: &mut Socket, buffer: &mut [u8]) -> Result<Option<(Received, i32)>, PortError> {
    for _ in 0..FRAMES_OF_OTHERS {
        let Some(arrival) = socket.receive(&mut [], buffer)? else { break };
        let Some(link) = socket.from().as_link() else { continue };
        if link.kind == libc::PACKET_OTHERHOST {
            continue;
        }
        let length = insert_tag(buffer, arrival.length, arrival.control.tag);
        let received =
            Received { length, arrived: arrival.arrived, returned: arrival.returned, from: None, to_group: false };
        return Ok(Some((received, link.index)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn vlan_tag_is_reinserted_at_its_place(frame in proptest::collection::vec(any::<u8>(), 12..100), tag: [u8; 4]) {
            let expected = [&frame[..12], &tag[..], &frame[12..]].concat();
            let mut room = [&[0; 4][..], &frame].concat();
            prop_assert_eq!(with_tag(&mut room, Some(tag)), &expected);
            let mut buffer = frame.clone();
            buffer.extend([0; 10]);
            let length = insert_tag(&mut buffer, frame.len(), Some(tag));
            prop_assert_eq!(&buffer[..length], &expected);
        }

        #[test]
        fn arbitrary_frames_never_panic(mut room: Vec<u8>, length in 0..40_usize, tag: Option<[u8; 4]>) {
            let length = length.min(room.len());
            prop_assert!(insert_tag(&mut room, length, tag) <= room.len());
            with_tag(&mut room, tag);
        }
    }
}
