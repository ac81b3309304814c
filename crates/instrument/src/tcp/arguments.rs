//! The command line of `tcp`, and the same words in requests.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use serde::Deserialize;
use sojourn_time::Nanos;

use crate::arguments::span;
use crate::stream::request::name;

/// What to do over TCP.
#[derive(Debug, Subcommand)]
pub enum Tcp {
    /// Connect and send, in bulk or message by message, and read TCP_INFO meanwhile
    ///
    /// Needs no rights. Example: sojourn-instrument tcp send 10.0.0.2:5201 --congestion cubic --for 10s --read-every 10ms
    Send(Send),
    /// Accept connections, read what comes until their ends, and read TCP_INFO meanwhile
    ///
    /// Needs no rights. Example: sojourn-instrument tcp receive 5201
    Receive(Receive),
    /// Send and receive as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. A block is recorded before it is answered. Ends at the end of the input, or on SIGINT or SIGTERM.
    Serve(Serve),
}

/// What a socket is to be; what is not said is the kernel's own choice.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Congestion control: reno, cubic, bbr, …
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Send buffer; the kernel doubles it for its overhead
    #[arg(long = "sndbuf", value_name = "BYTES")]
    pub sndbuf_bytes: Option<usize>,
    /// Receive buffer; the kernel doubles it for its overhead
    #[arg(long = "rcvbuf", value_name = "BYTES")]
    pub rcvbuf_bytes: Option<usize>,
    /// Maximum segment size
    #[arg(long = "mss", value_name = "BYTES")]
    pub mss_bytes: Option<u16>,
    /// Send small messages at once (TCP_NODELAY)
    #[arg(long = "no-delay")]
    pub is_nodelay: bool,
}

/// When TCP_INFO is read, beside the beginning and the end.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Moments {
    /// Read TCP_INFO so often
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub read_every: Option<Nanos>,
    /// Read TCP_INFO immediately before data is handed over, each time
    #[arg(long)]
    pub read_before_send: bool,
}

#[derive(Debug, Args)]
pub struct Send {
    /// To whom: 10.0.0.2:5201, [fd00::2]:5201
    #[arg(value_name = "ADDRESS:PORT")]
    pub to: SocketAddr,
    /// From this address of ours
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// For how long to send [default: 10s]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub duration: Option<Nanos>,
    /// How many bytes to send on each connection, instead of how long
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub bytes: Option<u64>,
    /// Hand over so much at once; with --interval: the size of a message [default: 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub message_bytes: Option<u32>,
    /// Hand a message over so often, instead of as much as goes
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub interval: Option<Nanos>,
    /// Connections beside each other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connections: u32,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub moments: Moments,
    #[command(flatten)]
    pub run: TcpRun,
}

#[derive(Debug, Args)]
pub struct Receive {
    /// Where to listen: 5201, 10.0.0.2:5201, [fd00::2]:5201
    #[arg(value_name = "[ADDRESS:]PORT")]
    pub at: Listen,
    /// How many connections to take; it ends when the last of them does
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connections: u32,
    #[command(flatten)]
    pub settings: Settings,
    /// Read TCP_INFO so often
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub read_every: Option<Nanos>,
    #[command(flatten)]
    pub run: TcpRun,
}

/// Where it runs; it asks for no urgency, to be an application like any other.
#[derive(Clone, Copy, Debug, Args)]
pub struct Spot {
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

/// What both share.
#[derive(Debug, Args)]
pub struct TcpRun {
    /// Write what was read (an Arrow IPC stream) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// The number in the record's file name: tcp_readings-WHO-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: Spot,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Write what was read (an Arrow IPC stream) into this folder
    #[arg(long, value_name = "DIR")]
    pub record: PathBuf,
    /// The number in the record's file name: tcp_readings-WHO-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    /// Who writes it, in its name: letters and digits
    #[arg(long, value_name = "WHO", value_parser = name)]
    pub name: String,
    #[command(flatten)]
    pub place: Spot,
}

/// Where to listen; without an address on all of IPv6 and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Listen {
    #[serde(default)]
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Self { address: None, port });
        }
        let at: SocketAddr = text.parse().map_err(|_| "expected 5201, 10.0.0.2:5201 or [fd00::2]:5201".to_owned())?;
        Ok(Self { address: Some(at.ip()), port: at.port() })
    }
}
