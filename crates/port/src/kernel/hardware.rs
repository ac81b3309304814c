//! Reads a network interface's clock (PHC) and converts its timestamps to `CLOCK_TAI`.
//!
//! Reads `/dev/ptpN` and the host clock together at intervals, and extrapolates linearly from the last two readings, so
//! that a free-running clock is followed too. Does not steer any clock.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use sojourn_time::{Clock, HostClock, Nanos, Time};

const READ_AGAIN_AFTER: Nanos = Nanos::millis(100);
const TRIES: usize = 5;

/// The clock of a network interface.
#[derive(Debug)]
pub struct HardwareClock {
    device: File,
    line: Line,
    read_at: Time,
}

/// The host clock minus the interface's clock, as a linear function of the interface's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    reference: Time,
    ahead: Nanos,
    per_nano: f64,
}

/// The PTP clocks of this machine, opened before privileges are dropped.
static OPENED: OnceLock<Vec<(u32, File)>> = OnceLock::new();
/// The number of `/dev/ptpN` that are tried.
const MOST_CLOCKS: u32 = 64;

/// Opens every existing `/dev/ptpN`, for ports that are opened after privileges are dropped.
pub fn open_clocks() {
    OPENED.get_or_init(|| (0..MOST_CLOCKS).filter_map(|number| Some((number, device(number)?))).collect());
}

fn device(number: u32) -> Option<File> {
    File::open(PathBuf::from(format!("/dev/ptp{number}"))).ok()
}

impl HardwareClock {
    /// Opens `/dev/ptpN`; `None` when that is not permitted or when it cannot be read.
    pub fn open(number: u32) -> Option<Self> {
        let opened = OPENED.get().and_then(|opened| opened.iter().find(|(known, _)| *known == number));
        let device = opened.and_then(|(_, device)| device.try_clone().ok()).or_else(|| device(number))?;
        let (theirs, ours) = read_beside(&device)?;
        let line = Line { reference: theirs, ahead: ours - theirs, per_nano: 0.0 };
        Some(Self { device, line, read_at: ours })
    }

    /// Converts an interface's timestamp to host time; `now` is the present host time.
    pub fn convert(&mut self, stamp: Time, now: Time) -> Time {
        if now - self.read_at > READ_AGAIN_AFTER
            && let Some((theirs, ours)) = read_beside(&self.device)
        {
            self.line = self.line.through(theirs, ours);
            self.read_at = ours;
        }
        self.line.convert(stamp)
    }
}

impl Line {
    /// Extrapolates from the last pair of readings and a new one.
    fn through(self, theirs: Time, ours: Time) -> Self {
        let ahead = ours - theirs;
        let span = (theirs - self.reference).0;
        let per_nano = if span > 0 { (ahead - self.ahead).0 as f64 / span as f64 } else { 0.0 };
        Self { reference: theirs, ahead, per_nano }
    }

    fn convert(self, stamp: Time) -> Time {
        let drift = (stamp - self.reference).0 as f64 * self.per_nano;
        stamp + self.ahead + Nanos(drift.round() as i64)
    }
}

/// Reads both clocks as close together as possible: the tightest of several tries.
fn read_beside(device: &File) -> Option<(Time, Time)> {
    let try_once = || {
        let before = HostClock.now();
        let theirs = clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd())).ok()?;
        let width = HostClock.now() - before;
        let theirs = Time(theirs.tv_sec.checked_mul(1_000_000_000)?.checked_add(theirs.tv_nsec)?);
        Some((width, theirs, before + Nanos(width.0 / 2)))
    };
    (0..TRIES).filter_map(|_| try_once()).min_by_key(|(width, ..)| *width).map(|(_, theirs, ours)| (theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_interface_clock_is_tracked() {
        // The interface's clock gains 50 µs per second and is a million seconds behind.
        let theirs = |ours: i64| Time(ours - 1_000_000_000_000_000 + ours / 20_000);
        let second = 1_000_000_000;
        let first = Line { reference: theirs(0), ahead: Time(0) - theirs(0), per_nano: 0.0 };
        let line = first.through(theirs(second), Time(second));
        let error = line.convert(theirs(second + second / 10)) - Time(second + second / 10);
        assert!(error.0.abs() <= 5, "{error:?}");
    }
}
