//! Sends and receives frames.
//!
//! [`Port`] is the one interface between the engines and the outside. A program chooses its backend once; the driver's
//! loop is generic over it. [`Capabilities::framing`] says what a frame of a backend is: a whole Ethernet frame without
//! FCS (`packet`, `xdp`), an ICMP message (`icmp`) or a UDP payload (`udp`); `sim` carries any of them.
//!
//! [`guard`] decides which requests may be answered. This crate does not know the format of a probe. The backends that
//! need BPF programs (`xdp`, and the ports of a bridge) are behind the feature `bpf`; without it, libbpf is not built.

mod batch;
#[cfg(feature = "bpf")]
pub mod bpf;
pub mod bridge;
#[cfg(feature = "bpf")]
pub mod foreign;
pub mod guard;
pub mod icmp;
pub mod kernel;
mod listen;
pub mod packet;
pub mod pcap;
pub mod sim;
pub mod udp;
#[cfg(feature = "bpf")]
pub mod xdp;

pub use batch::{Batch, MOST_AT_ONCE};
#[cfg(feature = "bpf")]
pub use bpf::Mode;
pub use listen::{Listener, Route};

use std::net::SocketAddr;

use sojourn_time::{Stamp, Time};

/// Sends and receives frames.
pub trait Port {
    /// Sends one frame. Returns the number that its late TX timestamp will have, counted from 0.
    ///
    /// # Errors
    /// When the kernel refuses the frame; the frame then has no number.
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError>;

    /// Copies the next received frame, if there is one, into `buffer`. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses, not when there is nothing to take.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError>;

    /// Returns the next late TX timestamp, if there is one. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError>;

    /// Sleeps until a frame can be received or until `deadline`, whichever is first; may return early.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn wait(&mut self, deadline: Time) -> Result<(), PortError>;

    /// Returns what this port can do.
    fn capabilities(&self) -> Capabilities;

    /// Counts the frames that the tester's own socket or ring dropped since the port was opened.
    /// Call it every few minutes at least: the kernel's counter has 32 bits, and is extended when it is read.
    fn local_drops(&mut self) -> u64;
}

/// A transmitted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of this transmission on its port; [`TxTimestamp::number`] repeats it.
    pub number: u32,
    /// When the program made the call: read just before it.
    pub called: Time,
}

/// One received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The frame's length in the buffer, in bytes. A frame longer than the buffer is truncated.
    pub length: usize,
    /// The RX timestamp, from the best source that the port has for this frame.
    pub arrived: Stamp,
    /// When the call returned: read just after it.
    pub returned: Time,
    /// The sender's address where the kernel reports it (UDP). Ethernet frames carry it themselves.
    pub from: Option<SocketAddr>,
    /// Whether it was sent to a broadcast address or to a multicast group that the port did not join, where the kernel
    /// reports it (UDP).
    pub to_group: bool,
}

/// A late TX timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// The number that [`Port::transmit`] gave.
    pub number: u32,
    /// The timestamp, from the best source that the port has.
    pub left: Stamp,
    /// Where the frame was at that time.
    pub kind: StampKind,
}

/// The point of the transmit path at which a frame was timestamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampKind {
    /// The queueing discipline accepted it. Reported only on request ([`Stamps::All`]).
    Scheduled,
    /// The driver sent it.
    Left,
}

/// Which late TX timestamps a port requests. Each costs a message on the socket's error queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// None.
    None,
    /// When the driver sends the frame.
    #[default]
    Departure,
    /// When the driver sends the frame, and when the queueing discipline accepts it.
    All,
}

/// What a frame of this port consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A whole Ethernet frame without FCS.
    Ethernet,
    /// An ICMP (IPv4) message from its type byte on.
    Icmp4,
    /// An ICMPv6 message from its type byte on; the kernel does the checksum.
    Icmp6,
    /// A UDP payload.
    Udp,
}

/// What a port can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What its frames consist of.
    pub framing: Framing,
    /// The longest frame that it sends, in bytes of that framing.
    pub max_frame: usize,
    /// Whether [`Port::tx_timestamp`] will ever return anything.
    pub tx_timestamps: bool,
}

impl PortError {
    /// Whether a transmit queue was full: the frame may be transmitted again later.
    pub fn is_full_queue(&self) -> bool {
        let Self::System { source, .. } = self else { return false };
        source.kind() == std::io::ErrorKind::WouldBlock || source.raw_os_error() == Some(libc::ENOBUFS)
    }
}

/// An error of a port. Its message names operation and object, and says what would fix it.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    System {
        /// The operation, as a verb: "bind", "send on".
        operation: &'static str,
        /// The object: an interface, an address.
        object: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The process lacks the capability.
    #[error("{operation} {object} needs {right}: {fix}")]
    Denied {
        /// The operation, as a verb.
        operation: &'static str,
        /// The object of the operation.
        object: String,
        /// The missing capability: "CAP_NET_RAW".
        right: &'static str,
        /// What would fix it.
        fix: String,
    },
    /// The request names an object that does not exist, or exceeds its limits: only another request helps.
    #[error("{object}: {problem}")]
    Wrong {
        /// The interface or address.
        object: String,
        /// What is wrong with the request, and what could be requested instead.
        problem: String,
    },
    /// The peer's host reports that no socket listens at that port.
    #[error("{0}: nobody listens there; start `sojourn probe respond` on it")]
    Refused(String),
    /// The interface is down, the route is missing or the port is taken: unusable until that is fixed.
    #[error("{object}: {problem}")]
    Unusable {
        /// The interface or address.
        object: String,
        /// What is wrong with it, and what would fix it.
        problem: String,
    },
    /// Somebody removed something that the port needs, such as its XDP program: its counts are incomplete.
    #[error("{object}: {problem}")]
    TakenAway {
        /// The interface.
        object: String,
        /// What was removed, and by what.
        problem: String,
    },
}
