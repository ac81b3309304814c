//! The host's clock: `CLOCK_TAI`, and its relation to the kernel's other clocks.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the host clock")]

use rustix::thread::{ClockId as SleepClock, NanosleepRelativeResult, clock_nanosleep_relative};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use crate::{Clock, Nanos, Time};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// How often two clocks are compared: a program is seldom preempted in every comparison.
const BRACKETS: usize = 3;

/// `CLOCK_TAI` of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

/// Several clocks of this host, read as close together as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_TAI`.
    pub tai: Time,
    /// `CLOCK_MONOTONIC_RAW`: neither stepped nor slewed, so it reveals a step of the other.
    pub monotonic_raw: Time,
    /// The duration of the reading, which bounds the error of the difference.
    pub error: Nanos,
}

/// The offset that converts a `CLOCK_REALTIME` timestamp of the kernel to `CLOCK_TAI`.
///
/// The two differ by whole seconds, so the rounded difference of two readings is exact, unless the clock is stepped
/// between this reading and the timestamp. Read it often, and check for steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaiOffset(pub Nanos);

impl HostClock {
    /// Reads `CLOCK_TAI` and `CLOCK_MONOTONIC_RAW` together several times, and returns the shortest reading.
    pub fn read(&self) -> Reading {
        let again = [(); BRACKETS - 1].map(|()| Reading::once());
        again.into_iter().fold(Reading::once(), Reading::closer)
    }

    /// Returns the CPU time of this process, with all its threads.
    pub fn processor_time(&self) -> Nanos {
        read(ClockId::ProcessCPUTime) - Time(0)
    }

    /// Returns the kernel's jiffies per second (HZ), at which its coarse clocks advance.
    pub fn jiffies_per_second(&self) -> i64 {
        let tick = clock_getres(ClockId::MonotonicCoarse);
        let nanos = (tick.tv_sec * NANOS_PER_SECOND + tick.tv_nsec).max(1);
        (NANOS_PER_SECOND + nanos / 2) / nanos
    }

    /// Returns by how many whole seconds `CLOCK_TAI` is ahead of `CLOCK_REALTIME`.
    pub fn tai_offset(&self) -> TaiOffset {
        loop {
            let (before, realtime, after) = (tai(), realtime(), tai());
            if let Some(offset) = TaiOffset::between(before, realtime, after) {
                return offset;
            }
        }
    }
}

impl HostClock {
    /// Returns by how much another clock is ahead of `CLOCK_MONOTONIC`: reads the other before and after the latter.
    pub(crate) fn bracketed(&self, other: fn() -> Time) -> Nanos {
        narrowest([(); BRACKETS].map(|()| (other(), monotonic(), other())))
    }
}

impl Reading {
    fn once() -> Self {
        let before = tai();
        let monotonic_raw = read(ClockId::MonotonicRaw);
        let after = tai();
        Self { tai: Time(before.0 + (after.0 - before.0) / 2), monotonic_raw, error: after - before }
    }

    /// Returns the shorter reading of the two.
    fn closer(self, other: Self) -> Self {
        if other.error < self.error { other } else { self }
    }
}

impl TaiOffset {
    /// Returns the offset, from a reading of `CLOCK_REALTIME` and readings of `CLOCK_TAI` before and after it; `None`
    /// when these are too far apart to determine the second, as after a preemption.
    fn between(before: Time, realtime: Time, after: Time) -> Option<Self> {
        let is_near = (0..NANOS_PER_SECOND / 4).contains(&(after - before).0);
        let seconds = ((before - realtime).0 + NANOS_PER_SECOND / 2).div_euclid(NANOS_PER_SECOND);
        is_near.then_some(Self(Nanos::seconds(seconds)))
    }

    /// Converts a `CLOCK_REALTIME` timestamp.
    pub fn convert(self, realtime: Time) -> Time {
        realtime + self.0
    }
}

impl Clock for HostClock {
    fn now(&self) -> Time {
        tai()
    }

    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
        wait_by(tai, deadline, spin)
    }

    /// Accurate to about a microsecond, unless the program is preempted in every reading.
    fn monotonic_offset(&self) -> Nanos {
        self.bracketed(tai)
    }

    fn thread_time(&self) -> Nanos {
        read(ClockId::ThreadCPUTime) - Time(0)
    }
}

/// Returns by how much the outer clock is ahead of the inner one, from the shortest of the readings.
fn narrowest(brackets: [(Time, Time, Time); BRACKETS]) -> Nanos {
    let width = |(before, _, after): &(Time, Time, Time)| (*after - *before).0.abs();
    let [first, others @ ..] = brackets;
    let (before, inner, after) =
        others.into_iter().fold(first, |best, other| if width(&other) < width(&best) { other } else { best });
    Time(before.0 + (after.0 - before.0) / 2) - inner
}

/// Waits by a clock that may be set meanwhile, with a sleep that reports whether it was complete.
fn wait(now: impl Fn() -> Time, sleep: impl Fn(Nanos) -> bool, deadline: Time, spin: Nanos) -> Time {
    let mut latest = now();
    while deadline - latest > spin {
        let is_whole = sleep(deadline - latest - spin);
        latest = now();
        if is_whole && deadline - latest > spin {
            return latest;
        }
    }
    loop {
        let present = now();
        if present >= deadline || present < latest {
            return present;
        }
        latest = present;
        std::hint::spin_loop();
    }
}

