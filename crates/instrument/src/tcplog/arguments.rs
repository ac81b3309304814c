//! The command line of `tcplog`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sojourn_emulate::config::units;
use sojourn_tcplog::flight::Keep;
use sojourn_tcplog::spool::LEAST_LIMIT;
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::Peers;

use super::log_options::LogOptions;
use super::recorder;

/// What to do with a log of TCP's state.
#[derive(Debug, Subcommand)]
pub enum Tcplog {
    /// Log TCP's own state at every packet, while COMMAND runs or until SIGINT, SIGTERM or --duration
    ///
    /// Programs in the kernel read it between IP and TCP, for all sockets below a cgroup, by default of the whole machine. Every
    /// packet is counted: in + out = logged + decimated + filtered + skipped, by reason. Needs CAP_BPF,
    /// CAP_NET_ADMIN and CAP_PERFMON. The exit status is COMMAND's if the log is good. Example: sojourn tcplog
    /// run --port 5201 --out out/t -- iperf3 -c 10.0.0.2
    Run(Box<Run>),
    /// Show the packet accounting of a log: what was logged so far, and what was not and why
    ///
    /// Example: sojourn tcplog status out/t
    Status(Status),
    /// Change the options of a running log at once: any of `run`, and on and off
    ///
    /// Only what is named changes; "all" removes a filter. Example: sojourn tcplog set out/t --ppl 10 --port all
    Set(Box<Set>),
    /// Print the flows with their state as JSON, a line each interval: those of a running log, or of this machine
    ///
    /// Without OUT programs of its own are attached, and nothing is logged. `sojourn tcplog top` is a table of it.
    Watch(Box<Watch>),
    /// Log block by block, as requested on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. Ends at the end of the input, or on SIGINT or SIGTERM.
    Serve(Serve),
    /// Make records of what a killed log left behind
    ///
    /// Example: sojourn tcplog recover out/t
    Recover(Recover),
    /// Receive the log that `tcplog run --export` sends from another host, as a log that every other command reads
    ///
    /// One log of one connection, which is neither encrypted nor authenticated: between hosts whose path others share, listen
    /// on loopback and send through an SSH tunnel. Example: sojourn tcplog receive 127.0.0.1:8862 --out out/t
    Receive(Receive),
}

/// Where programs are attached, and how much they hold.
#[derive(Clone, Debug, Args)]
pub struct Attach {
    /// Attach to this cgroup, so that only its sockets cost anything [default: the root, found from the mount table]
    #[arg(long, value_name = "CGROUP", help_heading = KERNEL)]
    pub attach: Option<PathBuf>,
    /// How many flows are followed at once
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = KERNEL)]
    pub flows: u32,
    /// How much room each CPU's ring takes at most: a power of 2 of records, of 384 bytes each [default: its share of 256 MiB,
    /// from 8 to 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = KERNEL)]
    pub ring: Option<u64>,
    /// Read the kernel's types from this file
    #[arg(long, value_name = "FILE", hide = true)]
    pub btf: Option<PathBuf>,
    /// Read a simulated TCP with this seed instead of the kernel
    #[arg(long, value_name = "SEED", hide = true)]
    pub simulated: Option<u64>,
}

/// What all rings take together at most, and the least and the most that one may, unless told otherwise.
const RINGS_BYTES: u64 = 256 << 20;
const RING_BYTES: [u64; 2] = [8 << 20, 64 << 20];

impl Attach {
    /// How much room each CPU's ring may take: a second without the processor is to lose nothing.
    pub fn ring_bytes(&self) -> u64 {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        let share = (RINGS_BYTES / cpus).clamp(RING_BYTES[0], RING_BYTES[1]);
        self.ring.unwrap_or(share)
    }
}

const KERNEL: &str = "In the kernel";

/// What is kept back until a flow ends badly.
#[derive(Clone, Debug, Default, Args)]
pub struct FlightArguments {
    /// Flight recorder: keep the last N samples of each flow, or those of the last SPAN (5s), and write them only at one of the
    /// triggers of --flight-on, with half as much after it. All flows together have 256 MiB, some 700,000 samples: beyond it the
    /// flows that have been silent for longest are discarded, then the oldest samples
    #[arg(long, value_name = "N|SPAN", value_parser = recorder::keep)]
    pub flight: Option<Keep>,
    /// What triggers: rto, reset, loss; 'rtt>20ms' (smoothed), 'rtt-last>20ms' (measured last), 'cwnd<10' (segments), each once
    /// whenever a flow's value crosses it
    #[arg(long, value_name = "TRIGGERS", requires = "flight", value_delimiter = ',', default_value = "rto,reset,loss")]
    pub flight_on: Vec<String>,
}

const LONG: &str = "For days";

