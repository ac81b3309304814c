//! What is asked of streams: each type is the command line of `send`, `recv` and `sim` and a request of `serve` at once, so that
//! an option is declared once. Values are checked here, or where they are used.

use std::fmt::{self, Display};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sojourn_stream::{FlowRequest, Pattern, Schedule};
use sojourn_time::Nanos;
use sojourn_wire::size::SizeError;
use sojourn_wire::stream::{DEFAULT_UDP_PORT, HEADER_BYTES, TAG_BYTES};
use sojourn_wire::{Carrier, MacAddress, Size};

use super::rate::Rate;
use crate::arguments::{PlaceArguments, span};
use crate::failure::WrongRequest;

/// What to do with streams.
#[derive(Debug, Subcommand)]
pub enum Stream {
    /// Send frames by a schedule; `stream recv` at the other end counts them
    ///
    /// The clocks of both ends are compared in band, before, during and after. Ethernet frames (EtherType 0x88B6) need
    /// CAP_NET_RAW, UDP needs no rights. Example: sojourn stream send --dev eth1 --to 02:77:00:00:01:02 --rate 10kpps
    Send(Box<SendByHand>),
    /// Receive a stream, answer its sender's clock, and tell what arrived, what was lost and how long it took
    ///
    /// Example: sojourn stream recv --dev eth1 --json
    Recv(Box<ReceiveByHand>),
    /// Send and receive over a simulated path, in simulated time: instant, and needs no rights
    ///
    /// Example: sojourn stream sim --path '{"delay":{"constant_ns":5000}}' --schedule poisson --rate 10kpps --count 1000
    Sim(Box<SimulateByHand>),
    /// Be one end of streams, as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. A block is recorded and flushed before it is answered. Ends at the end of the input, or on SIGINT or
    /// SIGTERM, which also end what is being sent.
    Serve(Serve),
}

/// A request of `serve`.
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

/// What a block is part of; by hand nothing.
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

impl Default for Head {
    fn default() -> Self {
        Self { block: 0, device: String::new(), round: 0, visit: 0, cell: 0, purpose: measure() }
    }
}

/// Flows to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    #[serde(flatten)]
    pub head: Head,
    pub flows: Vec<Flow>,
    #[serde(flatten)]
    pub options: SendOptions,
}

/// `stream send`: one flow.
#[derive(Debug, Args)]
pub struct SendByHand {
    #[command(flatten)]
    pub to: To,
    /// Which flow it is: several senders to one receiver differ by it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub flow: u16,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub options: SendOptions,
    #[command(flatten)]
    pub run: StreamRun,
}

/// What holds for all flows of a sender.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[serde(default)]
pub struct SendOptions {
    /// How to know the receiver's clock
    #[arg(long, value_name = "HOW", default_value = "exchange")]
    pub clock: ClockAsked,
    #[arg(skip)]
    pub keep: Keep,
    #[arg(skip)]
    pub stamps: StampsAsked,
    #[arg(skip)]
    #[serde(rename = "at_most_ns", deserialize_with = "some_nanos")]
    pub at_most: Option<Nanos>,
    #[arg(skip)]
    #[serde(rename = "start_in_ns", deserialize_with = "some_nanos")]
    pub start_in: Option<Nanos>,
    /// Answers come back to the ports that send, and count as late after so long: UDP, whose answers reach nobody else.
    #[arg(skip)]
    #[serde(rename = "answers_late_after_ns", deserialize_with = "some_nanos")]
    pub answers_late_after: Option<Nanos>,
}

/// One flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub flow: u16,
    #[serde(default)]
    pub to: To,
    #[serde(flatten)]
    pub shape: Shape,
}

