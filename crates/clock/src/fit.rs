//! Straight lines fitted to a piece, with their 95 % error.
//!
//! The exchanges of a segment are assigned to groups in turn; a line is fitted to each group's channel, and the mean of
//! these lines is the estimate. The scatter of the groups' lines gives its error by Student's t, for any distribution
//! of delays above their minimum; a ramp or a burst of load affects all groups alike. The deviation of the channel of
//! all exchanges from that mean shows whether the delays of the directions are distributed differently near their
//! minimum.

use std::ops::Range;

use crate::Limits;
use crate::estimate::{groups, student};
use crate::hull::Channel;
use crate::piece::Piece;

/// The possible lengths of segments, in ns, longest first.
const LENGTHS: [f64; 6] = [30e9, 20e9, 10e9, 5e9, 2e9, 1e9];

/// With fewer exchanges no groups are made.
pub(crate) const LEAST_FOR_GROUPS: usize = 12;

/// Number of scales at which the bend is measured, each half as long as the one before.
const BEND_SCALES: usize = 7;

/// The line fitted to a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// The range of exchanges it is based on.
    pub range: (usize, usize),
    /// The middle of the segment, where `offset` holds.
    pub centre: f64,
    pub offset: f64,
    pub slope: f64,
    /// The 95 % errors of offset and slope, if there were enough exchanges.
    pub errors: Option<(f64, f64)>,
    /// The standard error of `offset`, if there were enough exchanges.
    pub standard: Option<f64>,
    /// Shift of the estimate by different delay distributions of the two directions; 0 on average if they are equal.
    pub asymmetry: f64,
    /// The distance of the best tenth of each direction's delays from their minimum, to the peer and back.
    pub excess: (f64, f64),
    /// The distance of the parallel lines: the minimum round trip, as seen by the groups.
    pub width: f64,
}

/// Fits a piece by segments that are as long as the bend of the offset permits.
pub(crate) fn fits(piece: &Piece, limits: Limits) -> Vec<Fit> {
    let span = piece.end() - piece.begin();
    let bend = bend(piece, limits);
    let suits = |length: &&f64| {
        let fits = segments(piece, **length, limits);
        let error = root_mean_square(fits.iter().map(|fit| fit.errors.map_or(f64::INFINITY, |errors| errors.0)));
        // A line fitted to a parabola deviates from it by at most a sixteenth of bend times length squared.
        let length = span.min(**length);
        bend * length * length / 16.0 < 0.15 * error
    };
    let lengths = LENGTHS.iter().filter(|length| **length < span || **length == LENGTHS[5]);
    let least = LENGTHS.iter().rfind(|length| density(piece) * **length >= 2.0 * LEAST_FOR_GROUPS as f64);
    let least = least.copied().unwrap_or(LENGTHS[0]);
    let all = [span.max(1.0)];
    let longest = all.iter().filter(|span| **span <= LENGTHS[0]);
    let chosen = longest.chain(lengths).filter(|length| **length >= least).find(suits).copied();
    segments(piece, chosen.unwrap_or(least), limits)
}

/// Returns the number of exchanges per nanosecond.
fn density(piece: &Piece) -> f64 {
    piece.len() as f64 / (piece.end() - piece.begin()).max(1.0)
}

/// Cuts a piece into equal segments, none longer than `length`, and fits each.
fn segments(piece: &Piece, length: f64, limits: Limits) -> Vec<Fit> {
    let span = piece.end() - piece.begin();
    let count = (span / length).ceil().max(1.0);
    let edge = |index: usize| piece.begin() + span * index as f64 / count;
    let last = count as usize;
    let end = |index: usize| if index + 1 == last { piece.len() } else { piece.index(edge(index + 1)) };
    let (mut fits, mut index) = (Vec::new(), 0);
    while index < last {
        let range = (piece.index(edge(index)), end(index));
        if range.0 < range.1 {
            fits.push(fit(piece, range, f64::midpoint(edge(index), edge(index + 1)), limits));
            index += 1;
        } else {
            // Years with few exchanges can have billions of segments without any: skip them.
            index = first(index + 1..last, |index| end(index) > range.0);
        }
    }
    fits
}

/// Returns the first number of a range for which a monotonic predicate holds; the end of the range if it holds for none.
fn first(range: Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let Range { start: mut low, end: mut high } = range;
    while low < high {
        let middle = usize::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Returns the second derivative of the offset, per ns: the largest that segments of any length show beyond their errors.
fn bend(piece: &Piece, limits: Limits) -> f64 {
    let most = piece.len() / LEAST_FOR_GROUPS;
    let counts = std::iter::successors(Some(4), |count| Some(count * 2)).take_while(|count| *count <= most);
    let bends = counts.take(BEND_SCALES).map(|count| bend_between(piece, count, limits));
    bends.fold(0.0, f64::max).min(limits.drift_ppm_per_s * 1e-15)
}

/// Returns the root mean square of the bend from second differences of `count` segments; 0 if their errors may explain it.
fn bend_between(piece: &Piece, count: usize, limits: Limits) -> f64 {
    let length = (piece.end() - piece.begin()) / count as f64;
    let fits = segments(piece, length, limits);
    let squares = fits.windows(3).filter_map(|three| {
        let [a, b, c] = three else { return None };
        let explained = a.standard?.powi(2) + 4.0 * b.standard?.powi(2) + c.standard?.powi(2);
        Some(((a.offset - 2.0 * b.offset + c.offset).powi(2), explained))
    });
    let squares: Vec<(f64, f64)> = squares.collect();
    let mean = |of: fn(&(f64, f64)) -> f64| squares.iter().map(of).sum::<f64>() / squares.len().max(1) as f64;
    let (seen, explained) = (mean(|square| square.0), mean(|square| square.1));
    let chance = 1.0 + 3.0 / (squares.len() as f64).sqrt();
    if seen > chance * explained { (seen - explained).sqrt() / length.powi(2) } else { 0.0 }
}

fn fit(piece: &Piece, range: (usize, usize), centre: f64, limits: Limits) -> Fit {
    let count = range.1 - range.0;
    let all = piece.channel(range, (0, 1), centre, limits);
    let groups = groups(count as u64);
    if count < LEAST_FOR_GROUPS {
        let (offset, width) = (all.middle(), all.top - all.bottom);
        let (slope, errors, standard, asymmetry, excess) = (all.slope, None, None, 0.0, (0.0, 0.0));
        return Fit { range, centre, offset, slope, errors, standard, asymmetry, excess, width };
    }
    let channels: Vec<Channel> =
        (0..groups).map(|group| piece.channel(range, (group, groups), centre, limits)).collect();
    let (offset, standard) = mean(channels.iter().map(|channel| channel.middle()));
    let (slope, slope_standard) = mean(channels.iter().map(|channel| channel.slope));
    let (width, _) = mean(channels.iter().map(|channel| channel.top - channel.bottom));
    let critical = student(groups as f64 - 1.0);
    let share = groups as f64 / (groups as f64 - 1.0);
    let asymmetry = (offset - all.middle()) * share;
    Fit {
        range,
        centre,
        offset,
        slope,
        errors: Some((critical * standard, critical * slope_standard)),
        standard: Some(standard),
        asymmetry,
        excess: piece.excess(range, centre, all),
        width,
    }
}

impl Channel {
    fn middle(&self) -> f64 {
        f64::midpoint(self.top, self.bottom)
    }
}

/// Returns the mean of the groups' values and its standard error.
fn mean(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = values.map(|value| value * value).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}
