//! The command line of `capture`. [`TapOptions`] declares the options that `serve` takes in JSON as well.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use sojourn_capture::{Directions, Kind, filter};
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::digest::Key;

use crate::rotation::Rotation;
use crate::tcplog::arguments::size;

/// A ring of so many bytes holds 200,000 frames a second of 64 bytes for two seconds.
const RING_BYTES: u64 = 64 << 20;
pub const RING: &str = "64MiB";
/// The least that says anything of a frame: its Ethernet header.
const LEAST_SNAP: i64 = 14;
const LONG: &str = "For days";

#[derive(Debug, Args)]
pub struct CaptureCommand {
    #[command(subcommand)]
    pub command: Option<CaptureKind>,
    #[command(flatten)]
    pub by_hand: ByHand,
}

#[derive(Debug, Subcommand)]
pub enum CaptureKind {
    /// Capture as asked on standard input: one JSON request a line, one JSON answer a line
    ///
    /// For programs. Ends at the end of the input, or on SIGINT or SIGTERM.
    Serve(Serve),
}

#[derive(Debug, Args)]
pub struct ByHand {
    /// The interfaces, all captured at once
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Write the captures into this folder, which must hold none
    #[arg(short, long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// For how long [default: until SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "SPAN", value_parser = time)]
    pub span: Option<Nanos>,
    /// End when so many frames were captured, of all interfaces together
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    #[command(flatten)]
    pub options: TapOptions,
    /// End when all files together reach this size
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LONG)]
    pub budget: Option<u64>,
    /// At --budget, remove the oldest files and go on: with --rotate-size or --rotate-time
    #[arg(long, requires = "budget", help_heading = LONG)]
    pub remove_oldest: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

/// How interfaces are captured.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TapOptions {
    /// Capture only what this expression of libpcap's language matches: 'udp port 53', 'vlan 7 and host 10.0.0.2'
    #[arg(long, value_name = "EXPR", default_value = "")]
    pub filter: String,
    /// Keep at most so many bytes of each frame; 0: all
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(filter::WHOLE)))]
    pub snap: u32,
    /// Keep the headers of each frame alone
    #[arg(long)]
    pub headers: bool,
    /// Keep headers alone, with anonymised addresses: prefix-preserving, by the key in this file, which only you may read. With
    /// --format pcapng
    #[arg(long, value_name = "KEYFILE")]
    #[serde(skip)]
    pub anonymise: Option<PathBuf>,
    /// Begin new files when those of an interface reach this size
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LONG)]
    pub rotate_size: Option<u64>,
    /// Begin new files whenever this time has passed
    #[arg(long, value_name = "SPAN", value_parser = time, help_heading = LONG)]
    pub rotate_time: Option<Nanos>,
    /// Compress frames as they are written (lz4)
    #[arg(long, help_heading = LONG)]
    pub compress: bool,
    /// Which direction frames pass the interface
    #[arg(long, value_name = "DIRECTION", default_value = "both", value_parser = directions())]
    pub direction: Directions,
    /// What is written: captured frames (pcapng), a row a packet for `sojourn match` (records), or both
    #[arg(long, value_name = "FORMAT", default_value = "both", value_parser = formats())]
    pub format: Format,
    /// Kind of the device between the taps: the records hold a digest of the bytes of each packet that such a device leaves
    /// unchanged
    #[arg(long, value_name = "KEY", default_value = "bridge", value_parser = keys())]
    pub key: Key,
    /// Which timestamps
    #[arg(long, value_name = "SOURCE", default_value = "best", value_parser = stamps())]
    pub source: Stamps,
    /// What copies frames: a packet socket with a ring, or programs of traffic control in the kernel
    #[arg(long, value_name = "KIND", default_value = "ring", value_parser = kinds())]
    pub tap: Kind,
    /// How much memory of the kernel holds the frames of each interface that wait to be read
    #[arg(long, value_name = "SIZE", default_value = RING, value_parser = size)]
    pub ring: u64,
    /// Do not set the interface promiscuous: it receives frames for other hosts only where it is promiscuous already, as a port
    /// of a bridge is
    #[arg(long)]
    pub no_promiscuous: bool,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self {
            filter: String::new(),
            snap: 0,
            direction: Directions::Both,
            headers: false,
            anonymise: None,
            rotate_size: None,
            rotate_time: None,
            compress: false,
            format: Format::Both,
            key: Key::Bridge,
            source: Stamps::Best,
            tap: Kind::Ring,
            ring: RING_BYTES,
            no_promiscuous: false,
        }
    }
}

