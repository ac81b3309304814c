//! Detects steps of a clock: cuts between exchanges.
//!
//! A large step contradicts earlier exchanges within the limit on skew and is always detected. A small one, within the
//! round trip, shifts the limits of both directions equally and at once; it is detected if the shift exceeds their
//! usual variation.

use crate::exchange::unsteady_ns;
use crate::{Exchange, Limits};

/// Number of exchanges on either side of a cut that are compared.
const WIDTH: usize = 12;

/// Significance limit of small steps: the shift of both limits in units of their usual variation.
const BEYOND_CHANCE: f64 = 10.0;

/// Rounding of timestamps.
const ROUNDING_NS: f64 = 2.0;

/// The place of a step: the exchanges from the first index up to the second (possibly none) may have been made before it or after it.
pub(crate) type Cut = (usize, usize);

/// Returns the cuts, in order.
pub(crate) fn cuts(exchanges: &[Exchange], limits: Limits) -> Vec<Cut> {
    let mut cuts = large(exchanges, limits);
    let begins = std::iter::once(0).chain(cuts.iter().map(|cut| cut.1));
    let ends = cuts.iter().map(|cut| cut.0).chain([exchanges.len()]);
    for stretch in begins.zip(ends).collect::<Vec<_>>() {
        small(exchanges, stretch, limits, &mut cuts);
    }
    cuts.sort_unstable();
    cuts
}

/// Cuts at exchanges that contradict those before; from there, goes back to the first exchange that agrees with those after.
fn large(exchanges: &[Exchange], limits: Limits) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = Vec::new();
    let mut range = Range::ANY;
    for (index, exchange) in exchanges.iter().enumerate() {
        let before = index.checked_sub(1).map_or(exchange, |before| &exchanges[before]);
        if range.narrow(before, exchange, limits) {
            continue;
        }
        let since = cuts.last().map_or(0, |cut| cut.1);
        cuts.push((back(exchanges, (since, index), limits), index));
        range = Range::ANY;
        range.narrow(exchange, exchange, limits);
    }
    cuts
}

/// Returns the index after the last exchange that contradicts those after a step.
fn back(exchanges: &[Exchange], (since, index): (usize, usize), limits: Limits) -> usize {
    let mut range = Range::ANY;
    let until = (index + 4 * WIDTH).min(exchanges.len());
    for at in (index..until).rev() {
        if !range.narrow(&exchanges[(at + 1).min(until - 1)], &exchanges[at], limits) {
            // Another step soon after: the range is unknown beyond it.
            range = Range::ANY;
            range.narrow(&exchanges[at], &exchanges[at], limits);
        }
    }
    let agrees = |at: &usize| range.narrow(&exchanges[at + 1], &exchanges[*at], limits);
    index - (since..index).rev().take_while(agrees).count()
}

/// The range of possible offsets.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// Extends the range from an exchange to its neighbour, earlier or later, and narrows it by the neighbour's limits;
    /// `false` if these contradict it.
    fn narrow(&mut self, known: &Exchange, new: &Exchange, limits: Limits) -> bool {
        let spread = steepest(known, new, limits);
        let (low, high) = (self.low - spread, self.high + spread);
        let (least, most) = (new.least().0 as f64, new.most().0 as f64);
        if least > high + ROUNDING_NS || most < low - ROUNDING_NS {
            return false;
        }
        (self.low, self.high) = (low.max(least), high.min(most));
        true
    }
}

/// Returns how far the offset can change between two exchanges; the shorter of both clocks' intervals counts, as one clock may have been set.
fn steepest(one: &Exchange, other: &Exchange, limits: Limits) -> f64 {
    let ours = (one.t4 - other.t1).0.abs().max((other.t4 - one.t1).0.abs());
    let theirs = (one.t3 - other.t2).0.abs().max((other.t3 - one.t2).0.abs());
    limits.skew_ppm * 1e-6 * ours.min(theirs) as f64
}

/// Shift of both limits from the exchanges before an index to those from it on.
#[derive(Clone, Copy)]
struct Move {
    most: f64,
    least: f64,
}

