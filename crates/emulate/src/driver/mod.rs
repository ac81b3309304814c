//! Lets an engine run over two ports and a clock: takes frames in, and lets each go when its time has come.
//!
//! One thread does everything. It sleeps until shortly before the next departure, then looks at both ports and the clock in
//! turn, and for the last moment at the clock alone. What a departure costs from there until the kernel is called to take the frame is
//! measured all the time and taken off the deadline; how long before it to wake, too ([`pace`]). Requests, records and signals
//! are others' affair ([`Surroundings`]): they get their turn where the next departure leaves time for it.
//!
//! Its clock is one that nobody can set, and so are the stamps of its ports: a step of the host's clock neither releases nor
//! holds a frame.

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

/// The two ports: the left one, and the right one.
pub type Ports = [Box<dyn BridgePort>; 2];

/// What goes on beside a driver. All of it happens in the driver's thread, so none of it may take long.
pub trait Surroundings<C: Clock> {
    /// Sleeps until a frame may have come in, somebody asks for something, or `until`. Returns whether somebody asked.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn sleep(&mut self, ports: &Ports, until: Time) -> Result<bool, PortError>;

    /// Takes the dispositions that have been noted. Called about every millisecond, and more rarely under load.
    fn keep(&mut self, driver: &mut Driver<C>);

    /// Answers requests, and says whether to go on. Called about every millisecond where departures leave time for it, and
    /// every 50 ms where they do not. `rest` is the share of the time since the last call that was slept.
    fn look_up(&mut self, driver: &mut Driver<C>, now: Time, rest: f64) -> Flow;
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    On,
    /// End well.
    Stop,
}

/// What the driver knows of itself, beside what the engine reports.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// When it began.
    pub start_ns: Time,
    /// When this was said.
    pub now_ns: Time,
    /// By how much `CLOCK_TAI` was ahead of the clock of these times, which nobody sets.
    pub tai_ahead_ns: Nanos,
    /// Of the engine.
    #[serde(flatten)]
    pub engine: Report,
    /// The left port and the right one.
    pub ports: Vec<PortReport>,
    /// What departures cost.
    pub calibration: Calibration,
    /// What a person should know that came up last, a sentence each.
    pub said: Vec<String>,
}

/// What went through a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// The interface.
    pub name: String,
    /// By what means of the kernel.
    pub engine: String,
    /// Frames that came in.
    pub received: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Frames bridged unchanged that it had no room for, or that were too long for it.
    pub refused: u64,
    /// Frames that our own ring or socket dropped on the way in, or that waited there too long under overload.
    pub local_drops: u64,
}

/// What the driver has learnt of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Calibration {
    /// From the end of waiting until the kernel is called to take a frame: what is taken off each deadline.
    pub cost_ns: Nanos,
    /// The delay of the path outside the emulator, as configured: subtracted as well.
    pub compensation_ns: Nanos,
    /// How long before a departure it wakes.
    pub guard_ns: Nanos,
    /// How it waits: "sleep-then-spin", "spin", "sleep".
    pub wait: &'static str,
}

#[cfg(test)]
mod tests;
