//! The command line of `stream`. Options that `serve` takes in JSON as well are declared once, in `request`, `to` and `shape`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::Peers;

use crate::arguments::PlaceArguments;
use crate::stream::request::{ReceiveOptions, ReceivePort, SendOptions, name};
use crate::stream::shape::Shape;
use crate::stream::to::To;

/// What to do with streams.
#[derive(Debug, Subcommand)]
pub enum Stream {
    /// Send frames by a schedule; `stream recv` at the other end counts them
    ///
    /// The clocks of both ends are compared in band, before, during and after. Ethernet frames (EtherType 0x88B6) need
    /// CAP_NET_RAW, UDP needs no rights. Example: sojourn stream send --dev eth1 --to 02:77:00:00:01:02 --rate 10kpps
    Send(Box<SendByHand>),
    /// Receive a stream, answer its sender's clock exchanges, and report what arrived, what was lost and how long it took
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

/// `stream send`: one flow.
#[derive(Debug, Args)]
pub struct SendByHand {
    #[command(flatten)]
    pub to: To,
    /// Number of the flow: each sender to one receiver needs a number of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub flow: u16,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub options: SendOptions,
    /// Authenticate with the key in this file, which the receiver has too; see the guide for what that covers
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub run: StreamRun,
}

/// `stream recv`: ports of one kind.
#[derive(Debug, Args)]
pub struct ReceiveByHand {
    /// Receive Ethernet frames on this interface; may be repeated. With --udp: join groups there
    #[arg(long, value_name = "D")]
    pub dev: Vec<String>,
    #[command(flatten)]
    pub port: ReceivePort,
    /// Receive UDP at this address of this host alone [default: at all of its addresses]
    #[arg(long = "bind", value_name = "ADDRESS", requires = "udp", conflicts_with_all = ["ipv6", "groups"])]
    pub address: Option<IpAddr>,
    /// Receive UDP over IPv6
    #[arg(long, requires = "udp")]
    pub ipv6: bool,
    /// Which flows; may be repeated
    #[arg(long, value_name = "N", default_values_t = [1])]
    pub flow: Vec<u16>,
    /// Let these senders alone begin a stream: an address, a prefix as 10.0.0.0/8, a MAC address; may be repeated [default: any]
    #[arg(long = "allow", value_name = "PEERS")]
    pub allowed: Vec<Peers>,
    /// For how long to listen at most; a sender that says that it is done ends it sooner
    #[arg(long = "for", value_name = "SPAN", default_value = "60s", value_parser = time)]
    pub listen: Nanos,
    #[command(flatten)]
    pub options: ReceiveOptions,
    /// Accept only senders that have the key in this file too; see the guide for what that covers
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub run: StreamRun,
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
    /// Requests are of simulated paths alone
    #[arg(long)]
    pub simulated: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
}
