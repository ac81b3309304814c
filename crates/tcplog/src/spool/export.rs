//! Export a log to another host: the bytes of a spool in an [`Outbox`] of bounded size, which a sender empties.
//!
//! A record without room is left out and counted by flow like one that could not be written, so the packet accounting
//! remains exact. Final entries have room of their own. This module uses no network and never blocks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frames::{frame, put_entry, seal};
use super::pack::Packer;
use super::{FRAME, begin};
use crate::account::{Account, Disposition, LeftOut, Tally};
use crate::decode::{Event, Raw, decode};
use crate::gaps::Gap;
use crate::layout::{Flow, Totals, point};

/// How many bytes may wait to be sent before records are left out.
pub const ROOM: usize = 8 << 20;
/// The additional room for final entries of flows, and for gaps.
const LAST_WORDS: usize = 1 << 20;
/// An upper bound on the size of a record in a frame, including the frame's header.
const RECORD: usize = 1 << 10;

/// A log that is being sent.
pub struct Export {
    outbox: Arc<Outbox>,
    buffer: Vec<u8>,
    /// The offset of the open frame of events in the buffer, and its CPU.
    open: Option<(usize, u32)>,
    packer: Packer,
    room: usize,
    /// The bytes in the outbox at the last look; it may have been emptied since.
    waiting: usize,
    /// The connection is lost.
    is_lost: bool,
    /// Records in the buffer.
    fresh: u64,
    /// Whether anything was sent since the last totals: totals alone are not worth a packet, which would itself change
    /// the totals.
    has_news: bool,
    totals: Vec<u8>,
    sent: u64,
    skipped: Skipped,
    left_out: LeftOut,
    /// Flows whose final entry had no room, and missing records of gaps whose entry had none.
    unrecorded: u64,
    gaps_unrecorded: u64,
}

/// Records that were not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Because the outbox was full.
    pub full: u64,
    /// Because the connection was lost.
    pub lost: u64,
    /// Those of both that are samples without a packet.
    pub events: u64,
}

/// Complete frames that wait to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    is_over: bool,
    lost: Option<String>,
    /// Records that were waiting when the connection was lost.
    unsent: u64,
}

/// Some complete frames.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The frames.
    pub bytes: Vec<u8>,
    /// Records in them.
    pub records: u64,
}

impl Outbox {
    /// Take the oldest chunk; `None`: nothing waits.
    pub fn take(&self) -> Option<Chunk> {
        let mut waiting = self.lock();
        let chunk = waiting.chunks.pop_front()?;
        waiting.bytes -= chunk.bytes.len();
        Some(chunk)
    }

    /// Return whether the log has ended and nothing waits.
    pub fn is_spent(&self) -> bool {
        let waiting = self.lock();
        waiting.is_over && waiting.chunks.is_empty()
    }

    /// Mark the connection as lost: discard and count what waits. The first reason is kept.
    pub fn lose(&self, why: impl Into<String>) {
        let mut waiting = self.lock();
        waiting.lost.get_or_insert(why.into());
        waiting.unsent += waiting.chunks.drain(..).map(|chunk| chunk.records).sum::<u64>();
        waiting.bytes = 0;
    }

    /// Return why the connection is lost.
    pub fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    fn put(&self, bytes: &mut Vec<u8>, records: u64) {
        let mut waiting = self.lock();
        if waiting.lost.is_some() {
            waiting.unsent += records;
            return bytes.clear();
        }
        waiting.bytes += bytes.len();
        waiting.chunks.push_back(Chunk { bytes: std::mem::take(bytes), records });
    }