/// To whom, and through what.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct To {
    /// Send on this interface; with --udp: bind to it
    #[arg(long, value_name = "D")]
    pub dev: Option<String>,
    /// To this station, group or broadcast: a MAC address
    #[arg(long = "to", value_name = "MAC", conflicts_with = "udp")]
    pub mac: Option<MacAddress>,
    /// Send UDP to this address, and port where it is not 7708: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(long, value_name = "ADDR[:PORT]")]
    #[serde(rename = "address")]
    pub udp: Option<UdpPeer>,
    /// By which means of the kernel; without it: UDP with --udp, else packet
    #[arg(long = "engine", value_name = "ENGINE", conflicts_with = "udp")]
    via: Option<Via>,
    /// Tag frames with this VLAN
    #[arg(long, value_name = "ID", conflicts_with = "udp", value_parser = clap::value_parser!(u16).range(0..4095))]
    pub vlan: Option<u16>,
    /// Tag frames with this priority (802.1Q, 0 to 7)
    #[arg(long, value_name = "P", conflicts_with = "udp", value_parser = clap::value_parser!(u8).range(0..8))]
    pub pcp: Option<u8>,
    /// Mark packets with this DSCP (0 to 63)
    #[arg(long, value_name = "N", requires = "udp", value_parser = clap::value_parser!(u8).range(0..64))]
    pub dscp: Option<u8>,
    /// Send through the interface's queueing discipline, not past it
    #[arg(long = "through-qdisc", conflicts_with = "udp", action = clap::ArgAction::SetFalse)]
    #[serde(default = "yes")]
    pub qdisc_bypass: bool,
    /// Whether the interface's other end is a device's: a frame for which that has no room has then been sent, and lost
    /// by the device, whose receive ring was full. Else it was refused, by a part of the tester. For live frames.
    #[arg(skip)]
    #[serde(default)]
    pub into_device: bool,
    /// Whether live frames were seen to leave there before: then none go ahead of the others to find that out.
    #[arg(skip)]
    #[serde(default)]
    pub proven: bool,
}

/// What is sent, and when.
#[derive(Clone, Debug, Args, Deserialize)]
pub struct Shape {
    /// Bytes of the Ethernet frame with its FCS [default: the least, 64 for Ethernet]
    #[arg(long = "size", visible_alias = "frame-bytes", value_name = "FRAME_BYTES")]
    pub frame_bytes: Option<usize>,
    /// Bytes of user data, after the UDP or Ethernet header
    #[arg(long, value_name = "N", conflicts_with = "frame_bytes")]
    payload_bytes: Option<usize>,
    /// When frames leave: regular, poisson, burst:N, ramp:FROM-TO, flood, or replay:FILE (a departure a line, in ns from the
    /// start)
    #[arg(long, default_value = "regular")]
    #[serde(deserialize_with = "schedule_without_file")]
    schedule: String,
    /// How many a second: 10kpps, or 100Mbit/s of frames with FCS [default: 1kpps]
    #[arg(long)]
    #[serde(rename = "rate_pps")]
    rate: Option<Rate>,
    /// How many frames
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// For how long, instead of how many [default: 10s]
    #[arg(long, value_parser = span, conflicts_with = "count")]
    #[serde(default, rename = "duration_ns", deserialize_with = "some_nanos")]
    duration: Option<Nanos>,
    /// Seed of the poisson schedule
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    seed: u64,
    /// The departures of the schedule `replay`, which has no file then.
    #[arg(skip)]
    #[serde(default)]
    offsets_ns: Vec<i64>,
}

/// Ports to receive at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    #[serde(flatten)]
    pub head: Head,
    pub ports: Vec<ReceivePort>,
    pub flows: Vec<u16>,
    #[serde(flatten)]
    pub options: ReceiveOptions,
}

/// `stream recv`: ports of one kind.
#[derive(Debug, Args)]
pub struct ReceiveByHand {
    /// Receive Ethernet frames on this interface; may be repeated. With --udp: join groups there
    #[arg(long, value_name = "D")]
    pub dev: Vec<String>,
    #[command(flatten)]
    pub port: ReceivePort,
    /// Receive UDP over IPv6
    #[arg(long, requires = "udp")]
    pub ipv6: bool,
    /// Which flows; may be repeated
    #[arg(long, value_name = "N", default_values_t = [1])]
    pub flow: Vec<u16>,
    /// For how long to listen at most; a sender that says that it is done ends it sooner
    #[arg(long = "for", value_name = "SPAN", default_value = "60s", value_parser = span)]
    pub listen: Nanos,
    #[command(flatten)]
    pub options: ReceiveOptions,
    #[command(flatten)]
    pub run: StreamRun,
}

