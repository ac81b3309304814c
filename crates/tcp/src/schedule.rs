//! Messages at a fixed rate: when each is due, and its pacing error. Open loop: message `k` is due at
//! `start + k · interval`, independent of earlier messages.
//!
//! This module reads no clock and sends nothing.

use hdrhistogram::Histogram;
use serde::Serialize;
use sojourn_time::{Nanos, Time};

/// The resolution of quantiles of the pacing error: a thousandth of the value. Mean and maximum are exact.
const DIGITS: u8 = 3;
/// The largest pacing error in quantiles: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

/// The pacing of a connection. Times are CLOCK_TAI, taken immediately before the first send call that accepted bytes of
/// a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pacing {
    /// The time between the due times of two messages.
    pub interval_ns: i64,
    /// Messages that the kernel accepted completely.
    pub written: u64,
    /// Messages that were due and not completely accepted when the connection ended.
    pub unwritten: u64,
    /// Messages whose first send call came at least one interval after their due time, when the next one was already
    /// due.
    pub late: u64,
    /// The share of late messages among those with a send call; absent if there are none.
    pub late_share: Option<f64>,
    /// Messages that found the send buffer full.
    pub blocked: u64,
    /// Messages of which one send call accepted only a part.
    pub partial: u64,
    /// The pacing error: first send call minus due time; absent if there are none.
    pub error: Option<PacingError>,
}

/// The first send call that accepted bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The message's number, from 0.
    pub seq: u64,
    /// When the message was due.
    pub due: Time,
    /// The time immediately before the call.
    pub at: Time,
}

/// The distribution of the pacing error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PacingError {
    /// Number of messages with a send call.
    pub n: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The maximum.
    pub max_ns: i64,
}

/// The schedule of one connection, and statistics of its messages.
#[derive(Debug)]
pub struct Schedule {
    start: Time,
    interval: Nanos,
    /// The number of messages begun, which is also the next message's number.
    begun: u64,
    written: u64,
    late: u64,
    blocked: u64,
    partial: u64,
    errors: Histogram<u64>,
    sum_ns: i128,
    max_ns: i64,
    /// The current message.
    current: Current,
    /// The calls, if they are kept.
    calls: Option<Vec<Call>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Current {
    is_tried: bool,
    is_blocked: bool,
    is_partial: bool,
}

impl Schedule {
    /// Create a schedule whose first message is due at `start`.
    #[expect(clippy::expect_used, reason = "the bounds and digits are constants that the histogram takes")]
    pub fn new(start: Time, interval: Nanos) -> Self {
        let errors = Histogram::new_with_bounds(1, MOST_NS, DIGITS).expect("bounds and digits are valid");
        let current = Current::default();
        Self {
            start,
            interval,
            begun: 0,
            written: 0,
            late: 0,
            blocked: 0,
            partial: 0,
            errors,
            sum_ns: 0,
            max_ns: 0,
            current,
            calls: None,
        }
    }

    /// Keep the first call of each message.
    pub fn keeping_calls(self) -> Self {
        Self { calls: Some(Vec::new()), ..self }
    }

    /// Return the kept calls, and keep no more.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.calls.take().unwrap_or_default()
    }

    /// Return when the next message that was not begun is due.
    pub fn due(&self) -> Time {
        self.due_of(self.begun)
    }

    /// Return when message `number` is due; the first is 0.
    pub fn due_of(&self, number: u64) -> Time {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.start + Nanos(self.interval.0.saturating_mul(number))
    }

