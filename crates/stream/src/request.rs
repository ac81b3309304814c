//! The parameters of a sender and of a receiver.

use sojourn_port::Framing;
use sojourn_time::Nanos;
use sojourn_wire::ethernet::LEAST_PAYLOAD_BYTES;
use sojourn_wire::stream::{GREETING_BYTES, HEADER_BYTES, Link, SYNC_BYTES};
use sojourn_wire::{MacAddress, Peers, SessionKey};

use crate::{Auth, Schedule, ScheduleError};

/// The maximum number of flows that one thread sends or receives.
pub const MOST_FLOWS: usize = 64;

/// The length of the secret that cookies are made of.
pub const SECRET_BYTES: usize = 32;

/// Streams to send from one thread, over one or more ports.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The number of the block: it selects the random draws of a simulated path.
    pub block: u32,
    /// The random session key that all frames carry.
    pub key: SessionKey,
    /// The key shared with receivers, if any.
    pub auth: Auth,
    /// The streams; their departures are merged.
    pub flows: Vec<FlowRequest>,
    /// Which data to keep of each packet.
    pub keep: Keep,
    /// Time from the call to the first departure.
    pub start_in: Nanos,
    /// Maximum duration: packets that have not left by then count as unsent.
    pub at_most: Option<Nanos>,
    /// The exchanges that measure the offset between the receiver's clock and ours.
    pub sync: Option<SyncRequest>,
    /// If receivers answer: the time after which an answer counts as late.
    pub answers_late_after: Option<Nanos>,
    /// The id of this host's clock (48 bits).
    pub clock: u64,
}

/// One stream to send.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRequest {
    /// The flow's number, which its frames carry.
    pub flow: u16,
    /// The index of the port that sends it.
    pub port: usize,
    /// The header in front of the payload.
    pub head: Head,
    /// Payload of each frame in bytes, including the stream header.
    pub payload_bytes: usize,
    /// The schedule of departures.
    pub schedule: Schedule,
}

/// The header in front of the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// An Ethernet header that we write.
    Link(Link),
    /// None: the port is a UDP socket.
    Udp,
}

/// Which data to keep of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A row for each packet, up to a limit; all packets are counted.
    Packets {
        /// The limit; memory for this number of rows is allocated in advance.
        room: usize,
    },
    /// Only counts and histograms.
    Histograms,
}

/// How a sender measures the offset of a receiver's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The indices of the flows whose receivers are asked.
    pub flows: Vec<usize>,
    /// Number of exchanges with each receiver before the first packet.
    pub before: u32,
    /// Interval of exchanges during the stream, if its gaps leave time; `None`: no exchanges.
    pub during: Option<Nanos>,
    /// Number of exchanges with each receiver after the last packet.
    pub after: u32,
    /// Interval of exchanges before and after the stream.
    pub spacing: Nanos,
}

/// Streams to receive at one or more ports.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The senders whose frames are counted; other frames are unexpected.
    pub senders: Senders,
    /// The peers whose greetings are accepted; if empty, any peer's.
    pub allowed: Vec<Peers>,
    /// A random number that seeds the guard's hash, so that nobody can choose addresses that share another peer's rate limit.
    pub seed: u64,
    /// The key shared with senders, if any: greetings, time exchanges and ends without a valid tag are unexpected.
    pub auth: Auth,
    /// The ports.
    pub ports: Vec<PortRequest>,
    /// The numbers of the flows that are counted, at each of the ports.
    pub flows: Vec<u16>,
    /// Which data to keep of each packet.
    pub keep: Keep,
    /// The delay above which a packet counts as late.
    pub late_after: Nanos,
    /// This host's clock minus the sender's, as far as known: subtracted from each delay.
    pub clock_offset: Nanos,
    /// The id of this host's clock (48 bits), sent in replies to time requests.
    pub clock: u64,
}

/// The senders whose frames a receiver counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Those with this key, which both ends were given.
    Known(SessionKey),
    /// For each flow, the first sender that greets and returns the cookie that this receiver sent to its address; its key
    /// is adopted.
    Greeting {
        /// The random secret that the cookies are made of.
        secret: [u8; SECRET_BYTES],
    },
}

/// A port to receive at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// The framing of its frames.
    pub framing: Framing,
    /// Its own MAC address: the source address of its answers.
    pub mac: MacAddress,
    /// How it answers each packet; `None`: it does not.
    pub answer: Option<Answering>,
    /// Whether it provides TX timestamps of its answers, which follow-ups need.
    pub tx_timestamps: bool,
}

/// How a receiver answers packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answering {
    /// The node number in its answers, from 1.
    pub node: u8,
    /// Payload of each answer in bytes.
    pub payload_bytes: usize,
}