/// A port to receive at.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivePort {
    /// Its number in records.
    #[arg(skip)]
    pub port: u16,
    #[arg(skip)]
    #[serde(default)]
    pub dev: Option<String>,
    /// Receive UDP on this port
    #[arg(long = "udp", id = "udp", value_name = "PORT", num_args = 0..=1, default_missing_value = "7708")]
    #[serde(default)]
    pub udp_port: Option<u16>,
    /// Join this group, a multicast MAC or IP address; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    #[serde(default)]
    pub groups: Vec<String>,
    /// By which means of the kernel; without it: UDP with --udp, else packet
    #[arg(long = "engine", value_name = "ENGINE", conflicts_with = "udp")]
    pub via: Option<Via>,
    /// UDP: where to listen; on all addresses of a family where it is not said.
    #[arg(skip)]
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Send frames of the stream back to their sender, marked with this number
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u8).range(1..))]
    #[serde(default)]
    pub answer: Option<u8>,
    /// Ask for a receive buffer of so many bytes [default: 16 MiB]
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub buffer_bytes: Option<usize>,
}

/// What holds for all flows of a receiver.
#[derive(Clone, Copy, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiveOptions {
    /// After how long a frame counts as late
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    #[serde(rename = "late_after_ns", deserialize_with = "nanos")]
    pub late_after: Nanos,
    #[arg(skip)]
    pub keep: Keep,
    /// For how many frames to have room; what comes beyond is counted and kept in histograms only.
    #[arg(skip = ROOM)]
    pub room: usize,
    /// User data of an answer; as long as the frame that it answers where it is not said.
    #[arg(skip)]
    pub answer_payload_bytes: Option<usize>,
    /// User data of the frames that will come, where it is known: for the record.
    #[arg(skip)]
    pub payload_bytes: Option<usize>,
}

const ROOM: usize = 1_000_000;

impl Default for ReceiveOptions {
    fn default() -> Self {
        let (keep, answer_payload_bytes, payload_bytes) = Default::default();
        Self { late_after: Nanos::seconds(1), keep, room: ROOM, answer_payload_bytes, payload_bytes }
    }
}

/// The end of a reception.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finish {
    pub block: u32,
    #[serde(default)]
    pub sent: Vec<SentCount>,
}

/// How many frames of a flow were sent to a port; to each port where it is not said.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentCount {
    pub flow: u16,
    pub sent: u64,
    #[serde(default)]
    pub port: Option<u16>,
}

/// Both ends over a simulated path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulate {
    #[serde(flatten)]
    pub head: Head,
    pub path: Value,
    pub flows: Vec<Flow>,
    pub receive: ReceiveOptions,
    #[serde(flatten)]
    pub options: SendOptions,
}

/// `stream sim`: one flow.
#[derive(Debug, Args)]
pub struct SimulateByHand {
    /// What the path does, as JSON
    #[arg(long, value_name = "PATH")]
    pub path: String,
    #[command(flatten)]
    pub receive: ReceiveOptions,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub run: StreamRun,
}

/// What all runs by hand share.
#[derive(Debug, Args)]
pub struct StreamRun {
    /// Write records (Arrow IPC streams) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Write records (Arrow IPC streams) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: PathBuf,
    /// The number in the records' file names: sends-WHO-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    /// Who writes them, in their names: letters and digits
    #[arg(long, value_name = "WHO", value_parser = name)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArguments,
}

/// By which means of the kernel frames move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// AF_PACKET: every interface
    Packet,
    /// A UDP socket.
    #[value(skip)]
    Udp,
    /// AF_XDP: past most of the kernel; needs CAP_NET_ADMIN and CAP_BPF
    Xdp,
    /// Sent and counted by programs in the kernel: fastest, and keeps no single packets; needs CAP_NET_ADMIN and CAP_BPF
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockAsked {
    /// Ask it; where both ends are one host, use that
    #[value(alias = "auto")]
    Exchange,
    /// It is ours, as asserted
    #[default]
    Shared,
    /// Not at all: no one-way delays then
    None,
}

/// Where UDP goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct UdpPeer(pub SocketAddr);

impl FromStr for UdpPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(SocketAddr::new(address, DEFAULT_UDP_PORT)));
        }
        match text.parse::<SocketAddr>() {
            Ok(socket) if socket.port() > 0 => Ok(Self(socket)),
            _ => Err("expected an address as 10.0.0.2, 10.0.0.2:9000, fd00::2 or [fd00::2]:9000".to_owned()),
        }
    }
}