    /// Begin the next message.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.current = Current::default();
    }

    /// Count the current message as blocked: the send buffer had no room for it. A partly accepted message is not
    /// counted here.
    fn block(&mut self) {
        self.blocked += u64::from(!self.current.is_blocked && !self.current.is_tried);
        self.current.is_blocked = true;
    }

    /// Handle a send call for the current message that began at `before`: of `asked` bytes, `left` were not accepted.
    pub fn sent(&mut self, before: Time, asked: usize, left: usize) {
        if left == asked {
            return self.block();
        }
        if !self.current.is_tried {
            self.current.is_tried = true;
            let seq = self.begun.saturating_sub(1);
            let due = self.due_of(seq);
            self.measure((before - due).0);
            if let Some(calls) = &mut self.calls {
                calls.push(Call { seq, due, at: before });
            }
        }
        if left > 0 {
            self.partial += u64::from(!self.current.is_partial);
            self.current.is_partial = true;
        } else {
            self.written += 1;
        }
    }

    fn measure(&mut self, error_ns: i64) {
        self.sum_ns += i128::from(error_ns);
        self.max_ns = self.max_ns.max(error_ns);
        self.late += u64::from(error_ns >= self.interval.0);
        self.errors.saturating_record(error_ns.max(0).unsigned_abs());
    }

    /// Return the pacing statistics. Messages due before `end` and not completely accepted are `unwritten`.
    pub fn pacing(&self, end: Time) -> Pacing {
        let due = ((end - self.start).0.max(0) as u64).div_ceil(self.interval.0.max(1).unsigned_abs());
        let n = self.errors.len();
        let error = (n > 0).then(|| PacingError {
            n,
            mean_ns: self.sum_ns as f64 / n as f64,
            p50_ns: self.errors.value_at_quantile(0.5),
            p99_ns: self.errors.value_at_quantile(0.99),
            max_ns: self.max_ns,
        });
        Pacing {
            interval_ns: self.interval.0,
            written: self.written,
            unwritten: due.max(self.begun) - self.written,
            late: self.late,
            late_share: (n > 0).then(|| self.late as f64 / n as f64),
            blocked: self.blocked,
            partial: self.partial,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Time = Time(1_000_000);
    const INTERVAL: Nanos = Nanos(1_000);

    /// Create a schedule whose messages are accepted completely, with these pacing errors.
    fn kept(errors_ns: &[i64]) -> Schedule {
        let mut schedule = Schedule::new(START, INTERVAL);
        for error in errors_ns {
            let at = schedule.due() + Nanos(*error);
            schedule.begin();
            schedule.sent(at, 64, 0);
        }
        schedule
    }

    #[test]
    fn a_late_message_makes_no_other_one_late() {
        let mut schedule = Schedule::new(START, INTERVAL);
        schedule.begin();
        schedule.sent(START + Nanos(5_500), 64, 0);
        assert_eq!(schedule.due(), START + INTERVAL, "what was missed is still due, on the same grid");
        for number in 1..=6 {
            assert_eq!(schedule.due(), START + Nanos(1_000 * number));
            schedule.begin();
            schedule.sent(START + Nanos(5_500.max(1_000 * number)), 64, 0);
        }
        // Pacing errors of 5500, 4500, 3500, 2500, 1500, 500 and 0 ns.
        let pacing = schedule.pacing(START + Nanos(7_000));
        assert_eq!((pacing.written, pacing.unwritten, pacing.late, pacing.blocked, pacing.partial), (7, 0, 5, 0, 0));
        let error = pacing.error.unwrap();
        assert_eq!((error.n, error.max_ns), (7, 5_500));
        assert!((error.mean_ns - 18_000.0 / 7.0).abs() < 1e-6);
        assert!(error.p50_ns.abs_diff(2_500) <= 3, "{}", error.p50_ns);
    }

    #[test]
    fn send_call_times_are_kept_once_per_message_on_request() {
        let mut schedule = Schedule::new(START, INTERVAL).keeping_calls();
        for (before, asked, left) in [(100, 64, 64), (400, 64, 40), (600, 40, 0)] {
            if asked == 64 && left == 64 {
                schedule.begin();
            }
            schedule.sent(START + Nanos(before), asked, left);
        }
        schedule.begin();
        schedule.sent(START + Nanos(1_200), 64, 0);
        let call = |seq, due, at| Call { seq, due: START + Nanos(due), at: START + Nanos(at) };
        assert_eq!(schedule.take_calls(), [call(0, 0, 400), call(1, 1_000, 1_200)]);
        assert_eq!(kept(&[0, 0]).take_calls(), []);
    }

    #[test]
    fn quantiles_and_shares_are_those_of_the_known_lateness() {
        // 98 of a hundred have 100 ns; two have 1000 and 2000 ns: an interval and more.
        let mut errors = vec![100; 98];
        errors.extend([1_000, 2_000]);
        let pacing = kept(&errors).pacing(START + Nanos(100_000));
        let error = pacing.error.unwrap();
        assert_eq!((pacing.late, pacing.late_share, error.max_ns), (2, Some(0.02), 2_000));
        assert_eq!((error.p50_ns, error.p99_ns), (100, 1_000));
        assert!((error.mean_ns - 128.0).abs() < 1e-9);
    }

    #[test]
    fn a_full_buffer_is_counted_once_a_message_and_its_wait_is_pacing_error() {
        let mut schedule = Schedule::new(START, INTERVAL);
        schedule.begin();
        schedule.block();
        schedule.sent(START + Nanos(100), 64, 64);
        schedule.sent(START + Nanos(400), 64, 40);
        schedule.sent(START + Nanos(600), 40, 8);
        schedule.sent(START + Nanos(900), 8, 0);
        let pacing = schedule.pacing(START + INTERVAL);
        assert_eq!((pacing.written, pacing.unwritten, pacing.blocked, pacing.partial), (1, 0, 1, 1));
        assert_eq!(pacing.error.map(|error| (error.n, error.max_ns)), Some((1, 400)));
    }

    #[test]
    fn messages_due_but_not_written_are_counted() {
        let mut schedule = kept(&[0, 0, 0]);
        schedule.begin();
        schedule.sent(START + Nanos(3_000), 64, 30);
        // Due at 0, 1, … 9 µs: ten messages, of which three are complete.
        let pacing = schedule.pacing(START + Nanos(9_001));
        assert_eq!((pacing.written, pacing.unwritten, pacing.partial), (3, 7, 1));
        let nothing = Schedule::new(START, INTERVAL).pacing(START);
        assert_eq!((nothing.written, nothing.unwritten, nothing.late_share, nothing.error), (0, 0, None, None));
    }

    proptest! {
        #[test]
        fn each_message_is_in_exactly_one_counter(errors in prop::collection::vec(0_i64..5_000, 1..200)) {
            let schedule = kept(&errors);
            let pacing = schedule.pacing(START + Nanos(1_000 * errors.len() as i64));
            prop_assert_eq!((pacing.written, pacing.unwritten), (errors.len() as u64, 0));
            prop_assert_eq!(pacing.late, errors.iter().filter(|error| **error >= INTERVAL.0).count() as u64);
            prop_assert_eq!(pacing.error.map(|error| error.max_ns), errors.iter().max().copied());
        }
    }
}
