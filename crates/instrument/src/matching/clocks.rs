//! Estimates the offset between the two taps' clocks from packets in both directions, and corrects delays by it.

use std::collections::BTreeMap;

use sojourn_clock::{Estimate, Estimator, Exchange, Limits, Sources};
use sojourn_matcher::Way;
use sojourn_matcher::sample::Delay;
use sojourn_time::{Source, Time};

/// The maximum number of time intervals kept.
const MOST: usize = 2_048;

/// The packets with the minimum delay in each time interval, in both directions: the input of the convex hull.
#[derive(Debug, Default)]
pub struct Quickest {
    /// The length of an interval, as a power of two. ns.
    width: u32,
    /// By interval: the times at the first and at the second tap.
    forward: BTreeMap<i64, (i64, i64)>,
    backward: BTreeMap<i64, (i64, i64)>,
}

impl Quickest {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { width: 16, ..Self::default() }
    }

    /// Adds a packet with its times at the first and at the second tap.
    pub fn push(&mut self, way: Way, first: i64, second: i64) {
        let stretch = first >> self.width;
        let of = if way == Way::Forward { &mut self.forward } else { &mut self.backward };
        let times = (first, second);
        of.entry(stretch).and_modify(|kept| *kept = quicker(way, *kept, times)).or_insert(times);
        while self.forward.len().max(self.backward.len()) > MOST {
            self.width += 1;
            self.forward = merged(Way::Forward, &self.forward);
            self.backward = merged(Way::Backward, &self.backward);
        }
    }

    /// Estimates the offset of the second tap's clock from the first's; `None` if packets passed in one direction only, or too few.
    pub fn estimate(&self) -> Option<Estimate> {
        let mut estimator = Estimator::new(Limits::default());
        for (stretch, (first, second)) in &self.forward {
            // A forward packet and the next backward one form a request and its reply.
            let back = self.backward.range(stretch..).take(3).find(|(_, (a, b))| a >= first && b >= second);
            let Some((_, (back_first, back_second))) = back else { continue };
            estimator.push(Exchange {
                t1: Time(*first),
                t2: Time(*second),
                t3: Time(*back_second),
                t4: Time(*back_first),
                sources: Sources { local: Source::Kernel, remote: Source::Kernel },
            });
        }
        estimator.estimate().ok()
    }
}

fn quicker(way: Way, one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    let is_first = match way {
        Way::Forward => one.1 - one.0 <= other.1 - other.0,
        Way::Backward => one.0 - one.1 <= other.0 - other.1,
    };
    if is_first { one } else { other }
}

fn merged(way: Way, all: &BTreeMap<i64, (i64, i64)>) -> BTreeMap<i64, (i64, i64)> {
    let mut wider = BTreeMap::new();
    for (stretch, times) in all {
        wider.entry(stretch >> 1).and_modify(|kept| *kept = quicker(way, *kept, *times)).or_insert(*times);
    }
    wider
}

/// The relation of the two taps' clocks.
#[derive(Debug)]
pub enum Clocks {
    /// Both taps use one clock.
    One,
    /// The offset was estimated from packets in both directions.
    Two(Box<Estimate>),
    /// The offset is unknown: every delay contains the same unknown offset, apart from skew.
    Unknown,
}

impl Clocks {
    /// Returns a delay on the first tap's clock and its maximum error; for unknown clocks, the uncorrected delay.
    pub fn correct(&self, way: Way, delay: &Delay) -> (i64, f64) {
        let Self::Two(estimate) = self else { return (delay.delay, 0.0) };
        let later = delay.first + delay.delay;
        let (second, first) = if way == Way::Forward { (later, delay.first) } else { (delay.first, later) };
        let converted = estimate.convert(Time(second));
        let there = converted.ours.0.saturating_sub(first);
        (if way == Way::Forward { there } else { there.saturating_neg() }, converted.bound_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captures may be of any length, and their times a century apart.
    #[test]
    fn packets_kept_are_bounded_over_any_span_and_still_show_the_offset() {
        const OFFSET: i64 = 3_000_000;
        let mut quickest = Quickest::new();
        let spans = [10_000_i64, 1 << 17, 1 << 20];
        for number in 0..50_000_i64 {
            let way = if number % 2 == 0 { Way::Forward } else { Way::Backward };
            let first = number * spans[(number / 20_000) as usize];
            // At least 10 us, in both directions.
            let delay = 10_000 + number % 97 * 100;
            let second = if way == Way::Forward { first + delay } else { first - delay } + OFFSET;
            quickest.push(way, first, second);
            assert!(quickest.forward.len().max(quickest.backward.len()) <= MOST);
        }
        assert!(quickest.forward.len() > MOST / 4 && quickest.backward.len() > MOST / 4);
        let estimate = quickest.estimate().expect("packets in both directions");
        let converted = estimate.convert(Time(40_000_000_000 + OFFSET));
        let error = (converted.ours.0 - 40_000_000_000) as f64;
        assert!(
            error.abs() <= converted.bound_ns && error.abs() < 20_000.0,
            "{error} ns, bound {}",
            converted.bound_ns
        );
        for first in [0, i64::MAX / 4, -i64::MAX / 4] {
            quickest.push(Way::Forward, first, first + OFFSET + 10_000);
            assert!(quickest.forward.len() <= MOST);
        }
    }
}
