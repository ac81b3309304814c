//! The command line of `emulate`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sojourn_emulate::Direction;
use sojourn_emulate::config::{is_word, units};
use sojourn_port::bridge::Means;
use sojourn_time::Nanos;
use sojourn_time::near::nearest;
use sojourn_time::text::time;

use super::asked::is_interface;
use super::compensate::Compensation;
use super::idle::IdleArgument;
use super::pipe_options::PipeOptions;

/// What to do with an emulator.
#[derive(Debug, Subcommand)]
pub enum Emulate {
    /// Bridge two interfaces; delay, lose, queue and reorder packets as configured
    ///
    /// Options apply to each direction separately; --forward (from LEFT to RIGHT) and --backward take words for one direction, as
    /// tc netem or dummynet spell them. Without options it is a plain bridge. Needs CAP_NET_RAW and, for AF_XDP, CAP_NET_ADMIN and
    /// CAP_BPF. Example: sojourn emulate eth1 eth2 --delay 20ms --jitter 2ms --loss 1% --rate 10Mbit/s
    Run(Box<Run>),
    /// Change pipes of a running emulator, at once and without packet loss
    ///
    /// Only what is named changes. Example: sojourn emulate set forward delay 50ms loss 2%
    Set(Set),
    /// Show the pipes of a running emulator: configuration, packet counters, queueing delay and accuracy
    ///
    /// Example: sojourn emulate show --watch
    Show(Show),
    /// Pass requests to a running emulator: a JSON object a line from standard input, its answer a line to standard output
    ///
    /// For programs that reach the emulator's host by streams alone, as over SSH. A refusal is a line with `error` and `status`; it ends at
    /// the end of its input, or at the first request after the emulator has ended. Example: echo '{"do": "show"}' | ssh br.lab sojourn-instrument emulate ask
    Ask(Which),
    /// Replay the log of an emulator in virtual time: the same arrivals and seed must give the same dispositions
    ///
    /// Exit status 4 where they do not. Example: sojourn emulate replay runs/log
    Replay(Replay),
    /// Write complete files of the rows that can be read of a killed emulator's log
    ///
    /// Example: sojourn emulate recover runs/log -o runs/recovered
    Recover(Recover),
    /// Send the frames of a capture file through the emulator in virtual time
    ///
    /// Reads pcap and pcapng, writes pcapng with the departure times of the frames. Example: sojourn emulate offline
    /// in.pcapng --delay 20ms -o out.pcapng
    Offline(Box<Offline>),
    /// Print the commands that configure the kernel's netem likewise, or what netem cannot do exactly
    ///
    /// Example: sojourn emulate kernel eth1 eth2 --delay 20ms --loss 1%
    Kernel(Box<Kernel>),
    /// Measure what a path over veth interfaces takes outside the emulator, for --compensate auto
    #[command(hide = true)]
    SelfTest(SelfTest),
    /// Print how options, words and files are interpreted, and do nothing else
    ///
    /// Takes the same options as `emulate run`, to check them before they are used. Example: sojourn emulate explain
    /// --forward "pipe 1 config bw 10Mbit/s delay 20 plr 0.01"
    Explain(Box<Explain>),
}

/// The first words after `emulate` that are not an interface.
const SUBCOMMANDS: [&str; 13] = [
    "run",
    "set",
    "show",
    "ask",
    "replay",
    "recover",
    "offline",
    "kernel",
    "explain",
    "self-test",
    "help",
    "--help",
    "-h",
];

/// Completes what is short for something: `emulate LEFT RIGHT` for `emulate run LEFT RIGHT`, `emulate --offline FILE` for `emulate
/// offline FILE`.
pub fn complete(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_none_or(|word| word != "emulate") {
        return words;
    }
    if let Some(at) = words.iter().position(|word| word == "--offline") {
        words.remove(at);
        let file = (at < words.len()).then(|| words.remove(at));
        words.insert(2, "offline".into());
        words.splice(3..3, file);
    } else if words.get(2).is_some_and(|word| !SUBCOMMANDS.iter().any(|known| word == known) && !is_mistyped(word)) {
        words.insert(2, "run".into());
    }
    words
}

/// Whether a word is nearly a command, and neither an interface nor a word of the configuration: that is left as it is, and refused
/// with what was meant.
fn is_mistyped(word: &OsStr) -> bool {
    let word = word.to_str().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
    word.is_some_and(|word| nearest(word, &SUBCOMMANDS).is_some() && !is_word(word) && !is_interface(word))
}

