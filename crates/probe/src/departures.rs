//! The intended departures of probes. Pure: the caller passes the seed and the times.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1};
use sojourn_time::{Nanos, Time};

use crate::Schedule;

/// The intended departures of one block, in order.
#[derive(Debug)]
pub struct Departures {
    schedule: Schedule,
    interval: Nanos,
    random: StdRng,
    next: Time,
    /// The accumulated rounding error of Poisson intervals, in ns.
    remainder_ns: f64,
}

impl Departures {
    /// Returns departures that have not begun.
    pub fn new(schedule: Schedule, interval: Nanos, seed: u64) -> Self {
        Self { schedule, interval, random: StdRng::seed_from_u64(seed), next: Time::NEVER, remainder_ns: 0.0 }
    }

    /// Schedules the first probe for `start`.
    pub fn begin(&mut self, start: Time) {
        self.next = start;
    }

    /// Returns the intended departure of the next probe.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Schedules the probe after the one that was intended for `intended`.
    pub fn advance(&mut self, intended: Time) {
        match self.schedule {
            Schedule::Regular => self.next = self.next + self.interval,
            Schedule::ClosedLoop => self.next = intended + self.interval,
            Schedule::Poisson => {
                let deviate: f64 = Exp1.sample(&mut self.random);
                let gap_ns = deviate * self.interval.0 as f64 + self.remainder_ns;
                self.remainder_ns = gap_ns - gap_ns.floor();
                self.next = self.next + Nanos(gap_ns.floor() as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(schedule: Schedule, seed: u64, n: usize) -> Vec<i64> {
        let mut departures = Departures::new(schedule, Nanos(1_000), seed);
        departures.begin(Time(0));
        (0..n)
            .map(|_| {
                let before = departures.next();
                departures.advance(before);
                (departures.next() - before).0
            })
            .collect()
    }

    #[test]
    fn regular_gaps_are_equal() {
        assert!(gaps(Schedule::Regular, 1, 100).iter().all(|gap| *gap == 1_000));
    }

    #[test]
    fn poisson_gaps_have_a_standard_deviation_equal_to_their_mean() {
        let n = 100_000;
        let gaps = gaps(Schedule::Poisson, 42, n);
        let mean = gaps.iter().sum::<i64>() as f64 / n as f64;
        let variance = gaps.iter().map(|gap| (*gap as f64 - mean).powi(2)).sum::<f64>() / n as f64;
        // Five standard errors each.
        assert!((mean - 1_000.0).abs() < 5.0 * 1_000.0 / (n as f64).sqrt(), "{mean}");
        assert!((variance.sqrt() - 1_000.0).abs() < 25.0, "{variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_departures() {
        assert_eq!(gaps(Schedule::Poisson, 7, 10), gaps(Schedule::Poisson, 7, 10));
        assert_ne!(gaps(Schedule::Poisson, 7, 10), gaps(Schedule::Poisson, 8, 10));
    }
}
