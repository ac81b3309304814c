//! `clock sim`: compares estimates of simulated clocks with the true values.

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_clock::simulate::Truth;
use sojourn_clock::{Estimate, Estimator, Limits};

use super::render::say;
use super::request::ClockSim;
use crate::failure::{NotTrusted, WrongRequest};

/// The maximum number of simulated exchanges.
const MOST_EXCHANGES: u32 = 10_000_000;

/// Estimates simulated clocks, one per seed.
///
/// # Errors
/// If the true parameters are invalid, or too few exchanges are requested.
pub fn run(arguments: &ClockSim) -> anyhow::Result<()> {
    let truth: Truth = serde_json::from_str(&arguments.truth).context("--truth")?;
    let limits: Limits = serde_json::from_str(&arguments.limits).context("--limits")?;
    check(&truth)?;
    let mut total = Total::default();
    for repetition in 0..arguments.repeat {
        let truth = Truth { seed: truth.seed.wrapping_add(u64::from(repetition)), ..truth };
        let (estimate, points) = estimate(&truth, limits, arguments.points)?;
        total.add(&estimate, &points);
        if arguments.repeat == 1 {
            tell(arguments.json, &truth, &estimate, &points)?;
        }
    }
    if arguments.repeat > 1 {
        total.tell(arguments)?;
    }
    Ok(())
}

/// The longest simulated time, about 100 years: a timestamp can represent it.
const LONGEST_NS: i64 = 100 * 366 * 86_400 * 1_000_000_000;

fn check(truth: &Truth) -> anyhow::Result<()> {
    let problem = if truth.count > MOST_EXCHANGES {
        format!("count: expected at most {MOST_EXCHANGES}")
    } else if truth.interval_ns <= 0 {
        "interval_ns: expected more than 0".to_owned()
    } else if truth.interval_ns.saturating_mul(i64::from(truth.count)) > LONGEST_NS {
        "interval_ns and count: expected at most 100 years in all".to_owned()
    } else if truth.offset_ns.abs() > 1e15 || truth.skew_ppm.abs() > 1000.0 {
        "offset_ns and skew_ppm: expected at most 1e15 and 1000".to_owned()
    } else {
        return Ok(());
    };
    Err(WrongRequest(format!("--truth: {problem}")).into())
}

/// The estimate and the true value at one time.
struct Point {
    share: f64,
    truth_ns: f64,
    offset_ns: f64,
    error95_ns: f64,
    bound_ns: f64,
    /// The error of the converted time.
    error_ns: f64,
}

fn estimate(truth: &Truth, limits: Limits, points: u32) -> anyhow::Result<(Estimate, Vec<Point>)> {
    let mut estimator = Estimator::new(limits);
    truth.exchanges().context("--truth")?.into_iter().for_each(|exchange| estimator.push(exchange));
    let estimate = estimator.estimate().map_err(|error| NotTrusted(error.to_string()))?;
    let point = |index: u32| {
        let share = (f64::from(index) + 0.5) / f64::from(points);
        let ours = truth.at(share);
        let remote = truth.remote(ours);
        let converted = estimate.convert(remote);
        Point {
            share,
            truth_ns: truth.offset_at(ours),
            offset_ns: estimate.line_at(remote).map_or(0.0, |line| line.offset_at(remote)),
            error95_ns: converted.error95_ns,
            bound_ns: converted.bound_ns,
            error_ns: (converted.ours - ours).0 as f64,
        }
    };
    let points = (0..points).map(point).collect();
    Ok((estimate, points))
}

impl Point {
    fn is_within_bound(&self) -> bool {
        // Both times are rounded to nanoseconds.
        self.error_ns.abs() <= self.bound_ns + 1.0
    }

    fn is_within_error(&self) -> bool {
        self.error_ns.abs() <= self.error95_ns
    }

    fn json(&self) -> Value {
        json!({
            "share": self.share, "truth_ns": self.truth_ns, "offset_ns": self.offset_ns, "error_ns": self.error_ns,
            "error95_ns": self.error95_ns, "bound_ns": self.bound_ns,
            "within_error95": self.is_within_error(), "within_bound": self.is_within_bound(),
        })
    }
}

fn tell(as_json: bool, truth: &Truth, estimate: &Estimate, points: &[Point]) -> anyhow::Result<()> {
    if as_json {
        let points: Vec<Value> = points.iter().map(Point::json).collect();
        say(&json!({ "event": "simulated", "truth": truth, "estimate": estimate, "points": points }).to_string())?;
        return Ok(());
    }
    say(&format!(
        "{:>7} {:>18} {:>18} {:>11} {:>11} {:>11}",
        "time", "truth us", "offset us", "wrong by us", "95 % +- us", "bound us"
    ))?;
    for point in points {
        say(&format!(
            "{:>6.1}% {:>18.3} {:>18.3} {:>11.3} {:>11.3} {:>11.3}",
            point.share * 100.0,
            point.truth_ns / 1e3,
            point.offset_ns / 1e3,
            point.error_ns / 1e3,
            point.error95_ns / 1e3,
            point.bound_ns / 1e3
        ))?;
    }
    for found in &estimate.findings {
        say(&format!("{}: {}", found.finding.name(), found.sentence))?;
    }
    Ok(())
}

/// The totals over all repetitions.
#[derive(Debug, Default)]
struct Total {
    estimates: u64,
    points: u64,
    beyond_bound: u64,
    within_error: u64,
    wrong_by_ns: f64,
    findings: std::collections::BTreeMap<&'static str, u64>,
}

impl Total {
    fn add(&mut self, estimate: &Estimate, points: &[Point]) {
        self.estimates += 1;
        for point in points {
            self.points += 1;
            self.beyond_bound += u64::from(!point.is_within_bound());
            self.within_error += u64::from(point.is_within_error());
            self.wrong_by_ns += point.error_ns.abs();
        }
        let mut names: Vec<&str> = estimate.findings.iter().map(|found| found.finding.name()).collect();
        names.dedup();
        for name in names {
            *self.findings.entry(name).or_default() += 1;
        }
    }

    fn tell(&self, arguments: &ClockSim) -> anyhow::Result<()> {
        let coverage = self.within_error as f64 / self.points as f64;
        let mean_error_ns = self.wrong_by_ns / self.points as f64;
        if arguments.json {
            say(&json!({
                "event": "repeated", "estimates": self.estimates, "points": self.points,
                "beyond_bound": self.beyond_bound, "within_error95": coverage, "mean_error_ns": mean_error_ns,
                "findings": self.findings,
            })
            .to_string())?;
            return Ok(());
        }
        let findings: Vec<String> = self.findings.iter().map(|(name, count)| format!("{name} {count}")).collect();
        say(&format!(
            "{} estimates, {} times: {} beyond the maximum error, {:.1} % within the 95 % error, {:.3} us wrong on average; \
             findings: {}",
            self.estimates,
            self.points,
            self.beyond_bound,
            coverage * 100.0,
            mean_error_ns / 1e3,
            if findings.is_empty() { "none".to_owned() } else { findings.join(", ") }
        ))?;
        Ok(())
    }
}
