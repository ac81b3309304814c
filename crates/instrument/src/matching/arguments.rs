//! The command line of `match`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sojourn_emulate::config::units::{rate, size};
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::digest::Key;

use crate::capture::arguments::{Format, RING, Stamps, TapOptions, stamps};
use crate::tcplog::arguments::size as ring_size;

const LIVE: &str = "While packets pass";

#[derive(Debug, Args)]
pub struct Match {
    /// What the tap before the box saw: a capture (pcap, pcapng; also gzip, zstd, lz4) or a tap's records (.arrow); of one interface of a capture: FILE:INTERFACE; with --live an interface
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// What the tap behind the box saw
    #[arg(value_name = "AFTER")]
    pub after: String,
    /// More taps on the same path, in its order: each is matched with the one before it
    #[arg(value_name = "MORE")]
    pub more: Vec<String>,
    /// Kind of the device between the taps, which says what it leaves unchanged in a packet: bridge, router, nat, vlan, tunnel
    /// [default: bridge; of records, as they say]
    #[arg(long, value_name = "KEY")]
    pub key: Option<Key>,
    /// Longest delay: a packet that takes longer counts as lost
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = positive)]
    pub window: Nanos,
    /// Which way packets go
    #[arg(long, value_name = "WHICH", default_value = "auto", value_enum)]
    pub direction: Direction,
    /// Both taps use one clock: no offset between their clocks is possible
    #[arg(long)]
    pub same_clock: bool,
    /// Subtract how long each frame takes on a link of this rate, as 1Gbit/s, with FCS, preamble and start delimiter
    #[arg(long, value_name = "RATE", value_parser = nonzero_rate)]
    pub subtract_serialisation: Option<u64>,
    /// MTU of the links: a longer packet counts as several that the kernel merged (GRO, GSO)
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u32,
    /// Memory limit for the packets that wait for their match
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = enough)]
    pub memory: u64,
    /// How packets are matched: in one pass, or divided by their digests and in parallel, with the same result
    #[arg(long, value_name = "ENGINE", default_value = "one", value_enum)]
    pub engine: Engine,
    /// Of the engine local: how many processors [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub slices: Option<u16>,
    /// Write each packet's delay and what was not matched (Arrow IPC streams crossings, unmatched) and summary.json into this folder
    #[arg(short, long = "output", value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print by what terms slices are matched, as JSON, and end
    #[arg(long, hide = true)]
    pub terms: bool,
    /// What to call an input, in the order of all: for who gives them through pipes
    #[arg(long = "title", value_name = "TEXT", hide = true)]
    pub titles: Vec<String>,
    #[command(flatten)]
    pub live: Live,
}

impl Match {
    /// Returns what taps are named, in the order of the path.
    pub fn taps(&self) -> impl Iterator<Item = &String> {
        [&self.before, &self.after].into_iter().chain(&self.more)
    }
}

/// Interfaces instead of files.
#[derive(Debug, Args)]
pub struct Live {
    /// Tap interfaces of this host, and match while packets pass, without a file between
    #[arg(long = "live", conflicts_with_all = ["same_clock", "mtu", "engine", "slices", "terms", "titles"], help_heading = LIVE)]
    pub is_asked: bool,
    /// For how long [default: until SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "SPAN", value_parser = time, requires = "is_asked", help_heading = LIVE)]
    pub span: Option<Nanos>,
    /// End when so many packets were captured, of all interfaces together; what has passed by then is matched
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "is_asked", help_heading = LIVE)]
    pub count: Option<u64>,
    /// Match only what this expression of libpcap's language matches
    #[arg(long, value_name = "EXPR", requires = "is_asked", help_heading = LIVE)]
    pub filter: Option<String>,
    /// Which timestamps
    #[arg(long, value_name = "SOURCE", default_value = "best", value_parser = stamps(), requires = "is_asked", help_heading = LIVE)]
    pub source: Stamps,
    /// How much memory of the kernel holds the frames of each interface that wait to be read
    #[arg(long, value_name = "SIZE", default_value = RING, value_parser = ring_size, requires = "is_asked", help_heading = LIVE)]
    pub ring: u64,
    /// Do not set the interfaces promiscuous: they receive frames for other hosts only where they are promiscuous already, as
    /// ports of a bridge are
    #[arg(long, requires = "is_asked", help_heading = LIVE)]
    pub no_promiscuous: bool,
}

impl Live {
    /// Returns how each interface is captured.
    pub fn tap(&self, key: Key) -> TapOptions {
        TapOptions {
            filter: self.filter.clone().unwrap_or_default(),
            format: Format::Records,
            key,
            source: self.source,
            ring: self.ring,
            no_promiscuous: self.no_promiscuous,
            ..TapOptions::default()
        }
    }
}

/// What matches packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// One pass on one processor
    One,
    /// Packets divided by their digests over this machine's processors
    Local,
    /// Packets divided by their digests over a cluster of Apache Spark; `sojourn match` alone has it
    Spark,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// As the captures say, else by who answers whom; forward where neither decides
    Auto,
    /// All from BEFORE to AFTER
    Forward,
    /// All from AFTER to BEFORE
    Backward,
}

fn positive(text: &str) -> Result<Nanos, String> {
    time(text).and_then(|span| {
        let is_positive = span > Nanos::ZERO && span <= Nanos::seconds(86_400);
        is_positive
            .then_some(span)
            .ok_or_else(|| format!("{text} is no window: it must be more than 0 and a day at most"))
    })
}

fn nonzero_rate(text: &str) -> Result<u64, String> {
    let rate = rate(text).map_err(|refusal| refusal.to_string())?;
    (rate > 0).then_some(rate).ok_or_else(|| "the rate of a link must be more than 0".to_owned())
}

fn enough(text: &str) -> Result<u64, String> {
    let bytes = size(text).map_err(|refusal| refusal.to_string())?;
    (bytes >= 1 << 20).then_some(bytes).ok_or_else(|| "less than 1MiB holds too few packets".to_owned())
}
