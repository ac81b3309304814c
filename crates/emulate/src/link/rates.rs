//! The capacity of a link over time: its rate, a trace of rates, and outages, integrated exactly.
//!
//! Work is counted in nanobits: what 1 bit/s carries in a nanosecond. Then rate × time and bits are integers, and the
//! remainder at a whole nanosecond is carried over exactly, even when the rate changes.

use sojourn_time::{Nanos, Time};

use crate::config::{Link, Outage, Trace, TracePoint};

/// Number of consecutive intervals with rate 0 after which the link counts as down for ever.
const PATIENCE: u32 = 100_000;

/// The rate over time.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Bits per second; `None`: packets take no time.
    rate: Option<u64>,
    start: Time,
    points: Vec<TracePoint>,
    period: Option<Nanos>,
    /// What one period of the trace carries, in nanobits; only if every interval has a rate.
    round: Option<u128>,
    outages: Vec<Outage>,
}

impl Rates {
    /// Reads a link's configuration; traces and outages begin at `start`.
    pub fn new(link: &Link, start: Time) -> Self {
        let (points, period) = match &link.trace {
            Some(Trace::Points { points, period, .. }) => (points.clone(), *period),
            _ => (Vec::new(), None),
        };
        let mut made = Self { rate: link.rate_bps, start, points, period, round: None, outages: link.outages.clone() };
        made.round = made.whole_round();
        made
    }

    /// Returns whether packets never take time.
    pub fn is_instant(&self) -> bool {
        self.rate.is_none() && self.outages.is_empty() && self.points.iter().all(|point| point.rate_bps.is_none())
    }

    /// Returns the trace's point that holds at a time.
    pub fn point(&self, at: Time) -> Option<&TracePoint> {
        let within = self.within(at);
        self.points.get(self.points.partition_point(|point| point.at <= within).saturating_sub(1))
    }

    /// Returns when work that begins at `from` is done, rounded down to a nanosecond, and the remaining work.
    pub fn finish(&self, from: Time, work: u128) -> (Time, u128) {
        let (mut at, mut left, mut idle) = (from, work, 0);
        if self.is_steady() {
            return self.rate.map_or((at, 0), |rate| done(at, left, rate));
        }
        while idle < PATIENCE {
            (at, left) = self.skip_rounds(at, left);
            let (rate, until) = self.piece(at);
            match rate {
                None => return (at, 0),
                Some(rate) if rate > 0 && left <= carried(rate, at, until) => return done(at, left, rate),
                Some(_) if until == Time::NEVER => break,
                Some(rate) => {
                    left -= carried(rate, at, until);
                    idle = if rate == 0 { idle + 1 } else { 0 };
                    at = until;
                }
            }
        }
        (Time::NEVER, left)
    }

    /// Returns what the link carries between two times, up to `most`.
    pub fn carried(&self, from: Time, to: Time, most: u128) -> u128 {
        if from >= to {
            return 0;
        }
        let (mut at, mut sum, mut idle) = (from, 0, 0);
        while at < to && sum < most && idle < PATIENCE {
            let (rate, until) = self.piece(at);
            let Some(rate) = rate else { return most };
            sum += carried(rate, at, until.min(to));
            idle = if rate == 0 { idle + 1 } else { 0 };
            at = until;
        }
        sum.min(most)
    }

    /// Returns whether an outage is active at a time.
    pub fn is_out(&self, at: Time) -> bool {
        self.outages.iter().any(|outage| self.outage(outage, at).0)
    }

    /// Returns whether an outage that never ends is active at a time.
    pub fn is_over(&self, at: Time) -> bool {
        self.outages.iter().any(|outage| self.outage(outage, at) == (true, Time::NEVER))
    }

    /// Returns whether the rate is constant.
    fn is_steady(&self) -> bool {
        self.points.is_empty() && self.outages.is_empty() && self.rate != Some(0)
    }

    /// Returns the rate at a time, and until when it holds.
    fn piece(&self, at: Time) -> (Option<u64>, Time) {
        let (mut rate, mut until) = self.piece_of_trace(at);
        for outage in &self.outages {
            let (is_out, change) = self.outage(outage, at);
            until = until.min(change);
            if is_out {
                rate = Some(0);
            }
        }
        (rate, until)
    }

    fn piece_of_trace(&self, at: Time) -> (Option<u64>, Time) {
        if self.points.is_empty() {
            return (self.rate, Time::NEVER);
        }
        let within = self.within(at);
        let next = self.points.partition_point(|point| point.at <= within);
        let rate = self.points[next.saturating_sub(1)].rate_bps.or(self.rate);
        let change =
            self.points.get(next).map(|point| point.at).filter(|change| self.period.is_none_or(|end| *change < end));
        let until = change.or(self.period).map_or(Time::NEVER, |change| at.max(self.start) + (change - within));
        (rate, until)
    }

    /// Returns whether an outage is active, and when that changes.
    fn outage(&self, outage: &Outage, at: Time) -> (bool, Time) {
        let since = (at - self.start).0.saturating_sub(outage.at.0);
        if since < 0 {
            return (false, self.start + outage.at);
        }
        let every = outage.every.map_or(i64::MAX, |every| every.0.max(1));
        let within = since % every;
        if outage.lasts.0 >= every {
            return (true, Time::NEVER);
        }
        let change = if within < outage.lasts.0 { outage.lasts.0 } else { every };
        let until = if change == i64::MAX { Time::NEVER } else { at + Nanos(change - within) };
        (within < outage.lasts.0, until)
    }

    /// Returns the position within the trace's period.
    fn within(&self, at: Time) -> Nanos {
        let since = (at - self.start).0.max(0);
        Nanos(self.period.map_or(since, |period| since % period.0.max(1)))
    }

    /// Skips whole periods of the trace, so that the cost does not grow with the work.
    fn skip_rounds(&self, at: Time, left: u128) -> (Time, u128) {
        let (Some(round), Some(period)) = (self.round, self.period) else { return (at, left) };
        if round == 0 {
            return (Time::NEVER, left);
        }
        // One period fewer, so that the end is found interval by interval.
        let rounds = (left / round).saturating_sub(1);
        let span = i64::try_from(rounds).ok().and_then(|rounds| rounds.checked_mul(period.0));
        span.map_or((Time::NEVER, left), |span| (at + Nanos(span), left - rounds * round))
    }

    fn whole_round(&self) -> Option<u128> {
        let period = self.period.filter(|_| self.outages.is_empty())?;
        let starts = self.points.iter().map(|point| point.at.0.min(period.0));
        let ends = starts.clone().skip(1).chain([period.0]);
        let spans = starts.zip(ends).map(|(from, to)| to.saturating_sub(from).max(0) as u128);
        self.points.iter().zip(spans).map(|(point, span)| Some(u128::from(point.rate_bps.or(self.rate)?) * span)).sum()
    }
}

fn carried(rate: u64, from: Time, to: Time) -> u128 {
    u128::from(rate) * (to - from).0.max(0) as u128
}

/// Returns when work at a constant rate is done, and the remainder.
fn done(from: Time, work: u128, rate: u64) -> (Time, u128) {
    if let Ok(work) = u64::try_from(work) {
        return (from + Nanos((work / rate).min(i64::MAX as u64) as i64), u128::from(work % rate));
    }
    let rate = u128::from(rate);
    (from + Nanos(i64::try_from(work / rate).unwrap_or(i64::MAX)), work % rate)
}