impl TapOptions {
    /// How many bytes of a frame are kept.
    pub fn kept(&self) -> u32 {
        if self.snap == 0 { filter::WHOLE } else { self.snap }
    }

    /// How many bytes of a frame are taken from the kernel: digests are of whole frames.
    pub fn taken(&self) -> u32 {
        if self.format.has_records() { filter::WHOLE } else { self.kept() }
    }

    /// Says what is wrong with it.
    pub fn problem(&self) -> Option<String> {
        let problems = [
            (self.snap > 0 && i64::from(self.snap) < LEAST_SNAP, {
                format!("--snap {}: less than an Ethernet header says nothing; give {LEAST_SNAP} or more", self.snap)
            }),
            (!(1 << 20..=1 << 30).contains(&self.ring), format!("--ring {}: expected 1 MiB to 1 GiB", self.ring)),
            (self.tap == Kind::Bpf && !self.filter.is_empty(), {
                "--tap bpf has no filter; leave --tap away, or --filter".to_owned()
            }),
            (self.tap == Kind::Bpf && self.source != Stamps::Best, {
                "--tap bpf has timestamps of its own; leave --tap away, or --source".to_owned()
            }),
            (self.anonymise.is_some() && self.format.has_records(), {
                "--anonymise: records hold digests of the true packets; give --format pcapng".to_owned()
            }),
        ];
        let of_all = problems.into_iter().find(|(is_so, _)| *is_so).map(|(_, problem)| problem);
        of_all.or_else(|| self.rotation().problem())
    }

    /// Returns what is written of it beside the frames: no filter where addresses are replaced, for it may hold true ones.
    pub fn told(&self) -> Self {
        let filter = if self.anonymise.is_some() { String::new() } else { self.filter.clone() };
        Self { filter, ..self.clone() }
    }

    /// When files are followed by new ones.
    pub fn rotation(&self) -> Rotation {
        Rotation { bytes: self.rotate_size, span: self.rotate_time }
    }

    /// Whether files follow each other.
    pub fn rotates(&self) -> bool {
        self.rotation().is_asked()
    }
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Frames.
    Pcapng,
    /// A row a packet.
    Records,
    /// Both.
    #[default]
    Both,
}

impl Format {
    /// Whether there is a row a packet.
    pub fn has_records(self) -> bool {
        self != Self::Pcapng
    }

    /// Whether there are frames.
    pub fn has_frames(self) -> bool {
        self != Self::Records
    }
}

/// Which timestamps are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stamps {
    /// The interface's where it is set to stamp every frame, else the kernel's.
    #[default]
    Best,
    /// The interface's.
    Hardware,
    /// The kernel's.
    Kernel,
}

impl From<Stamps> for sojourn_capture::Wanted {
    fn from(stamps: Stamps) -> Self {
        match stamps {
            Stamps::Best => Self::Best,
            Stamps::Hardware => Self::Hardware,
            Stamps::Kernel => Self::Kernel,
        }
    }
}

fn directions() -> impl TypedValueParser<Value = Directions> {
    named([
        ("in", "Received frames (ingress)", Directions::In),
        ("out", "Sent frames (egress)", Directions::Out),
        ("both", "Both", Directions::Both),
    ])
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    named([
        (
            "bpf",
            "Programs of traffic control (TCX), with timestamps of their own: Linux 6.6 or later, no --filter",
            Kind::Bpf,
        ),
        ("ring", "A packet socket with a ring (AF_PACKET)", Kind::Ring),
    ])
}

fn formats() -> impl TypedValueParser<Value = Format> {
    named([
        ("pcapng", "Captured frames, for every tool that reads captures", Format::Pcapng),
        ("records", "A row a packet: digest, time and its source, length, direction", Format::Records),
        ("both", "Both", Format::Both),
    ])
}

fn keys() -> impl TypedValueParser<Value = Key> {
    PossibleValuesParser::new(Key::ALL.map(Key::name)).map(|name| name.parse().unwrap_or_default())
}

/// Reads which timestamps are wanted.
pub fn stamps() -> impl TypedValueParser<Value = Stamps> {
    named([
        ("best", "The interface's where it is set to stamp every frame, else the kernel's", Stamps::Best),
        ("hardware", "The interface's", Stamps::Hardware),
        ("kernel", "The kernel's", Stamps::Kernel),
    ])
}

/// Reads one of these by its name; the last is what a parser that failed would have meant.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).map(move |name| {
        let found = values.iter().find(|(known, _, _)| *known == name);
        found.map_or(values[N - 1].2, |(_, _, value)| *value)
    })
}
