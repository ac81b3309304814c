//! Where frames enter and leave.
//!
//! [`Port`] is the one seam between an engine's world and the outside. A backend is chosen once, by the program; the
//! driver's loop is generic over it. What a "frame" is depends on the backend and is said by
//! [`Capabilities::framing`]: a whole Ethernet frame without FCS (`packet`, `xdp`), an ICMP message (`icmp`), or a
//! UDP payload (`udp`); `sim` carries whichever it is asked to.
//!
//! Who may be answered is judged here too ([`guard`]), for whatever is asked. Nothing here knows what a probe is. What needs programs in the kernel (`xdp`, and the ports of a bridge) is behind the
//! feature `bpf`, so that who has no need of them builds no libbpf.

mod batch;
#[cfg(feature = "bpf")]
pub mod bpf;
pub mod bridge;
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

/// A place where frames enter and leave.
pub trait Port {
    /// Sends one frame. Returns the number under which its late TX timestamp will come, counted from 0.
    ///
    /// # Errors
    /// When the kernel refuses the frame; the frame then has no number.
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError>;

    /// Takes the next received frame, if one is there, into `buffer`. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses, not when there is nothing to take.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError>;

    /// Takes the next late TX timestamp, if one is there. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError>;

    /// Sleeps until a frame can be received or `deadline` has come, whichever is first; may return early.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn wait(&mut self, deadline: Time) -> Result<(), PortError>;

    /// Says what this port can do.
    fn capabilities(&self) -> Capabilities;

    /// Counts the frames that our own socket or ring dropped since the port was opened.
    fn local_drops(&mut self) -> u64;
}

/// One frame on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of this transmission on its port; [`TxTimestamp::number`] repeats it.
    pub number: u32,
    /// When the program called, just before the call.
    pub called: Time,
}

/// One received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes of the buffer it fills. A frame longer than the buffer is cut.
    pub length: usize,
    /// When it arrived, by the best source that the port has for this frame.
    pub arrived: Stamp,
    /// When the program had it in hand, just after the call.
    pub returned: Time,
    /// Who sent it, where the kernel tells: over UDP. Ethernet frames say it themselves.
    pub from: Option<SocketAddr>,
}

/// When a frame left, told afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// The number that [`Port::transmit`] gave.
    pub number: u32,
    /// When it came there, by the best source that the port has.
    pub left: Stamp,
    /// Where that was.
    pub kind: StampKind,
}

/// Which place on its way out a frame had come to when it was stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampKind {
    /// The queueing discipline took it. Only told where it was asked for ([`Stamps::All`]).
    Scheduled,
    /// The driver sent it.
    Left,
}

/// Which late TX timestamps a port is to take. Each costs a message on the socket's error queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// None.
    None,
    /// As it leaves.
    #[default]
    Departure,
    /// As it leaves, and as it enters the queueing discipline.
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
    /// Whether a queue on the way out had no room: the frame may be sent again later.
    pub fn is_full_queue(&self) -> bool {
        let Self::System { source, .. } = self else { return false };
        source.kind() == std::io::ErrorKind::WouldBlock || source.raw_os_error() == Some(libc::ENOBUFS)
    }
}

/// Why a port could not do what was asked. The message names operation and object and says what would fix it.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    System {
        /// What was tried, as a verb: "bind", "send on".
        operation: &'static str,
        /// To what: an interface, an address.
        object: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The right to do it is missing.
    #[error("{operation} {object} needs {right}: {fix}")]
    Denied {
        /// What was tried.
        operation: &'static str,
        /// To what.
        object: String,
        /// The capability that is missing: "CAP_NET_RAW".
        right: &'static str,
        /// What would fix it.
        fix: String,
    },
    /// The request names what is not there, or asks for more than it holds: no command here fixes that.
    #[error("{object}: {problem}")]
    Wrong {
        /// The interface or address.
        object: String,
        /// What is wrong with what was asked, and what could be asked instead.
        problem: String,
    },
    /// The peer's host answers, and says that nobody listens at that port.
    #[error("{0}: nobody listens there; start `sojourn probe respond` on it")]
    Refused(String),
    /// The interface is down, the route is missing, the port is taken: it cannot be used until that is fixed.
    #[error("{object}: {problem}")]
    Unusable {
        /// The interface or address.
        object: String,
        /// What is wrong with it, and what would fix it.
        problem: String,
    },
    /// Somebody has taken away what it used: what went through it is not to be trusted to the end.
    #[error("{object}: {problem}")]
    TakenAway {
        /// The interface.
        object: String,
        /// What was taken, and by what.
        problem: String,
    },
}