impl TryFrom<String> for UdpPeer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Reads a name that can stand in a file's name.
pub fn name(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.len() <= 16 && text.chars().all(|c| c.is_ascii_alphanumeric());
    if is_plain { Ok(text.to_owned()) } else { Err("expected 1 to 16 letters and digits".to_owned()) }
}

impl To {
    /// Returns the means.
    pub fn via(&self) -> Via {
        self.via.unwrap_or(if self.udp.is_some() { Via::Udp } else { Via::Packet })
    }

    /// Returns the peer of a UDP socket.
    pub fn peer(&self) -> Result<SocketAddr, WrongRequest> {
        self.udp.map(|peer| peer.0).ok_or_else(nowhere)
    }

    /// Returns the interface and the station of Ethernet frames.
    pub fn station(&self) -> Result<(&str, MacAddress), WrongRequest> {
        self.dev.as_deref().zip(self.mac).ok_or_else(nowhere)
    }

    /// Checks that it says where to, and nothing that its means cannot do.
    ///
    /// # Errors
    /// When it does not, or a number is out of range.
    pub fn check(&self) -> Result<(), WrongRequest> {
        let via = self.via();
        let (is_udp, is_tagging) = (via == Via::Udp, matches!(via, Via::Packet | Via::Xdp));
        let is_in = |what: Option<u16>, below: u16| what.is_none_or(|number| number < below);
        for (is_right, problem) in [
            (is_udp || self.udp.is_none(), "an address is for UDP"),
            (is_udp || self.dscp.is_none(), "a DSCP is for UDP"),
            (!is_udp || self.mac.is_none(), "a MAC address is not for UDP"),
            (!is_udp || self.qdisc_bypass, "UDP always goes through the queueing discipline"),
            (is_tagging || (self.vlan.is_none() && self.pcp.is_none()), "a VLAN or priority is for packet and xdp"),
            (is_in(self.vlan, 4095), "a VLAN is a number from 0 to 4094"),
            (is_in(self.pcp.map(u16::from), 8), "a priority is a number from 0 to 7"),
            (is_in(self.dscp.map(u16::from), 64), "a DSCP is a number from 0 to 63"),
        ] {
            if !is_right {
                return Err(wrong(format!("to, by {}: {problem}", via.name())));
            }
        }
        if is_udp { self.peer().map(|_| ()) } else { self.station().map(|_| ()) }
    }

    /// What carries the user data; Ethernet frames where nothing is said.
    fn carrier(&self) -> Carrier {
        match (self.via(), self.udp) {
            (Via::Udp, Some(peer)) if peer.0.is_ipv6() => Carrier::Udp6,
            (Via::Udp, _) => Carrier::Udp4,
            _ => Carrier::Ethernet,
        }
    }

    /// Whether its frames have an 802.1Q tag.
    pub fn is_tagged(&self) -> bool {
        matches!(self.via(), Via::Packet | Via::Xdp) && (self.vlan.is_some() || self.pcp.is_some())
    }

    fn tag_bytes(&self) -> usize {
        if self.is_tagged() { TAG_BYTES } else { 0 }
    }
}

impl Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.udp, self.mac) {
            (Some(peer), _) => peer.0.fmt(f),
            (None, Some(mac)) => mac.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

fn nowhere() -> WrongRequest {
    wrong("name an interface and a MAC address with --dev and --to, or a peer with --udp".to_owned())
}

impl ReceivePort {
    /// Returns the means.
    pub fn via(&self) -> Via {
        self.via.unwrap_or(if self.udp_port.is_some() { Via::Udp } else { Via::Packet })
    }
}

/// Unless it is said.
const RATE: Rate = Rate::Frames(1_000.0);
const DURATION: Nanos = Nanos::seconds(10);

impl SendOptions {
    /// Returns for how long at most these flows are sent: as is said, and no longer than the longest flood that time ends.
    pub fn at_most(&self, flows: &[Flow]) -> Option<Nanos> {
        let flood = flows.iter().filter_map(|flow| flow.shape.at_most()).max();
        [self.at_most, flood].into_iter().flatten().min()
    }
}

impl Flow {
    /// Returns it as the engine is asked for it; its port and what stands before its user data are set where ports are open.
    ///
    /// # Errors
    /// When it contradicts itself, or asks for what cannot be.
    pub fn request(&self) -> anyhow::Result<FlowRequest> {
        self.shape.check()?;
        let payload_bytes = self.payload_bytes()?;
        let schedule = self.shape.departures(self.to.carrier().frame_bytes(payload_bytes) + self.to.tag_bytes())?;
        Ok(FlowRequest { flow: self.flow, port: 0, head: sojourn_stream::Head::Udp, payload_bytes, schedule })
    }

