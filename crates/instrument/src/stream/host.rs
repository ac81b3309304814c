//! What this host says of itself: whose clock it has, how fast its links are, what a measurement took of its processor.

use std::fs;

use sojourn_port::kernel::Interface;
use sojourn_time::{HostClock, Nanos, Reading};

/// Returns the id of this host's clock (48 bits): of two ends that have the same, one kernel keeps the time.
pub fn clock_id() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    // Without a boot id nobody can tell; a number of this process alone then claims nothing.
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| u64::from(std::process::id()))
}

/// Returns how fast an interface's link is, in bits a second, where its driver says so.
pub fn link_bps(dev: &str) -> Option<u64> {
    Interface::named(dev).ok()?.link_bps()
}

/// What a measurement took, from its start on.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    started: Reading,
    processor: Nanos,
}

/// What a measurement took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The clocks as it began.
    pub started: Reading,
    /// The clocks as it ended.
    pub ended: Reading,
    /// Processor time of the whole program.
    pub processor: Nanos,
}

impl Meter {
    /// Starts.
    pub fn start() -> Self {
        Self { started: HostClock.read(), processor: HostClock.processor_time() }
    }

    /// Stops.
    pub fn stop(self) -> Took {
        let processor = HostClock.processor_time() - self.processor;
        Took { started: self.started, ended: HostClock.read(), processor }
    }
}

impl Took {
    /// Returns by how much the clock was stepped meanwhile; `None` where it was not, as far as slewing, which the kernel
    /// limits to 500 ppm, and the readings allow.
    pub fn step(&self) -> Option<Nanos> {
        let elapsed = self.ended.monotonic_raw - self.started.monotonic_raw;
        let step = (self.ended.tai - self.started.tai) - elapsed;
        let limit = Nanos(elapsed.0 / 1_000) + self.started.error + self.ended.error + Nanos::micros(10);
        (step.0.abs() > limit.0).then_some(step)
    }
}
