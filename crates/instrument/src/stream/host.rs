//! Properties of this host: the ID of its clock, link rates, and the resources that a measurement used.

use std::fs;

use sojourn_port::kernel::Interface;
use sojourn_time::{HostClock, Nanos, Reading};

/// Returns the ID of this host's clock (48 bits): equal IDs mean that one kernel keeps the time of both ends.
pub fn clock_id() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    // Without a boot ID, a number of this process alone is used, so that no shared clock is claimed.
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| u64::from(std::process::id()))
}

/// Returns the rate of an interface's link in bit/s, if its driver reports it.
pub fn link_bps(dev: &str) -> Option<u64> {
    Interface::named(dev).ok()?.link_bps()
}

/// Measures the resources that a measurement uses.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    started: Reading,
    processor: Nanos,
}

/// The resources that a measurement used.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The clocks at the start.
    pub started: Reading,
    /// The clocks at the end.
    pub ended: Reading,
    /// The CPU time of the whole program.
    pub processor: Nanos,
}

impl Meter {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { started: HostClock.read(), processor: HostClock.processor_time() }
    }

    /// Stops measuring.
    pub fn stop(self) -> Took {
        let processor = HostClock.processor_time() - self.processor;
        Took { started: self.started, ended: HostClock.read(), processor }
    }
}

impl Took {
    /// Returns the step of the clock during the measurement; `None` if the difference can be slewing, which the kernel
    /// limits to 500 ppm, or reading error.
    pub fn step(&self) -> Option<Nanos> {
        let elapsed = self.ended.monotonic_raw - self.started.monotonic_raw;
        let step = (self.ended.tai - self.started.tai) - elapsed;
        let limit = Nanos(elapsed.0 / 1_000) + self.started.error + self.ended.error + Nanos::micros(10);
        (step.0.abs() > limit.0).then_some(step)
    }
}
