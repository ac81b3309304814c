//! Decides how a loop uses its CPU: when it sleeps, polls for frames, spins on the clock, and rests to avoid the
//! kernel's real-time throttling.
//!
//! The drivers of probes, streams and the emulator ask a [`Pacer`] for the next action before each departure. They do
//! the sending and receiving themselves. Loops without departures, which answer or receive, take [`Rests`] alone.

use serde::{Deserialize, Serialize};

use crate::{Clock, Nanos, Time};

/// The longest sleep: a signal that arrives just before a sleep does not end it.
pub const LONGEST_SLEEP: Nanos = Nanos::millis(100);

/// A clock that goes back by this much was set. Pending departures would then be hours late or never happen.
pub const SET_BACK: Nanos = Nanos::seconds(1);

/// How long before a departure a sleep ends: a sleeping thread wakes up to 100 µs late.
const WAKE: Nanos = Nanos::micros(100);

const SECOND: Nanos = Nanos::seconds(1);

/// With `SCHED_FIFO`: the interval at which to check that the CPU was idle for [`REST`] of it. With 40 ms the longest
/// rest is 3 ms, so no departure is later than that. Decision 34 has the measurement.
pub const STRETCH: Nanos = Nanos::millis(40);

/// With `SCHED_FIFO`: the idle time in each stretch.
///
/// By default the kernel leaves real-time threads 950 ms of each second (sched(7), `sched_rt_runtime_us` of
/// `sched_rt_period_us`), and throttles a thread that leaves less than 5 % idle. This is 1.5 times that, since the
/// stretch and the kernel's period do not start together.
pub const REST: Nanos = Nanos(STRETCH.0 * 3 / 40);

/// How to wait for a departure or for a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Always poll: uses a whole CPU.
    Spin,
    /// Sleep until shortly before, then poll and spin. For a frame, whose time is unknown: sleep.
    #[default]
    SleepThenSpin,
    /// Sleep only. Departures are late by the wake-up latency, which is zero in simulated time.
    Sleep,
}

impl Wait {
    /// Returns the name used in options and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::SleepThenSpin => "sleep-then-spin",
            Self::Sleep => "sleep",
        }
    }
}

/// The scheduling settings of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How to wait.
    pub wait: Wait,
    /// Whether the thread runs under `SCHED_FIFO`.
    pub is_real_time: bool,
}

/// The next action before a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Spin on the clock until the departure.
    Depart,
    /// Poll for frames.
    Look,
    /// Sleep until this time, or until a frame arrives.
    Sleep(Time),
}

/// Decides the next action before each departure, and makes a real-time thread rest.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    pace: Pace,
    /// How long before a departure a sleep ends.
    pub wake: Nanos,
    /// How long before a departure only the clock is read.
    pub quiet: Nanos,
    rests: Rests,
}

/// Makes a real-time thread rest, however much there is to do.
#[derive(Clone, Copy, Debug)]
pub struct Rests {
    is_real_time: bool,
    /// The start of the stretch, and the thread's CPU time then.
    stretch: (Time, Nanos),
}

impl Pacer {
    /// Returns a pacer for departures with this mean interval. `quiet`: the longest duration of one poll for frames.
    ///
    /// With `SCHED_FIFO`, two fifths of each interval are left for sleep and for the cost of a departure.
    pub fn new(pace: Pace, interval: Nanos, quiet: Nanos, clock: &(impl Clock + ?Sized)) -> Self {
        let most = Nanos(interval.0 / 5 * 3).min(STRETCH);
        let wake = match (pace.wait, pace.is_real_time) {
            (Wait::Sleep, _) => Nanos::ZERO,
            (Wait::SleepThenSpin, true) => WAKE.min(most),
            (Wait::SleepThenSpin, false) => WAKE,
            (Wait::Spin, true) => most,
            (Wait::Spin, false) => Nanos(i64::MAX),
        };
        let quiet = if pace.wait == Wait::Sleep { Nanos::ZERO } else { quiet };
        Self { pace, wake, quiet, rests: Rests::new(pace.is_real_time, clock) }
    }

