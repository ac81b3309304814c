//! Computes an estimate from exchanges.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Time};

use crate::doubt::{findings, longer_ns};
use crate::exchange::unsteady_ns;
use crate::fit::{Fit, fits};
use crate::piece::Piece;
use crate::steps::cuts;
use crate::{Estimate, Exchange, Line, Step};

/// Number of points on a segment at which the maximum error is computed; the drift's limit covers the points between.
const KNOTS: usize = 5;

/// Effect of rounding timestamps to whole nanoseconds, and of rounding in these computations.
const ROUNDING_NS: f64 = 1.0;

/// Ratio of the possible asymmetry to the observed one, because minimum delays are rarely reached.
const ASYMMETRY_SHOWS: f64 = 1.5;

/// The assumptions about two clocks between steps. The maximum error holds within these limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum skew between the clocks, in ppm: two crystals of 100 ppm each.
    pub skew_ppm: f64,
    /// Maximum drift: the change of the skew in ppm per second, as by temperature.
    pub drift_ppm_per_s: f64,
    /// Additional skew in ppm, at any moment and without notice, while a clock is slewed: adjtime(3) and ntp_adjtime(2)
    /// slew a clock by at most 500 ppm. 0 if neither clock is disciplined.
    pub slew_ppm: f64,
    /// The 95 % limit on the offset error caused by unequal minimum delays, as a share of the maximum error (without
    /// the part for slews). It is part of the 95 % error; 0 if the minimum delays are known to be equal.
    pub asymmetry_share: f64,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsynchronised {
    /// Too few exchanges were completed.
    #[error("{0} exchanges were completed; an offset needs 2 at least")]
    TooFew(u64),
}

/// Collects exchanges and estimates the remote clock from them.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    limits: Limits,
    exchanges: Vec<Exchange>,
    contradictory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { skew_ppm: 200.0, drift_ppm_per_s: 0.5, slew_ppm: 500.0, asymmetry_share: 0.2 }
    }
}

impl Limits {
    /// Returns how far the offset can deviate from a segment `beyond` ns after its end, if its skew may be wrong by `skew_ppb`.
    pub fn beyond_ns(&self, skew_ppb: f64, beyond: f64) -> f64 {
        let free = skew_ppb * 1e-9 * beyond + self.drift_ppm_per_s * 1e-15 * beyond * beyond / 2.0;
        free.min((2.0 * self.skew_ppm * 1e-6).max(skew_ppb * 1e-9) * beyond)
    }

    /// Returns the maximum rate of change of the offset, per time of the remote clock, while one of the clocks is slewed.
    fn slewed_slope(&self) -> f64 {
        let against_ours = (self.skew_ppm + self.slew_ppm) * 1e-6;
        against_ours / (1.0 - against_ours)
    }

    /// Returns how far the offset can deviate from a straight line between two times `apart` ns apart at which it is known.
    fn bulge_ns(&self, apart: f64) -> f64 {
        self.drift_ppm_per_s * 1e-15 * apart * apart / 8.0
    }
}

impl Estimator {
    /// Creates an estimator without exchanges.
    pub fn new(limits: Limits) -> Self {
        Self { limits, exchanges: Vec::new(), contradictory: 0 }
    }

    /// Adds an exchange; call it in the order in which exchanges began. An exchange with contradictory times (a clock
    /// was set within it) is ignored and counted.
    pub fn push(&mut self, exchange: Exchange) {
        let is_possible =
            exchange.t4 >= exchange.t1 && exchange.t3 >= exchange.t2 && exchange.round_trip() >= Nanos::ZERO;
        if is_possible {
            self.exchanges.push(exchange);
        } else {
            self.contradictory += 1;
        }
    }

    /// Discards exchanges that began before a time of our clock.
    pub fn discard_before(&mut self, ours: Time) {
        self.exchanges.retain(|exchange| exchange.t1 >= ours);
    }

    /// Discards the oldest exchanges.
    pub fn discard_oldest(&mut self, count: usize) {
        self.exchanges.drain(..count.min(self.exchanges.len()));
    }

    /// Returns the estimate from the oldest exchanges alone.
    ///
    /// # Errors
    /// If there are too few exchanges.
    pub fn estimate_oldest(&self, count: usize) -> Result<Estimate, Unsynchronised> {
        let exchanges = self.exchanges[..count.min(self.exchanges.len())].to_vec();
        Self { limits: self.limits, exchanges, contradictory: 0 }.estimate()
    }

