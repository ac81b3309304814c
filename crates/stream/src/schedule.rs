//! Schedules of departures. Pure: offsets from a stream's start, computed from pattern, rate and seed.
//!
//! Each offset is computed from the packet's number, not from the previous offset, so that rounding errors do not accumulate.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1};
use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;
use sojourn_time::near::did_you_mean;
use sojourn_time::text::packet_rate;

/// Bytes on the link per frame in addition to the frame: preamble, start delimiter and inter-frame gap.
const LINK_OVERHEAD_BYTES: u64 = 20;
const LEAST_FRAME_BYTES: u64 = 64;
const NANOS_PER_SECOND: f64 = 1e9;

/// A year: longer streams are probably typing errors, and sums would overflow.
const LONGEST_NS: f64 = 3.2e16;

/// The pattern of departures. Written as `regular`, `poisson`, `burst:8`, `ramp:1000-20000`, `flood` or `replay`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// Equal inter-departure times.
    Regular,
    /// Independent, exponentially distributed inter-departure times.
    Poisson,
    /// Bursts of packets back to back; the bursts are regular, and the rate is the mean packet rate.
    Burst {
        /// Packets per burst.
        size: u32,
    },
    /// A rate that changes linearly, in packets per second.
    Ramp {
        /// The rate at the start.
        from_pps: f64,
        /// The rate at the end.
        to_pps: f64,
    },
    /// Maximum rate.
    Flood,
    /// Given times.
    Replay,
}

/// The departures of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The pattern.
    pub pattern: Pattern,
    /// The mean rate in packets per second; ignored for maximum rate, ramps and replays.
    pub rate_pps: f64,
    /// The number of packets.
    pub count: u64,
    /// The seed of random inter-departure times.
    pub seed: u64,
    /// The given times, ascending, relative to the stream's start; empty except for replays.
    pub offsets: Arc<[Nanos]>,
}

/// Why a schedule is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is not a pattern.
    #[error(
        "{text:?} is no schedule; expected regular, poisson, burst:N, ramp:FROM-TO, flood or replay{}", meant(.text)
    )]
    NoPattern {
        /// The text.
        text: String,
    },
    /// The rate is not a positive finite number.
    #[error("a rate of {0} packets a second cannot be; give one above 0")]
    NoRate(f64),
    /// There are no packets.
    #[error("0 packets are no stream; ask for at least 1")]
    NoPackets,
    /// The stream would take longer than a year.
    #[error("{count} packets at {rate_pps} a second take longer than a year; ask for fewer, or a higher rate")]
    TooLong {
        /// The number of packets.
        count: u64,
        /// The rate in packets per second.
        rate_pps: f64,
    },
    /// The burst size is 0.
    #[error("bursts of 0 packets cannot be; write burst:1 or more")]
    EmptyBurst,
    /// A departure of a replay is earlier than the one before it, or than the start.
    #[error("departure {0} of the replay is before the one before it, or before the start; sort them, from 0")]
    Unsorted(usize),
    /// A departure of a replay is more than a year after the start.
    #[error("departure {0} of the replay is more than a year after the start; count from the start, in ns")]
    TooLate(usize),
    /// The number of departures differs from the number of packets.
    #[error("{given} departures are given to replay, and {count} packets are asked for; let them be equal")]
    WrongCount {
        /// The number of departures.
        given: usize,
        /// The number of packets.
        count: u64,
    },
    /// The rate exceeds the link's.
    #[error(
        "{asked_pps:.0} frames of {frame_bytes} bytes a second are more than the {most_pps:.0} that a link of \
         {link_bps} bit/s carries; ask for less, or shorter frames"
    )]
    TooFast {
        /// The highest requested rate.
        asked_pps: f64,
        /// The frame length, with FCS.
        frame_bytes: usize,
        /// The maximum rate for this frame length.
        most_pps: f64,
        /// The link's bit rate.
        link_bps: u64,
    },
}

impl Schedule {
    /// Returns a schedule of `count` packets with a pattern and a mean rate.
    pub fn new(pattern: Pattern, rate_pps: f64, count: u64, seed: u64) -> Self {
        Self { pattern, rate_pps, count, seed, offsets: Arc::new([]) }
    }

