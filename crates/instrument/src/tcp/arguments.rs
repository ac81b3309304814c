//! The command line of `tcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::stream::request::name;

/// What to do over TCP.
#[derive(Debug, Subcommand)]
pub enum Tcp {
    /// Connect and send, in bulk or message by message, and read TCP_INFO meanwhile
    ///
    /// Needs no rights. Example: sojourn-instrument tcp send 10.0.0.2:5201 --congestion cubic --for 10s --read-every 10ms
    Send(SendByHand),
    /// Accept connections, read what comes until their ends, and read TCP_INFO meanwhile
    ///
    /// Needs no rights. Example: sojourn-instrument tcp receive 5201
    Receive(ReceiveByHand),
    /// Send and receive as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. A block is recorded before it is answered. Ends at the end of the input, or on SIGINT or SIGTERM.
    Serve(Serve),
}

#[derive(Debug, Args)]
pub struct SendByHand {
    #[command(flatten)]
    pub request: sojourn_tcp::Send,
    #[command(flatten)]
    pub run: TcpRun,
}

#[derive(Debug, Args)]
pub struct ReceiveByHand {
    #[command(flatten)]
    pub request: sojourn_tcp::Receive,
    #[command(flatten)]
    pub run: TcpRun,
}

/// Where it runs; without scheduling priority, as any application.
#[derive(Clone, Copy, Debug, Args)]
pub struct Spot {
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

/// Options of both.
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
    /// Raise the priority where that is permitted, as what sends streams does: departures are on time beside other work
    #[arg(long)]
    pub punctual: bool,
    /// Also record connections that are trials of streams, as what sends streams does
    #[arg(long)]
    pub streams: bool,
    #[command(flatten)]
    pub place: Spot,
}