    /// Returns the stored exchanges.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Returns the estimate from all exchanges so far.
    ///
    /// # Errors
    /// If there are too few exchanges.
    pub fn estimate(&self) -> Result<Estimate, Unsynchronised> {
        let Some(round_trip_min) = self.round_trip_min().filter(|_| self.exchanges.len() >= 2) else {
            return Err(Unsynchronised::TooFew(self.exchanges.len() as u64));
        };
        let pieces = self.pieces();
        let mut lines: Vec<Line> = Vec::new();
        let mut steps = Vec::new();
        let (mut all_fits, mut is_within_limits) = (Vec::new(), true);
        for piece in &pieces {
            let fits = fits(piece, self.limits);
            let next = self.lines(piece, &fits, &mut is_within_limits);
            if let (Some(before), Some(after)) = (lines.last().copied(), next.first()) {
                steps.push(step(&before, after));
                lines.extend(self.bridge(&before, after));
            }
            lines.extend(next);
            all_fits.push(fits);
        }
        let (findings, asymmetry) =
            findings(&all_fits, &steps, self.contradictory, is_within_limits, unsteady_ns(&self.exchanges));
        for line in &mut lines {
            line.error95_ns = (line.error95_ns + ASYMMETRY_SHOWS * asymmetry).min(line.bound_ns);
        }
        let exchanges = self.exchanges.len() as u64;
        Ok(Estimate { is_shared: false, lines, steps, findings, exchanges, round_trip_min, limits: self.limits })
    }

    /// Returns the minimum round-trip time.
    pub fn round_trip_min(&self) -> Option<Nanos> {
        self.exchanges.iter().map(Exchange::round_trip).min()
    }

    /// Returns the assumed limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Cuts the exchanges at steps. The exchange on either side of a cut may have been in progress when the clock was
    /// set: it is ignored if others remain.
    fn pieces(&self) -> Vec<Piece> {
        let cuts = cuts(&self.exchanges, self.limits);
        let last = self.exchanges.len();
        let begins = std::iter::once(0).chain(cuts.iter().map(|cut| cut.1));
        let ends = cuts.iter().map(|cut| cut.0).chain([last]);
        let stretch = |(mut from, mut to): (usize, usize)| {
            from += usize::from(from > 0 && to > from + 2);
            to -= usize::from(to < last && to > from + 2);
            Piece::new(self.exchanges.get(from..to)?)
        };
        begins.zip(ends).filter_map(stretch).collect()
    }

    fn lines(&self, piece: &Piece, fits: &[Fit], is_within_limits: &mut bool) -> Vec<Line> {
        let edge = |index: usize| match (index.checked_sub(1).map(|before| fits[before].centre), fits.get(index)) {
            (None, _) => piece.begin(),
            (Some(_), None) => piece.end(),
            (Some(before), Some(next)) => f64::midpoint(before, next.centre),
        };
        let line = |(index, fit): (usize, &Fit)| {
            let neighbours = (fits[index.saturating_sub(1)].range.0, fits[(index + 1).min(fits.len() - 1)].range.1);
            let bound = self.bound(piece, (fit, neighbours), (edge(index), edge(index + 1)));
            *is_within_limits &= bound.is_within_limits;
            let asymmetry = self.limits.asymmetry_share * (bound.ns + ROUNDING_NS);
            let slewed = self.slewed(bound, piece, (fit, neighbours), (edge(index), edge(index + 1)));
            let line = line(piece, fit, (edge(index), edge(index + 1)), &slewed, asymmetry);
            Line { error95_ns: (line.error95_ns + longer_ns(fit, fits)).min(line.bound_ns), ..line }
        };
        fits.iter().enumerate().map(line).collect()
    }

    /// Computes the maximum error along a segment, from its exchanges and those of its neighbours.
    fn bound(&self, piece: &Piece, (fit, range): (&Fit, (usize, usize)), (from, to): (f64, f64)) -> Bound {
        let mut bound = Bound { ns: 0.0, slope: 0.0, is_within_limits: true };
        for knot in 0..KNOTS {
            let x = from + (to - from) * knot as f64 / (KNOTS - 1) as f64;
            let (region, is_within) = piece.region(range, x, self.limits);
            let line = fit.offset + fit.slope * (x - fit.centre);
            bound.ns = bound.ns.max(region.high - line).max(line - region.low);
            if knot == 0 || knot == KNOTS - 1 {
                bound.slope = bound.slope.max(region.slope_high - fit.slope).max(fit.slope - region.slope_low);
            }
            bound.is_within_limits &= is_within;
        }
        bound.ns += self.limits.bulge_ns((to - from) / (KNOTS - 1) as f64);
        bound
    }

