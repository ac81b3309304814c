//! The host's clock: `CLOCK_TAI`, and what the kernel's other clocks say beside it.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the host clock")]

use rustix::thread::{ClockId as SleepClock, NanosleepRelativeResult, clock_nanosleep_relative};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::{Clock, Nanos, Time};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// `CLOCK_TAI` of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

/// Several clocks of this host, read as nearly at once as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_TAI`.
    pub tai: Time,
    /// `CLOCK_MONOTONIC_RAW`: never stepped and never slewed, so a step of the other shows against it.
    pub monotonic_raw: Time,
    /// How long the reading took: the error of their difference.
    pub error: Nanos,
}

/// What to add to a `CLOCK_REALTIME` stamp of the kernel to have it on `CLOCK_TAI`.
///
/// The two differ by whole seconds, so the rounded difference of two readings is exact unless the clock is stepped
/// between this reading and the stamp; take it anew often, and look for steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaiOffset(pub Nanos);

impl HostClock {
    /// Reads `CLOCK_TAI` and `CLOCK_MONOTONIC_RAW` side by side.
    pub fn read(&self) -> Reading {
        let before = tai();
        let monotonic_raw = read(ClockId::MonotonicRaw);
        let after = tai();
        Reading { tai: Time(before.0 + (after.0 - before.0) / 2), monotonic_raw, error: after - before }
    }

    /// Reads by how many whole seconds `CLOCK_TAI` is ahead of `CLOCK_REALTIME`.
    pub fn tai_offset(&self) -> TaiOffset {
        let difference = tai() - read(ClockId::Realtime);
        let seconds = (difference.0 + NANOS_PER_SECOND / 2).div_euclid(NANOS_PER_SECOND);
        TaiOffset(Nanos::seconds(seconds))
    }
}

impl TaiOffset {
    /// Converts a `CLOCK_REALTIME` stamp.
    pub fn convert(self, realtime: Time) -> Time {
        realtime + self.0
    }
}

impl Clock for HostClock {
    fn now(&self) -> Time {
        tai()
    }

    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
        loop {
            let now = tai();
            let left = deadline - now - spin;
            if left <= Nanos::ZERO {
                break;
            }
            sleep(left);
        }
        loop {
            let now = tai();
            if now >= deadline {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

fn tai() -> Time {
    read(ClockId::Tai)
}

fn read(clock: ClockId) -> Time {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    Time(tv_sec * NANOS_PER_SECOND + tv_nsec)
}

fn sleep(span: Nanos) {
    let request = Timespec { tv_sec: span.0 / NANOS_PER_SECOND, tv_nsec: span.0 % NANOS_PER_SECOND };
    // A signal ends the sleep early; the caller looks at the clock again and decides.
    let _: NanosleepRelativeResult = clock_nanosleep_relative(SleepClock::Monotonic, &request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_the_deadline_and_not_before() {
        let clock = HostClock;
        let deadline = clock.now() + Nanos::micros(300);
        assert!(clock.wait_until(deadline, Nanos::micros(100)) >= deadline);
    }

    #[test]
    fn tai_is_ahead_of_realtime_by_whole_seconds() {
        let TaiOffset(offset) = HostClock.tai_offset();
        assert_eq!(offset.0 % NANOS_PER_SECOND, 0);
        assert!((0..=100).contains(&(offset.0 / NANOS_PER_SECOND)));
    }
}
