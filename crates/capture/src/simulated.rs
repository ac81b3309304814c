//! A tap on a simulated interface, whose frames are known.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use sojourn_port::PortError;
use sojourn_port::pcap::Direction;
use sojourn_time::{Source, Stamp, Time};

use crate::{Directions, Passed, Tap, Totals};

/// A frame of a simulated interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// Its bytes.
    pub frame: Vec<u8>,
    /// When it passes.
    pub at: Time,
    /// Its direction.
    pub direction: Direction,
    /// Whether it is a super-frame.
    pub is_super: bool,
}

/// A tap on a simulated interface, with a ring of `room` frames.
#[derive(Clone, Debug)]
pub struct SimulatedTap {
    room: usize,
    directions: Directions,
    waiting: VecDeque<Simulated>,
    totals: Totals,
    is_detached: bool,
}

impl SimulatedTap {
    /// The most frames that one call delivers.
    const AT_ONCE: usize = 16;

    /// Creates a tap.
    pub fn new(room: usize, directions: Directions) -> Self {
        Self { room, directions, waiting: VecDeque::new(), totals: Totals::default(), is_detached: false }
    }

    /// Passes a frame over the interface.
    pub fn pass(&mut self, frame: Simulated) {
        if self.is_detached {
            return;
        }
        self.totals.accepted += 1;
        if self.waiting.len() < self.room {
            self.waiting.push_back(frame);
        } else {
            self.totals.dropped += 1;
        }
    }
}

impl Tap for SimulatedTap {
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError> {
        let some = self.waiting.len().min(Self::AT_ONCE);
        for Simulated { frame, at, direction, is_super } in self.waiting.drain(..some) {
            if self.directions.has(direction) {
                let stamp = Stamp { at, source: Source::Simulated };
                show(&Passed { frame: &frame, length: frame.len(), at: stamp, realtime: at, direction, is_super });
            } else {
                self.totals.skipped += 1;
            }
        }
        Ok(some > 0)
    }

    fn detach(&mut self) -> Result<(), PortError> {
        self.is_detached = true;
        Ok(())
    }

    fn totals(&mut self) -> Result<Totals, PortError> {
        Ok(self.totals)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