    /// Extends a maximum error to slews that begin and end between exchanges: no straight line follows such a slew, and
    /// the exchanges before and after it do not contradict it.
    fn slewed(&self, bound: Bound, piece: &Piece, (fit, range): (&Fit, (usize, usize)), span: (f64, f64)) -> Bound {
        if self.limits.slew_ppm <= 0.0 {
            return bound;
        }
        let steepest = self.limits.slewed_slope();
        let ns = bound.ns.max(piece.farthest(range, (fit.offset, fit.slope, fit.centre), span, steepest));
        Bound { ns, slope: bound.slope.max(steepest + fit.slope.abs()), ..bound }
    }

    /// Makes segments for the time of a step: the offset is either the earlier or the later one. If the remote clock
    /// was set back, some of its times occur twice: both segments are extended over them.
    fn bridge(&self, before: &Line, after: &Line) -> Vec<Line> {
        let (from, to) = (before.to, after.from);
        if to > from {
            return vec![self.between(before, after)];
        }
        let left = |line: &Line, at: Time| at - Nanos(line.offset_at(at).round() as i64);
        let gap = (left(after, to) - left(before, from)).max(Nanos::ZERO);
        let on = |line: &Line, from: Time, to: Time| {
            let bound_ns = line.bound_ns + self.limits.beyond_ns(line.skew_bound_ppb, gap.0 as f64);
            Line { from, to, bound_ns, error95_ns: bound_ns, exchanges: 0, ..*line }
        };
        vec![on(before, from, from + gap), on(after, to - gap, to)]
    }

    fn between(&self, before: &Line, after: &Line) -> Line {
        let (from, to) = (before.to, after.from);
        let reach = |line: &Line| {
            let grown = self.limits.beyond_ns(line.skew_bound_ppb, (to - from).0 as f64);
            let (a, b) = (line.offset_at(from), line.offset_at(to));
            (a.min(b) - line.bound_ns - grown, a.max(b) + line.bound_ns + grown)
        };
        let (low, high) = (reach(before).0.min(reach(after).0), reach(before).1.max(reach(after).1));
        let bound_ns = (high - low) / 2.0;
        Line {
            from,
            to,
            reference: from + Nanos((to - from).0 / 2),
            offset_ns: f64::midpoint(low, high),
            skew_ppb: 0.0,
            bound_ns,
            error95_ns: bound_ns,
            skew95_ppb: self.limits.slewed_slope() * 1e9,
            skew_bound_ppb: self.limits.slewed_slope() * 1e9,
            exchanges: 0,
        }
    }
}

/// The maximum errors of a segment.
struct Bound {
    ns: f64,
    slope: f64,
    is_within_limits: bool,
}

fn line(piece: &Piece, fit: &Fit, (from, to): (f64, f64), bound: &Bound, asymmetry: f64) -> Line {
    let at = |x: f64| piece.base + Nanos(x.round() as i64);
    let offset_ns = piece.whole(fit.offset);
    let bound_ns = bound.ns + ROUNDING_NS + offset_ns.abs() * f64::EPSILON;
    let half = (to - from) / 2.0;
    // With too few exchanges for a 95 % error, only the maximum error is known, and it holds along the whole segment.
    let error95_ns = fit.errors.map_or(bound_ns, |(error, slope_error)| {
        (error.powi(2) + (slope_error * half).powi(2) / 3.0 + asymmetry.powi(2) + ROUNDING_NS).sqrt()
    });
    Line {
        from: at(from),
        to: at(to),
        reference: at(fit.centre),
        offset_ns,
        skew_ppb: fit.slope * 1e9,
        bound_ns,
        error95_ns: error95_ns.min(bound_ns),
        skew95_ppb: fit.errors.map_or(bound.slope, |errors| errors.1) * 1e9,
        skew_bound_ppb: bound.slope * 1e9,
        exchanges: (fit.range.1 - fit.range.0) as u64,
    }
}

fn step(before: &Line, after: &Line) -> Step {
    let by_ns = after.offset_at(after.from) - before.offset_at(before.to);
    Step { after: before.to, before: after.from, by_ns }
}
