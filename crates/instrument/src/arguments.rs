//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use sojourn_time::Wait;
use sojourn_wire::Peers;

use crate::capture::arguments::CaptureCommand;
use crate::clock::request::{ClockCommand, PretendedClock};
use crate::emulate::arguments::Emulate;
use crate::matching::arguments::Match;
use crate::matching::slice::MatchSlice;
use crate::probe::request::Probe;
use crate::remover::RemoveSocket;
use crate::stamp::request::Stamp;
use crate::stream::Stream;
use crate::tcp::arguments::Tcp;
use crate::tcplog::arguments::Tcplog;

/// Sojourn's instruments: they measure what a box in the path does to packets.
///
/// Exit status: 0 good; 2 the request is wrong; 3 this machine cannot; 4 it ran but must not be trusted.
#[derive(Debug, Parser)]
#[command(name = "sojourn-instrument", version, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Probe a peer and time its replies, or reply to the probes of others
    #[command(subcommand)]
    Probe(Probe),
    /// Measure with STAMP (RFC 8762), which routers and other tools speak: as session-sender or as session-reflector
    #[command(subcommand)]
    Stamp(Stamp),
    /// Send a stream of frames by a schedule, receive it, or simulate both
    #[command(subcommand)]
    Stream(Stream),
    /// Measure the offset and the rate of other hosts' clocks against ours, with the uncertainty of both
    ///
    /// `probe respond` answers at each peer. Without a peer it says what is known of this host's own clocks. Example: sojourn
    /// clock 10.0.0.2 --for 60s
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "`sojourn clock … --plot FILE.svg` (or FILE.html) also draws offset and skew over time."
    )]
    Clock(ClockCommand),
    /// Capture the frames that pass one or several interfaces, with the best timestamps available, and report what was not
    /// captured
    ///
    /// Needs CAP_NET_RAW, until the taps are open. Example: sojourn capture eth1 eth2 -o out/c --for 10s
    #[command(args_conflicts_with_subcommands = true)]
    Capture(Box<CaptureCommand>),
    /// Emulate a path: a bridge that delays, loses, queues and reorders packets, and reports how exactly it did
    ///
    /// `emulate LEFT RIGHT` is short for `emulate run LEFT RIGHT`. Example: sojourn emulate eth1 eth2 --delay 20ms --loss 1%
    #[command(subcommand)]
    Emulate(Emulate),
    /// Report the delay of each packet between two taps, and what was lost, duplicated or reordered between them
    ///
    /// Example: sojourn match before.pcapng after.pcapng --key router -o out/m
    Match(Match),
    /// Match packets of some digests, as a program asks for it
    #[command(hide = true)]
    MatchSlice(MatchSlice),
    /// Send or receive over TCP as any application does, and read TCP_INFO meanwhile
    #[command(subcommand)]
    Tcp(Tcp),
    /// Log TCP's own state at every packet (cwnd, RTT, windows …), from within the kernel, and tell what was not logged
    ///
    /// Example: sojourn tcplog run --port 5201 --out out/t -- iperf3 -c 10.0.0.2
    #[command(subcommand)]
    Tcplog(Tcplog),
    /// Show and set what ports are set to, on hosts of a bed that have no ethtool
    #[command(hide = true)]
    Ethtool {
        /// Options, interface and values, as ethtool takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Remove a control socket when the program ends that gave up the right to, which starts this
    #[command(hide = true)]
    RemoveSocket(RemoveSocket),
    /// Print every command with its options and what they mean, as JSON
    #[command(hide = true)]
    Commands,
    /// Print the tables that instruments write, and the findings, as JSON
    Schema,
    /// Print what each command may do on its machine once it is set up, as JSON
    #[command(hide = true)]
    Rights,
    /// Say what this machine can do, and how to fix what is missing
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Where and how the program runs.
#[derive(Debug, Args)]
pub struct PlaceArguments {
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Run under SCHED_FIFO. Needs CAP_SYS_NICE
    #[arg(long)]
    pub fifo: bool,
    /// How to wait for the next departure
    #[arg(long, default_value = "sleep-then-spin", value_parser = wait_for_departures())]
    pub wait: Wait,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

/// Who is answered, with how much, and how often.
#[derive(Clone, Debug, Args)]
pub struct GuardArguments {
    /// Answer these peers alone: an address, a prefix as 10.0.0.0/8, a MAC address; may be repeated [default: any]
    #[arg(long = "allow", value_name = "PEERS")]
    pub allowed: Vec<Peers>,
    /// Answer at most so many requests a second of each peer (of IPv6, each network of 64 bits); 0: no limit
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub peer_rate: u32,
    /// Answer at most so many requests a second; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub rate: u32,
}

/// How a program answers that others ask.
#[derive(Debug, Args)]
pub struct AnswerArguments {
    /// Answer over UDP at this address of this host alone; may be repeated [default: at all of its addresses]
    #[arg(long = "bind", value_name = "ADDRESS")]
    pub addresses: Vec<IpAddr>,
    #[command(flatten)]
    pub guard: GuardArguments,
    /// Answer only requests that are authenticated by the key in this file, and each of them once; the file must be readable by
    /// its owner alone
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// End at the end of standard input, too
    #[arg(long)]
    pub until_eof: bool,
    /// Print JSON: a line when ready, a line of counts at the end
    #[arg(long)]
    pub json: bool,
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Run under SCHED_FIFO. Needs CAP_SYS_NICE; not with --wait spin
    #[arg(long)]
    pub fifo: bool,
    /// How to wait for requests: spin takes a whole CPU and answers soonest
    #[arg(long, default_value = "sleep", value_parser = wait_for_requests())]
    pub wait: Wait,
    /// Be killed when the parent process dies
    #[arg(long)]
    pub die_with_parent: bool,
}

#[derive(Debug, Args)]
pub struct Respond {
    /// Answer on this UDP port, over IPv4 and IPv6, with the DSCP of each request; may be repeated
    /// [default without --raw: 7707]
    #[arg(long, value_name = "PORT")]
    pub udp: Vec<u16>,
    /// Answer Ethernet frames on this interface; may be repeated; "any": on all there are and will be
    #[arg(long, visible_alias = "dev", value_name = "D")]
    pub raw: Vec<String>,
    /// Give these peers answers that are longer than their requests, if they ask for them: as --allow has it; may be repeated
    #[arg(long = "allow-amplification", value_name = "PEERS")]
    pub amplified: Vec<Peers>,
    /// For tests of clock estimation: stamp with a clock that is so many ns ahead from now on, and gains so many ppm
    #[arg(long, value_name = "OFFSET_NS,PPM", allow_hyphen_values = true)]
    pub pretend_clock: Option<PretendedClock>,
    #[command(flatten)]
    pub answer: AnswerArguments,
}

/// Reads how to wait for departures.
fn wait_for_departures() -> impl TypedValueParser<Value = Wait> {
    wait([
        (Wait::Spin, "Poll all the time: takes a whole CPU"),
        (Wait::SleepThenSpin, "Sleep until shortly before, then spin"),
        (Wait::Sleep, "Sleep only: departures are late by the wake-up"),
    ])
}

/// Reads how to wait for requests, whose time nobody knows.
fn wait_for_requests() -> impl TypedValueParser<Value = Wait> {
    wait([(Wait::Spin, "Look again and again"), (Wait::Sleep, "Sleep until a request comes")])
}

/// Reads one of these ways to wait by its name.
fn wait<const N: usize>(ways: [(Wait, &'static str); N]) -> impl TypedValueParser<Value = Wait> {
    PossibleValuesParser::new(ways.map(|(wait, help)| PossibleValue::new(wait.name()).help(help))).map(move |name| {
        let named = ways.iter().find(|(wait, _)| wait.name() == name);
        named.map_or_else(Wait::default, |(wait, _)| *wait)
    })
}

/// Returns what is wrong with a command line, in one line, and what was probably meant.
pub fn sentence(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let invalid = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    if error.kind() == clap::error::ErrorKind::UnknownArgument
        && invalid.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    {
        return format!("{invalid}…: no value here may be negative; write it without the sign");
    }
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand];
    let meant = meant.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        // clap lists the most similar name last.
        ContextValue::Strings(several) => several.last().cloned(),
        _ => None,
    });
    let hint = match meant {
        Some(meant) => format!("; did you mean {meant}?"),
        None if error.kind() == clap::error::ErrorKind::InvalidSubcommand => known(error),
        None => String::new(),
    };
    words.join(" ") + &hint
}

/// Returns the commands that stand where a wrong one was given, after "; write".
fn known(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return String::new() };
    let (mut place, mut command) = (String::new(), Arguments::command());
    for word in usage.to_string().split_whitespace() {
        if let Some(inner) = command.find_subcommand(word).cloned() {
            place += &format!("{word} ");
            command = inner;
        }
    }
    let names: Vec<_> =
        command.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name).collect();
    format!("; write {place}{}", names.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_option_is_documented() {
        let mut commands = vec![Arguments::command()];
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn wrong_command_line_is_reported_in_one_sentence() {
        let told =
            |line: &str| sentence(&Arguments::try_parse_from(line.split(' ')).expect_err("a wrong command line"));
        assert_eq!(
            told("x probe icmp 10.0.0.2 -i 10"),
            "invalid value '10' for '--interval <INTERVAL>': 10 has no unit that I know; write 10ms, 10us, 10ns, 10s, 10min or 10h"
        );
        assert_eq!(
            told("x probe icmp 10.0.0.2 --icmp-bytes 64 --frame-bytes 64"),
            "the argument '--icmp-bytes <N>' cannot be used with '--frame-bytes <N>'"
        );
        assert_eq!(told("x probe icmp"), "the following required arguments were not provided: <ADDRESS>");
        assert_eq!(told("x probe icmp 10.0.0.2 --nope"), "unexpected argument '--nope' found");
        let meant = |line: &str| told(line).split_once("; did you mean ").map(|(_, meant)| meant.to_owned());
        assert_eq!(meant("x probe icmp 10.0.0.2 --intervall 1ms").as_deref(), Some("--interval?"));
        assert_eq!(meant("x probe icmp 10.0.0.2 --schedule poison").as_deref(), Some("poisson?"));
        assert_eq!(meant("x strem send").as_deref(), Some("stream?"));
        assert_eq!(
            told("x probe 127.0.0.1"),
            "unrecognized subcommand '127.0.0.1'; write probe icmp|udp|raw|sim|respond|blocks"
        );
        assert!(told("x everything").ends_with("|tcp|tcplog|schema|doctor"), "{}", told("x everything"));
        for line in ["x probe icmp 10.0.0.2 -i -5ms", "x probe icmp 10.0.0.2 --timeout -.5s", "x stream recv --for -1s"]
        {
            assert!(told(line).contains("no value here may be negative"), "{line}: {}", told(line));
        }
    }
}
