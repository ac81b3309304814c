//! What is asked of `probe`: its command line, and the block of probes that it amounts to. The block is also what `probe
//! blocks` reads as JSON (`sojourn_probe::Request`), and is checked there.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use sojourn_probe::{Carries, Kind, Request, Schedule, To};
use sojourn_time::Nanos;
use sojourn_wire::{MacAddress, Size};

use crate::arguments::{Peer, PlaceArguments, Respond, span};
use crate::failure::WrongRequest;

/// What to probe.
#[derive(Debug, Subcommand)]
pub enum Probe {
    /// ICMP echo, as ping: the peer's kernel answers
    ///
    /// Needs CAP_NET_RAW, or a group in net.ipv4.ping_group_range. Example: sojourn probe icmp 10.0.0.2 -c 1000 -i 1ms
    Icmp(Icmp),
    /// UDP: `probe respond` answers at the peer
    ///
    /// Needs no rights. Example: sojourn probe udp 10.0.0.2 -c 1000 -i 1ms
    Udp(Udp),
    /// Ethernet frames (EtherType 0x88B5): `probe respond --raw DEV` answers at the peer
    ///
    /// Needs CAP_NET_RAW. Example: sojourn probe raw --dev eth1 --to 02:77:00:00:01:02
    Raw(Raw),
    /// A simulated line, in simulated time: instant, and needs no rights
    ///
    /// Example: sojourn probe sim --line '{"forward":{"constant_ns":5000},"backward":{"constant_ns":5000}}'
    Sim(Sim),
    /// Answer probes of others, over UDP or Ethernet, until SIGINT or SIGTERM
    Respond(Respond),
    /// Measure block by block, as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. Each block is recorded and flushed before it is answered. Ends at the end of the input, or on SIGINT or
    /// SIGTERM; a block that a signal cuts short is neither recorded nor answered.
    Blocks(Blocks),
}

#[derive(Debug, Args)]
pub struct Icmp {
    /// The peer, IPv4 or IPv6
    pub address: IpAddr,
    /// Bind to this interface
    #[arg(long, value_name = "D")]
    pub dev: Option<String>,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Debug, Args)]
pub struct Udp {
    /// The peer, and its port where it is not 7707: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(value_name = "ADDR[:PORT]")]
    pub peer: Peer,
    /// Bind to this interface
    #[arg(long, value_name = "D")]
    pub dev: Option<String>,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Debug, Args)]
pub struct Raw {
    /// Send on this interface
    #[arg(long, value_name = "D")]
    pub dev: String,
    /// The peer's MAC address
    #[arg(long, value_name = "MAC")]
    pub to: MacAddress,
    /// Send through the interface's queueing discipline, not past it
    #[arg(long)]
    pub through_qdisc: bool,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Debug, Args)]
pub struct Sim {
    /// What the line does, as JSON
    #[arg(long, value_name = "LINE")]
    pub line: String,
    /// What it carries
    #[arg(long = "as", value_name = "WHAT", default_value = "icmp")]
    pub carries: Carries,
    #[command(flatten)]
    pub run: Run,
}

/// What all single runs share.
#[derive(Debug, Args)]
pub struct Run {
    /// How many probes to send, warm-up included
    #[arg(short, long, default_value_t = 100)]
    pub count: u32,
    /// The interval between intended departures (the mean one for poisson, the least one for closed-loop): 10ms, 500us, 1s
    #[arg(short, long, default_value = "10ms", value_parser = span)]
    pub interval: Nanos,
    /// When probes leave
    #[arg(long, default_value = "regular")]
    pub schedule: Schedule,
    #[command(flatten)]
    pub size: SizeArguments,
    /// Ask for replies of so many bytes of user data (request-response); without it they are as long as the requests
    /// (ping-pong). Not for ICMP
    #[arg(long, value_name = "N")]
    pub response_bytes: Option<usize>,
    /// After which a reply is late, and how long the end waits for the last one
    #[arg(long, default_value = "1s", value_parser = span)]
    pub timeout: Nanos,
    /// How many of the probes, the first, only warm the path up: they are recorded and left out of the summary
    #[arg(long, default_value_t = 0)]
    pub warmup: u32,
    /// Seed of the poisson schedule
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write records (Arrow IPC streams) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
}

