//! The command line of `stream`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use sojourn_time::Nanos;
use sojourn_wire::MacAddress;
use sojourn_wire::stream::DEFAULT_UDP_PORT;

use super::rate::{Rate, ScheduleText};
use crate::arguments::{PlaceArguments, span};

/// What to do with streams.
#[derive(Debug, Subcommand)]
pub enum Stream {
    /// Send frames by a schedule; `stream recv` at the other end counts them
    ///
    /// The clocks of both ends are compared in band, before, during and after. Ethernet frames (EtherType 0x88B6) need
    /// CAP_NET_RAW, UDP needs no rights. Example: sojourn stream send --dev eth1 --to 02:77:00:00:01:02 --rate 10kpps
    Send(Send),
    /// Receive a stream, answer its sender's clock, and tell what arrived, what was lost and how long it took
    ///
    /// Example: sojourn stream recv --dev eth1 --json
    Recv(Recv),
    /// Send and receive over a simulated path, in simulated time: instant, and needs no rights
    ///
    /// Example: sojourn stream sim --path '{"delay":{"constant_ns":5000}}' --schedule poisson --rate 10kpps --count 1000
    Sim(Sim),
    /// Be one end of streams, as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. A block is recorded and flushed before it is answered. Ends at the end of the input, or on SIGINT or
    /// SIGTERM, which also end what is being sent.
    Serve(Serve),
}

#[derive(Debug, Args)]
pub struct Send {
    /// Send on this interface; with --udp: bind to it
    #[arg(long, value_name = "D")]
    pub dev: Option<String>,
    /// To this station, group or broadcast: a MAC address
    #[arg(long, value_name = "MAC", conflicts_with = "udp")]
    pub to: Option<MacAddress>,
    /// Send UDP to this address, and port where it is not 7708: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub udp: Option<UdpPeer>,
    /// By which means of the kernel; without it: UDP with --udp, else packet
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineArgument>,
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
    #[arg(long, conflicts_with = "udp")]
    pub through_qdisc: bool,
    /// Which flow it is: several senders to one receiver differ by it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub flow: u16,
    /// How to know the receiver's clock
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub clock: ClockArgument,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub run: StreamRun,
}

/// What is sent, and when.
#[derive(Debug, Args)]
pub struct Shape {
    #[command(flatten)]
    pub size: StreamSize,
    /// When frames leave: regular, poisson, burst:N, ramp:FROM-TO, flood, or replay:FILE (a departure a line, in ns from the
    /// start)
    #[arg(long, default_value = "regular")]
    pub schedule: ScheduleText,
    /// How many a second: 10kpps, or 100Mbit/s of frames with FCS [default: 1kpps]
    #[arg(long)]
    pub rate: Option<Rate>,
    /// How many frames
    #[arg(short, long, value_name = "N")]
    pub count: Option<u64>,
    /// For how long, instead of how many [default: 10s]
    #[arg(long, value_parser = span, conflicts_with = "count")]
    pub duration: Option<Nanos>,
    /// Seed of the poisson schedule
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The size of frames: one of two, which count different things.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct StreamSize {
    /// Bytes of the Ethernet frame with its FCS [default: the least, 64 for Ethernet]
    #[arg(long, visible_alias = "frame-bytes", value_name = "FRAME_BYTES")]
    pub size: Option<usize>,
    /// Bytes of user data, after the UDP or Ethernet header
    #[arg(long, value_name = "N")]
    pub payload_bytes: Option<usize>,
}

#[derive(Debug, Args)]
pub struct Recv {
    /// Receive Ethernet frames on this interface; may be repeated. With --udp: join groups there
    #[arg(long, value_name = "D")]
    pub dev: Vec<String>,
    /// Receive UDP on this port
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "7708")]
    pub udp: Option<u16>,
    /// Join this group, a multicast MAC or IP address; may be repeated
    #[arg(long, value_name = "GROUP")]
    pub group: Vec<String>,
    /// By which means of the kernel; without it: UDP with --udp, else packet
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineArgument>,
    /// Receive UDP over IPv6
    #[arg(long, requires = "udp")]
    pub ipv6: bool,
    /// Which flows; may be repeated
    #[arg(long, value_name = "N", default_values_t = [1])]
    pub flow: Vec<u16>,
    /// For how long to listen at most; a sender that says that it is done ends it sooner
    #[arg(long = "for", value_name = "SPAN", default_value = "60s", value_parser = span)]
    pub listen: Nanos,
    /// After how long a frame counts as late
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    pub late_after: Nanos,
    /// Send frames of the stream back to their sender, marked with this number
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u8).range(1..))]
    pub answer: Option<u8>,
    /// Ask for a receive buffer of so many bytes [default: 16 MiB]
    #[arg(long, value_name = "N")]
    pub buffer_bytes: Option<usize>,
    #[command(flatten)]
    pub run: StreamRun,
}

#[derive(Debug, Args)]
pub struct Sim {
    /// What the path does, as JSON
    #[arg(long, value_name = "PATH")]
    pub path: String,
    /// After how long a frame counts as late
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    pub late_after: Nanos,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArgument {
    /// AF_PACKET: every interface
    Packet,
    /// AF_XDP: past most of the kernel; needs CAP_NET_ADMIN and CAP_BPF
    Xdp,
    /// Sent and counted by programs in the kernel: fastest, and keeps no single packets; needs CAP_NET_ADMIN and CAP_BPF
    Live,
}

/// How to know the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockArgument {
    /// Ask it; where both ends are one host, use that
    Auto,
    /// It is ours, as asserted
    Shared,
    /// Not at all: no one-way delays then
    None,
}

/// Where UDP goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Reads a name that can stand in a file's name.
pub fn name(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.len() <= 16 && text.chars().all(|c| c.is_ascii_alphanumeric());
    if is_plain { Ok(text.to_owned()) } else { Err("expected 1 to 16 letters and digits".to_owned()) }
}
