//! What `stream serve` is asked, as it stands on a line. Wrong values are refused here or where they are used.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;
use sojourn_time::Nanos;
use sojourn_wire::MacAddress;
use sojourn_wire::stream::DEFAULT_UDP_PORT;

/// A request.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Asked {
    /// Open ports and receive until told to finish.
    Receive(Receive),
    /// End a reception.
    Finish(Finish),
    /// Send.
    Send(Send),
    /// End what is being sent.
    Stop,
    /// Send and receive over a simulated path.
    Simulate(Simulate),
}

/// What a block is part of.
#[derive(Clone, Debug, Deserialize)]
pub struct Head {
    pub block: u32,
    #[serde(default)]
    pub device: String,
    #[serde(default)]
    pub round: i32,
    #[serde(default)]
    pub visit: i32,
    #[serde(default)]
    pub cell: i32,
    #[serde(default = "measure")]
    pub purpose: String,
}

#[derive(Debug, Deserialize)]
pub struct Receive {
    #[serde(flatten)]
    pub head: Head,
    pub ports: Vec<ReceivePort>,
    pub flows: Vec<u16>,
    #[serde(flatten)]
    pub options: ReceiveOptions,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ReceiveOptions {
    #[serde(default)]
    pub keep: Keep,
    #[serde(default = "a_second")]
    pub late_after_ns: f64,
    /// For how many frames to have room; what comes beyond is counted and kept in histograms only.
    #[serde(default = "a_million")]
    pub room: usize,
    /// User data of an answer; as long as the frame that it answers where it is not said.
    #[serde(default)]
    pub answer_payload_bytes: Option<usize>,
    /// User data of the frames that will come, where it is known: for the record.
    #[serde(default)]
    pub payload_bytes: Option<usize>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ReceivePort {
    pub port: u16,
    pub via: Via,
    #[serde(default)]
    pub dev: Option<String>,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default = "default_port")]
    pub udp_port: u16,
    /// UDP: where to listen; on all addresses of a family where it is not said.
    #[serde(default)]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub answer: Option<u8>,
    #[serde(default)]
    pub buffer_bytes: Option<usize>,
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    Packet,
    Udp,
    Xdp,
    Live,
}

impl Via {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Udp => "udp",
            Self::Xdp => "xdp",
            Self::Live => "live",
        }
    }
}

/// What is kept of single frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// A row for each.
    #[default]
    Packets,
    /// Histograms and counts only.
    Histograms,
}

#[derive(Debug, Deserialize)]
pub struct Finish {
    pub block: u32,
    #[serde(default)]
    pub sent: Vec<SentCount>,
}

/// How many frames of a flow were sent to a port; to each port where it is not said.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct SentCount {
    pub flow: u16,
    pub sent: u64,
    #[serde(default)]
    pub port: Option<u16>,
}

#[derive(Debug, Deserialize)]
pub struct Send {
    #[serde(flatten)]
    pub head: Head,
    pub flows: Vec<Flow>,
    #[serde(default)]
    pub keep: Keep,
    #[serde(default)]
    pub stamps: StampsAsked,
    #[serde(default)]
    pub at_most_ns: Option<f64>,
    #[serde(default)]
    pub clock: ClockAsked,
    #[serde(default)]
    pub start_in_ns: Option<f64>,
    /// Answers come back to the ports that send, and count as late after so long: UDP, whose answers reach nobody else.
    #[serde(default)]
    pub answers_late_after_ns: Option<f64>,
}

/// Which stamps of the kernel are wanted of what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StampsAsked {
    /// None: cheapest.
    None,
    /// As it leaves.
    #[default]
    Departure,
    /// As it enters the queueing discipline, too.
    All,
}

/// How the receiver's clock is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockAsked {
    /// It is ours.
    #[default]
    Shared,
    /// Ask it.
    Exchange,
    /// Not at all.
    None,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Flow {
    pub flow: u16,
    #[serde(default)]
    pub to: Option<To>,
    pub schedule: String,
    #[serde(default)]
    pub rate_pps: Option<f64>,
    pub count: u64,
    pub payload_bytes: usize,
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default)]
    pub offsets_ns: Vec<i64>,
}

/// To whom, and through what.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "via", rename_all = "lowercase")]
pub enum To {
    Packet {
        dev: String,
        mac: MacAddress,
        #[serde(default)]
        vlan: Option<u16>,
        #[serde(default)]
        pcp: Option<u8>,
        #[serde(default = "yes")]
        qdisc_bypass: bool,
    },
    Udp {
        address: IpAddr,
        #[serde(default = "default_port")]
        port: u16,
        #[serde(default)]
        dev: Option<String>,
        #[serde(default)]
        dscp: Option<u8>,
    },
    Xdp {
        dev: String,
        mac: MacAddress,
        #[serde(default)]
        vlan: Option<u16>,
        #[serde(default)]
        pcp: Option<u8>,
    },
    Live {
        dev: String,
        mac: MacAddress,
        /// Whether the interface's other end is a device's: a frame for which that has no room has then been sent, and lost
        /// by the device, whose receive ring was full. Else it was refused, by a part of the tester.
        #[serde(default)]
        into_device: bool,
        /// Whether frames were seen to leave there before: then none go ahead of the others to find that out.
        #[serde(default)]
        proven: bool,
    },
}

#[derive(Clone, Debug, Deserialize)]
pub struct Simulate {
    #[serde(flatten)]
    pub head: Head,
    pub path: Value,
    pub flows: Vec<Flow>,
    pub receive: ReceiveOptions,
    #[serde(default)]
    pub at_most_ns: Option<f64>,
    #[serde(default)]
    pub clock: ClockAsked,
}

/// A span that may be written with a fraction or an exponent, as 1e9.
pub fn nanos(ns: f64) -> Nanos {
    // Saturates at the ends; NaN is 0.
    Nanos(ns.round() as i64)
}

fn measure() -> String {
    "measure".to_owned()
}

fn a_second() -> f64 {
    1e9
}

fn a_million() -> usize {
    1_000_000
}

fn default_port() -> u16 {
    DEFAULT_UDP_PORT
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}
