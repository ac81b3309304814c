//! The estimate of a remote clock: linear segments, steps between them, and findings.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Time};

use crate::Limits;

/// The offset of the remote clock over an interval: `offset(t) = offset_ns + skew_ppb / 1e9 * (t - reference)`, remote
/// minus ours, for a time `t` of the remote clock. `ours = t - offset(t)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Begin of the segment, on the remote clock.
    pub from: Time,
    /// End of the segment, on the remote clock.
    pub to: Time,
    /// The time at which the offset is `offset_ns`, on the remote clock.
    pub reference: Time,
    /// Offset at `reference`: the remote clock minus ours.
    pub offset_ns: f64,
    /// Skew: how much faster the remote clock runs, in ppb.
    pub skew_ppb: f64,
    /// The maximum error of the offset anywhere on the segment. It always holds, within [`Limits`].
    pub bound_ns: f64,
    /// The 95 % error of the offset, if the minimum delays of both directions differ within [`Limits`]. A root mean
    /// square over the segment; the error is smaller at `reference` and larger at the ends.
    pub error95_ns: f64,
    /// The 95 % error of the skew: its effect grows with the distance from `reference`.
    pub skew95_ppb: f64,
    /// The maximum error of the skew at the segment's ends: how fast the maximum error of the offset grows beyond them.
    pub skew_bound_ppb: f64,
    /// Number of exchanges it is based on; 0 for a segment that bridges the time of a step.
    pub exchanges: u64,
}

/// Drift of a skew that is not exceeded in 95 % of cases, as of a crystal that warms up: the 95 % error grows by it beyond a segment.
const DRIFT95_PPM_PER_S: f64 = 0.02;

/// A time of the remote clock, converted to ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Converted {
    /// On our clock.
    pub ours: Time,
    /// The maximum error.
    pub bound_ns: f64,
    /// The 95 % error, if the minimum delays of both directions differ within [`Limits`].
    pub error95_ns: f64,
}

/// A step: the remote clock was set, or ours was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Earliest time of the step, on the remote clock.
    pub after: Time,
    /// Latest time of the step, on the remote clock.
    pub before: Time,
    /// The change of the offset.
    pub by_ns: f64,
}

/// A reason to doubt an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Too little is known about the remote clock.
    ClockUnsynchronised,
    /// A clock was set while exchanges took place.
    ClockStepped,
    /// A clock's rate changed faster than the limits allow: the maximum error may not hold.
    ClockSlewed,
    /// The delays of the directions differ, as far as exchanges show it: the 95 % error does not hold.
    ClockAsymmetric,
}

/// A finding with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The finding.
    pub finding: Finding,
    /// The explanation for users.
    pub sentence: String,
}

/// The estimate of a remote clock from exchanges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Whether both ends share one clock: the offset is then exactly 0.
    pub is_shared: bool,
    /// Segments in order of time; each begins where the one before ends, except where a clock was set back.
    pub lines: Vec<Line>,
    /// Steps in order of time.
    pub steps: Vec<Step>,
    /// Findings.
    pub findings: Vec<Found>,
    /// Number of exchanges it is based on.
    pub exchanges: u64,
    /// The minimum round-trip time.
    pub round_trip_min: Nanos,
    /// The assumed limits.
    pub limits: Limits,
}

impl Finding {
    /// Returns the name that records and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockUnsynchronised => "clock_unsynchronised",
            Self::ClockStepped => "clock_stepped",
            Self::ClockSlewed => "clock_slewed",
            Self::ClockAsymmetric => "clock_asymmetric",
        }
    }
}

impl Line {
    /// Returns the offset at a time of the remote clock.
    pub fn offset_at(&self, remote: Time) -> f64 {
        self.offset_ns + self.skew_ppb * 1e-9 * (remote - self.reference).0 as f64
    }
}

impl Estimate {
    /// Returns the estimate for two ends that share one clock.
    pub fn shared(exchanges: u64, round_trip_min: Nanos, limits: Limits) -> Self {
        let (lines, steps, findings) = Default::default();
        Self { is_shared: true, lines, steps, findings, exchanges, round_trip_min, limits }
    }

    /// Converts a time of the remote clock to ours. Outside all segments both errors grow. After a clock was set back,
    /// some times of the remote clock occurred twice: the later occurrence is meant, and the maximum error extends to
    /// the earlier one.
    pub fn convert(&self, remote: Time) -> Converted {
        let Some(line) = self.line_at(remote) else {
            return Converted { ours: remote, bound_ns: 0.0, error95_ns: 0.0 };
        };
        let converted = line.convert(remote, self.limits);
        if self.steps.is_empty() {
            return converted;
        }
        let others = self.lines.iter().filter(|other| *other != line && other.holds_at(remote));
        others.fold(converted, |converted, other| converted.or(other.convert(remote, self.limits)))
    }

