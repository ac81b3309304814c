//! mahimahi's traces: at each of a list of times, so many bytes may go; what nobody uses is gone.

use sojourn_time::{Nanos, Time};

use crate::config::{Link, Trace};

/// Bytes that may go at each.
pub(crate) const BYTES: u32 = 1_500;

/// The times, and which of them is next.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    start: Time,
    at: Vec<Nanos>,
    period: Nanos,
    round: i64,
    index: usize,
}

impl Opportunities {
    /// Reads a trace of this kind, where there is one.
    pub fn of(link: &Link, start: Time) -> Option<Self> {
        match &link.trace {
            Some(Trace::Opportunities { at, period, .. }) if !at.is_empty() => {
                let period = Nanos(period.0.max(at.last().map_or(0, |last| last.0)).max(1));
                Some(Self { start, at: at.clone(), period, round: 0, index: 0 })
            }
            _ => None,
        }
    }

    /// Returns when the next one is.
    pub fn next(&self) -> Time {
        let round = Nanos(self.round.saturating_mul(self.period.0));
        self.start + round + self.at[self.index]
    }

    /// Goes on to the one after.
    pub fn use_one(&mut self) {
        self.index += 1;
        if self.index == self.at.len() {
            (self.round, self.index) = (self.round + 1, 0);
        }
    }

    /// Lets those go by that are not after `now`.
    pub fn pass(&mut self, now: Time) {
        if self.next() > now {
            return;
        }
        let since = (now - self.start).0;
        let round = since / self.period.0;
        let within = Nanos(since % self.period.0);
        // All of the rounds before are over: none of them goes on behind its end.
        let index = self.at.partition_point(|at| *at <= within);
        (self.round, self.index) = if index == self.at.len() { (round + 1, 0) } else { (round, index) };
        while self.next() <= now {
            self.use_one();
        }
    }
}
