//! What is asked of a sender and of a receiver.

use sojourn_port::Framing;
use sojourn_time::Nanos;
use sojourn_wire::ethernet::LEAST_PAYLOAD_BYTES;
use sojourn_wire::stream::{GREETING_BYTES, HEADER_BYTES, Link, SYNC_BYTES};
use sojourn_wire::{MacAddress, Peers, SessionKey};

use crate::{Auth, Schedule, ScheduleError};

/// The most flows that one thread sends or receives.
pub const MOST_FLOWS: usize = 64;

/// Some streams to send from one thread, over one or more ports.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Which block it is: what a simulated path does depends on it.
    pub block: u32,
    /// The key that all frames carry, random.
    pub key: SessionKey,
    /// What receivers know of us beforehand.
    pub auth: Auth,
    /// The streams; their departures are merged.
    pub flows: Vec<FlowRequest>,
    /// What to keep of each packet.
    pub keep: Keep,
    /// How long after the call the first packet leaves.
    pub start_in: Nanos,
    /// For how long to go on at most: what has not left by then is unsent.
    pub at_most: Option<Nanos>,
    /// The exchanges that tell how the receiver's clock stands to ours.
    pub sync: Option<SyncRequest>,
    /// Whether receivers answer, and how late an answer is late.
    pub answers_late_after: Option<Nanos>,
    /// This host's clock, by its id (48 bits).
    pub clock: u64,
}

/// One stream to send.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRequest {
    /// Its number, which its frames carry.
    pub flow: u16,
    /// The index of the port that it leaves by.
    pub port: usize,
    /// What stands before the user data.
    pub head: Head,
    /// User data of each frame, the stream header included.
    pub payload_bytes: usize,
    /// When its packets leave.
    pub schedule: Schedule,
}

/// What stands before the user data of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// An Ethernet header of ours.
    Link(Link),
    /// Nothing: the port is a UDP socket.
    Udp,
}

/// What to keep of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A row for each, so many at most; all are counted.
    Packets {
        /// For how many rows memory is taken beforehand.
        room: usize,
    },
    /// Counts and histograms only.
    Histograms,
}

/// How a sender finds out how a receiver's clock stands to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The indices of the flows whose receivers are asked.
    pub flows: Vec<usize>,
    /// How many exchanges with each before the first packet.
    pub before: u32,
    /// How long between exchanges during the stream, where its gaps leave time; `None`: none.
    pub during: Option<Nanos>,
    /// How many exchanges with each after the last packet.
    pub after: u32,
    /// How long between exchanges before and after.
    pub spacing: Nanos,
}

/// Some streams to receive at one or more ports.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// Whose frames are counted; others are unexpected.
    pub senders: Senders,
    /// Whose greetings are believed; none named: everybody's.
    pub allowed: Vec<Peers>,
    /// A random number, so that nobody can choose addresses that share a rate with another's.
    pub seed: u64,
    /// What senders know of us beforehand: greetings, exchanges of times and ends without a right tag are unexpected.
    pub auth: Auth,
    /// The ports.
    pub ports: Vec<PortRequest>,
    /// The streams that may come in, by number, at each of the ports.
    pub flows: Vec<u16>,
    /// What to keep of each packet.
    pub keep: Keep,
    /// After how long a packet is late.
    pub late_after: Nanos,
    /// By how much this host's clock is ahead of the sender's, as far as known: taken off each delay.
    pub clock_offset: Nanos,
    /// This host's clock, by its id (48 bits): told to who synchronises.
    pub clock: u64,
}

/// Whose frames a receiver counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Those with this key, which both ends got.
    Known(SessionKey),
    /// For each flow, those with the key of the first sender that greets and sends this cookie back, which is random.
    Greeting {
        /// Of this receiver.
        cookie: u64,
    },
}

/// A port to receive at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// What its frames consist of.
    pub framing: Framing,
    /// Its own MAC address: the source of what it answers.
    pub mac: MacAddress,
    /// Whether it answers each packet.
    pub answer: Option<Answering>,
    /// Whether it tells when its answers left, so that follow-ups can.
    pub tx_timestamps: bool,
}

/// How a receiver answers packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answering {
    /// The tag of its answers, from 1.
    pub node: u8,
    /// User data of each answer.
    pub payload_bytes: usize,
}

/// Why a request cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// No flows.
    #[error("no stream is asked for; name at least one")]
    NoFlows,
    /// More than one thread can do.
    #[error("{0} streams are more than the {MOST_FLOWS} that one thread does; use several")]
    TooManyFlows(usize),
    /// Two flows of one number.
    #[error("two streams have the number {0}; give each its own")]
    Twice(u16),
    /// A flow over a port that is not there.
    #[error("stream {flow} leaves by port {port}, and there are {ports}")]
    NoPort {
        /// The flow.
        flow: u16,
        /// The port's index.
        port: usize,
        /// How many there are.
        ports: usize,
    },
    /// Too little user data.
    #[error("stream {flow}: {bytes} bytes of user data are fewer than the {least} that its frames need")]
    TooShort {
        /// The flow.
        flow: u16,
        /// What was asked.
        bytes: usize,
        /// What there must be.
        least: usize,
    },
    /// More than the port sends.
    #[error("stream {flow}: its frames of {bytes} bytes are longer than the {most} that its port sends; raise the MTU")]
    TooLong {
        /// The flow.
        flow: u16,
        /// The frame.
        bytes: usize,
        /// What the port sends.
        most: usize,
    },
    /// A schedule that cannot be.
    #[error("stream {flow}: {error}")]
    Schedule {
        /// The flow.
        flow: u16,
        /// Why.
        error: ScheduleError,
    },
    /// Synchronisation with a flow that is not there.
    #[error("the clocks are to be compared over stream {0}, and there is none at that place")]
    NoSuchSync(usize),
}

impl SendRequest {
    /// Checks that the request can be carried out over ports that send frames of these lengths.
    ///
    /// # Errors
    /// On the first thing that cannot be.
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
    /// Returns how long its frames are, as its port takes them.
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
    /// Returns how many bytes it has.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Link(link) => link.header_bytes(),
            Self::Udp => 0,
        }
    }

    /// Returns the least user data behind it.
    pub const fn least_payload_bytes(self) -> usize {
        match self {
            Self::Link(_) => LEAST_PAYLOAD_BYTES,
            Self::Udp => HEADER_BYTES,
        }
    }

    /// Returns the user data of a greeting behind it.
    pub(crate) const fn greeting_payload_bytes(self) -> usize {
        if GREETING_BYTES > self.least_payload_bytes() { GREETING_BYTES } else { self.least_payload_bytes() }
    }

    /// Returns the user data of a synchronisation behind it.
    pub(crate) const fn sync_payload_bytes(self) -> usize {
        if SYNC_BYTES > self.least_payload_bytes() { SYNC_BYTES } else { self.least_payload_bytes() }
    }
}

/// Returns an empty vector with room for `count` values whose memory is there: the first use of a page takes
/// microseconds.
pub(crate) fn touched<T: Copy>(count: usize, filler: T) -> Vec<T> {
    let mut room = vec![filler; count];
    room.clear();
    room
}