/// The size of requests: one of three, which count different things.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct SizeArguments {
    /// Bytes of user data, after the ICMP, UDP or Ethernet header [default: 56]
    #[arg(long, value_name = "N")]
    pub payload_bytes: Option<usize>,
    /// Bytes of the ICMP message: user data and 8 (ping's "64 bytes")
    #[arg(long, value_name = "N")]
    pub icmp_bytes: Option<usize>,
    /// Bytes of the Ethernet frame with its FCS
    #[arg(long, value_name = "N")]
    pub frame_bytes: Option<usize>,
}

#[derive(Debug, Args)]
pub struct Blocks {
    /// Write records (Arrow IPC streams) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: PathBuf,
    /// The number in the records' file names: probes-KKK.arrow, blocks-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    #[command(flatten)]
    pub place: PlaceArguments,
}

impl Icmp {
    /// Returns the block of probes that is asked for.
    pub fn request(&self) -> anyhow::Result<Request> {
        block(To::Icmp { address: self.address, dev: self.dev.clone() }, true, &self.run)
    }
}

impl Udp {
    /// Returns the block of probes that is asked for.
    pub fn request(&self) -> anyhow::Result<Request> {
        block(To::Udp { address: self.peer.address, port: self.peer.port, dev: self.dev.clone() }, false, &self.run)
    }
}

impl Raw {
    /// Returns the block of probes that is asked for.
    pub fn request(&self) -> anyhow::Result<Request> {
        let to = To::Ethernet { dev: self.dev.clone(), mac: self.to, qdisc_bypass: !self.through_qdisc };
        block(to, false, &self.run)
    }
}

impl Sim {
    /// Returns the block of probes that is asked for.
    pub fn request(&self) -> anyhow::Result<Request> {
        let line = serde_json::from_str(&self.line).context("--line")?;
        let kernel_answers = matches!(self.carries, Carries::Icmp | Carries::Icmp6);
        block(To::Sim { line: Box::new(line), carries: Some(self.carries) }, kernel_answers, &self.run)
    }
}

impl SizeArguments {
    /// Returns the size that is asked for.
    pub fn size(&self) -> Size {
        match (self.payload_bytes, self.icmp_bytes, self.frame_bytes) {
            (_, Some(bytes), _) => Size::Icmp(bytes),
            (_, _, Some(bytes)) => Size::Frame(bytes),
            (bytes, None, None) => Size::Payload(bytes.unwrap_or(56)),
        }
    }
}

fn block(to: To, kernel_answers: bool, arguments: &Run) -> anyhow::Result<Request> {
    let carrier = to.carrier(kernel_answers);
    let payload_bytes = carrier.payload_bytes(arguments.size.size())?;
    let (kind, response_bytes) = match (kernel_answers, arguments.response_bytes) {
        (true, None) => (Kind::Icmp, payload_bytes),
        (true, Some(_)) => {
            let problem = "--response-bytes: an ICMP echo is as long as its request; leave it out, or probe udp or raw";
            return Err(WrongRequest(problem.to_owned()).into());
        }
        (false, None) => (Kind::PingPong, payload_bytes),
        (false, Some(bytes)) => (Kind::RequestResponse, bytes),
    };
    // Two programs on one interface hear each other's replies: by the block's number each knows its own. A simulated line
    // draws by that number, and is to draw the same each time.
    let block = if to.is_simulated() { 0 } else { std::process::id() & 0x7FFF_FFFF };
    Ok(Request {
        block,
        device: String::new(),
        round: 0,
        visit: 0,
        cell: 0,
        to,
        kind,
        request_payload_bytes: payload_bytes,
        response_payload_bytes: response_bytes,
        schedule: arguments.schedule,
        interval: arguments.interval,
        count: arguments.count,
        warmup: arguments.warmup,
        timeout: arguments.timeout,
        seed: arguments.seed,
    })
}