    /// Returns the scheduling settings.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns the next action before a departure at `due`.
    pub fn next(&self, now: Time, due: Time) -> Next {
        if now >= due - self.quiet {
            return Next::Depart;
        }
        self.sleep(now, due - self.wake).map_or(Next::Look, Next::Sleep)
    }

    /// Returns until when to sleep if there is nothing to do before `until`; `None`: do not sleep.
    pub fn sleep(&self, now: Time, until: Time) -> Option<Time> {
        let never_sleeps = self.pace.wait == Wait::Spin && !self.pace.is_real_time;
        (!never_sleeps && now < until).then(|| until.min(now + LONGEST_SLEEP))
    }

    /// With `SCHED_FIFO`: rests if it is due ([`Rests::rest_if_due`]).
    pub fn rest_if_due(&mut self, clock: &(impl Clock + ?Sized)) -> Option<Time> {
        self.rests.rest_if_due(clock)
    }
}

impl Rests {
    /// Begins the first stretch. A thread that `is_real_time` runs under `SCHED_FIFO`; another one never rests.
    pub fn new(is_real_time: bool, clock: &(impl Clock + ?Sized)) -> Self {
        Self { is_real_time, stretch: (clock.now(), clock.thread_time()) }
    }

    /// Rests for the idle time that the past stretch lacked; after a clock step back, whose stretch has no length, for
    /// all of it. It is calculated from the thread's CPU time: sleeps of a few microseconds free nothing. Returns when
    /// the rest ended.
    pub fn rest_if_due(&mut self, clock: &(impl Clock + ?Sized)) -> Option<Time> {
        if !self.is_real_time {
            return None;
        }
        let (began, taken) = self.stretch;
        let now = clock.now();
        let elapsed = now - began;
        if (Nanos::ZERO..=STRETCH).contains(&elapsed) {
            return None;
        }
        let free = (elapsed - (clock.thread_time() - taken)).max(Nanos::ZERO);
        let rested = (free < REST).then(|| {
            let until = now + (REST - free);
            clock.wait_until(until, Nanos::ZERO);
            until
        });
        self.stretch = (clock.now(), clock.thread_time());
        rested
    }
}

/// Detects that a clock was set back.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    latest: Time,
}

impl Watch {
    /// Starts at a time.
    pub const fn new(now: Time) -> Self {
        Self { latest: now }
    }

    /// Returns whether the clock was set back since the latest time seen.
    pub fn is_set_back(&mut self, now: Time) -> bool {
        self.latest = self.latest.max(now);
        self.latest - now >= SET_BACK
    }
}

/// Returns true once a second, so that a loop reads the 32-bit counters of sockets before they wrap.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    since: Time,
}

impl Seconds {
    /// Begins the first second.
    pub const fn new(now: Time) -> Self {
        Self { since: now }
    }