    /// Returns a schedule of given times.
    pub fn replay(offsets: Vec<Nanos>) -> Self {
        let offsets: Arc<[Nanos]> = offsets.into();
        Self { offsets: Arc::clone(&offsets), ..Self::new(Pattern::Replay, 0.0, offsets.len() as u64, 0) }
    }

    /// Returns the offsets of all departures from the stream's start, ascending.
    pub fn departures(&self) -> Departures {
        Departures {
            schedule: self.clone(),
            random: StdRng::seed_from_u64(self.seed),
            passed: Sum::default(),
            number: 0,
        }
    }

    /// Returns the departures that have a scheduled time: none for maximum rate.
    pub(crate) fn timed_departures(&self) -> Departures {
        let all = self.departures();
        let number = if self.pattern == Pattern::Flood { self.count } else { 0 };
        Departures { number, ..all }
    }

    /// Returns the mean rate of the schedule, in packets per second; 0 for maximum rate.
    pub fn mean_pps(&self) -> f64 {
        match self.pattern {
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => self.rate_pps,
            Pattern::Ramp { from_pps, to_pps } => f64::midpoint(from_pps, to_pps),
            Pattern::Flood => 0.0,
            Pattern::Replay => match (self.offsets.first(), self.offsets.last()) {
                (Some(first), Some(last)) if last > first => {
                    (self.offsets.len() - 1) as f64 * NANOS_PER_SECOND / (*last - *first).0 as f64
                }
                _ => 0.0,
            },
        }
    }

    /// Checks the schedule, also against the link's bit rate if that is known. `frame_bytes` includes the FCS.
    ///
    /// # Errors
    /// On the first problem.
    pub fn check(&self, frame_bytes: usize, link_bps: Option<u64>) -> Result<(), ScheduleError> {
        self.check_shape()?;
        let Some(link_bps) = link_bps else { return Ok(()) };
        let asked_pps = match self.pattern {
            Pattern::Ramp { from_pps, to_pps } => from_pps.max(to_pps),
            _ => self.mean_pps(),
        };
        let bytes = (frame_bytes as u64).max(LEAST_FRAME_BYTES) + LINK_OVERHEAD_BYTES;
        let most_pps = link_bps as f64 / (bytes * 8) as f64;
        // Tolerance: the link's exact rate, written with few digits, is accepted.
        if asked_pps > most_pps * (1.0 + 1e-6) {
            return Err(ScheduleError::TooFast { asked_pps, frame_bytes, most_pps, link_bps });
        }
        Ok(())
    }

    /// Checks everything that does not depend on the link.
    pub(crate) fn check_shape(&self) -> Result<(), ScheduleError> {
        if self.count == 0 {
            return Err(ScheduleError::NoPackets);
        }
        match self.pattern {
            Pattern::Flood => return Ok(()),
            Pattern::Replay => return self.check_offsets(),
            Pattern::Burst { size: 0 } => return Err(ScheduleError::EmptyBurst),
            Pattern::Ramp { from_pps, to_pps } => {
                // One of the two may be 0, or close to it.
                [from_pps, to_pps].into_iter().try_for_each(|rate| check_rate(rate + f64::MIN_POSITIVE))?;
            }
            Pattern::Regular | Pattern::Poisson | Pattern::Burst { .. } => check_rate(self.rate_pps)?,
        }
        let rate_pps = self.mean_pps();
        check_rate(rate_pps)?;
        let is_short = self.count as f64 / rate_pps * NANOS_PER_SECOND <= LONGEST_NS;
        if is_short { Ok(()) } else { Err(ScheduleError::TooLong { count: self.count, rate_pps }) }
    }

    fn check_offsets(&self) -> Result<(), ScheduleError> {
        if self.offsets.len() as u64 != self.count {
            return Err(ScheduleError::WrongCount { given: self.offsets.len(), count: self.count });
        }
        let before = std::iter::once(&Nanos::ZERO).chain(self.offsets.iter());
        if let Some(place) = self.offsets.iter().zip(before).position(|(offset, before)| offset < before) {
            return Err(ScheduleError::Unsorted(place));
        }
        match self.offsets.iter().position(|offset| offset.0 as f64 > LONGEST_NS) {
            Some(place) => Err(ScheduleError::TooLate(place)),
            None => Ok(()),
        }
    }
}