/// A log in several files.
#[derive(Clone, Debug, Default, Args)]
pub struct PartArguments {
    /// Begin a new part of the log, a file of its own, when the last one has so much, but for what it says again of open flows,
    /// and at least as much as that: 64KiB or more
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LONG)]
    pub rotate_size: Option<u64>,
    /// Begin a new part whenever this time has passed, if the last one has new records, and at least as much of them as of what
    /// it repeats about open flows: 1s or more
    #[arg(long, value_name = "SPAN", value_parser = time, help_heading = LONG)]
    pub rotate_time: Option<Nanos>,
    /// End the log when all parts together reach this size, as --log-limit does: 256KiB or more
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "log_limit", help_heading = LONG)]
    pub budget: Option<u64>,
    /// At --budget, remove the oldest parts and go on: with --rotate-size or --rotate-time. What is new in a part is at most a
    /// quarter of the budget, what it says again of open flows at most a third: else the log ends. Packets whose samples were
    /// removed count as forgotten
    #[arg(long, requires = "budget", help_heading = LONG)]
    pub remove_oldest: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub request: LogOptions,
    #[command(flatten)]
    pub flight: FlightArguments,
    #[command(flatten)]
    pub attach: Attach,
    /// End after this time: 60s
    #[arg(long, value_name = "SPAN", value_parser = time)]
    pub duration: Option<Nanos>,
    /// End the log before its spool, where it waits to be made into records, is larger than this: 256KiB or more. Packets are
    /// counted from then on, and COMMAND goes on; the final records of flows that are open at the end are written beyond the
    /// limit [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    pub log_limit: Option<u64>,
    #[command(flatten)]
    pub parts: PartArguments,
    /// Also send the log, while it is written, to a `sojourn tcplog receive` that listens there: records that the connection cannot
    /// take are skipped and counted. The connection's own packets count as filtered
    #[arg(long, value_name = "HOST:PORT")]
    pub export: Option<String>,
    /// Begin switched off, until `tcplog set OUT --enable`
    #[arg(long)]
    pub disabled: bool,
    /// The folder of the log
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// Print the summary as JSON, on standard output
    #[arg(long)]
    pub json: bool,
    /// Run COMMAND as this user, by name or number [default: who called sudo, else the user that runs this]
    #[arg(long, value_name = "NAME", requires = "command")]
    pub user: Option<String>,
    /// Run this command while logging, and end the log when it ends: it has the rights of its user and none of the log's
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Status {
    /// The folder of the log
    pub out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Set {
    /// The folder of the log
    pub out: PathBuf,
    #[command(flatten)]
    pub request: LogOptions,
    /// Switch logging on
    #[arg(long, conflicts_with = "disable")]
    pub enable: bool,
    /// Neither log nor count; the programs stay attached
    #[arg(long)]
    pub disable: bool,
    /// Write what the flight recorder holds of every flow
    #[arg(long)]
    pub dump: bool,
    /// Print the options now in force as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// The folder of a running log [default: watch this machine, without a log]
    pub out: Option<PathBuf>,
    /// Print a line each
    #[arg(long, value_name = "SPAN", value_parser = time, default_value = "1s")]
    pub interval: Nanos,
    /// End after so many lines [default: at SIGINT or SIGTERM]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub request: LogOptions,
    #[command(flatten)]
    pub attach: Attach,
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub attach: Attach,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

#[derive(Debug, Args)]
pub struct Recover {
    /// The folder of the log
    pub out: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Receive {
    /// Listen here: a port of this host's loopback (127.0.0.1:8862), or of an address that others reach; port 0: one that is free
    #[arg(value_name = "ADDRESS:PORT")]
    pub at: SocketAddr,
    /// The folder of the log
    #[arg(long, short, value_name = "OUT")]
    pub out: PathBuf,
    /// Receive from these peers alone: an address, a prefix as 10.0.0.0/8; may be repeated; to be given where other hosts reach the address
    #[arg(long = "allow", value_name = "PEERS")]
    pub allowed: Vec<Peers>,
    /// End the log before its spool is larger than this: 256KiB or more
    #[arg(long, value_name = "SIZE", value_parser = limit, default_value = "16GiB")]
    pub log_limit: u64,
    /// End after this time, also where no log has come: 60s
    #[arg(long, value_name = "SPAN", value_parser = time)]
    pub duration: Option<Nanos>,
    /// Print the summary as JSON, on standard output
    #[arg(long)]
    pub json: bool,
}

/// Reads a size: "64KB", "4MiB".
pub fn size(text: &str) -> Result<u64, String> {
    units::size(text)
}

fn limit(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes @ LEAST_LIMIT.. => Ok(bytes),
        _ => Err(format!("expected at least {} KiB", LEAST_LIMIT >> 10)),
    }
}
