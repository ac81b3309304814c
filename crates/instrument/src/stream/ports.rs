//! Opens the kernel's ports for streams: the only module of `stream` that knows the backends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sojourn_live::LiveCounter;
use sojourn_port::kernel::Interface;
use sojourn_port::packet::{PacketOptions, PacketPort};
use sojourn_port::udp::{UdpOptions, UdpPort};
use sojourn_port::xdp::XdpPort;
use sojourn_port::{Batch, PortError, Stamps};
use sojourn_stream::Head;
use sojourn_wire::stream::{DEFAULT_UDP_PORT, Link, STREAM_ETHERTYPE, Tag};
use sojourn_wire::{Carrier, MacAddress};

use super::request::{ReceivePort, StampsAsked};
use super::to::{To, Via};
use crate::failure::WrongRequest;

/// An open port, and its properties.
pub struct Open {
    /// The port itself.
    pub port: Box<dyn Batch>,
    /// The backend.
    pub via: &'static str,
    /// The MAC address of its interface; meaningless for UDP.
    pub mac: MacAddress,
    /// The interface as it was at opening; `None` for UDP.
    pub interface: Option<Interface>,
    /// Whether it carries IPv6.
    pub is_ipv6: bool,
    /// The kernel counter of stream frames, if requested. The port then receives only the rest: exchanges of times and
    /// the ends of streams.
    pub counter: Option<LiveCounter>,
    /// The socket that holds joined multicast groups, if the port itself cannot.
    _member: Option<PacketPort>,
}

impl Open {
    fn new(port: Box<dyn Batch>, via: &'static str, mac: MacAddress) -> Self {
        Self { port, via, mac, interface: None, is_ipv6: false, counter: None, _member: None }
    }

    fn packet(port: PacketPort, via: &'static str) -> Self {
        let (mac, interface) = (port.mac(), Some(port.interface().clone()));
        Self { interface, ..Self::new(Box::new(port), via, mac) }
    }

    fn udp(port: UdpPort, is_ipv6: bool) -> Self {
        Self { is_ipv6, ..Self::new(Box::new(port), "udp", MacAddress::default()) }
    }

    fn xdp(port: XdpPort) -> Self {
        let (mac, interface) = (port.mac(), Some(port.interface().clone()));
        Self { interface, ..Self::new(Box::new(port), "xdp", mac) }
    }

    /// Returns the description of the transmit backend, with the modes that the kernel granted.
    pub fn engine(&self) -> String {
        match &self.counter {
            Some(counter) => counter.engine(),
            None if self.via == "live" => "XDP live frames".to_owned(),
            None => self.port.engine().to_owned(),
        }
    }

    /// Returns the same of the receive backend.
    pub fn receive_engine(&self) -> String {
        match &self.counter {
            Some(_) => self.engine(),
            None => self.port.receive_engine().to_owned(),
        }
    }

    /// Returns the length of an Ethernet frame, with FCS, that carries so much user data.
    pub fn frame_bytes(&self, payload_bytes: usize, head: Option<Head>) -> usize {
        const TAG_BYTES: usize = 4;
        let tagged = matches!(head, Some(Head::Link(Link { tag: Some(_), .. })));
        let carrier = match (self.via, self.is_ipv6) {
            ("udp", false) => Carrier::Udp4,
            ("udp", true) => Carrier::Udp6,
            _ => Carrier::Ethernet,
        };
        carrier.frame_bytes(payload_bytes) + if tagged { TAG_BYTES } else { 0 }
    }
}

/// Opens the port through which `to` is reached.
///
/// # Errors
/// If the kernel refuses; the root of the error chain is then a [`PortError`].
pub fn open_sender(to: &To, stamps: StampsAsked) -> anyhow::Result<Open> {
    let stamps = match stamps {
        StampsAsked::None => Stamps::None,
        StampsAsked::Departure => Stamps::Departure,
        StampsAsked::All => Stamps::All,
    };
    Ok(match to.via() {
        Via::Packet => {
            // Replies to a tagged frame are tagged, too.
            let (qdisc_bypass, tagged) = (to.qdisc_bypass, to.is_tagged());
            let options = PacketOptions { qdisc_bypass, stamps, tagged, ..PacketOptions::default() };
            Open::packet(PacketPort::open_for(to.station()?.0, STREAM_ETHERTYPE, options)?, "packet")
        }
        Via::Udp => {
            let options = UdpOptions { dscp: to.dscp.unwrap_or(0), stamps, ..UdpOptions::default() };
            let peer = to.peer()?;
            Open::udp(UdpPort::open_with(peer, to.dev.as_deref(), options)?, peer.is_ipv6())
        }
        Via::Xdp => Open::xdp(XdpPort::open(to.station()?.0, STREAM_ETHERTYPE)?),
        Via::Live => Open::packet(beside(to.station()?.0)?, "live"),
    })
}

