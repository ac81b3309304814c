//! What came and could not be written: counted by flow where it is a packet, so that the account stays exact.

use super::frames::{FRAME_HEADER, frame, is_final};
use super::{Health, Spool, pack, read};
use crate::account::LeftOut;
use crate::decode::{Event, decode};
use crate::layout::point;

impl Spool {
    /// The packets whose samples could not be written.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// How many samples of no packet could not be written.
    pub fn events_left_out(&self) -> u64 {
        self.events_left_out
    }

    /// How many private states could not be written.
    pub fn privates_left_out(&self) -> u64 {
        self.privates_left_out
    }

    /// Counts the events that wait as not written, and keeps the last words for the end.
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

    /// Counts a record that is not written.
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
