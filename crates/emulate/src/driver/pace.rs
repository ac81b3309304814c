//! Timing that the driver learns while it runs: the cost of a departure, the wake-up latency, the duration of a poll.

use sojourn_time::{Nanos, Time, Wait};

/// The time from the end of the wait to the call that hands a frame to the kernel: a running median.
///
/// A median, because a single interrupt must not make all later departures early. It begins at zero, because a frame
/// must not leave early while the cost is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    median: Nanos,
    seen: u32,
}

/// The first samples move the median in large steps.
const WARMING_UP: u32 = 64;
/// Upper limit: longer spans are not the machine's ordinary cost.
const MOST_COST: Nanos = Nanos::micros(200);

impl Cost {
    /// Returns how long before its deadline to release a frame.
    pub const fn lead(&self) -> Nanos {
        self.median
    }

    /// Learns from one departure.
    pub fn took(&mut self, span: Nanos) {
        let step = if self.seen < WARMING_UP {
            self.seen += 1;
            Nanos((self.median.0 / 8).max(400))
        } else {
            Nanos((self.median.0 / 256).max(5))
        };
        let step = Nanos(step.0.min((span - self.median).0.abs()));
        let moved = if span > self.median { self.median + step } else { self.median - step };
        self.median = moved.clamp(Nanos::ZERO, MOST_COST);
    }
}

/// How long before a departure to wake: the 99.5th percentile of wake-up latency.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    span: Nanos,
}

/// The length of the last part of a sleep: a CPU wakes late from a long (deep) sleep, but not soon after it was woken.
const NAP: Nanos = Nanos::micros(200);
/// A first part shorter than this is omitted.
const LEAST_FIRST_PART: Nanos = Nanos::micros(50);

const FIRST_GUARD: Nanos = Nanos::micros(100);
const LEAST_GUARD: Nanos = Nanos::micros(30);
const MOST_GUARD: Nanos = Nanos::micros(500);
/// Step up after a wake-up later than the guard; the step down after any other is 1/200 of it.
const GUARD_STEP: i64 = 10_000;

impl Guard {
    /// Begins with 100 µs, or with zero if the driver only sleeps.
    pub fn new(wait: Wait) -> Self {
        Self { span: if wait == Wait::Sleep { Nanos::ZERO } else { FIRST_GUARD } }
    }

    /// Returns how long before a departure to wake.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// Returns the end of the first part of a sleep from `now` to `until`, after which the driver sleeps again; `None`:
    /// the sleep is short enough for one part, whose wake-up is learnt from.
    pub fn first_part(&self, now: Time, until: Time) -> Option<Time> {
        let end = until - NAP;
        (self.span > Nanos::ZERO && end - now >= LEAST_FIRST_PART).then_some(end)
    }

    /// Learns from the last part of a sleep, which was due to end at `until`.
    pub fn woke(&mut self, until: Time, at: Time) {
        if self.span == Nanos::ZERO {
            return;
        }
        let late = at - until;
        let moved = if late > self.span { self.span.0 + GUARD_STEP } else { self.span.0 - GUARD_STEP / 200 };
        self.span = Nanos(moved).clamp(LEAST_GUARD, MOST_GUARD);
    }
}

/// The mean duration of a poll of both ports: shortly before a departure only the clock is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    mean: Nanos,
}

const LEAST_QUIET: Nanos = Nanos(200);
const MOST_QUIET: Nanos = Nanos::micros(20);

impl Look {
    /// Returns how long before a departure to read only the clock.
    pub fn quiet(&self) -> Nanos {
        Nanos(self.mean.0 * 2).clamp(LEAST_QUIET, MOST_QUIET)
    }

    /// Learns from a poll that found no frame.
    pub fn took(&mut self, span: Nanos) {
        self.mean = Nanos(self.mean.0 + (span.0.min(MOST_QUIET.0) - self.mean.0) / 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_median_and_outliers_do_not_move_it() {
        let mut cost = Cost::default();
        for number in 0..20_000_i64 {
            // 4 to 6 µs; one in ten takes a millisecond.
            let span = if number % 10 == 0 { Nanos::millis(1) } else { Nanos(4_000 + number * 7919 % 2_000) };
            cost.took(span);
        }
        assert!((4_900..5_400).contains(&cost.lead().0), "{:?}", cost.lead());
    }

    #[test]
    fn departure_cost_converges_within_fifty_departures() {
        let mut cost = Cost::default();
        (0..50).for_each(|_| cost.took(Nanos::micros(12)));
        assert!((cost.lead() - Nanos::micros(12)).0.abs() < 200, "{:?}", cost.lead());
    }

    #[test]
    fn long_sleep_is_split_in_two() {
        let guard = Guard::new(Wait::SleepThenSpin);
        assert_eq!(guard.first_part(Time(0), Time(1_000_000)), Some(Time(800_000)));
        assert_eq!(guard.first_part(Time(800_000), Time(1_000_000)), None);
        assert_eq!(guard.first_part(Time(760_000), Time(1_000_000)), None, "not worth a wake-up");
        assert_eq!(Guard::new(Wait::Sleep).first_part(Time(0), Time(1_000_000)), None, "it is late anyway");
    }

    #[test]
    fn guard_time_follows_the_measured_wake_up_latency() {
        let mut guard = Guard::new(Wait::SleepThenSpin);
        assert_eq!(guard.span(), Nanos::micros(100));
        (0..100_000).for_each(|_| guard.woke(Time(0), Time(20_000)));
        assert_eq!(guard.span(), LEAST_GUARD);
        // One wake-up in fifty takes 300 µs: more often than one in two hundred.
        for number in 0..100_000 {
            guard.woke(Time(0), Time(if number % 50 == 0 { 300_000 } else { 20_000 }));
        }
        assert!((280_000..=320_000).contains(&guard.span().0), "{:?}", guard.span());
    }
}
