//! The receiver's engine. Pure: frames and times in, counts, rows and answers out.

use sojourn_port::Received;
use sojourn_time::Time;

use crate::{End, ReceiveOutcome, ReceiveRequest, SentCount};

/// Accounts for every frame that arrives, and says what is to be answered.
#[derive(Debug)]
pub struct Receiver {}

impl Receiver {
    /// Prepares a receiver. All memory that it needs is taken here.
    pub fn new(request: &ReceiveRequest) -> Self {
        let _ = request;
        todo!()
    }

    /// Takes a frame that arrived at a port. Returns the answer that is to go back to whom it came from, if one is:
    /// written into `reply`, complete but for the time of its departure, which [`Self::stamp`] writes.
    pub fn on_frame(&mut self, port: usize, frame: &[u8], received: &Received, reply: &mut [u8]) -> Option<usize> {
        let _ = (port, frame, received, reply);
        todo!()
    }

    /// Writes into an answer when it departs.
    pub fn stamp(&self, port: usize, reply: &mut [u8], now: Time) {
        let _ = (port, reply, now);
        todo!()
    }

    /// Returns the end that a stream's sender told at a port, if it did.
    pub fn end(&self, flow: u16) -> Option<End> {
        let _ = flow;
        todo!()
    }

    /// Returns how many packets have arrived up to now, all streams together, and when the last did.
    pub fn progress(&self) -> (u64, Option<Time>) {
        todo!()
    }

    /// Accounts for what did not arrive. `own_drops` counts, for each port, the frames that our socket had no room for.
    pub fn finish(self, sent: &[SentCount], own_drops: &[u64]) -> ReceiveOutcome {
        let _ = (sent, own_drops);
        todo!()
    }
}
