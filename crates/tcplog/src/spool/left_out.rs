//! Events that could not be written: packets are counted by flow, so that the packet accounting remains exact.

use super::frames::{FRAME_HEADER, frame, is_final};
use super::{Health, Spool, pack, read};
use crate::account::LeftOut;
use crate::decode::{Event, decode};
use crate::layout::point;

impl Spool {
    /// Return the packets whose samples could not be written.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Return the number of samples without a packet that could not be written.
    pub fn events_left_out(&self) -> u64 {
        self.events_left_out
    }

    /// Return the number of private states that could not be written.
    pub fn privates_left_out(&self) -> u64 {
        self.privates_left_out
    }

    /// Count the waiting events as left out, and keep the final entries for the end.
    pub(super) fn give_up(&mut self) {
        let is_gone = self.state == Health::Gone;
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = Vec::new();
        read::each_frame(&buffer, |kind, bytes| match kind {
            frame::EVENTS => {
                let mut unpacker = pack::Unpacker::default();
                let mut payload = &bytes[FRAME_HEADER..];
                while let Ok(Some(record)) = unpacker.take(&mut payload) {
                    self.leave_out(record);
                }
            }
            _ if is_final(kind) && !is_gone => rest.extend_from_slice(bytes),
            _ => {}
        });
        self.buffer = rest;
    }

    /// Count a record that is left out.
    pub(super) fn leave_out(&mut self, bytes: &[u8]) {
        match decode(bytes) {
            Ok(Event::Sample(sample)) if matches!(sample.point, point::IN | point::OUT) => {
                self.left_out.note(sample.cookie, usize::from(sample.point), sample.segments.into());
            }
            Ok(Event::Private(_)) => self.privates_left_out += 1,
            _ => self.events_left_out += 1,
        }
    }
}
