//! What goes in one direction: counted, put into rings, and bridged unchanged.

use std::collections::VecDeque;

use sojourn_port::PortError;
use sojourn_port::bridge::{BridgePort, Passed};

use super::Ports;
use super::run::MOST_OUT;
use crate::config::Direction;
use crate::engine::Departure;

/// What goes in one direction: in by the port of its index, out by the other.
#[derive(Debug)]
pub struct Way {
    /// Put into the ring and not yet taken by the kernel.
    pub put: Vec<Departure>,
    /// Due, and the ring had no room.
    pub stuck: VecDeque<Departure>,
    /// Frames bridged unchanged are in the ring of which the kernel has not been notified.
    pub bridged: bool,
    pub received: u64,
    pub sent: u64,
    pub refused: u64,
    /// What went from port to port within the kernel.
    pub passed: Passed,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            put: Vec::with_capacity(MOST_OUT),
            stuck: VecDeque::new(),
            bridged: false,
            received: 0,
            sent: 0,
            refused: 0,
            passed: Passed::default(),
        }
    }
}

/// Where frames of a direction that are bridged unchanged go.
pub struct Outlet<'a> {
    port: &'a mut dyn BridgePort,
    way: &'a mut Way,
    pub failed: Result<(), PortError>,
}

/// Returns the port that a direction comes in by, and the way out.
pub fn outlet<'a>(
    ports: &'a mut Ports,
    way: &'a mut Way,
    direction: Direction,
) -> (&'a mut dyn BridgePort, Outlet<'a>) {
    let [left, right] = ports;
    let (from, to) = match direction {
        Direction::Forward => (left, right),
        Direction::Backward => (right, left),
    };
    (&mut **from, Outlet { port: &mut **to, way, failed: Ok(()) })
}

impl Outlet<'_> {
    /// Puts a frame into the ring; where there is no room, it is dropped as every bridge drops it.
    pub fn put(&mut self, frame: &[u8]) {
        if self.failed.is_err() {
            return;
        }
        match self.try_put(frame) {
            Ok(true) => {
                self.way.sent += 1;
                self.way.bridged = true;
            }
            Ok(false) => self.way.refused += 1,
            Err(error) => self.failed = Err(error),
        }
    }

    fn try_put(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        if self.port.put(frame)? {
            return Ok(true);
        }
        if frame.len() > self.port.longest() {
            return Ok(false);
        }
        self.port.flush()?;
        self.port.put(frame)
    }

    pub fn flush(self) -> Result<(), PortError> {
        self.failed?;
        if std::mem::take(&mut self.way.bridged) { self.port.flush() } else { Ok(()) }
    }
}