    fn payload_bytes(&self) -> Result<usize, SizeError> {
        let carrier = self.to.carrier();
        match (self.shape.frame_bytes, self.shape.payload_bytes) {
            (Some(bytes), _) => carrier.payload_bytes(Size::Frame(bytes.saturating_sub(self.to.tag_bytes()))),
            (None, Some(bytes)) => carrier.payload_bytes(Size::Payload(bytes)),
            (None, None) => Ok(carrier.least_payload_bytes().max(HEADER_BYTES)),
        }
    }
}

impl Shape {
    /// Returns the name of its schedule, as records carry it.
    pub fn schedule(&self) -> &str {
        if self.file().is_some() { "replay" } else { &self.schedule }
    }

    /// Returns for how long at most it is sent: a flood ends by time, unless it is counted.
    fn at_most(&self) -> Option<Nanos> {
        (self.schedule == "flood" && self.count.is_none()).then(|| self.duration.unwrap_or(DURATION))
    }

    fn file(&self) -> Option<&Path> {
        self.schedule.strip_prefix("replay:").filter(|file| !file.is_empty()).map(Path::new)
    }

    /// Returns when frames of this length leave.
    fn departures(&self, frame_bytes: usize) -> anyhow::Result<Schedule> {
        let pattern: Pattern =
            self.schedule().parse().map_err(|error: sojourn_stream::ScheduleError| wrong(error.to_string()))?;
        let rate_pps = match pattern {
            Pattern::Flood | Pattern::Ramp { .. } | Pattern::Replay => 0.0,
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => self.rate.unwrap_or(RATE).pps(frame_bytes),
        };
        let offsets: Vec<Nanos> = match self.file() {
            Some(file) => offsets(file)?,
            None => self.offsets_ns.iter().copied().map(Nanos).collect(),
        };
        let count = self.count(pattern, rate_pps, offsets.len())?;
        Ok(match pattern {
            Pattern::Replay => Schedule { count, ..Schedule::replay(offsets) },
            _ => Schedule::new(pattern, rate_pps, count, self.seed),
        })
    }

    /// Checks that nothing is said twice.
    fn check(&self) -> Result<(), WrongRequest> {
        let twice = match self {
            Self { frame_bytes: Some(_), payload_bytes: Some(_), .. } => "--size and --payload-bytes",
            Self { count: Some(_), duration: Some(_), .. } => "--count and --duration",
            _ if !self.offsets_ns.is_empty() && self.schedule != "replay" => "offsets and --schedule",
            _ => return Ok(()),
        };
        Err(wrong(format!("{twice} contradict each other; leave out one")))
    }

    /// Checks that it does not name a rate beside a schedule that has its own.
    ///
    /// # Errors
    /// When it does.
    pub fn check_rate(&self) -> Result<(), WrongRequest> {
        let own = match self.schedule().split(':').next() {
            Some("flood") => "a flood goes as fast as it can",
            Some("ramp") => "a ramp carries its own rates",
            Some("replay") => "a replay carries its own times",
            _ => return Ok(()),
        };
        let problem = || wrong(format!("--rate: {own}; leave out one of --rate and --schedule {}", self.schedule()));
        self.rate.map_or(Ok(()), |_| Err(problem()))
    }

