//! Runs an engine over two ports and a clock: receives frames, and sends each at its intended departure.
//!
//! One thread does everything. It sleeps until shortly before the next departure, then polls both ports and the clock,
//! and for the last moment the clock alone. The time from the end of the wait to the call into the kernel is measured
//! continuously and subtracted from the deadline; so is the wake-up latency ([`pace`]). Requests, records and signals
//! are handled by [`Surroundings`], which are called when the next departure leaves time for it.
//!
//! The driver's clock cannot be set, and the timestamps of its ports use the same clock: a step of the host's clock
//! neither releases nor delays a frame.

mod backlog;
mod pace;
mod run;
mod shared;
mod warnings;
mod way;

pub use run::Driver;

use serde::Serialize;
use sojourn_port::PortError;
use sojourn_port::bridge::BridgePort;
use sojourn_time::{Clock, Nanos, Time};

use crate::accuracy::Report;

/// The two ports: left, right.
pub type Ports = [Box<dyn BridgePort>; 2];

/// The environment of a driver: requests, records, signals. Its methods run in the driver's thread, so they must be short.
pub trait Surroundings<C: Clock> {
    /// Sleeps until a frame may have arrived, a request arrives, or `until`. Returns whether a request arrived.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    fn sleep(&mut self, ports: &Ports, until: Time) -> Result<bool, PortError>;

    /// Takes the recorded dispositions. Called about every millisecond, less often under load.
    fn keep(&mut self, driver: &mut Driver<C>);

    /// Handles requests, and returns whether to go on. Called about every millisecond if departures leave time for it,
    /// and every 50 ms if they do not. `rest` is the share of the time since the last call that was spent asleep.
    fn look_up(&mut self, driver: &mut Driver<C>, now: Time, rest: f64) -> Flow;
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    On,
    /// Stop normally.
    Stop,
}

/// The state of a driver: the engine's report and the driver's own values.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Start of the driver.
    pub start_ns: Time,
    /// Time of this report.
    pub now_ns: Time,
    /// `CLOCK_TAI` minus the clock of these times, which cannot be set.
    pub tai_ahead_ns: Nanos,
    /// The engine's report.
    #[serde(flatten)]
    pub engine: Report,
    /// The left port and the right one.
    pub ports: Vec<PortReport>,
    /// The measured timing of departures.
    pub calibration: Calibration,
    /// The last warnings, one sentence each.
    pub said: Vec<String>,
}

/// The counters of a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// The interface.
    pub name: String,
    /// The I/O backend.
    pub engine: String,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames bridged unchanged that the port refused: its ring was full, or they were too long for it.
    pub refused: u64,
    /// Frames dropped by our own ring or socket on reception, or because they waited there too long under overload.
    pub local_drops: u64,
}

/// Timing that the driver has measured on this machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Calibration {
    /// Time from the end of the wait to the call that hands a frame to the kernel: subtracted from each deadline.
    pub cost_ns: Nanos,
    /// Path delay outside the emulator, as configured: subtracted as well.
    pub compensation_ns: Nanos,
    /// How long before a departure the driver wakes up.
    pub guard_ns: Nanos,
    /// How it waits: "sleep-then-spin", "spin" or "sleep".
    pub wait: &'static str,
}

#[cfg(test)]
mod tests;