impl Move {
    /// Returns the shift common to both limits; 0 if they moved in opposite directions.
    fn common(self) -> f64 {
        let is_common = self.most.signum() == self.least.signum();
        if is_common { self.most.signum() * self.most.abs().min(self.least.abs()) } else { 0.0 }
    }

    fn differ(self) -> f64 {
        (self.most - self.least).abs()
    }
}

/// Cuts a stretch without large steps at its most distinct small step, and then does the same on both sides of it.
fn small(exchanges: &[Exchange], (from, to): (usize, usize), limits: Limits, cuts: &mut Vec<Cut>) {
    if to - from < 2 * WIDTH {
        return;
    }
    let stretch = &exchanges[from..to];
    let inner = WIDTH..stretch.len() - WIDTH + 1;
    let moves: Vec<Move> = inner.clone().map(|index| move_at(stretch, index, WIDTH)).collect();
    let usual = [spread(moves.iter().map(|one| one.most)), spread(moves.iter().map(|one| one.least))];
    let centred = |index: usize| {
        let Move { most, least } = moves[index - WIDTH];
        Move { most: most - usual[0].0, least: least - usual[1].0 }
    };
    let chance = usual[0].1.max(usual[1].1);
    let least = ROUNDING_NS + unsteady_ns(stretch);
    let is_step = |index: usize| {
        let seen = centred(index);
        let floor = BEYOND_CHANCE * chance + drift(stretch, index, limits) + least;
        seen.common().abs() > floor && seen.differ() < 0.25 * seen.common().abs() + 4.0 * chance
    };
    let found = inner.filter(|index| is_step(*index));
    let score = |index: usize| centred(index).common().abs() - centred(index).differ();
    let Some(best) = found.max_by(|a, b| score(*a).total_cmp(&score(*b))) else { return };
    if !lasts(stretch, best, centred(best).common(), usual[0].0) {
        return;
    }
    // Positions with nearly the same score are as likely: exchanges between them belong to neither side.
    let nearly = score(best) - 4.0 * chance - 0.1 * centred(best).common().abs();
    let before = (WIDTH..best).rev().take_while(|index| score(*index) >= nearly).count();
    let last = stretch.len() - WIDTH;
    let after = (best + 1..=last).take_while(|index| score(*index) >= nearly).count();
    let cut = (from + best - before, from + best + after);
    cuts.push(cut);
    small(exchanges, (from, cut.0), limits, cuts);
    small(exchanges, (cut.1, to), limits, cuts);
}

/// Distinguishes a step from a short disturbance: the shift must persist over a much longer width.
fn lasts(stretch: &[Exchange], index: usize, by: f64, usual: f64) -> bool {
    let width = (4 * WIDTH).min(index).min(stretch.len() - index);
    let trend = usual * width as f64 / WIDTH as f64;
    let seen = move_at(stretch, index, width);
    let common = Move { most: seen.most - trend, least: seen.least - trend }.common();
    common.signum() == by.signum() && common.abs() > by.abs() / 2.0
}

fn move_at(stretch: &[Exchange], index: usize, width: usize) -> Move {
    let most = |part: &[Exchange]| part.iter().map(|exchange| exchange.most().0).min().unwrap_or_default();
    let least = |part: &[Exchange]| part.iter().map(|exchange| exchange.least().0).max().unwrap_or_default();
    let (before, after) = (&stretch[index - width..index], &stretch[index..index + width]);
    Move { most: (most(after) - most(before)) as f64, least: (least(after) - least(before)) as f64 }
}

/// Returns how much the drift's limit permits shifts around an index to differ from those elsewhere.
fn drift(stretch: &[Exchange], index: usize, limits: Limits) -> f64 {
    let span = (stretch[index + WIDTH - 1].t1 - stretch[index - WIDTH].t1).0 as f64;
    limits.drift_ppm_per_s * 1e-15 * span * span
}

/// Returns the median, and the median absolute deviation from it.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    let centre = median(&mut values);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    (centre, median(&mut distances))
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
