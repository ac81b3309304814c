//! The command line of `probe`, and the block of probes that it describes: a [`Request`], which `probe blocks` reads as
//! JSON. Destinations and the shape of the block are declared and checked there.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sojourn_probe::{Carries, Ethernet, Icmp, Kind, Request, Shape, Simulated, To, Udp};
use sojourn_wire::Size;

use crate::arguments::{PlaceArguments, Respond};
use crate::failure::WrongRequest;
use crate::stream::request::name;

/// What to probe.
#[derive(Debug, Subcommand)]
pub enum Probe {
    /// ICMP echo, as ping: the peer's kernel answers
    ///
    /// Needs CAP_NET_RAW, or a group in net.ipv4.ping_group_range. Example: sojourn probe icmp 10.0.0.2 -c 1000 -i 1ms
    Icmp(Single<Icmp>),
    /// UDP: `probe respond` answers at the peer
    ///
    /// Needs no rights. Example: sojourn probe udp 10.0.0.2 -c 1000 -i 1ms
    Udp(Single<Udp>),
    /// Ethernet frames (EtherType 0x88B5): `probe respond --raw DEV` answers at the peer
    ///
    /// Needs CAP_NET_RAW. Example: sojourn probe raw --dev eth1 --to 02:77:00:00:01:02
    Raw(Single<Ethernet>),
    /// A simulated line, in simulated time: instant, and needs no rights
    ///
    /// Example: sojourn probe sim --line '{"forward":{"constant_ns":5000},"backward":{"constant_ns":5000}}'
    Sim(Single<Simulated>),
    /// Answer probes of others, over UDP or Ethernet, until SIGINT or SIGTERM
    Respond(Respond),
    /// Measure block by block, as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. Each block is recorded and flushed before it is answered. Ends at the end of the input, or on SIGINT or
    /// SIGTERM; a block that a signal cuts short is neither recorded nor answered.
    Blocks(Blocks),
}

/// One block of probes to one peer.
#[derive(Debug, Args)]
pub struct Single<T: Args> {
    #[command(flatten)]
    to: T,
    #[command(flatten)]
    pub run: Run,
}

/// What all single runs share.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub size: SizeArguments,
    /// Ask for replies of so many bytes of user data (request-response); without it they are as long as the requests
    /// (ping-pong). Not for ICMP
    #[arg(long, value_name = "N")]
    pub response_bytes: Option<usize>,
    #[command(flatten)]
    pub output: Output,
}

/// How a single run is authenticated, recorded and told, and where it runs.
#[derive(Debug, Args)]
pub struct Output {
    /// Authenticate probes by the key in this file, which the peer has too, and ignore all other replies; the file must be
    /// readable by its owner alone. Not for ICMP
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
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
    /// Authenticate probes by the key in this file, which the peer has too, and ignore all other replies
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Write records (Arrow IPC streams) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: PathBuf,
    /// The number in the records' file names: probes-KKK.arrow, blocks-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    /// Who writes them, in their names: probes-WHO-KKK.arrow; for several probers at once
    #[arg(long, value_name = "WHO", value_parser = name)]
    pub name: Option<String>,
    /// Requests are of simulated lines alone
    #[arg(long)]
    pub simulated: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
}

impl<T: Args + Clone> Single<T> {
    /// Returns the block of probes that is asked for; `to` makes a destination of its own arguments.
    ///
    /// # Errors
    /// When a size is impossible, or it contradicts itself.
    pub fn request(&self, to: fn(T) -> To) -> anyhow::Result<Request> {
        self.run.request(to(self.to.clone()))
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

impl Run {
    fn request(&self, to: To) -> anyhow::Result<Request> {
        let kernel_answers =
            matches!(to, To::Icmp(_) | To::Sim(Simulated { carries: Some(Carries::Icmp | Carries::Icmp6), .. }));
        let payload_bytes = to.carrier(kernel_answers).payload_bytes(self.size.size())?;
        let kind = match (kernel_answers, self.response_bytes) {
            (true, None) => Kind::Icmp,
            (true, Some(_)) => {
                let problem =
                    "--response-bytes: an ICMP echo is as long as its request; leave it out, or probe udp or raw";
                return Err(WrongRequest(problem.to_owned()).into());
            }
            (false, None) => Kind::PingPong,
            (false, Some(_)) => Kind::RequestResponse,
        };
        // Two programs on one interface receive each other's replies, so each recognises its own by the block number. A
        // simulated line seeds its random numbers by that number, so it is fixed there.
        let block = if to.is_simulated() { 0 } else { std::process::id() & 0x7FFF_FFFF };
        let request = Request::new(block, to, kind, payload_bytes, self.shape.clone());
        let response_payload_bytes = self.response_bytes.unwrap_or(payload_bytes);
        Ok(Request { response_payload_bytes, ..request })
    }
}