/// Opens a packet socket for the frames that a kernel sender or counter does not handle.
fn beside(dev: &str) -> Result<PacketPort, PortError> {
    let options = PacketOptions { qdisc_bypass: true, stamps: Stamps::None, tagged: false, ..PacketOptions::default() };
    PacketPort::open_for(dev, STREAM_ETHERTYPE, options)
}

/// Returns the headers before the user data of frames to `to`, from the source address `own`.
///
/// # Errors
/// If `to` contains no destination.
pub fn head(to: &To, own: MacAddress) -> Result<Head, WrongRequest> {
    if to.via() == Via::Udp {
        return Ok(Head::Udp);
    }
    let tag = Tag { vlan: to.vlan.unwrap_or(0), priority: to.pcp.unwrap_or(0) };
    Ok(Head::Link(Link { destination: to.station()?.1, source: own, tag: to.is_tagged().then_some(tag) }))
}

/// Whether two flows can share one port.
pub fn shares_port(one: &To, other: &To) -> bool {
    let is_same = (one.via(), &one.dev) == (other.via(), &other.dev);
    match one.via() {
        Via::Packet => is_same && one.qdisc_bypass == other.qdisc_bypass,
        Via::Xdp => is_same,
        Via::Udp | Via::Live => one == other,
    }
}

/// Opens a port for reception, and joins its multicast groups.
///
/// # Errors
/// If a group address is invalid, or the kernel refuses.
pub fn open_receiver(asked: &ReceivePort) -> anyhow::Result<Open> {
    match asked.via() {
        Via::Packet => {
            let options = PacketOptions {
                tagged: true,
                stamps: reply_stamps(asked),
                buffer_bytes: asked.buffer_bytes,
                ..PacketOptions::default()
            };
            let port = PacketPort::open_for(dev(asked)?, STREAM_ETHERTYPE, options)?;
            join(&port, asked)?;
            Ok(Open::packet(port, "packet"))
        }
        Via::Udp => open_udp_receiver(asked),
        Via::Xdp => {
            let port = XdpPort::open(dev(asked)?, STREAM_ETHERTYPE)?;
            Ok(Open { _member: member(asked)?, ..Open::xdp(port) })
        }
        Via::Live => {
            let port = beside(dev(asked)?)?;
            join(&port, asked)?;
            let counter = Some(LiveCounter::attach(dev(asked)?)?);
            Ok(Open { counter, ..Open::packet(port, "live") })
        }
    }
}

/// Returns which TX timestamps a receiver takes: those of its replies in clock exchanges, for their follow-ups. If the
/// receiver answers each packet, none: each answer would cause a timestamp message.
fn reply_stamps(asked: &ReceivePort) -> Stamps {
    if asked.answer.is_none() { Stamps::Departure } else { Stamps::None }
}

fn join(port: &PacketPort, asked: &ReceivePort) -> anyhow::Result<()> {
    for group in &asked.groups {
        port.join(group.parse().map_err(|error| WrongRequest(format!("group: {error}")))?)?;
    }
    Ok(())
}

/// Opens a port only to join multicast groups; `None` if there are none.
fn member(asked: &ReceivePort) -> anyhow::Result<Option<PacketPort>> {
    if asked.groups.is_empty() {
        return Ok(None);
    }
    let port = beside(dev(asked)?)?;
    join(&port, asked)?;
    Ok(Some(port))
}

fn open_udp_receiver(asked: &ReceivePort) -> anyhow::Result<Open> {
    let parse = |group: &String| {
        let refusal =
            || WrongRequest(format!("group: {group:?} is no IP address; groups are as 239.77.0.1 or ff15::77"));
        group.parse::<IpAddr>().map_err(|_| refusal())
    };
    let groups = asked.groups.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let any: IpAddr = match groups.first() {
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let address = SocketAddr::new(asked.address.unwrap_or(any), asked.udp_port.unwrap_or(DEFAULT_UDP_PORT));
    let options = UdpOptions { stamps: reply_stamps(asked), buffer_bytes: asked.buffer_bytes, ..UdpOptions::default() };
    let mut port = UdpPort::listen(address, asked.dev.as_deref(), options)?;
    for group in groups {
        port.join(group)?;
    }
    Ok(Open::udp(port, address.is_ipv6()))
}

fn dev(asked: &ReceivePort) -> Result<&str, PortError> {
    asked.dev.as_deref().ok_or_else(|| PortError::Wrong {
        object: format!("port {}", asked.port),
        problem: "no interface is named; add \"dev\"".to_owned(),
    })
}
