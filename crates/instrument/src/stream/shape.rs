//! The shape of streams: content and schedule. The options of the command line and the JSON keys are declared together.

use std::fmt::Display;
use std::path::Path;

use clap::Args;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sojourn_stream::{Pattern, Schedule};
use sojourn_time::Nanos;
use sojourn_time::text::time;

use super::rate::Rate;
use super::request::some_nanos;
use crate::bounded;
use crate::caller;
use crate::failure::WrongRequest;

/// What is sent, and when.
#[derive(Clone, Debug, Args, Deserialize)]
pub struct Shape {
    /// Bytes of the Ethernet frame with its FCS [default: the least, 64 for Ethernet]
    #[arg(long = "size", visible_alias = "frame-bytes", value_name = "FRAME_BYTES")]
    pub frame_bytes: Option<usize>,
    /// Bytes of user data, after the UDP or Ethernet header
    #[arg(long, value_name = "N", conflicts_with = "frame_bytes")]
    pub payload_bytes: Option<usize>,
    /// When frames leave: regular, poisson, burst:N, ramp:FROM-TO, flood, or replay:FILE (a departure a line, in ns from the
    /// start)
    #[arg(long, default_value = "regular")]
    #[serde(deserialize_with = "schedule_without_file")]
    schedule: String,
    /// How many a second: 10kpps, or 100Mbit/s of frames with FCS [default: 1kpps]
    #[arg(long)]
    #[serde(rename = "rate_pps")]
    rate: Option<Rate>,
    /// How many frames
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// For how long, instead of how many [default: 10s]
    #[arg(long, value_parser = time, conflicts_with = "count")]
    #[serde(default, rename = "duration_ns", deserialize_with = "some_nanos")]
    duration: Option<Nanos>,
    /// Seed of the poisson schedule
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    seed: u64,
    /// The departures of the schedule `replay`, which has no file then.
    #[arg(skip)]
    #[serde(default)]
    offsets_ns: Vec<i64>,
}

/// Unless it is said.
const RATE: Rate = Rate::Frames(1_000.0);
const DURATION: Nanos = Nanos::seconds(10);

impl Shape {
    /// Returns the name of its schedule, as records carry it.
    pub fn schedule(&self) -> &str {
        if self.file().is_some() { "replay" } else { &self.schedule }
    }

    /// Returns for how long at most it is sent: a flood ends by time, unless it is counted.
    pub fn at_most(&self) -> Option<Nanos> {
        (self.schedule == "flood" && self.count.is_none()).then(|| self.duration.unwrap_or(DURATION))
    }

    fn file(&self) -> Option<&Path> {
        self.schedule.strip_prefix("replay:").filter(|file| !file.is_empty()).map(Path::new)
    }

    /// Returns when frames of this length leave.
    pub fn departures(&self, frame_bytes: usize) -> anyhow::Result<Schedule> {
        let pattern: Pattern =
            self.schedule().parse().map_err(|error: sojourn_stream::ScheduleError| WrongRequest(error.to_string()))?;
        let rate_pps = match pattern {
            Pattern::Flood | Pattern::Ramp { .. } | Pattern::Replay => 0.0,
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => self.rate.unwrap_or(RATE).pps(frame_bytes),
        };
        let offsets: Vec<Nanos> = match self.file() {
            Some(file) => offsets(file)?,
            None => self.offsets_ns.iter().copied().map(Nanos).collect(),
        };
        let count = self.count(pattern, rate_pps, offsets.len())?;
        Ok(match pattern {
            Pattern::Replay => Schedule { count, ..Schedule::replay(offsets) },
            _ => Schedule::new(pattern, rate_pps, count, self.seed),
        })
    }

    /// Checks that nothing is said twice.
    pub fn check(&self) -> Result<(), WrongRequest> {
        let twice = match self {
            Self { frame_bytes: Some(_), payload_bytes: Some(_), .. } => "--size and --payload-bytes",
            Self { count: Some(_), duration: Some(_), .. } => "--count and --duration",
            _ if !self.offsets_ns.is_empty() && self.schedule != "replay" => "offsets and --schedule",
            _ => return Ok(()),
        };
        Err(WrongRequest(format!("{twice} contradict each other; leave out one")))
    }