/// Waits by this clock or another one of this host.
pub(crate) fn wait_by(now: impl Fn() -> Time, deadline: Time, spin: Nanos) -> Time {
    wait(now, sleep, deadline, spin)
}

pub(crate) fn tai() -> Time {
    read(ClockId::Tai)
}

pub(crate) fn realtime() -> Time {
    read(ClockId::Realtime)
}

pub(crate) fn monotonic() -> Time {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Time {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    Time(tv_sec * NANOS_PER_SECOND + tv_nsec)
}

/// Sleeps for `span`; returns whether the sleep was complete: a signal ends it early.
fn sleep(span: Nanos) -> bool {
    let request = Timespec { tv_sec: span.0 / NANOS_PER_SECOND, tv_nsec: span.0 % NANOS_PER_SECOND };
    matches!(clock_nanosleep_relative(SleepClock::Monotonic, &request), NanosleepRelativeResult::Ok)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn waits_until_the_deadline_and_not_before() {
        let clock = HostClock;
        let deadline = clock.now() + Nanos::micros(300);
        assert!(clock.wait_until(deadline, Nanos::micros(100)) >= deadline);
    }

    #[test]
    fn interrupted_clock_reading_is_not_used() {
        let of = |tai, error| Reading { tai: Time(tai), monotonic_raw: Time(0), error: Nanos(error) };
        assert_eq!(of(1, 168_000).closer(of(2, 90)).closer(of(3, 95)), of(2, 90));
        assert!(HostClock.read().error >= Nanos::ZERO);
    }

    #[test]
    fn a_sleep_takes_no_processor_time_and_spinning_does() {
        let clock = HostClock;
        let took = |spin: Nanos| {
            let before = clock.thread_time();
            clock.wait_until(clock.now() + Nanos::millis(20), spin);
            clock.thread_time() - before
        };
        assert!(took(Nanos::ZERO) < Nanos::millis(10));
        assert!(took(Nanos::seconds(1)) > Nanos::ZERO);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_a_wait_and_a_signal_does_not() {
        let clock = Cell::new(Time(0));
        let sleeps = Cell::new(0);
        let waited = |steps: [i64; 3], spin: i64| {
            clock.set(Time(0));
            sleeps.set(0);
            let now = || clock.replace(clock.get() + Nanos(1));
            let sleep = |span: Nanos| {
                // A signal ends the first sleep half way.
                let step = steps[sleeps.replace(sleeps.get() + 1).min(2)];
                let slept = if sleeps.get() == 1 { span.0 / 2 } else { span.0 };
                clock.set(clock.get() + Nanos(slept + step));
                sleeps.get() > 1
            };
            (wait(now, sleep, Time(1_000), Nanos(spin)) >= Time(1_000), sleeps.get())
        };
        assert_eq!(waited([0, 0, 0], 100), (true, 2));
        assert_eq!(waited([0, -500, 0], 100), (false, 2), "set back while it slept");
        let now = Cell::new(0);
        let back = || Time([0, 10, 20, 5, 30][now.replace(now.get() + 1)]);
        assert_eq!(wait(back, |_| true, Time(1_000), Nanos(1_000)), Time(5), "set back while it span");
    }

    #[test]
    fn clock_readings_are_repeated_after_an_interruption_between_them() {
        let second = 1_000_000_000;
        let realtime = Time(100 * second);
        let read =
            |before: i64, after: i64| TaiOffset::between(realtime + Nanos(before), realtime, realtime + Nanos(after));
        assert_eq!(read(37 * second - 50, 37 * second + 50), Some(TaiOffset(Nanos::seconds(37))));
        assert_eq!(read(36 * second + second / 4, 37 * second + 50), None);
        assert_eq!(read(37 * second, 36 * second), None, "set back meanwhile");
    }

    #[test]
    fn a_second_has_as_many_jiffies_as_kernels_are_built_with() {
        let hertz = HostClock.jiffies_per_second();
        assert!([24, 48, 100, 128, 250, 256, 300, 1_000, 1_024, 1_200].contains(&hertz), "{hertz}");
    }

    #[test]
    fn closest_pair_of_clock_readings_is_used() {
        let [stopped, narrow, set_back] = [(1_000, 100, 61_000), (1_010, 110, 1_030), (1_020, 120, -9_000)]
            .map(|(before, inner, after)| (Time(before), Time(inner), Time(after)));
        assert_eq!(narrowest([stopped, narrow, set_back]), Nanos(910));
        assert_eq!(narrowest([narrow, set_back, stopped]), Nanos(910));
        assert_eq!(narrowest([set_back, stopped, narrow]), Nanos(910));
    }

    #[test]
    fn tai_offset_from_monotonic_is_the_difference_of_their_readings() {
        let offset = HostClock.monotonic_offset();
        let (monotonic, tai) = (monotonic(), tai());
        assert!(((tai - monotonic) - offset).0.abs() < NANOS_PER_SECOND);
    }

    #[test]
    fn tai_is_ahead_of_realtime_by_whole_seconds() {
        let TaiOffset(offset) = HostClock.tai_offset();
        assert_eq!(offset.0 % NANOS_PER_SECOND, 0);
        assert!((0..=100).contains(&(offset.0 / NANOS_PER_SECOND)));
    }
}