fn check_rate(rate_pps: f64) -> Result<(), ScheduleError> {
    if rate_pps > 0.0 && rate_pps.is_finite() { Ok(()) } else { Err(ScheduleError::NoRate(rate_pps)) }
}

/// Iterator over the offsets of a schedule's departures.
#[derive(Clone, Debug)]
pub struct Departures {
    schedule: Schedule,
    random: StdRng,
    /// Poisson: the offset of the next departure.
    passed: Sum,
    number: u64,
}

impl Iterator for Departures {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        if self.number >= self.schedule.count {
            return None;
        }
        let number = self.number;
        self.number += 1;
        let rate = self.schedule.rate_pps;
        Some(match self.schedule.pattern {
            Pattern::Regular => after(number, rate),
            Pattern::Poisson => {
                let offset = self.passed.rounded();
                let deviate: f64 = Exp1.sample(&mut self.random);
                self.passed.add(deviate * NANOS_PER_SECOND / rate);
                offset
            }
            Pattern::Burst { size } => after(number - number % u64::from(size.max(1)), rate),
            Pattern::Ramp { from_pps, to_pps } => {
                let length_s = self.schedule.count as f64 / f64::midpoint(from_pps, to_pps);
                let growth = (to_pps - from_pps) / length_s;
                let number = number as f64;
                // n = from·t + growth·t²/2, solved for t without cancellation.
                let root = (from_pps * from_pps + 2.0 * growth * number).max(0.0).sqrt();
                let seconds = if number == 0.0 { 0.0 } else { 2.0 * number / (from_pps + root) };
                Nanos((seconds * NANOS_PER_SECOND).round() as i64)
            }
            Pattern::Flood => Nanos::ZERO,
            Pattern::Replay => *self.schedule.offsets.get(number as usize)?,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.schedule.count - self.number).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

fn after(number: u64, rate_pps: f64) -> Nanos {
    Nanos((number as f64 * NANOS_PER_SECOND / rate_pps).round() as i64)
}

/// A sum of gaps: whole nanoseconds and the fraction are kept apart, so that precision does not depend on the sum's size.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    whole_ns: i64,
    rest_ns: f64,
}

impl Sum {
    fn add(&mut self, gap_ns: f64) {
        let sum = self.rest_ns + gap_ns;
        self.whole_ns = self.whole_ns.saturating_add(sum.floor() as i64);
        self.rest_ns = sum - sum.floor();
    }

    const fn rounded(self) -> Nanos {
        Nanos(self.whole_ns)
    }
}

/// Suggests the pattern that was probably meant.
fn meant(text: &str) -> String {
    let name = text.split(':').next().unwrap_or(text);
    did_you_mean(name, &["regular", "poisson", "burst", "ramp", "flood", "replay"])
}

impl FromStr for Pattern {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || ScheduleError::NoPattern { text: text.to_owned() };
        let (name, argument) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, argument) {
            ("regular", None) => Ok(Self::Regular),
            ("poisson", None) => Ok(Self::Poisson),
            ("flood", None) => Ok(Self::Flood),
            ("replay", None) => Ok(Self::Replay),
            ("burst", Some(size)) => match size.parse() {
                Ok(0) => Err(ScheduleError::EmptyBurst),
                Ok(size) => Ok(Self::Burst { size }),
                Err(_) => Err(refusal()),
            },
            ("ramp", Some(rates)) => {
                let (from, to) = rates.split_once('-').ok_or_else(refusal)?;
                let rate = |text| packet_rate(text).ok_or_else(refusal);
                Ok(Self::Ramp { from_pps: rate(from)?, to_pps: rate(to)? })
            }
            _ => Err(refusal()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regular => f.write_str("regular"),
            Self::Poisson => f.write_str("poisson"),
            Self::Burst { size } => write!(f, "burst:{size}"),
            Self::Ramp { from_pps, to_pps } => write!(f, "ramp:{from_pps}-{to_pps}"),
            Self::Flood => f.write_str("flood"),
            Self::Replay => f.write_str("replay"),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = ScheduleError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests;
