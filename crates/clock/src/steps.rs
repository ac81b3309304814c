//! Where a clock was set: cuts between exchanges.
//!
//! A large step contradicts what came before within the skew's limit; it cannot be missed. A small one, within the round
//! trip, moves the limits from both directions by the same, at once; it is found where that is beyond what they do else.

use crate::{Exchange, Limits};

/// How many exchanges at either side of a cut are compared.
const WIDTH: usize = 12;

/// Small steps are told from chance where both limits move by so many times their usual moves.
const BEYOND_CHANCE: f64 = 10.0;

/// What stamps may be rounded by.
const ROUNDING_NS: f64 = 2.0;

/// Returns where to cut: each is the index of the first exchange after a step.
pub(crate) fn cuts(exchanges: &[Exchange], limits: Limits) -> Vec<usize> {
    let mut cuts = large(exchanges, limits);
    let ends: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).chain([exchanges.len()]).collect();
    for pair in ends.windows(2) {
        small(exchanges, (pair[0], pair[1]), limits, &mut cuts);
    }
    cuts.sort_unstable();
    cuts
}

/// Cuts where an exchange contradicts those before it.
fn large(exchanges: &[Exchange], limits: Limits) -> Vec<usize> {
    let mut cuts = Vec::new();
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for (index, exchange) in exchanges.iter().enumerate() {
        let spread = index.checked_sub(1).map_or(0.0, |before| steepest(&exchanges[before], exchange, limits));
        (low, high) = (low - spread, high + spread);
        let (least, most) = (exchange.least().0 as f64, exchange.most().0 as f64);
        if least > high + ROUNDING_NS || most < low - ROUNDING_NS {
            cuts.push(index);
            (low, high) = (least, most);
        }
        (low, high) = (low.max(least), high.min(most));
    }
    cuts
}

/// How far the offset can move from one exchange to the next, by whichever clock was not set.
fn steepest(before: &Exchange, after: &Exchange, limits: Limits) -> f64 {
    let ours = (after.t4 - before.t1).0.abs();
    let theirs = (after.t3 - before.t2).0.abs();
    limits.skew_ppm * 1e-6 * ours.min(theirs) as f64
}

/// Moves of both limits from the exchanges before an index to those from it on.
#[derive(Clone, Copy)]
struct Move {
    most: f64,
    least: f64,
}

impl Move {
    /// By how much both moved, the same way; 0 where they did not.
    fn common(self) -> f64 {
        let is_common = self.most.signum() == self.least.signum();
        if is_common { self.most.signum() * self.most.abs().min(self.least.abs()) } else { 0.0 }
    }

    fn differ(self) -> f64 {
        (self.most - self.least).abs()
    }
}

/// Cuts a stretch without large steps where a small one shows, and then what is left and right of it.
fn small(exchanges: &[Exchange], (from, to): (usize, usize), limits: Limits, cuts: &mut Vec<usize>) {
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
    let is_step = |index: usize| {
        let seen = centred(index);
        let floor = BEYOND_CHANCE * chance + drift(stretch, index, limits) + ROUNDING_NS;
        seen.common().abs() > floor && seen.differ() < 0.25 * seen.common().abs() + 4.0 * chance
    };
    let found = inner.filter(|index| is_step(*index));
    let score = |index: usize| centred(index).common().abs() - centred(index).differ();
    let Some(best) = found.max_by(|a, b| score(*a).total_cmp(&score(*b))) else { return };
    if !lasts(stretch, best, centred(best).common(), usual[0].0) {
        return;
    }
    cuts.push(from + best);
    small(exchanges, (from, from + best), limits, cuts);
    small(exchanges, (from + best, to), limits, cuts);
}

/// Tells a step from a short disturbance: what moved has moved for much longer, too.
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

/// How far the drift's limit allows the moves around an index to differ from those elsewhere.
fn drift(stretch: &[Exchange], index: usize, limits: Limits) -> f64 {
    let span = (stretch[index + WIDTH - 1].t1 - stretch[index - WIDTH].t1).0 as f64;
    limits.drift_ppm_per_s * 1e-15 * span * span
}

/// Returns the median and the median distance from it.
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
