//! A stretch of exchanges without a step, as limits on the offset relative to a base, and the maximum error within it.

use sojourn_time::{Nanos, Time};

use crate::hull::{Between, Channel, Point, Region};
use crate::{Exchange, Limits};

/// Limits on the offset, in order of the remote clock's time.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The time at which x is 0.
    pub base: Time,
    /// Subtracted from each offset, so that small differences stay exact.
    offset: Nanos,
    /// Upper limits of the offset, from requests.
    most: Vec<Point>,
    /// Lower limits of the offset, from replies.
    least: Vec<Point>,
}

impl Piece {
    /// Makes a piece from exchanges; `None` if there are none.
    pub fn new(exchanges: &[Exchange]) -> Option<Self> {
        let first = exchanges.first()?;
        let (base, offset) = (first.t2, first.most());
        let point = |at: Time, limit: Nanos| ((at - base).0 as f64, (limit - offset).0 as f64);
        let mut most: Vec<Point> = exchanges.iter().map(|exchange| point(exchange.t2, exchange.most())).collect();
        let mut least: Vec<Point> = exchanges.iter().map(|exchange| point(exchange.t3, exchange.least())).collect();
        most.sort_by(|a, b| a.0.total_cmp(&b.0));
        least.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(Self { base, offset, most, least })
    }

    /// Returns the number of exchanges.
    pub fn len(&self) -> usize {
        self.most.len()
    }

    /// Returns where it begins.
    pub fn begin(&self) -> f64 {
        self.most.first().map_or(0.0, |point| point.0)
    }

    /// Returns where it ends.
    pub fn end(&self) -> f64 {
        self.least.last().map_or(0.0, |point| point.0)
    }

    /// Returns the index of the first exchange from `x` on.
    pub fn index(&self, x: f64) -> usize {
        self.most.partition_point(|point| point.0 < x)
    }

    /// Converts a relative offset to an absolute one.
    pub fn whole(&self, offset: f64) -> f64 {
        self.offset.0 as f64 + offset
    }

    /// Returns the channel through every `stride`-th exchange of a range; values at 0 are values at `x`.
    pub fn channel(&self, range: (usize, usize), (first, stride): (usize, usize), x: f64, limits: Limits) -> Channel {
        let of = |points: &'_ [Point]| -> Vec<Point> {
            let chosen = points[range.0..range.1].iter().skip(first).step_by(stride);
            chosen.map(|point| (point.0 - x, point.1)).collect()
        };
        Between::new(of(&self.most).into_iter(), of(&self.least).into_iter()).channel(limits.skew_ppm * 1e-6)
    }

    /// Returns the distance from its line of a channel within which a tenth of each direction's limits (at least 4) lie.
    pub fn excess(&self, range: (usize, usize), x: f64, channel: Channel) -> (f64, f64) {
        let nearest = |points: &[Point], height: f64, sign: f64| {
            let above = |point: &Point| sign * (point.1 - height - channel.slope * (point.0 - x));
            let mut above: Vec<f64> = points[range.0..range.1].iter().map(above).collect();
            let rank = near_the_floor(above.len());
            *above.select_nth_unstable_by(rank, f64::total_cmp).1
        };
        (nearest(&self.most, channel.top, 1.0), nearest(&self.least, channel.bottom, -1.0))
    }

    /// Returns the offsets at `x`, and the skews there, that are consistent with all exchanges of a range.
    ///
    /// Around `x` the offset deviates from a straight line by at most half the drift times the distance squared
    /// (Taylor); each limit is relaxed by that, so any offset within `limits` is in the region. If the exchanges
    /// contradict `limits`, returns the region by the skew's limit alone, and `false`.
    pub fn region(&self, range: (usize, usize), x: f64, limits: Limits) -> (Region, bool) {
        let steepest = limits.skew_ppm * 1e-6;
        let bend = limits.drift_ppm_per_s * 1e-15 / 2.0;
        let loosened = |points: &[Point], sign: f64| -> Vec<Point> {
            let loosen = |point: &Point| (point.0 - x, point.1 + sign * bend * (point.0 - x).powi(2));
            points[range.0..range.1].iter().map(loosen).collect()
        };
        let (most, least) = (loosened(&self.most, 1.0), loosened(&self.least, -1.0));
        match Between::new(most.into_iter(), least.into_iter()).region(steepest) {
            Some(region) => (region, true),
            None => (self.cone(range, x, steepest), false),
        }
    }

    /// Returns the maximum distance of the offset from a line (given by offset, slope and centre) between two times, if
    /// the offset changes at a rate of at most `steepest` and is otherwise unknown.
    pub fn farthest(
        &self,
        range: (usize, usize),
        (offset, slope, centre): (f64, f64, f64),
        span: (f64, f64),
        steepest: f64,
    ) -> f64 {
        let beyond = |points: &[Point], sign: f64| {
            let distance = |point: &Point| (point.0, sign * (point.1 - offset - slope * (point.0 - centre)));
            let distances: Vec<Point> = points[range.0..range.1].iter().map(distance).collect();
            // Going right, the limit departs from the line by the first rate; going left, by the second.
            highest(distances, span, (steepest - sign * slope, steepest + sign * slope))
        };
        beyond(&self.most, 1.0).max(beyond(&self.least, -1.0))
    }

    fn cone(&self, range: (usize, usize), x: f64, steepest: f64) -> Region {
        let spread = |point: &Point| steepest * (point.0 - x).abs();
        let most = self.most[range.0..range.1].iter().map(|point| point.1 + spread(point));
        let least = self.least[range.0..range.1].iter().map(|point| point.1 - spread(point));
        let (high, low) = (most.fold(f64::INFINITY, f64::min), least.fold(f64::NEG_INFINITY, f64::max));
        Region { low: low.min(high), high: high.max(low), slope_low: -steepest, slope_high: steepest }
    }
}

/// Returns the maximum, between two times, of a function that lies at or below all points (given in order of time) and
/// rises at limited rates to the right and to the left.
fn highest(mut points: Vec<Point>, (from, to): (f64, f64), (right, left): (f64, f64)) -> f64 {
    for at in [from, to] {
        points.insert(points.partition_point(|point| point.0 < at), (at, f64::INFINITY));
    }
    for index in 1..points.len() {
        let before = points[index - 1];
        points[index].1 = points[index].1.min(before.1 + right * (points[index].0 - before.0));
    }
    for index in (1..points.len()).rev() {
        let after = points[index];
        points[index - 1].1 = points[index - 1].1.min(after.1 + left * (after.0 - points[index - 1].0));
    }
    let peak = |pair: &[Point]| {
        let (one, other) = (pair[0], pair[1]);
        one.1 + right * (other.1 - one.1 + left * (other.0 - one.0)) / (right + left)
    };
    let is_within = |pair: &&[Point]| pair[0].0 >= from && pair[1].0 <= to;
    let ends = points.iter().filter(|point| point.0 == from || point.0 == to).map(|point| point.1);
    points.windows(2).filter(is_within).map(peak).chain(ends).fold(f64::NEG_INFINITY, f64::max)
}

/// Returns how many of `count` exchanges count as near the minimum delay.
pub(crate) fn near_the_floor(count: usize) -> usize {
    (count / 10).max(4).min(count.saturating_sub(1))
}
