//! One direction of the bridge: its counters, its TX ring, and frames bridged unchanged.

use std::collections::VecDeque;

use sojourn_port::PortError;
use sojourn_port::bridge::{BridgePort, Passed};

use super::Ports;
use super::run::MOST_OUT;
use crate::config::Direction;
use crate::engine::Departure;

/// One direction: received by the port of its index, sent by the other.
#[derive(Debug)]
pub struct Way {
    /// In the ring, not yet handed to the kernel.
    pub put: Vec<Departure>,
    /// Due, but the ring was full.
    pub stuck: VecDeque<Departure>,
    /// Whether the ring holds frames bridged unchanged of which the kernel has not been notified.
    pub bridged: bool,
    pub received: u64,
    pub sent: u64,
    pub refused: u64,
    /// Frames that the kernel bridged itself.
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

/// The output for frames of a direction that are bridged unchanged.
pub struct Outlet<'a> {
    port: &'a mut dyn BridgePort,
    way: &'a mut Way,
    pub failed: Result<(), PortError>,
}

/// Returns the ingress port of a direction, and its output.
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
    /// Puts a frame into the ring; if the ring is full, drop the frame as any bridge does.
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