    fn count(&self, pattern: Pattern, rate_pps: f64, offsets: usize) -> Result<u64, WrongRequest> {
        if let Some(count) = self.count {
            return Ok(count);
        }
        let seconds = self.duration.unwrap_or(DURATION).0 as f64 / 1e9;
        let count = match pattern {
            // Its time ends it.
            Pattern::Flood => return Ok(u64::MAX / 2),
            Pattern::Replay => return Ok(offsets as u64),
            Pattern::Ramp { .. } => Schedule::new(pattern, 0.0, 1, 0).mean_pps() * seconds,
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => rate_pps * seconds,
        };
        match count.round() {
            count if count >= 1.0 => Ok(count as u64),
            _ => Err(wrong("--duration: no frame leaves in so short a time; ask for longer, or --count".to_owned())),
        }
    }
}

/// Reads departures, a line each, in ns from the start.
fn offsets(file: &Path) -> Result<Vec<Nanos>, WrongRequest> {
    let text = fs::read_to_string(file)
        .map_err(|error| wrong(format!("--schedule replay: read {}: {error}", file.display())))?;
    let parse = |(number, line): (usize, &str)| {
        let refusal = || wrong(format!("{}:{}: {line:?} is no number of ns", file.display(), number + 1));
        line.trim().parse().map(Nanos).map_err(|_| refusal())
    };
    text.lines().enumerate().map(parse).collect()
}

fn wrong(problem: String) -> WrongRequest {
    WrongRequest(problem)
}

/// Reads a span in ns that may be written with a fraction or an exponent, as 1e9.
fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    some_nanos(from)?.ok_or_else(|| D::Error::custom("expected a number of ns"))
}

fn some_nanos<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Nanos>, D::Error> {
    // Saturates at the ends; NaN is 0.
    Ok(Option::<f64>::deserialize(from)?.map(|ns| Nanos(ns.round() as i64)))
}

/// A file is read for who asks by hand only; a program gives the departures.
fn schedule_without_file<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match String::deserialize(from)? {
        schedule if schedule.starts_with("replay:") => {
            Err(D::Error::custom("schedule: no file is read here; ask for \"replay\", with offsets_ns"))
        }
        schedule => Ok(schedule),
    }
}