    /// Return how many bytes wait; `None`: the connection is lost.
    fn waiting(&self) -> Option<usize> {
        let waiting = self.lock();
        waiting.lost.is_none().then_some(waiting.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Export {
    /// Begin a log with the header of the local spool.
    pub fn new(header: &str, outbox: Arc<Outbox>) -> Self {
        let mut buffer = Vec::new();
        begin::put_header(header, &mut buffer);
        let mut export = Self {
            outbox,
            buffer,
            open: None,
            packer: Packer::default(),
            room: ROOM,
            waiting: 0,
            is_lost: false,
            fresh: 0,
            has_news: true,
            totals: Vec::new(),
            sent: 0,
            skipped: Skipped::default(),
            left_out: LeftOut::default(),
            unrecorded: 0,
            gaps_unrecorded: 0,
        };
        export.flush();
        export
    }

    /// Reduce the room, for tests.
    #[must_use]
    pub fn with_room(mut self, bytes: usize) -> Self {
        self.room = bytes;
        self
    }

    /// Append a record of a CPU's ring; a record without room is counted.
    pub fn event(&mut self, cpu: u32, bytes: &[u8]) {
        if !self.has_room(RECORD) {
            return self.leave_out(bytes);
        }
        let start = match self.open {
            Some((start, open)) if open == cpu && self.buffer.len() - start < FRAME => start,
            _ => self.begin_frame(frame::EVENTS, cpu),
        };
        self.open = Some((start, cpu));
        self.packer.put(bytes, &mut self.buffer);
        self.fresh += 1;
        self.has_news = true;
    }

    /// As [`super::Spool::flow`].
    pub fn flow(&mut self, slot: u32, flow: &Flow) {
        // The flow's next entry makes up for a missing one.
        if self.has_room(RECORD) {
            self.frame(frame::FLOW, slot, |bytes| flow.put(bytes));
            self.has_news = true;
        }
    }

    /// As [`super::Spool::gone`].
    pub fn gone(&mut self, slot: u32, flow: &Flow, forgotten: [Tally; 2]) {
        let broken = self.left_out.tell(flow.cookie);
        self.left_out_of(flow.cookie, Disposition::Forgotten, forgotten);
        self.left_out_of(flow.cookie, Disposition::Broken, broken);
        let has_room = self.last_word(frame::GONE, slot, |bytes| flow.put(bytes));
        self.unrecorded += u64::from(!has_room);
    }

    /// As [`super::Spool::left_out_of`].
    pub fn left_out_of(&mut self, cookie: u64, disposition: Disposition, tallies: [Tally; 2]) {
        if tallies != [Tally::default(); 2] {
            self.last_word(frame::LEFT_OUT, disposition as u32, |bytes| {
                cookie.put(bytes);
                tallies.iter().for_each(|tally| [tally.packets, tally.segments].put(bytes));
            });
        }
    }

    /// As [`super::Spool::totals`], if anything else was sent since.
    pub fn totals(&mut self, totals: &[Totals]) {
        let mut said = Vec::new();
        totals.iter().for_each(|one| one.put(&mut said));
        if self.has_news && said != self.totals && self.has_room(said.len()) {
            self.frame(frame::TOTALS, 0, |bytes| bytes.extend_from_slice(&said));
            self.totals = said;
            self.has_news = false;
        }
    }

    /// As [`super::Spool::gap`].
    pub fn gap(&mut self, gap: &Gap) {
        let has_room = self.last_word(frame::GAP, gap.cpu, |bytes| {
            let times = [gap.after_ns, gap.before_ns].map(|time| time.unwrap_or(u64::MAX));
            [gap.number, gap.missing, times[0], times[1]].put(bytes);
        });
        self.gaps_unrecorded += if has_room { 0 } else { gap.missing };
    }

    /// As [`super::Spool::note`].
    pub fn note(&mut self, text: &str) {
        self.last_word(frame::NOTE, 0, |bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// As [`super::Spool::account`]; records that were skipped are included already.
    pub fn account(&mut self, account: &Account) {
        let late: Vec<_> = self.left_out.iter().collect();
        late.into_iter().for_each(|(cookie, tallies)| self.left_out_of(cookie, Disposition::Broken, tallies));
        let breach = account.check().err().map(|breach| breach.to_string()).unwrap_or_default();
        let (unrecorded, gaps_unrecorded) = (self.unrecorded, self.gaps_unrecorded);
        if gaps_unrecorded > 0 {
            self.frame(frame::LIMITED, 0, |bytes| gaps_unrecorded.put(bytes));
        }
        self.frame(frame::ACCOUNT, 0, |bytes| {
            [account.events, account.full(), unrecorded, breach.len() as u64].put(bytes);
            bytes.extend_from_slice(breach.as_bytes());
            account.totals_without([Tally::default(); 2]).for_each(|entry| put_entry(&entry, bytes));
        });
    }

    /// Put the buffer into the outbox. Call it once a drain.
    pub fn flush(&mut self) {
        self.close();
        if !self.buffer.is_empty() {
            let records = std::mem::take(&mut self.fresh);
            self.sent += records;
            self.outbox.put(&mut self.buffer, records);
        }
        let waiting = self.outbox.waiting();
        (self.waiting, self.is_lost) = (waiting.unwrap_or_default(), waiting.is_none());
    }

    /// End the log with its result.
    pub fn end(&mut self, footer: &str) {
        self.frame(frame::FOOTER, 0, |bytes| bytes.extend_from_slice(footer.as_bytes()));
        self.frame(frame::END, 0, |_| ());
        self.flush();
        self.outbox.lock().is_over = true;
    }

    /// Return the packets whose samples were not sent.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Return how many records were handed to the sender; at most as many were received.
    pub fn sent(&self) -> u64 {
        self.sent - self.outbox.lock().unsent
    }

    /// Return how many records were not sent.
    pub fn skipped(&self) -> Skipped {
        let unsent = self.outbox.lock().unsent;
        Skipped { lost: self.skipped.lost + unsent, ..self.skipped }
    }

    /// Return the outbox.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    fn leave_out(&mut self, bytes: &[u8]) {
        *(if self.is_lost { &mut self.skipped.lost } else { &mut self.skipped.full }) += 1;
        match decode(bytes) {
            Ok(Event::Sample(sample)) if matches!(sample.point, point::IN | point::OUT) => {
                self.left_out.note(sample.cookie, usize::from(sample.point), sample.segments.into());
            }
            Ok(Event::Private(_)) => {}
            _ => self.skipped.events += 1,
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        !self.is_lost && self.waiting + self.buffer.len() + bytes <= self.room
    }

    fn last_word(&mut self, kind: u32, from: u32, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let has_room = !self.is_lost && self.waiting + self.buffer.len() < self.room + LAST_WORDS;
        if has_room {
            self.frame(kind, from, put);
            self.has_news = true;
        }
        has_room
    }

    fn frame(&mut self, kind: u32, from: u32, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.begin_frame(kind, from);
        put(&mut self.buffer);
        seal(&mut self.buffer[start..]);
    }

    fn begin_frame(&mut self, kind: u32, from: u32) -> usize {
        self.close();
        let start = self.buffer.len();
        [kind, from, 0, 0].put(&mut self.buffer);
        start
    }

    fn close(&mut self) {
        if let Some((start, _)) = self.open.take() {
            seal(&mut self.buffer[start..]);
            self.packer.reset();
        }
    }
}

#[cfg(test)]
mod tests;
