//! The holding time of each frame.

use sojourn_time::Nanos;

/// The holding time of a direction's frames: a constant, and more for every Nth.
pub struct Hold {
    always: Nanos,
    every: Option<(u64, Nanos)>,
    count: u64,
}

impl Hold {
    pub fn new(always_ns: i64, every: Option<(u64, i64)>) -> Self {
        Self { always: Nanos(always_ns), every: every.map(|(nth, extra_ns)| (nth, Nanos(extra_ns))), count: 0 }
    }

    /// Returns the time for the next frame; the Nth, 2Nth, … are held longer.
    pub fn next(&mut self) -> Nanos {
        self.count += 1;
        match self.every {
            Some((nth, extra)) if self.count.is_multiple_of(nth) => self.always + extra,
            _ => self.always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_frame_is_delayed_longer() {
        let mut hold = Hold::new(10, Some((3, 100)));
        assert_eq!([(); 6].map(|()| hold.next().0), [10, 10, 110, 10, 10, 110]);
    }
}
