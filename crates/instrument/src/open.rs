//! Opens the kernel's port for a target.
//!
//! The one place that knows all kernel backends; simulated lines never come here.

use std::net::SocketAddr;

use sojourn_port::icmp::IcmpPort;
use sojourn_port::packet::PacketPort;
use sojourn_port::udp::UdpPort;
use sojourn_port::{Capabilities, Port, PortError, Received, Sent, TransmitStamp};
use sojourn_probe::To;
use sojourn_time::Time;
use sojourn_wire::MacAddress;

/// A port of the kernel.
#[derive(Debug)]
pub enum KernelPort {
    /// ICMP echo.
    Icmp(IcmpPort),
    /// UDP.
    Udp(UdpPort),
    /// Ethernet frames.
    Packet(PacketPort),
}

/// Opens the port for `to`.
///
/// # Errors
/// When the kernel refuses; the root of the chain is then a [`PortError`].
pub fn open(to: &To) -> anyhow::Result<KernelPort> {
    Ok(match to {
        To::Icmp { address, dev } => KernelPort::Icmp(IcmpPort::open(*address, dev.as_deref())?),
        To::Udp { address, port, dev } => {
            KernelPort::Udp(UdpPort::open(SocketAddr::new(*address, *port), dev.as_deref())?)
        }
        To::Packet { dev, qdisc_bypass, .. } => KernelPort::Packet(PacketPort::open(dev, *qdisc_bypass)?),
        To::Sim { .. } => anyhow::bail!("a simulated line has no port of the kernel"),
    })
}

impl KernelPort {
    /// Returns the interface's own address, where frames carry one.
    pub fn hardware_address(&self) -> Option<MacAddress> {
        match self {
            Self::Packet(port) => Some(port.mac()),
            Self::Icmp(_) | Self::Udp(_) => None,
        }
    }
}

/// Does the same with whichever port it is.
macro_rules! each {
    ($self:ident, $port:ident => $does:expr) => {
        match $self {
            KernelPort::Icmp($port) => $does,
            KernelPort::Udp($port) => $does,
            KernelPort::Packet($port) => $does,
        }
    };
}

impl Port for KernelPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        each!(self, port => port.transmit(frame))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        each!(self, port => port.receive(buffer))
    }

    fn transmit_stamp(&mut self) -> Result<Option<TransmitStamp>, PortError> {
        each!(self, port => port.transmit_stamp())
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        each!(self, port => port.wait(deadline))
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, port => port.capabilities())
    }

    fn own_drops(&mut self) -> u64 {
        each!(self, port => port.own_drops())
    }
}