/// The configuration of pipes and rules.
#[derive(Clone, Debug, Default, Args)]
pub struct Asked {
    #[command(flatten)]
    pub pipe: PipeOptions,
    /// Words for the direction from LEFT to RIGHT, which override the options: "delay 20ms 2ms loss 1%", "bw 10Mbit/s queue 50", or ""
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = PIPES)]
    pub forward: Option<String>,
    /// Words for the direction from RIGHT to LEFT
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = PIPES)]
    pub backward: Option<String>,
    /// Pipes and rules from a file (TOML, or lines as ipfw has them), instead of options
    #[arg(short = 'C', long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Seed of all random numbers: the same seed and arrivals give the same dispositions [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Memory for frames [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// A packet that leaves later than this after its intended departure counts as late [default: 100us]
    #[arg(long, value_name = "SPAN", value_parser = time)]
    pub budget: Option<Nanos>,
}

pub const PIPES: &str = "What happens to packets";

#[derive(Debug, Args)]
pub struct Run {
    /// The left port: an interface
    pub left: String,
    /// The right port
    pub right: String,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub how: RunOptions,
}

/// How an emulator runs, whatever it does to packets.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Log every packet into this folder (Arrow IPC stream), for `emulate replay`
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// The number in the log's file names: packets-NAME-KKK.arrow
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..1000))]
    pub part: u16,
    /// End the log, and not the emulator, before its files are larger than this [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "log")]
    pub log_limit: Option<u64>,
    /// The name in the log's file names: letters and digits
    #[arg(long, value_name = "NAME", default_value = "emulate", value_parser = crate::stream::request::name)]
    pub name: String,
    /// Where to listen for `emulate set` and `emulate show`: a path, or "none" [default: emulate-LEFT-RIGHT.sock in
    /// $XDG_RUNTIME_DIR or /run/sojourn]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The kernel interface that moves frames
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub engine: EngineArgument,
    /// Bridge interfaces that this host itself uses, by an address, a route or a bridge: it cannot be reached by them meanwhile
    /// (AF_XDP), or its own stack sees every frame as well (AF_PACKET)
    #[arg(long)]
    pub take_over: bool,
    /// Forward frames that no rule selects within the kernel. Without a pipe all of them (traffic control, Linux 6.6): faster,
    /// counted by the programs there but for drops of the other port; else those of EtherTypes that no rule selects (AF_XDP), not counted
    #[arg(long, conflicts_with = "log")]
    pub redirect: bool,
    /// The emulator: this program, or the kernel's netem, which needs both ports in a bridge
    #[arg(long, value_name = "WHO", default_value = "user")]
    pub backend: Backend,
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Never sleep: uses a whole CPU, and is most exact with a CPU of its own [default: where there are 4 CPUs or more]
    #[arg(long, conflicts_with_all = ["sleep", "fifo"])]
    pub spin: bool,
    /// Sleep until shortly before each departure
    #[arg(long)]
    pub sleep: bool,
    /// What idle processors of this machine do while packets are under way, where this program sleeps and may ask for it (root): in
    /// polling they wake at once, and take power
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub idle: IdleArgument,
    /// Run under SCHED_FIFO as long as it mostly sleeps, or do not start. Needs CAP_SYS_NICE [default: where it is permitted]
    #[arg(long)]
    pub fifo: bool,
    /// Never run under SCHED_FIFO
    #[arg(long, conflicts_with = "fifo")]
    pub no_fifo: bool,
    /// Path delay compensation: send each packet earlier by the delay outside the emulator (before the RX timestamp, and behind the
    /// call that sends), as `emulate verify` found it; or "auto": measure it at the start, through two cables of its own, where
    /// both ports are veth interfaces. No packet leaves before it has arrived
    #[arg(long, value_name = "SPAN|auto", value_parser = Compensation::read, default_value = "0ns")]
    pub compensate: Compensation,
    /// Lead the frames of this host's interface DEV over the ports, by INNER and OUTER, the far ends of both
    #[arg(long, value_names = ["DEV", "INNER", "OUTER"], num_args = 3, hide = true, conflicts_with = "redirect")]
    pub detour: Vec<String>,
    /// End after this time [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "SPAN", value_parser = time)]
    pub lasts: Option<Nanos>,
    /// Print JSON: a line when frames flow, a line at the end
    #[arg(long)]
    pub json: bool,
    /// Also write the first line of --json to this descriptor
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    pub ready_fd: Option<i32>,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

