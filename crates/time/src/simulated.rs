//! A clock that advances only when it is waited for.

use std::cell::Cell;
use std::rc::Rc;

use crate::{Clock, Nanos, Time};

/// Simulated time, shared by all its clones.
#[derive(Clone, Debug, Default)]
pub struct SimulatedClock {
    now: Rc<Cell<Time>>,
}

impl SimulatedClock {
    /// Advances the clock to `time`, never back.
    pub fn advance_to(&self, time: Time) {
        self.now.set(self.now.get().max(time));
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn wait_until(&self, deadline: Time, _spin: Nanos) -> Time {
        self.advance_to(deadline);
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_monotonic_time() {
        let clock = SimulatedClock::default();
        let other = clock.clone();
        clock.wait_until(Time(5), Nanos::ZERO);
        other.advance_to(Time(3));
        assert_eq!(other.now(), Time(5));
    }
}