    /// Returns whether a second has passed, or the clock was set back by one, since it last did.
    pub fn have_passed(&mut self, now: Time) -> bool {
        let have_passed = (now - self.since).0.unsigned_abs() >= SECOND.0.unsigned_abs();
        if have_passed {
            self.since = now;
        }
        have_passed
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::SimulatedClock;

    const QUIET: Nanos = Nanos::micros(10);

    fn pacer(wait: Wait, is_real_time: bool, interval: Nanos) -> Pacer {
        Pacer::new(Pace { wait, is_real_time }, interval, QUIET, &SimulatedClock::default())
    }

    #[test]
    fn a_second_passes_once_and_also_when_the_clock_is_set_back() {
        let mut seconds = Seconds::new(Time(0));
        let times =
            [999_999_999, 1_000_000_000, 1_000_000_001, 2_500_000_000, 1_600_000_000, 1_500_000_000, 1_500_000_001];
        assert_eq!(times.map(|now| seconds.have_passed(Time(now))), [false, true, false, true, false, true, false]);
    }

    #[test]
    fn pacer_sleeps_then_spins_then_sends() {
        let pacer = pacer(Wait::SleepThenSpin, false, Nanos::millis(1));
        let due = Time(1_000_000);
        assert_eq!(pacer.next(Time(0), due), Next::Sleep(Time(900_000)));
        assert_eq!(pacer.next(Time(900_000), due), Next::Look);
        assert_eq!(pacer.next(Time(990_000), due), Next::Depart);
        assert_eq!(pacer.next(Time(0), Time(0) + Nanos::seconds(9)), Next::Sleep(Time(0) + LONGEST_SLEEP));
    }

    #[test]
    fn pacer_mode_spin_never_sleeps_and_mode_sleep_never_spins() {
        assert_eq!(pacer(Wait::Spin, false, Nanos::millis(1)).next(Time(0), Time::NEVER), Next::Look);
        let sleeper = pacer(Wait::Sleep, false, Nanos::millis(1));
        assert_eq!(sleeper.next(Time(0), Time(5)), Next::Sleep(Time(5)));
        assert_eq!(sleeper.next(Time(5), Time(5)), Next::Depart);
    }

    #[test]
    fn in_real_time_two_fifths_of_an_interval_are_left_for_sleep() {
        for (wait, interval, slept) in [
            (Wait::SleepThenSpin, 100_000, 40_000),
            (Wait::Spin, 10_000_000, 4_000_000),
            (Wait::Spin, 1_000_000_000, 1_000_000_000 - STRETCH.0),
        ] {
            let pacer = pacer(wait, true, Nanos(interval));
            let until = pacer.sleep(Time(0), Time(interval) - pacer.wake);
            assert_eq!(until, Some(Time(slept.min(LONGEST_SLEEP.0))), "{wait:?} {interval}");
        }
    }

    #[test]
    fn real_time_thread_rests_for_the_time_it_was_busy() {
        // Its CPU time equals the elapsed time: nothing was idle.
        let clock = SimulatedClock::default();
        let pace = Pace { wait: Wait::SleepThenSpin, is_real_time: true };
        let mut pacer = Pacer::new(pace, Nanos::millis(1), QUIET, &clock);
        clock.advance_to(Time(0) + STRETCH);
        assert_eq!(pacer.rest_if_due(&clock), None, "not yet");
        clock.advance_to(Time(0) + STRETCH + Nanos(1));
        assert_eq!(pacer.rest_if_due(&clock), Some(Time(0) + STRETCH + Nanos(1) + REST));
        assert_eq!(pacer.rest_if_due(&clock), None, "a new stretch");
    }

    #[test]
    fn clock_that_is_set_back_does_not_postpone_the_rest() {
        /// A clock that can be set, whose thread is never idle.
        struct Settable(Cell<Time>);
        impl Clock for Settable {
            fn now(&self) -> Time {
                self.0.get()
            }

            fn wait_until(&self, deadline: Time, _: Nanos) -> Time {
                self.0.set(deadline);
                deadline
            }
        }
        let clock = Settable(Cell::new(Time(0) + Nanos::seconds(3_600)));
        let mut rests = Rests::new(true, &clock);
        clock.0.set(Time(0));
        assert_eq!(rests.rest_if_due(&clock), Some(Time(0) + REST));
        assert_eq!(rests.rest_if_due(&clock), None, "a new stretch");
        clock.0.set(clock.now() + STRETCH + Nanos(1));
        assert!(rests.rest_if_due(&clock).is_some());
        assert_eq!(Rests::new(false, &clock).rest_if_due(&clock), None);
    }

    /// By default the kernel leaves real-time threads 950 ms of each second.
    #[test]
    fn rest_time_exceeds_the_real_time_throttling_of_the_kernel() {
        assert!(REST.0 * 20 > (STRETCH + REST).0);
    }

    #[test]
    fn backward_jump_of_a_second_is_a_clock_step() {
        let mut watch = Watch::new(Time(0));
        let later = Time(0) + Nanos::seconds(5);
        assert!(!watch.is_set_back(later));
        assert!(!watch.is_set_back(later - Nanos(SET_BACK.0 - 1)));
        assert!(watch.is_set_back(later - SET_BACK));
    }
}