    /// Checks that it does not name a rate beside a schedule that has its own.
    ///
    /// # Errors
    /// When it does.
    pub fn check_rate(&self) -> Result<(), WrongRequest> {
        let own = match self.schedule().split(':').next() {
            Some("flood") => "a flood goes as fast as it can",
            Some("ramp") => "a ramp carries its own rates",
            Some("replay") => "a replay carries its own times",
            _ => return Ok(()),
        };
        let problem =
            || WrongRequest(format!("--rate: {own}; leave out one of --rate and --schedule {}", self.schedule()));
        self.rate.map_or(Ok(()), |_| Err(problem()))
    }

    fn count(&self, pattern: Pattern, rate_pps: f64, offsets: usize) -> Result<u64, WrongRequest> {
        if let Some(count) = self.count {
            return Ok(count);
        }
        let seconds = self.duration.unwrap_or(DURATION).0 as f64 / 1e9;
        let count = match pattern {
            // The duration ends a maximum-rate stream.
            Pattern::Flood => return Ok(u64::MAX / 2),
            Pattern::Replay => return Ok(offsets as u64),
            Pattern::Ramp { .. } => Schedule::new(pattern, 0.0, 1, 0).mean_pps() * seconds,
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => rate_pps * seconds,
        };
        match count.round() {
            count if count >= 1.0 => Ok(count as u64),
            _ => Err(WrongRequest(
                "--duration: no frame leaves in so short a time; ask for longer, or --count".to_owned(),
            )),
        }
    }
}

/// Reads departures from a file.
fn offsets(file: &Path) -> Result<Vec<Nanos>, WrongRequest> {
    let wrong = |why: &dyn Display| WrongRequest(format!("--schedule replay: read {}: {why}", file.display()));
    // Below sudo as the caller: errors quote lines.
    let bytes = caller::as_caller(|| bounded::read(file)).map_err(|error| wrong(&error))?;
    let bytes = bytes.map_err(|error| wrong(&error))?;
    offsets_of(&bytes).map_err(|problem| WrongRequest(format!("{}{problem}", file.display())))
}

/// Reads departures, a line each, in ns from the start.
///
/// # Errors
/// With what is to stand behind the file's name.
pub fn offsets_of(bytes: &[u8]) -> Result<Vec<Nanos>, String> {
    /// So much of a line is shown.
    const SHOWN_CHARS: usize = 40;
    let text = std::str::from_utf8(bytes).map_err(|error| format!(": it is no text: {error}"))?;
    let parse = |(number, line): (usize, &str)| {
        let refusal = || {
            let shown: String = line.chars().take(SHOWN_CHARS).collect();
            format!(":{}: {shown:?} is no number of ns", number + 1)
        };
        line.trim().parse().map(Nanos).map_err(|_| refusal())
    };
    text.lines().enumerate().map(parse).collect()
}

/// A file is read for who asks by hand only; a program gives the departures.
fn schedule_without_file<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match String::deserialize(from)? {
        schedule if schedule.starts_with("replay:") => {
            Err(D::Error::custom("schedule: no file is read here; ask for \"replay\", with offsets_ns"))
        }
        schedule => Ok(schedule),
    }
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departure_file_that_is_too_long_is_refused_in_one_sentence() {
        let path = bounded::too_long("departures");
        let told = offsets(&path).expect_err("is refused").to_string();
        assert!(told.ends_with("it has more than 64 MiB"), "{told}");
        std::fs::write(&path, "0\n1000\n").expect("writes");
        assert_eq!(offsets(&path).expect("reads"), [Nanos(0), Nanos(1_000)]);
        std::fs::write(&path, format!("0\n{}\n", "x".repeat(1 << 20))).expect("writes");
        let told = offsets(&path).expect_err("is refused").to_string();
        assert!(told.ends_with(&format!(":2: \"{}\" is no number of ns", "x".repeat(40))), "{told}");
        std::fs::remove_file(path).expect("removes");
    }
}
