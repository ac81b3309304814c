//! Opportunities of a mahimahi trace: at each listed time some bytes may leave; unused opportunities are lost.

use sojourn_time::{Nanos, Time};

use crate::config::{Link, Trace};

/// Bytes per opportunity.
pub(crate) const BYTES: u32 = 1_500;

/// The times, and the position of the next one.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    start: Time,
    at: Vec<Nanos>,
    period: Nanos,
    round: i64,
    index: usize,
}

impl Opportunities {
    /// Returns the opportunities of a link with such a trace.
    pub fn of(link: &Link, start: Time) -> Option<Self> {
        match &link.trace {
            Some(Trace::Opportunities { at, period, .. }) if !at.is_empty() => {
                let period = Nanos(period.0.max(at.last().map_or(0, |last| last.0)).max(1));
                Some(Self { start, at: at.clone(), period, round: 0, index: 0 })
            }
            _ => None,
        }
    }

    /// Returns the time of the next opportunity.
    pub fn next(&self) -> Time {
        let round = Nanos(self.round.saturating_mul(self.period.0));
        self.start + round + self.at[self.index]
    }

    /// Advances to the following opportunity.
    pub fn use_one(&mut self) {
        self.index += 1;
        if self.index == self.at.len() {
            (self.round, self.index) = (self.round + 1, 0);
        }
    }

    /// Skips the opportunities that are not after `now`.
    pub fn pass(&mut self, now: Time) {
        if self.next() > now {
            return;
        }
        let since = (now - self.start).0;
        let round = since / self.period.0;
        let within = Nanos(since % self.period.0);
        // All previous repetitions are over: no opportunity is later than the period.
        let index = self.at.partition_point(|at| *at <= within);
        (self.round, self.index) = if index == self.at.len() { (round + 1, 0) } else { (round, index) };
        while self.next() <= now {
            self.use_one();
        }
    }
}
