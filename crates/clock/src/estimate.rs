//! What is known of the remote clock: straight lines, steps between them, and findings.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Time};

use crate::Limits;

/// The remote clock against ours over a stretch of its time: `offset(t) = offset_ns + skew_ppb / 1e9 * (t - reference)`,
/// the remote clock minus ours. `ours = t - offset(t)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Where it begins, on the remote clock.
    pub from: Time,
    /// Where it ends, on the remote clock.
    pub to: Time,
    /// Where `offset_ns` holds, on the remote clock.
    pub reference: Time,
    /// By how much the remote clock is ahead of ours at `reference`.
    pub offset_ns: f64,
    /// By how many billionths it runs faster.
    pub skew_ppb: f64,
    /// By how much the true offset can differ anywhere on the line. Always holds, within [`Limits`].
    pub bound_ns: f64,
    /// By how much it differs 95 % of the time, where the least delays of both directions differ within [`Limits`]. A mean
    /// over the line; it is less at `reference` and more at the ends.
    pub error95_ns: f64,
    /// The part of that which grows with the distance from `reference`.
    pub skew95_ppb: f64,
    /// By how much the true skew can differ at the line's ends: how fast the bound grows beyond them.
    pub skew_bound_ppb: f64,
    /// How many exchanges it rests on; 0 for one that bridges the time in which a step came.
    pub exchanges: u64,
}

/// How fast a skew drifts in 95 % of the cases, as of a crystal that warms up: how the error grows beyond a line.
const DRIFT95_PPM_PER_S: f64 = 0.02;

/// A time of the remote clock on ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Converted {
    /// On our clock.
    pub ours: Time,
    /// By how much that can be wrong.
    pub bound_ns: f64,
    /// By how much it is wrong in 5 % of the cases at most, where the least delays of both directions differ within [`Limits`].
    pub error95_ns: f64,
}

/// The remote clock was set, or ours was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Not before, on the remote clock.
    pub after: Time,
    /// Not after, on the remote clock.
    pub before: Time,
    /// By how much the remote clock jumped against ours.
    pub by_ns: f64,
}

/// What makes an estimate doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Too little is known of the remote clock.
    ClockUnsynchronised,
    /// A clock was set while exchanges went on.
    ClockStepped,
    /// A clock's rate changed faster than the limits allow: the maximum error may not hold.
    ClockSlewed,
    /// The directions differ, as far as that can be seen: the 95 % error does not hold.
    ClockAsymmetric,
}

/// A finding with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// What.
    pub finding: Finding,
    /// Why, for a person.
    pub sentence: String,
}

/// All that exchanges tell of a remote clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Whether both ends share one clock: the offset is then 0, exactly.
    pub is_shared: bool,
    /// Lines in order of time; each begins where the one before ends.
    pub lines: Vec<Line>,
    /// Steps in order of time.
    pub steps: Vec<Step>,
    /// What makes it doubtful.
    pub findings: Vec<Found>,
    /// How many exchanges it rests on.
    pub exchanges: u64,
    /// The least round trip.
    pub round_trip_min: Nanos,
    /// What was taken for granted.
    pub limits: Limits,
}

impl Finding {
    /// Returns the name that records and reports carry.
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
    /// Returns by how much the remote clock is ahead at a time of its own.
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

    /// Converts a time of the remote clock to ours. Outside all lines the bound and the error grow. Where a clock was set back
    /// the remote host lived through some times twice: the later is meant, and the bound reaches to the earlier.
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

    /// Returns the line that holds at a time of the remote clock, the later of several, or the nearest.
    pub fn line_at(&self, remote: Time) -> Option<&Line> {
        if self.steps.is_empty() {
            let after = self.lines.partition_point(|line| line.to < remote);
            return self.lines.get(after).or(self.lines.last());
        }
        self.lines.iter().rev().min_by_key(|line| line.away_from(remote))
    }
}

impl Converted {
    /// Widens this to where another conversion of the same time may be.
    fn or(self, other: Self) -> Self {
        if (self.ours, self.bound_ns) == (other.ours, other.bound_ns) {
            return self;
        }
        let bound_ns = self.bound_ns.max((self.ours - other.ours).0.unsigned_abs() as f64 + other.bound_ns);
        // Of neighbours that share an end both hold there.
        let is_near = (self.ours - other.ours).0.unsigned_abs() as f64 <= self.bound_ns + other.bound_ns;
        Self { bound_ns, error95_ns: if is_near { self.error95_ns } else { bound_ns }, ..self }
    }
}

impl Line {
    /// Returns by how much the line is wrong at a time of the remote clock in 5 % of the cases.
    pub fn error95_at(&self, remote: Time) -> f64 {
        let slope = self.skew95_ppb * 1e-9;
        let half = (self.to - self.from).0 as f64 / 2.0;
        let at_reference = (self.error95_ns.powi(2) - (slope * half).powi(2) / 3.0).max(0.0);
        let drift = DRIFT95_PPM_PER_S * 1e-15 * (self.away_from(remote).0 as f64).powi(2) / 2.0;
        let turned = (slope * (remote - self.reference).0 as f64).powi(2);
        let scale = student(self.degrees_of_both(at_reference, turned)) / student(self.degrees());
        (at_reference + turned).sqrt() * scale + drift
    }

    /// Of how many degrees of freedom offset and skew each are: groups of exchanges less one.
    fn degrees(&self) -> f64 {
        groups(self.exchanges) as f64 - 1.0
    }

    /// Of how many the sum of two such errors is, given their squares: the formula of Welch and Satterthwaite (GUM, G.4.1).
    fn degrees_of_both(&self, a: f64, b: f64) -> f64 {
        let squares = a.powi(2) + b.powi(2);
        if squares > 0.0 { self.degrees() * (a + b).powi(2) / squares } else { self.degrees() }
    }

    fn convert(&self, remote: Time, limits: Limits) -> Converted {
        let bound_ns = self.bound_ns + limits.beyond_ns(self.skew_bound_ppb, self.away_from(remote).0 as f64);
        let ours = remote - Nanos(self.offset_at(remote).round() as i64);
        // Where nothing but the bound is known, nothing but the bound grows.
        let error95_ns = if self.error95_ns < self.bound_ns { self.error95_at(remote) } else { bound_ns };
        Converted { ours, bound_ns, error95_ns: error95_ns.min(bound_ns) }
    }

    fn holds_at(&self, remote: Time) -> bool {
        self.away_from(remote) == Nanos::ZERO
    }

    /// How far a time is from where the line holds.
    fn away_from(&self, remote: Time) -> Nanos {
        (self.from - remote).max(remote - self.to).max(Nanos::ZERO)
    }
}

/// Returns how many groups so many exchanges make: 3 to 6, of 8 and more where there are enough. Of 4 in each of 6
/// groups, Student's t holds only 91 % of the slopes' errors (`tests/truth.rs` has the simulation).
pub(crate) fn groups(exchanges: u64) -> usize {
    (exchanges / 8).clamp(3, 6) as usize
}

/// Student's t at 97.5 %, by 1 / degrees of freedom, from 10 down to 2: between these it is a straight line to 1 %.
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
