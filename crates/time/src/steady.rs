//! A clock that is never set, and the conversion of timestamps of clocks that may be.

use crate::host::{monotonic, realtime, tai, wait_by};
use crate::{Clock, HostClock, Nanos, Time};

/// A smaller change between two clocks is within the reading error.
const LEAST_STEP: Nanos = Nanos::micros(20);
/// This many readings confirm a step: the program is not preempted in all of them.
const STEP_READINGS: usize = 3;
/// How long after a step was detected timestamps from before it may still arrive.
const STEP_RETENTION: Nanos = Nanos::seconds(1);
/// The kernel's file of this time namespace's clock offsets.
const NAMESPACE: &str = "/proc/self/timens_offsets";

/// `CLOCK_MONOTONIC` plus a constant, so that it equals `CLOCK_TAI` when it is created.
///
/// It is slewed as `CLOCK_MONOTONIC`, and never stepped: setting the time of day or the TAI offset changes
/// [`Clock::tai_ahead`], but no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyClock {
    ahead: Nanos,
    /// `CLOCK_MONOTONIC` of this time namespace minus the kernel's own.
    namespace: Nanos,
}

impl SteadyClock {
    /// Creates a clock that equals `CLOCK_TAI` now.
    pub fn begin() -> Self {
        let namespace = std::fs::read_to_string(NAMESPACE).ok().and_then(|text| monotonic_offset(&text));
        Self { ahead: HostClock.monotonic_offset(), namespace: namespace.unwrap_or_default() }
    }

    /// Converts a timestamp of the kernel's own `CLOCK_MONOTONIC`, which BPF programs use.
    pub fn of_kernel(&self, stamp: Time) -> Time {
        stamp + self.namespace + self.ahead
    }

    /// Returns `CLOCK_REALTIME` minus this clock.
    pub fn realtime_ahead(&self) -> Nanos {
        HostClock.bracketed(realtime) - self.ahead
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::begin()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Time {
        monotonic() + self.ahead
    }

    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
        wait_by(|| self.now(), deadline, spin)
    }

    fn tai_ahead(&self) -> Nanos {
        HostClock.bracketed(tai) - self.ahead
    }

    fn thread_time(&self) -> Nanos {
        HostClock.thread_time()
    }
}

/// Parses the offset of `CLOCK_MONOTONIC`, "monotonic  86400  0".
pub fn monotonic_offset(text: &str) -> Option<Nanos> {
    let mut words = text.lines().find_map(|line| line.strip_prefix("monotonic "))?.split_whitespace();
    let mut next = || words.next()?.parse::<i64>().ok();
    Some(Nanos(next()?.checked_mul(1_000_000_000)?.checked_add(next()?)?))
}

/// The offset of a clock that may be set from one that never is: the last two values, and when it changed.
///
/// A timestamp may be taken before a step and read after it. Of its two possible times, the later one that is not in
/// the future is correct, unless the step is smaller than the timestamp's age. One second after a step was detected, no
/// timestamp is from before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    now: Nanos,
    /// The previous value, and until when a timestamp may still refer to it.
    before: Option<(Nanos, Time)>,
}

impl Ahead {
    /// Starts with a reading.
    pub const fn new(now: Nanos) -> Self {
        Self { now, before: None }
    }

    /// Returns the latest value.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Checks, at the steady time `at`, whether the other clock was set; returns the step.
    pub fn look(&mut self, at: Time, read: impl Fn() -> Nanos) -> Option<Nanos> {
        let is_step = |step: &Nanos| step.0.abs() >= LEAST_STEP.0;
        let first = Some(read() - self.now).filter(is_step)?;
        let again = std::iter::repeat_with(|| read() - self.now).take(STEP_READINGS);
        let step = again.chain([first]).min_by_key(|step| step.0.abs()).filter(is_step)?;
        (self.before, self.now) = (Some((self.now, at + STEP_RETENTION)), self.now + step);
        Some(step)
    }

    /// Converts a timestamp of that clock that was read at the steady time `read`; `None`: it would be later than that.
    pub fn convert(&self, stamp: Time, read: Time) -> Option<Time> {
        let before = self.before.filter(|(_, until)| read <= *until).map(|(ahead, _)| ahead);
        [self.now].into_iter().chain(before).map(|ahead| stamp - ahead).filter(|at| *at <= read).max()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TAI_SET: Nanos = Nanos::seconds(37);

    #[test]
    fn steady_clock_starts_at_tai_and_continues_as_monotonic() {
        let clock = SteadyClock::begin();
        assert!((clock.now() - HostClock.now()).0.abs() < 1_000_000_000);
        assert!(clock.tai_ahead().0.abs() < 1_000_000_000);
        let deadline = clock.now() + Nanos::micros(300);
        assert!(clock.wait_until(deadline, Nanos::micros(100)) >= deadline);
        let before = clock.now();
        let stamp = clock.of_kernel(Time(before.0 - clock.ahead.0 - clock.namespace.0));
        assert_eq!(stamp, before);
    }

    #[test]
    fn offset_of_a_time_namespace_is_read() {
        let text = "monotonic           86400         5\nboottime              7         0\n";
        assert_eq!(monotonic_offset(text), Some(Nanos::seconds(86_400) + Nanos(5)));
        assert_eq!(monotonic_offset("boottime 7 0\n"), None);
        assert_eq!(monotonic_offset("monotonic 9223372036854775807 0\n"), None, "more than a time holds");
    }

    #[test]
    fn clock_step_is_detected_and_an_interrupted_reading_is_not_one() {
        let mut ahead = Ahead::new(Nanos(100));
        assert_eq!(ahead.look(Time(0), || Nanos(10_100)), None, "reading takes so long");
        let reads = Cell::new(0);
        let stopped_once = || Nanos(if reads.replace(reads.get() + 1) == 0 { 5_000_000 } else { 120 });
        assert_eq!(ahead.look(Time(0), stopped_once), None);
        for step in [TAI_SET, Nanos(-TAI_SET.0), Nanos::millis(-350), Nanos::seconds(86_400)] {
            let before = ahead.now();
            assert_eq!(ahead.look(Time(0), || before + step), Some(step));
            assert_eq!(ahead.look(Time(0), || before + step), None, "it is reported once");
        }
    }

    #[test]
    fn frame_queued_longer_than_a_past_step_is_not_assigned_to_the_time_before_it() {
        let (old, step) = (Nanos::seconds(1_000), Nanos::millis(2));
        let mut ahead = Ahead::new(old);
        let found = Time(6_000_000);
        ahead.look(found, || old + step);
        let at = found + Nanos::millis(1_200);
        let stamp = at + old + step;
        assert_eq!(ahead.convert(stamp, at + Nanos::millis(5)), Some(at));
        assert_eq!(ahead.convert(stamp, at - Nanos(1)), None);
    }

    #[test]
    fn timestamps_before_and_after_a_step_are_distinguished() {
        for step in [TAI_SET, Nanos(-TAI_SET.0), Nanos::millis(2), Nanos::millis(-2)] {
            let old = Nanos::seconds(1_000);
            let mut ahead = Ahead::new(old);
            // Both are read together, a millisecond later.
            let (first, second) = (Time(5_000_000), Time(5_400_000));
            let (before, after) = (first + old, second + old + step);
            let read = Time(6_000_000);
            ahead.look(read, || old + step);
            assert_eq!(
                [before, after].map(|stamp| ahead.convert(stamp, read)),
                [Some(first), Some(second)],
                "{step:?}"
            );
        }
        assert_eq!(Ahead::new(Nanos(0)).convert(Time(7), Time(6)), None);
    }
}
