//! The prober's clock in a simulation: simulated time, with one optional step.

use sojourn_time::{Clock, Nanos, SimulatedClock, Time};

use super::ClockStep;

/// The prober's clock reading, and the true time.
#[derive(Clone, Debug)]
pub struct ProberClock {
    truth: SimulatedClock,
    step: Option<ClockStep>,
}

impl ProberClock {
    /// Returns a clock that shows the time of `truth`, apart from `step`.
    pub fn new(truth: SimulatedClock, step: Option<ClockStep>) -> Self {
        Self { truth, step }
    }

    /// Returns the true time; it corresponds to `CLOCK_MONOTONIC_RAW` of a host.
    pub fn true_time(&self) -> Time {
        self.truth.now()
    }

    /// Returns the reading of this clock at a true time.
    pub fn reading_at(&self, truth: Time) -> Time {
        match self.step {
            Some(step) if truth.0 >= step.at_ns => truth + Nanos(step.by_ns),
            _ => truth,
        }
    }

    /// Advances the true time.
    pub(super) fn advance(&self, span: Nanos) {
        self.truth.advance_to(self.truth.now() + span);
    }

    pub(super) fn advance_to(&self, truth: Time) {
        self.truth.advance_to(truth);
    }

    /// Returns the first true time, from now on, at which this clock shows `reading` or more.
    fn first_at(&self, reading: Time) -> Time {
        match self.step {
            Some(step) if self.true_time().0 >= step.at_ns || reading.0 >= step.at_ns => {
                Time(step.at_ns).max(reading - Nanos(step.by_ns))
            }
            _ => reading,
        }
    }
}

impl Clock for ProberClock {
    fn now(&self) -> Time {
        self.reading_at(self.true_time())
    }

    fn wait_until(&self, deadline: Time, _spin: Nanos) -> Time {
        self.truth.advance_to(self.first_at(deadline));
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wait_ends_when_the_clock_reads_the_deadline(
            at_ns in 0..1000_i64, by_ns in -500..500_i64, deadlines in proptest::collection::vec(0..2000_i64, 1..20),
        ) {
            let clock = ProberClock::new(SimulatedClock::default(), Some(ClockStep { at_ns, by_ns }));
            for deadline in deadlines {
                prop_assert!(clock.wait_until(Time(deadline), Nanos::ZERO) >= Time(deadline));
            }
        }
    }

    #[test]
    fn clock_reading_contains_the_step() {
        let clock = ProberClock::new(SimulatedClock::default(), Some(ClockStep { at_ns: 100, by_ns: 50 }));
        assert_eq!(clock.wait_until(Time(99), Nanos::ZERO), Time(99));
        assert_eq!(clock.wait_until(Time(120), Nanos::ZERO), Time(150));
        assert_eq!(clock.true_time(), Time(100));
    }
}