    /// Returns the segment for a time of the remote clock: the latest of several, or the nearest.
    pub fn line_at(&self, remote: Time) -> Option<&Line> {
        if self.steps.is_empty() {
            let after = self.lines.partition_point(|line| line.to < remote);
            return self.lines.get(after).or(self.lines.last());
        }
        self.lines.iter().rev().min_by_key(|line| line.away_from(remote))
    }
}

impl Converted {
    /// Extends the errors to another conversion of the same time.
    fn or(self, other: Self) -> Self {
        if (self.ours, self.bound_ns) == (other.ours, other.bound_ns) {
            return self;
        }
        let bound_ns = self.bound_ns.max((self.ours - other.ours).0.unsigned_abs() as f64 + other.bound_ns);
        // Neighbouring segments both hold at their common end.
        let is_near = (self.ours - other.ours).0.unsigned_abs() as f64 <= self.bound_ns + other.bound_ns;
        Self { bound_ns, error95_ns: if is_near { self.error95_ns } else { bound_ns }, ..self }
    }
}

impl Line {
    /// Returns the 95 % error at a time of the remote clock.
    pub fn error95_at(&self, remote: Time) -> f64 {
        let slope = self.skew95_ppb * 1e-9;
        let half = (self.to - self.from).0 as f64 / 2.0;
        let at_reference = (self.error95_ns.powi(2) - (slope * half).powi(2) / 3.0).max(0.0);
        let drift = DRIFT95_PPM_PER_S * 1e-15 * (self.away_from(remote).0 as f64).powi(2) / 2.0;
        let turned = (slope * (remote - self.reference).0 as f64).powi(2);
        let scale = student(self.degrees_of_both(at_reference, turned)) / student(self.degrees());
        (at_reference + turned).sqrt() * scale + drift
    }

    /// Returns the degrees of freedom of offset and skew: the number of groups minus one.
    fn degrees(&self) -> f64 {
        groups(self.exchanges) as f64 - 1.0
    }

    /// Returns the effective degrees of freedom of the sum of two such errors, from their squares (Welch–Satterthwaite, GUM G.4.1).
    fn degrees_of_both(&self, a: f64, b: f64) -> f64 {
        let squares = a.powi(2) + b.powi(2);
        if squares > 0.0 { self.degrees() * (a + b).powi(2) / squares } else { self.degrees() }
    }

    fn convert(&self, remote: Time, limits: Limits) -> Converted {
        let bound_ns = self.bound_ns + limits.beyond_ns(self.skew_bound_ppb, self.away_from(remote).0 as f64);
        let ours = remote - Nanos(self.offset_at(remote).round() as i64);
        // If only the maximum error is known, both are the same.
        let error95_ns = if self.error95_ns < self.bound_ns { self.error95_at(remote) } else { bound_ns };
        Converted { ours, bound_ns, error95_ns: error95_ns.min(bound_ns) }
    }

    fn holds_at(&self, remote: Time) -> bool {
        self.away_from(remote) == Nanos::ZERO
    }

    /// Returns the distance of a time from the segment.
    fn away_from(&self, remote: Time) -> Nanos {
        (self.from - remote).max(remote - self.to).max(Nanos::ZERO)
    }
}

/// Returns the number of groups for a number of exchanges: 3 to 6, of 8 or more exchanges if there are enough. With 6
/// groups of 4, Student's t covers only 91 % of the slopes' errors (`tests/truth.rs` has the simulation).
pub(crate) fn groups(exchanges: u64) -> usize {
    (exchanges / 8).clamp(3, 6) as usize
}

/// Student's t at 97.5 % over 1 / degrees of freedom, for 10 down to 2 degrees; linear interpolation is accurate to 1 %.
const STUDENT: [(f64, f64); 7] = [
    (0.1, 2.2281),
    (1.0 / 7.0, 2.3646),
    (0.2, 2.5706),
    (0.25, 2.7764),
    (1.0 / 3.0, 3.1824),
    (0.4, 3.5747),
    (0.5, 4.3027),
];

/// Returns Student's t at 97.5 %.
pub(crate) fn student(degrees: f64) -> f64 {
    let at = (1.0 / degrees).clamp(STUDENT[0].0, STUDENT[6].0);
    let above = STUDENT.partition_point(|(share, _)| *share < at).clamp(1, 6);
    let ((a, low), (b, high)) = (STUDENT[above - 1], STUDENT[above]);
    low + (high - low) * (at - a) / (b - a)
}
