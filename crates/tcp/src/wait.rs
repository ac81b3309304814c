//! Periodic due times, and waiting for a socket until then.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sojourn_time::{Clock, HostClock, Nanos, Time};

/// The longest wait, so that the stop flag is checked in time.
const LONGEST_WAIT: Nanos = Nanos::millis(100);

/// A periodic due time: multiples of the interval from the start, so that it does not drift.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    next: Time,
    every: Option<Nanos>,
}

impl Due {
    /// First due one interval after the start; without an interval, never.
    pub fn every(every: Option<Nanos>, start: Time) -> Self {
        Self { next: every.map_or(Time::NEVER, |every| start + every), every }
    }

    /// Return the next due time.
    pub fn next(self) -> Time {
        self.next
    }

    /// Return whether it is due.
    pub fn has_come(self) -> bool {
        self.next != Time::NEVER && HostClock.now() >= self.next
    }

    /// Advance to the next due time in the future; missed ones are skipped.
    pub fn advance(&mut self) {
        self.next = after(self.next, self.every, HostClock.now());
    }
}

fn after(due: Time, every: Option<Nanos>, now: Time) -> Time {
    match every {
        None => due,
        Some(every) => {
            let step = every.0.max(1);
            let missed = ((now - due).0.max(0)) / step;
            due + Nanos(step.saturating_mul(missed + 1))
        }
    }
}

/// Wait until a socket is ready or the time is reached, but at most `LONGEST_WAIT`; return whether it is ready.
///
/// # Errors
/// When poll fails.
pub fn ready(socket: impl AsFd, flags: PollFlags, until: Time) -> io::Result<bool> {
    let span = (until - HostClock.now()).0.clamp(0, LONGEST_WAIT.0);
    let timeout = Timespec { tv_sec: 0, tv_nsec: span };
    let mut asked = [PollFd::new(&socket, flags)];
    match poll(&mut asked, Some(&timeout)) {
        Ok(_) => Ok(!asked[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_deadlines_keep_their_grid_and_missed_ones_are_skipped() {
        let every = Some(Nanos(10));
        assert_eq!(after(Time(100), every, Time(100)), Time(110));
        assert_eq!(after(Time(100), every, Time(137)), Time(140));
        assert_eq!(after(Time(100), every, Time(140)), Time(150));
        assert_eq!(after(Time(100), every, Time(90)), Time(110));
        assert_eq!(after(Time(100), None, Time(137)), Time(100));
    }
}