/// Why a request cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// There are no flows.
    #[error("no stream is asked for; name at least one")]
    NoFlows,
    /// There are more flows than one thread can handle.
    #[error("{0} streams are more than the {MOST_FLOWS} that one thread does; use several")]
    TooManyFlows(usize),
    /// Two flows have the same number.
    #[error("two streams have the number {0}; give each its own")]
    Twice(u16),
    /// A flow uses a port that does not exist.
    #[error("stream {flow} leaves by port {port}, and there are {ports}")]
    NoPort {
        /// The flow.
        flow: u16,
        /// The port's index.
        port: usize,
        /// The number of ports.
        ports: usize,
    },
    /// The payload is too short.
    #[error("stream {flow}: {bytes} bytes of user data are fewer than the {least} that its frames need")]
    TooShort {
        /// The flow.
        flow: u16,
        /// The requested payload.
        bytes: usize,
        /// The minimum payload.
        least: usize,
    },
    /// The frame is longer than the port can send.
    #[error("stream {flow}: its frames of {bytes} bytes are longer than the {most} that its port sends; raise the MTU")]
    TooLong {
        /// The flow.
        flow: u16,
        /// The length of the frame.
        bytes: usize,
        /// The maximum of the port.
        most: usize,
    },
    /// The schedule is invalid.
    #[error("stream {flow}: {error}")]
    Schedule {
        /// The flow.
        flow: u16,
        /// The reason.
        error: ScheduleError,
    },
    /// Clock synchronisation over a flow that does not exist.
    #[error("the clocks are to be compared over stream {0}, and there is none at that place")]
    NoSuchSync(usize),
}

impl SendRequest {
    /// Checks that the request can be carried out over ports with these maximum frame lengths.
    ///
    /// # Errors
    /// On the first problem.
    pub fn check(&self, longest: &[usize]) -> Result<(), RequestError> {
        if self.flows.is_empty() {
            return Err(RequestError::NoFlows);
        }
        if self.flows.len() > MOST_FLOWS {
            return Err(RequestError::TooManyFlows(self.flows.len()));
        }
        for (index, flow) in self.flows.iter().enumerate() {
            if self.flows[..index].iter().any(|other| other.flow == flow.flow) {
                return Err(RequestError::Twice(flow.flow));
            }
            flow.check(longest)?;
        }
        let places = self.sync.iter().flat_map(|sync| &sync.flows);
        places
            .copied()
            .find(|place| *place >= self.flows.len())
            .map_or(Ok(()), |place| Err(RequestError::NoSuchSync(place)))
    }
}

impl FlowRequest {
    /// Returns the length of its frames, as its port takes them.
    pub const fn frame_bytes(&self) -> usize {
        self.head.bytes() + self.payload_bytes
    }

    fn check(&self, longest: &[usize]) -> Result<(), RequestError> {
        let &Self { flow, port, payload_bytes: bytes, .. } = self;
        let Some(&most) = longest.get(port) else {
            return Err(RequestError::NoPort { flow, port, ports: longest.len() });
        };
        let least = self.head.least_payload_bytes();
        if bytes < least {
            return Err(RequestError::TooShort { flow, bytes, least });
        }
        if self.frame_bytes() > most {
            return Err(RequestError::TooLong { flow, bytes: self.frame_bytes(), most });
        }
        self.schedule.check_shape().map_err(|error| RequestError::Schedule { flow, error })
    }
}

impl Head {
    /// Returns the length of the header in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Link(link) => link.header_bytes(),
            Self::Udp => 0,
        }
    }

    /// Returns the minimum payload after it.
    pub const fn least_payload_bytes(self) -> usize {
        match self {
            Self::Link(_) => LEAST_PAYLOAD_BYTES,
            Self::Udp => HEADER_BYTES,
        }
    }

    /// Returns the payload of a greeting.
    pub(crate) const fn greeting_payload_bytes(self) -> usize {
        if GREETING_BYTES > self.least_payload_bytes() { GREETING_BYTES } else { self.least_payload_bytes() }
    }

    /// Returns the payload of a time request or reply.
    pub(crate) const fn sync_payload_bytes(self) -> usize {
        if SYNC_BYTES > self.least_payload_bytes() { SYNC_BYTES } else { self.least_payload_bytes() }
    }
}

/// Returns an empty vector whose memory for `count` values has been touched: the first access to a page takes microseconds.
pub(crate) fn touched<T: Copy>(count: usize, filler: T) -> Vec<T> {
    let mut room = vec![filler; count];
    room.clear();
    room
}
