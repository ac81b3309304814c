//! Parses dummynet's delay profiles: extra time for medium access, as an empirical distribution.

use std::path::Path;

use sojourn_time::Nanos;

use super::lines;
use crate::config::Profile;
use crate::config::units;
use crate::config::words::Dialect;

/// dummynet's own limits.
const SAMPLES: std::ops::RangeInclusive<usize> = 2..=1022;
const DEFAULT_SAMPLES: usize = 100;

/// The content of a profile file.
#[derive(Debug)]
pub struct Read {
    /// The rate of its `bw` line.
    pub rate_bps: Option<u64>,
    /// The profile.
    pub profile: Profile,
}

/// Reads a profile file.
///
/// # Errors
/// Names the line that is wrong.
pub fn read(path: &Path) -> Result<Read, String> {
    super::read(path, parse)
}

/// The content of a profile file while it is parsed.
#[derive(Default)]
struct Draft {
    name: Option<String>,
    rate_bps: Option<u64>,
    loss_level: Option<f64>,
    samples: Option<usize>,
    /// Whether the delay is the first column; set by the header of the points.
    is_delay_first: Option<bool>,
    points: Vec<(f64, Nanos)>,
}

pub(super) fn parse(text: &str) -> Result<Read, String> {
    let mut draft = Draft::default();
    for (number, line) in lines(text) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [key, value] = words[..] else {
            return Err(format!("line {number}: two words are expected, a name and its value"));
        };
        draft.line(key, value).map_err(|why| format!("line {number}: {why}"))?;
    }
    draft.finish()
}

impl Draft {
    fn line(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "name" => once(&mut self.name, value.to_owned(), key),
            "bw" => once(&mut self.rate_bps, units::rate_in(value, Dialect::Dummynet)?, key),
            "loss-level" => once(&mut self.loss_level, units::fraction(value)?, key),
            "samples" => {
                let samples: usize = units::whole(value)?;
                if !SAMPLES.contains(&samples) {
                    return Err(format!("samples must be from {} to {}", SAMPLES.start(), SAMPLES.end()));
                }
                once(&mut self.samples, samples, key)
            }
            "delay" if value.eq_ignore_ascii_case("prob") => once(&mut self.is_delay_first, true, key),
            "prob" if value.eq_ignore_ascii_case("delay") => once(&mut self.is_delay_first, false, key),
            _ => self.point(key, value),
        }
    }

    fn point(&mut self, first: &str, second: &str) -> Result<(), String> {
        let Some(is_delay_first) = self.is_delay_first else {
            return Err(format!(
                "{first:?} is none of name, bw, loss-level, samples, \"delay prob\" and \"prob delay\""
            ));
        };
        let (delay, share) = if is_delay_first { (first, second) } else { (second, first) };
        let point = (units::fraction(share)?, units::time_in(delay, Dialect::Dummynet)?);
        if self.points.len() >= *SAMPLES.end() {
            return Err(format!("more than {} points", SAMPLES.end()));
        }
        self.points.push(point);
        Ok(())
    }

    fn finish(mut self) -> Result<Read, String> {
        self.points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        if self.points.len() < 2 {
            return Err("two points or more are needed, under a line \"delay prob\" or \"prob delay\"".to_owned());
        }
        if self.points.last().is_none_or(|last| last.0 < 1.0) {
            return Err("the last point's probability must be 1".to_owned());
        }
        if self.points.windows(2).any(|pair| matches!(pair, [a, b] if b.1 < a.1)) {
            return Err("the delay must rise with the probability".to_owned());
        }
        let steps = self.samples.unwrap_or(DEFAULT_SAMPLES);
        // As in dummynet: a packet draws one of these equally likely values, taken at the lower end of each step.
        let samples = (0..steps).map(|at| interpolate(&self.points, at as f64 / steps as f64)).collect();
        let profile =
            Profile { name: self.name.unwrap_or_default(), loss_level: self.loss_level.unwrap_or(1.0), samples };
        Ok(Read { rate_bps: self.rate_bps, profile })
    }
}

/// Returns the delay at a probability, linear between points; below the first point it is the first point's delay.
fn interpolate(points: &[(f64, Nanos)], share: f64) -> Nanos {
    let next = points.partition_point(|point| point.0 <= share);
    match (next.checked_sub(1).and_then(|at| points.get(at)), points.get(next)) {
        (Some(low), Some(high)) => {
            let part = (share - low.0) / (high.0 - low.0);
            low.1 + Nanos(((high.1 - low.1).0 as f64 * part).round() as i64)
        }
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => Nanos::ZERO,
    }
}

fn once<T>(place: &mut Option<T>, value: T, key: &str) -> Result<(), String> {
    if place.replace(value).is_some() { Err(format!("{key} is said twice")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn profile_of_the_ipfw_manual_is_parsed() {
        let text = "name  bla_bla_bla\nsamples 100\nloss-level 0.86\nprob delay\n0 200 # minimum\n0.5 200\n0.5 300\n0.8 1000\n0.9 1300\n1 1300\n";
        let read = parse(text).unwrap();
        assert_eq!(read.rate_bps, None);
        assert_eq!((read.profile.name.as_str(), read.profile.loss_level), ("bla_bla_bla", 0.86));
        assert_eq!(read.profile.samples.len(), 100);
        assert_eq!(read.profile.samples[0], Nanos::millis(200));
        assert_eq!(read.profile.samples[49], Nanos::millis(200));
        assert_eq!(read.profile.samples[50], Nanos::millis(300));
        assert_eq!(read.profile.samples[85], Nanos::millis(1150));
        assert_eq!(read.profile.samples[99], Nanos::millis(1300));
    }

    #[test]
    fn error_names_the_wrong_line() {
        assert_eq!(parse("samples 1").unwrap_err(), "line 1: samples must be from 2 to 1022");
        assert!(parse("hello world").unwrap_err().starts_with("line 1: \"hello\" is none of name"));
        assert_eq!(parse("name a\nname b").unwrap_err(), "line 2: name is said twice");
        assert_eq!(parse("delay prob\n1 0\n2 0.5\n").unwrap_err(), "the last point's probability must be 1");
        assert_eq!(parse("delay prob\n5 0\n2 1\n").unwrap_err(), "the delay must rise with the probability");
        assert_eq!(parse("bw 10Mbit/s\ndelay prob\n1 0\n2 1\n").unwrap().rate_bps, Some(10_000_000));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "((name|bw|loss-level|samples|delay prob|prob delay|[0-9.]{1,4})[ ][0-9.a-z]{1,5}\n){0,12}", any in ".{0,100}") {
            for text in [text, any] {
                if let Ok(read) = parse(&text) {
                    prop_assert!(read.profile.samples.is_sorted());
                }
            }
        }
    }
}
