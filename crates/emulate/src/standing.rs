//! The standing queue: the minimum waiting time of packets in each window of a block.
//!
//! A standing queue is one that never drains; the mean does not distinguish it from a burst.

use serde::Serialize;
use sojourn_time::{Nanos, Time};

use crate::accuracy::Room;

/// As CoDel's interval: longer than a burst, shorter than a trial.
const WINDOW: Nanos = Nanos::millis(100);
/// Limit of windows per block (ten minutes): their memory is allocated before packets are forwarded.
const MOST_WINDOWS: usize = 6_000;
/// Marks a window in which no packet left the queue.
const NONE: i64 = -1;

/// The minimum waiting time in a queue, window by window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeastWaits {
    /// Length of a window.
    pub window_ns: Nanos,
    /// Start of the first window.
    pub from_ns: Time,
    /// Minimum waiting time of packets that left the queue in each window; `None`: there was none. Covers the first ten minutes.
    pub least_ns: Vec<Option<i64>>,
}

/// The counters behind [`LeastWaits`].
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    first: Option<i64>,
    least: Vec<i64>,
}

impl Windows {
    pub fn new(room: Room) -> Self {
        let least = match room {
            Room::Whole => Vec::with_capacity(MOST_WINDOWS),
            Room::Growing => Vec::new(),
        };
        Self { first: None, least }
    }

    /// Records that a packet left the queue at `now` after waiting `span`.
    pub fn record(&mut self, now: Time, span: Nanos) {
        let window = now.0.div_euclid(WINDOW.0);
        let first = *self.first.get_or_insert(window);
        let Ok(place) = usize::try_from(window - first) else { return };
        if place >= MOST_WINDOWS {
            return;
        }
        if place >= self.least.len() {
            self.least.resize(place + 1, NONE);
        }
        let (least, span) = (&mut self.least[place], span.0.max(0));
        *least = if *least == NONE { span } else { span.min(*least) };
    }

    /// Resets.
    pub fn clear(&mut self) {
        self.first = None;
        self.least.clear();
    }

    /// Returns the windows; `None` before the first packet.
    pub fn told(&self) -> Option<LeastWaits> {
        let known = |least: &i64| (*least != NONE).then_some(*least);
        self.first.map(|first| LeastWaits {
            window_ns: WINDOW,
            from_ns: Time(first * WINDOW.0),
            least_ns: self.least.iter().map(known).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_of_each_window_is_kept_in_bounded_memory() {
        let mut windows = Windows::new(Room::Whole);
        let room = windows.least.capacity();
        assert_eq!(windows.told(), None);
        for (at_ms, wait) in [(950, 7), (999, 5), (1_000, 9), (1_099, 3), (1_350, 4), (940, 1), (1_000_000_000, 2)] {
            windows.record(Time(at_ms * 1_000_000), Nanos(wait));
        }
        let told = windows.told().unwrap();
        assert_eq!((told.window_ns, told.from_ns), (Nanos::millis(100), Time(900_000_000)));
        assert_eq!(told.least_ns, [Some(1), Some(3), None, None, Some(4)]);
        windows.record(Time(0), Nanos(0));
        assert_eq!(windows.told().unwrap().least_ns.len(), 5, "a time before the first is in no window");
        for window in 0..10_000 {
            windows.record(Time((10 + window) * WINDOW.0), Nanos(window));
        }
        assert_eq!((windows.least.len(), windows.least.capacity()), (MOST_WINDOWS, room));
        windows.clear();
        assert_eq!(windows.told(), None);
    }
}
