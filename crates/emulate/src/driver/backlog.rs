//! The backlog in front of a port, when frames arrive faster than they can be emulated.
//!
//! A burst, or a pause of the machine, leaves a backlog that is soon gone: it is read and emulated late. A standing
//! backlog is overload: some frames must be dropped, and the rest should not wait as long as the kernel's buffer lasts
//! (half a second over AF_PACKET). As in CoDel (RFC 8289), the minimum wait within a window distinguishes the two.

use sojourn_time::{Nanos, Time};

/// Frames that waited longer than this are dropped while the backlog stands.
pub const MOST_WAIT: Nanos = Nanos::millis(5);
/// A backlog is standing if every frame of such a window waited longer than [`MOST_WAIT`].
const WINDOW: Nanos = Nanos::millis(100);

/// The backlog in front of one port.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// The minimum wait since the window began.
    least: Nanos,
    since: Time,
    stays: bool,
    /// Whether a warning is due. It is given once; `local_drops` continues to count.
    is_news: bool,
    is_told: bool,
    dropped: u64,
}

impl Backlog {
    pub const fn new(now: Time) -> Self {
        Self { least: Nanos::ZERO, since: now, stays: false, is_news: false, is_told: false, dropped: 0 }
    }

    /// Returns whether to drop a frame that arrived at `arrived` and was read at `now`; count it if so.
    pub fn drops(&mut self, arrived: Time, now: Time) -> bool {
        let wait = now - arrived;
        self.least = self.least.min(wait);
        if now - self.since >= WINDOW {
            let stays = self.least > MOST_WAIT;
            self.is_news |= stays && !self.is_told;
            // Dropping keeps the wait at its limit, so only an empty ring ends the standing backlog.
            self.stays |= stays;
            (self.least, self.since) = (wait, now);
        }
        let drops = self.stays && wait > MOST_WAIT;
        self.dropped += u64::from(drops);
        drops
    }

    /// Records that the ring is empty.
    pub fn is_empty(&mut self) {
        self.least = Nanos::ZERO;
        self.stays = false;
    }

    /// Returns the number of frames dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns, once, whether a backlog has become standing for the first time.
    pub fn news(&mut self) -> bool {
        self.is_told |= self.is_news;
        std::mem::take(&mut self.is_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: i64 = 1_000_000;

    /// Reads a frame every 100 µs for `millis` ms, each after `wait`; return how many were dropped.
    fn read(backlog: &mut Backlog, from: i64, millis: i64, wait: Nanos) -> u64 {
        let before = backlog.dropped();
        for step in 0..millis * 10 {
            let now = Time(from * MILLI + step * MILLI / 10);
            backlog.drops(now - wait, now);
        }
        backlog.dropped() - before
    }

    #[test]
    fn burst_is_read_completely_and_a_standing_backlog_is_dropped() {
        let mut backlog = Backlog::new(Time(0));
        assert_eq!(read(&mut backlog, 0, 95, Nanos::millis(90)), 0, "a pause of the machine");
        assert_eq!(read(&mut backlog, 95, 200, Nanos::micros(20)), 0);
        assert!(!backlog.news());
        // The first window contains a short wait; the next one does not.
        assert_eq!(read(&mut backlog, 295, 90, Nanos::millis(90)), 0);
        let dropped = read(&mut backlog, 385, 200, Nanos::millis(90));
        assert!(
            (1_000..2_000).contains(&dropped),
            "{dropped} of 2,000 which all waited too long, after one window at most"
        );
        assert!(backlog.news() && !backlog.news());
        assert_eq!(read(&mut backlog, 585, 200, Nanos::millis(4)), 0, "the limit is kept");
        assert_eq!(read(&mut backlog, 785, 1, Nanos::millis(6)), 10, "and goes on to be kept");
    }

    #[test]
    fn empty_ring_ends_the_overload() {
        let mut backlog = Backlog::new(Time(0));
        read(&mut backlog, 0, 300, Nanos::millis(50));
        assert!(backlog.dropped() > 0);
        backlog.is_empty();
        assert_eq!(read(&mut backlog, 300, 90, Nanos::millis(50)), 0);
        assert!(backlog.news());
        read(&mut backlog, 390, 300, Nanos::millis(50));
        assert!(!backlog.news(), "it is reported once");
    }
}