/// How the emulator runs whose path is measured.
#[derive(Debug, Args)]
pub struct SelfTest {
    /// Run on this CPU
    #[arg(long)]
    pub cpu: Option<u32>,
    /// Never sleep
    #[arg(long)]
    pub spin: bool,
    /// What idle processors do
    #[arg(long, default_value = "poll")]
    pub idle: IdleArgument,
    /// How frames move
    #[arg(long, default_value = "auto")]
    pub engine: EngineArgument,
}

#[derive(Debug, Args)]
pub struct Set {
    /// The pipe, or "all"
    pub pipe: String,
    /// What changes: delay 50ms loss 2%. Put "--" before a word that begins with a hyphen
    #[arg(required = true)]
    pub words: Vec<String>,
    /// Begin with an idle pipe: what is not named is off
    #[arg(long)]
    pub replace: bool,
    /// Print JSON: the ports, and each pipe that was changed as it is now
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show it again every second
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    #[command(flatten)]
    pub which: Which,
}

/// Which emulator.
#[derive(Debug, Args)]
pub struct Which {
    /// The emulator with this socket [default: the only one that this user runs]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Which logs.
#[derive(Debug, Args)]
pub struct Logs {
    /// The folder of the log
    pub folder: PathBuf,
    /// Only the log of this name [default: every log there]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only this part
    #[arg(long, value_name = "K")]
    pub part: Option<u16>,
}

#[derive(Debug, Args)]
pub struct Recover {
    #[command(flatten)]
    pub logs: Logs,
    /// The folder to make
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print JSON, a line for each log
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub logs: Logs,
    /// Print JSON, a line for each log
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Offline {
    /// A capture: pcap or pcapng, of Ethernet frames
    pub input: PathBuf,
    /// File for the frames that leave, in pcapng
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Direction of its frames
    #[arg(long, value_name = "WAY", default_value = "forward")]
    pub direction: DirectionArgument,
    #[command(flatten)]
    pub asked: Asked,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Kernel {
    /// The left port: an interface
    pub left: String,
    /// The right port
    pub right: String,
    #[command(flatten)]
    pub asked: Asked,
    /// Print JSON: the commands, and those that end it, word by word
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// The ports, as `emulate run` takes them
    #[arg(value_name = "PORT", num_args = 0..=2)]
    pub ports: Vec<String>,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub how: RunOptions,
}

/// The kernel interface that moves frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArgument {
    /// AF_XDP where it is available, else AF_PACKET
    Auto,
    /// AF_XDP: bypasses most of the kernel
    Xdp,
    /// AF_PACKET: works on every interface
    Packet,
}

/// What emulates the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// This program
    User,
    /// The kernel's netem
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionArgument {
    /// From left to right
    Forward,
    /// From right to left
    Backward,
}

impl From<EngineArgument> for Means {
    fn from(engine: EngineArgument) -> Self {
        match engine {
            EngineArgument::Auto => Self::Auto,
            EngineArgument::Xdp => Self::Xdp,
            EngineArgument::Packet => Self::Packet,
        }
    }
}

impl From<DirectionArgument> for Direction {
    fn from(direction: DirectionArgument) -> Self {
        match direction {
            DirectionArgument::Forward => Self::Forward,
            DirectionArgument::Backward => Self::Backward,
        }
    }
}

/// Reads a size: "64KB", "4MiB".
fn size(text: &str) -> Result<u64, String> {
    units::size(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> String {
        let words = complete(line.split(' ').map(OsString::from).collect());
        words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn omitted_subcommand_run_is_completed() {
        assert_eq!(completed("x emulate eth1 eth2 --delay 1ms"), "x emulate run eth1 eth2 --delay 1ms");
        assert_eq!(completed("x emulate --delay 1ms eth1 eth2"), "x emulate run --delay 1ms eth1 eth2");
        assert_eq!(completed("x emulate explian eth1 eth2"), "x emulate explian eth1 eth2", "no port: refused");
        assert_eq!(completed("x emulate set0 eth2"), "x emulate run set0 eth2", "a port may be called so");
        for same in ["x emulate run a b", "x emulate --help", "x emulate", "x probe icmp 10.0.0.2", "x"] {
            assert_eq!(completed(same), same);
        }
        assert_eq!(
            completed("x emulate --offline in.pcap -C c.toml -o out.pcapng"),
            "x emulate offline in.pcap -C c.toml -o out.pcapng"
        );
        assert_eq!(completed("x emulate -C c.toml --offline in -o out"), "x emulate offline in -C c.toml -o out");
        assert_eq!(completed("x emulate --offline"), "x emulate offline");
    }
}
