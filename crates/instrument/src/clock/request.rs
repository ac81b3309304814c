//! The command line of `clock`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use sojourn_probe::Peer;
use sojourn_probe::respond::Pretence;
use sojourn_time::text::time;
use sojourn_time::{Nanos, Time};

#[derive(Debug, Args)]
pub struct ClockCommand {
    #[command(subcommand)]
    pub command: Option<ClockKind>,
    #[command(flatten)]
    pub watch: Watch,
}

#[derive(Debug, Subcommand)]
pub enum ClockKind {
    /// Estimate a simulated clock, and print the truth beside the estimate
    ///
    /// Example: sojourn clock sim --truth '{"offset_ns":5e8,"skew_ppm":40}'
    Sim(ClockSim),
}

#[derive(Debug, Args)]
pub struct Watch {
    /// The peers, and their UDP port where it is not 7707: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(value_name = "PEER")]
    pub peers: Vec<Peer>,
    /// For how long
    #[arg(long = "for", value_name = "SPAN", default_value = "10s", value_parser = time)]
    pub span: Nanos,
    /// Until SIGINT or SIGTERM
    ///
    /// At most 360,000 exchanges with a peer are held, an hour of the default interval, also with --for and --count. When there are
    /// more, the linear segments of the older half are written to the records (--record) and its exchanges are discarded: the
    /// summary is of the rest, and says how many there were before and what made them doubtful.
    #[arg(long, conflicts_with_all = ["span", "count"])]
    pub until_interrupted: bool,
    /// The interval between exchanges with each peer
    #[arg(short, long, default_value = "10ms", value_parser = time)]
    pub interval: Nanos,
    /// So many exchanges with each peer, however long that takes
    #[arg(short, long, conflicts_with = "span", value_parser = clap::value_parser!(u64).range(2..))]
    pub count: Option<u64>,
    /// Authenticate exchanges by the key in this file, which all peers have too, and ignore all other replies; the file must be
    /// readable by its owner alone
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Write records (Arrow IPC streams) into this folder: exchanges, clock_lines
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Print JSON: a line of this host's clocks, a line for each peer each second, and a summary
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ClockSim {
    /// The clocks and the path, as JSON; what is left out is a calm path between equal clocks
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub truth: String,
    /// What the estimate assumes, as JSON: skew_ppm, drift_ppm_per_s, slew_ppm, asymmetry_share
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub limits: String,
    /// At how many times the estimate is compared with the truth
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub points: u32,
    /// Repeat with so many seeds, and count how often the truth is within the bound and within the 95 % error
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A clock to pretend: so many ns ahead, and gaining so many ppm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PretendedClock {
    offset: Nanos,
    skew_ppm: f64,
}

impl PretendedClock {
    /// Returns the pretence that begins at a time.
    pub fn since(self, since: Time) -> Pretence {
        Pretence { since, offset: self.offset, skew_ppm: self.skew_ppm }
    }
}

impl FromStr for PretendedClock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || "expected an offset in ns and a skew in ppm, within 1e15 and 1000, as 1500000,-20".to_owned();
        let (offset, skew) = text.split_once(',').ok_or_else(refusal)?;
        let offset: i64 = offset.trim().parse().map_err(|_| refusal())?;
        let skew_ppm: f64 = skew.trim().parse().map_err(|_| refusal())?;
        let is_sound = offset.unsigned_abs() <= 1_000_000_000_000_000 && skew_ppm.abs() <= 1000.0;
        if is_sound { Ok(Self { offset: Nanos(offset), skew_ppm }) } else { Err(refusal()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_clocks_have_an_offset_and_a_skew() {
        assert_eq!("-5,2.5".parse(), Ok(PretendedClock { offset: Nanos(-5), skew_ppm: 2.5 }));
        for refused in ["", "5", "5,", "5,nan", "5,1e9", "9e15,0", "9000000000000000,0"] {
            assert!(refused.parse::<PretendedClock>().is_err(), "{refused}");
        }
    }
}