fn measure() -> String {
    "measure".to_owned()
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct ByHand {
        #[command(flatten)]
        send: SendByHand,
    }

    #[test]
    fn a_flow_is_the_same_by_hand_and_asked_in_json() {
        let by_hand = |line: &str| {
            let SendByHand { to, flow, shape, .. } = ByHand::parse_from(line.split(' ')).send;
            Flow { flow, to, shape }
        };
        let in_json = |value| serde_json::from_value::<Flow>(value).expect("a flow");
        let cases = [
            (
                "x --dev a --to 02:77:00:00:00:01 --vlan 7 --size 100 --rate 2kpps --count 9 --flow 3 --seed 5",
                json!({ "flow": 3, "to": { "via": "packet", "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 7 },
                    "schedule": "regular", "frame_bytes": 100, "rate_pps": 2000, "count": 9, "seed": 5 }),
            ),
            (
                "x --udp [fd00::2]:9 --dscp 46 --schedule burst:4 --payload-bytes 200 --rate 8Mbit/s --duration 2s",
                json!({ "flow": 1, "to": { "via": "udp", "address": "[fd00::2]:9", "dscp": 46 },
                    "schedule": "burst:4", "payload_bytes": 200, "rate_pps": "8Mbit/s", "duration_ns": 2e9 }),
            ),
        ];
        for (line, value) in cases {
            let (one, other) = (by_hand(line), in_json(value));
            assert_eq!(one.request().unwrap(), other.request().unwrap(), "{line}");
            assert_eq!((one.to.via(), &one.to.udp, &one.to.mac), (other.to.via(), &other.to.udp, &other.to.mac));
            assert!(one.to.qdisc_bypass && other.to.qdisc_bypass);
        }
    }

    #[test]
    fn a_destination_says_where_to() {
        for to in [
            json!({ "via": "udp" }),
            json!({ "via": "packet", "dev": "a" }),
            json!({ "via": "live", "mac": "02:77:00:00:00:01" }),
        ] {
            assert!(serde_json::from_value::<To>(to).unwrap().check().is_err());
        }
        assert!(serde_json::from_value::<To>(json!({ "via": "udp", "address": "host" })).is_err());
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused_by_name() {
        let flow = json!({ "flow": 1, "to": { "dev": "a", "mac": "02:77:00:00:00:01" }, "schedule": "regular",
            "rate_pps": 10, "count": 3, "payload_bytes": 46, "seed": 2 });
        let send = json!({ "do": "send", "block": 1, "device": "x", "flows": [flow], "keep": "histograms",
            "stamps": "none", "clock": "shared", "start_in_ns": 2_000_000, "at_most_ns": 5,
            "answers_late_after_ns": 1e9 });
        let simulate = json!({ "do": "simulate", "block": 1, "path": {}, "flows": [flow], "clock": "shared",
            "receive": { "keep": "packets", "late_after_ns": 1e9, "room": 1000 } });
        let receive = json!({ "do": "receive", "block": 1, "flows": [1], "late_after_ns": 5, "room": 0,
            "keep": "packets", "payload_bytes": 46, "answer_payload_bytes": 46,
            "ports": [{ "port": 0, "via": "udp", "dev": "a", "groups": [], "udp_port": 7708, "address": "::", "answer": null }] });
        let finish = json!({ "do": "finish", "block": 1, "sent": [{ "flow": 1, "sent": 3, "port": 0 }] });
        for (whole, places) in [
            (send, &["", "/flows/0", "/flows/0/to"][..]),
            (simulate, &["", "/flows/0", "/flows/0/to", "/receive"]),
            (receive, &["", "/ports/0"]),
            (finish, &["", "/sent/0"]),
        ] {
            serde_json::from_value::<Asked>(whole.clone()).unwrap_or_else(|error| panic!("{whole}: {error}"));
            for place in places {
                let mut wrong = whole.clone();
                wrong.pointer_mut(place).unwrap()["conut"] = json!(1);
                let error = serde_json::from_value::<Asked>(wrong).expect_err(place);
                assert!(error.to_string().contains("`conut`"), "{place}: {error}");
            }
        }
        let apart = json!({ "via": "udp", "address": "10.0.0.1", "port": 9000 });
        assert!(serde_json::from_value::<To>(apart).unwrap_err().to_string().contains("`port`"));
    }

    #[test]
    fn what_the_command_line_refuses_is_refused_in_json_too() {
        for to in [
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "dscp": 1 }),
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 4095 }),
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "pcp": 8 }),
            json!({ "via": "packet", "dev": "a", "mac": "02:77:00:00:00:01", "address": "10.0.0.1" }),
            json!({ "via": "live", "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 7 }),
            json!({ "via": "udp", "address": "10.0.0.1", "vlan": 7 }),
            json!({ "via": "udp", "address": "10.0.0.1", "dscp": 64 }),
            json!({ "via": "udp", "address": "10.0.0.1", "mac": "02:77:00:00:00:01" }),
        ] {
            assert!(serde_json::from_value::<To>(to.clone()).unwrap().check().is_err(), "{to}");
        }
        for shape in [
            json!({ "schedule": "regular", "count": 1, "duration_ns": 1e9 }),
            json!({ "schedule": "regular", "frame_bytes": 64, "payload_bytes": 46 }),
            json!({ "schedule": "regular", "offsets_ns": [1, 2] }),
        ] {
            let mut flow = shape.clone();
            flow["flow"] = json!(1);
            assert!(serde_json::from_value::<Flow>(flow).unwrap().request().is_err(), "{shape}");
        }
        let file = json!({ "flow": 1, "schedule": "replay:/etc/hostname" });
        assert!(serde_json::from_value::<Flow>(file).unwrap_err().to_string().contains("offsets_ns"));
    }

    #[test]
    fn a_flood_ends_when_its_time_is_up() {
        let flow = |shape: Value| {
            let mut flow = shape;
            flow["flow"] = json!(1);
            serde_json::from_value::<Flow>(flow).unwrap()
        };
        let flood = flow(json!({ "schedule": "flood", "duration_ns": 2e9 }));
        let forever = flow(json!({ "schedule": "flood" }));
        let counted = flow(json!({ "schedule": "flood", "count": 5 }));
        let at_most = |at_most, flow: &Flow| {
            SendOptions { at_most, ..SendOptions::default() }.at_most(std::slice::from_ref(flow))
        };
        assert_eq!(at_most(None, &flood), Some(Nanos::seconds(2)));
        assert_eq!(at_most(Some(Nanos::seconds(1)), &flood), Some(Nanos::seconds(1)));
        assert_eq!(at_most(None, &forever), Some(DURATION));
        assert_eq!(at_most(None, &counted), None);
    }
}
