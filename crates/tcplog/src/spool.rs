//! The spool of a log: one file, or several in sequence, written while traffic runs and converted into records
//! afterwards. Each drain is appended with one write.
//!
//! However the program is killed, the file is readable up to its last complete frame. A frame is a kind, a checksum and
//! a payload. Records are packed against the previous one of the same flow ([`pack`]), because writing is the main
//! cost. A full disk ends the events but not the packet accounting: frames that must still be written wait in memory
//! until the end, and disk space is reserved for them. A file that was removed is detected and not created again.
//! Memory is bounded by [`BUFFER`] and one record.
//!
//! The writer of a spool, and its converter, lock it, so that nobody converts a spool in use. Bytes are in this host's
//! order: a spool is converted where it was written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sojourn_record::private;

use crate::account::{Account, Disposition, LeftOut, Tally, add_both};
use crate::decode::Raw;
use crate::gaps::Gap;
use crate::layout::{Flow, Totals};
pub use arriving::{
    ArrivalError, Arrived, Arriving, BEGINNING, GREETING, RECEIPT, begins_a_log, greeted, greeting, kept, receipt,
};
pub(crate) use begin::header_bytes;
pub use error::SpoolError;
use error::failure;
pub use export::{Chunk, Export, Outbox, Skipped};
use frames::{FRAME_HEADER, checksum, count, disposition_of, frame, is_final, put_entry, seal};
use pack::Packer;
pub(crate) use parts::{Held, hold, number_of, set_aside, unread_name};
#[cfg(test)]
pub(crate) use parts::{Step, steps};
use parts::{create, is_spent};
pub use parts::{discard, files, is_held};
pub use read::{Counted, Ending, Frame, Reader, Records};
use written::Earlier;
pub use written::Written;

mod arriving;
mod begin;
mod error;
mod export;
mod frames;
mod left_out;
mod pack;
mod parts;
mod read;
mod written;

/// The name of the first file in its folder.
pub const NAME: &str = "spool-000.tcplog";

const MAGIC: [u8; 8] = *b"SJTCPLOG";
const VERSION: u32 = 4;

/// The maximum number of bytes that wait in memory before they are written.
const BUFFER: usize = 1 << 20;
/// The size at which a frame of events is ended and the next begun.
const FRAME: usize = 256 << 10;
/// Reserved on the disk and freed when it is full, so that the packet accounting can still be written.
const RESERVE_NAME: &str = "spool-000.reserve";
const RESERVE: usize = WAITING + ACCOUNT;
/// The maximum number of bytes that may wait for the reserve, so that the accounting fits after them: a full buffer.
const WAITING: usize = BUFFER;
/// The maximum size of the accounting.
const ACCOUNT: usize = 128 << 10;

/// The smallest limit of a spool: the accounting, and as much again.
pub const LEAST_LIMIT: u64 = 2 * ACCOUNT as u64;

/// A spool that is being written.
pub struct Spool {
    path: PathBuf,
    file: File,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// The header of each file.
    header: String,
    /// The number of this file; the first is 0.
    number: u32,
    earlier: Earlier,
    written: Written,
    /// Notes that every file repeats.
    lasting: Vec<String>,
    /// The length of the file up to its last complete frame.
    length: u64,
    /// How many bytes of it repeat the state at the end of the files before it.
    repeated: u64,
    /// The limits of `repeated`, and of the size of all existing files.
    most_repeated: u64,
    most_together: u64,
    /// The totals written last.
    totals: Option<Vec<u8>>,
    /// The file size up to which events may be written.
    limit: u64,
    /// How many bytes may wait in memory before they are written, or, once events are no longer written, for the end.
    waiting: usize,
    buffer: Vec<u8>,
    /// The offset of the open frame of events in the buffer, and its CPU.
    open: Option<(usize, u32)>,
    packer: Packer,
    state: Health,
    /// A failure before [`Spool::flush`] was called.
    failure: Option<SpoolError>,
    left_out: LeftOut,
    events_left_out: u64,
    privates_left_out: u64,
    /// Flows whose final entry had no room.
    unrecorded: u64,
    /// Missing records of gaps whose entry had no room.
    gaps_unrecorded: u64,
    /// Whether it ended because it reached its size limit.
    is_limited: bool,
    /// Whether only final entries follow, to which the limit does not apply.
    is_ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    /// Events are counted instead of written; other frames wait for the end.
    Broken,
    /// The file is gone: nothing is written.
    Gone,
}

impl Spool {
    /// Create the spool in an existing folder; `header` is stored in it, as JSON.
    ///
    /// # Errors
    /// When the folder has a spool already, or the file cannot be created.
    pub fn create(folder: &Path, header: &str) -> Result<Self, SpoolError> {
        if is_spent(folder) {
            // Its removal was interrupted earlier.
            discard(folder);
        }
        let path = folder.join(NAME);
        let (file, identity) = create(&path)?;
        let mut spool = Self {
            path,
            file,
            identity,
            header: header.to_owned(),
            number: 0,
            earlier: Earlier::default(),
            written: Written::default(),
            lasting: Vec::new(),
            length: 0,
            repeated: 0,
            most_repeated: u64::MAX,
            most_together: u64::MAX,
            totals: None,
            limit: u64::MAX,
            waiting: WAITING,
            buffer: Vec::with_capacity(BUFFER + FRAME),
            open: None,
            packer: Packer::default(),
            state: Health::Good,
            failure: None,
            left_out: LeftOut::default(),
            events_left_out: 0,
            privates_left_out: 0,
            unrecorded: 0,
            gaps_unrecorded: 0,
            is_limited: false,
            is_ending: false,
        };
        spool.begin(folder).inspect_err(|_| spool.remove())?;
        Ok(spool)
    }

    /// Limit the file to `bytes` bytes, at least [`LEAST_LIMIT`], until [`Self::begin_end`]. The limit ends events as a
    /// full disk does, but leaves room for the packet accounting.
    #[must_use]
    pub fn limited_to(mut self, bytes: u64) -> Self {
        let bytes = bytes.max(LEAST_LIMIT);
        self.waiting = WAITING.min((bytes / 4) as usize);
        self.limit = bytes - (self.waiting + ACCOUNT) as u64;
        self
    }

    /// Limit the size of all parts together, where the oldest are removed, also while a new one begins. The repeated
    /// state may take a third of it: the previous part, which stays until then, repeats as much and has as much new
    /// content. Beyond that, events end as at a limit.
    #[must_use]
    pub fn parts_within(mut self, bytes: u64) -> Self {
        (self.most_repeated, self.most_together) = (bytes / 3, bytes);
        self
    }

    /// Announce that only final entries follow: the limit applies to events, not to them.
    pub fn begin_end(&mut self) {
        self.is_ending = true;
        self.limit = u64::MAX;
        self.waiting = WAITING;
    }

    /// Remove the oldest file, unless it is being written; return whether there was one.
    ///
    /// # Errors
    /// When it cannot.
    pub fn remove_oldest(&mut self) -> Result<bool, SpoolError> {
        let removed = self.earlier.remove_oldest();
        if removed.is_err() {
            self.state = Health::Broken; // otherwise the size would be unbounded
        }
        removed
    }

    /// Return how many files were begun, and how many of these were removed.
    pub fn parts(&self) -> [u64; 2] {
        let begun = u64::from(self.number) + 1;
        [begun, begun - 1 - self.earlier.count()]
    }

    /// Return what the removed files contained.
    pub fn removed(&self) -> &Written {
        self.earlier.removed()
    }

    /// Return the size of all existing files.
    pub fn total(&self) -> u64 {
        self.earlier.bytes() + self.length
    }

    /// Return the size of the file without its repeated state.
    pub fn fresh(&self) -> u64 {
        self.length - self.repeated
    }

    /// Return the size of the file's repeated state.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    fn begin(&mut self, folder: &Path) -> Result<(), SpoolError> {
        begin::put_header(&self.header, &mut self.buffer);
        self.write()?;
        let reserve = folder.join(RESERVE_NAME);
        // Created anew: an existing link could lead anywhere.
        let created = fs::remove_file(&reserve).or_else(is_missing);
        let written =
            created.and_then(|()| private::create_file(&reserve)).and_then(|mut file| file.write_all(&[0; RESERVE]));
        written.map_err(|source| failure("write", &reserve, source))
    }

    /// Append a record of a CPU's ring; a record that cannot be written is counted.
    pub fn event(&mut self, cpu: u32, bytes: &[u8]) {
        if self.state != Health::Good {
            return self.leave_out(bytes);
        }
        let start = match self.open {
            Some((start, open)) if open == cpu && self.buffer.len() - start < FRAME => start,
            _ => self.begin_frame(frame::EVENTS, cpu),
        };
        self.open = Some((start, cpu));
        self.packer.put(bytes, &mut self.buffer);
        self.written.add_record(bytes);
        self.write_much();
    }

    /// Write a flow's description and counters so far; the latest entry is valid.
    pub fn flow(&mut self, slot: u32, flow: &Flow) {
        self.frame(frame::FLOW, slot, |bytes| flow.put(bytes));
    }

    /// Write the final entry of a flow, with its packets that the flight recorder discarded. The caller need not keep
    /// the flow any longer.
    pub fn gone(&mut self, slot: u32, flow: &Flow, forgotten: [Tally; 2]) {
        let broken = self.left_out.tell(flow.cookie);
        self.left_out_of(flow.cookie, Disposition::Forgotten, forgotten);
        self.left_out_of(flow.cookie, Disposition::Broken, broken);
        if self.frame(frame::GONE, slot, |bytes| flow.put(bytes)) {
            self.written.gone += 1;
        }
    }

    /// Write how many of a flow's logged packets were left out, in addition to earlier entries.
    pub fn left_out_of(&mut self, cookie: u64, disposition: Disposition, tallies: [Tally; 2]) {
        if tallies == [Tally::default(); 2] {
            return;
        }
        let has_room = self.frame(frame::LEFT_OUT, disposition as u32, |bytes| {
            cookie.put(bytes);
            tallies.iter().for_each(|tally| [tally.packets, tally.segments].put(bytes));
        });
        if has_room && disposition == Disposition::Forgotten {
            add_both(&mut self.written.forgotten, tallies);
        }
    }

    /// Write the totals so far, as [`crate::Source::totals`] returns them; the latest entry is valid.
    pub fn totals(&mut self, totals: &[Totals]) {
        let mut said = Vec::new();
        totals.iter().for_each(|one| one.put(&mut said));
        if self.totals.as_ref() == Some(&said) {
            return self.go_on();
        }
        self.frame(frame::TOTALS, 0, |bytes| bytes.extend_from_slice(&said));
        self.totals = Some(said);
    }

    /// Update the file's modification time without writing: it shows later when a killed log was last running.
    fn go_on(&self) {
        if self.state == Health::Good {
            let _ = self.file.set_len(self.length);
        }
    }

    /// Write a gap.
    pub fn gap(&mut self, gap: &Gap) {
        let has_room = self.frame(frame::GAP, gap.cpu, |bytes| {
            // All ones mean no time.
            let times = [gap.after_ns, gap.before_ns].map(|time| time.unwrap_or(u64::MAX));
            [gap.number, gap.missing, times[0], times[1]].put(bytes);
        });
        *(if has_room { &mut self.written.missing } else { &mut self.gaps_unrecorded }) += gap.missing;
    }

    /// Write a note.
    pub fn note(&mut self, text: &str) {
        self.frame(frame::NOTE, 0, |bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Write a note that every following file repeats, so that it is not lost with a removed one.
    pub fn lasting_note(&mut self, text: &str) {
        self.note(text);
        self.lasting.push(text.to_owned());
    }

    /// Write the final packet accounting; without it, the latest entries of flows and totals are used. Final entries of
    /// flows are written one by one when they are released.
    pub fn account(&mut self, account: &Account) {
        let late: Vec<_> = self.left_out.iter().collect();
        late.into_iter().for_each(|(cookie, tallies)| self.left_out_of(cookie, Disposition::Broken, tallies));
        let breach = account.check().err().map(|breach| breach.to_string()).unwrap_or_default();
        let (unrecorded, gaps_unrecorded) = (self.unrecorded, self.gaps_unrecorded);
        let removed = self.removed().packets;
        if self.is_limited {
            self.frame(frame::LIMITED, 0, |bytes| gaps_unrecorded.put(bytes));
        }
        self.frame(frame::ACCOUNT, 0, |bytes| {
            [account.events, account.full(), unrecorded, breach.len() as u64].put(bytes);
            bytes.extend_from_slice(breach.as_bytes());
            account.totals_without(removed).for_each(|entry| put_entry(&entry, bytes));
        });
    }

    /// Write the buffer. Call it once a drain, and before flows are released.
    ///
    /// # Errors
    /// When writing fails: from then on events are only counted ([`Spool::left_out`]). The error is returned once.
    pub fn flush(&mut self) -> Result<(), SpoolError> {
        let written = self.write();
        match self.failure.take() {
            Some(earlier) => Err(earlier),
            None => written,
        }
    }

    /// Write no more events, as after a failed write: there are as many flows as records can number.
    ///
    /// # Errors
    /// Always the first time, because the log ends by this; what was logged before stays readable.
    pub fn end_events(&mut self) -> Result<(), SpoolError> {
        self.flush()?;
        if self.state != Health::Good {
            return Ok(());
        }
        self.state = Health::Broken;
        Err(SpoolError::Flows(self.path.clone()))
    }

    /// Write the last frame: the log is complete.
    ///
    /// # Errors
    /// When writing fails.
    pub fn end(&mut self) -> Result<(), SpoolError> {
        self.frame(frame::END, 0, |_| ());
        let ended = self.flush();
        let _ = fs::remove_file(self.path.with_file_name(RESERVE_NAME));
        // The removed reserve leaves room for the frames that have waited.
        let rest = if self.state == Health::Broken { self.try_write() } else { Ok(()) };
        let _ = self.file.unlock();
        ended.and(rest)
    }

    /// Remove the spool, after its conversion or because its records are not wanted.
    pub fn remove(&mut self) {
        if let Some(folder) = self.path.parent() {
            discard(folder);
        }
    }

    /// Return whether events are no longer written.
    pub fn is_broken(&self) -> bool {
        self.state != Health::Good
    }

    /// Return the size of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Write a frame; return false where it has no room.
    fn frame(&mut self, kind: u32, from: u32, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.has_room_for(kind) {
            self.unrecorded += u64::from(kind == frame::GONE);
            return false;
        }
        let start = self.begin_frame(kind, from);
        put(&mut self.buffer);
        self.seal(start);
        self.write_much();
        true
    }

    /// Whether a frame may be written, or may wait for the end.
    fn has_room_for(&self, kind: u32) -> bool {
        match self.state {
            Health::Good => true,
            Health::Broken if matches!(kind, frame::LIMITED | frame::ACCOUNT | frame::END) => true,
            Health::Broken => is_final(kind) && (self.is_written() || self.buffer.len() < self.waiting),
            Health::Gone => false,
        }
    }

    /// Whether the buffer is written to the file. At the end, this includes a log that its limit has ended.
    fn is_written(&self) -> bool {
        self.state == Health::Good || (self.state == Health::Broken && self.is_limited && self.is_ending)
    }

    fn write_much(&mut self) {
        if self.is_written() && self.buffer.len() >= self.waiting {
            self.failure = self.write().err().or(self.failure.take());
        }
    }

    /// Begin a frame with space for its header; [`Spool::seal`] sets length and checksum.
    fn begin_frame(&mut self, kind: u32, from: u32) -> usize {
        self.close();
        let start = self.buffer.len();
        [kind, from, 0, 0].put(&mut self.buffer);
        start
    }

    /// End the open frame of events.
    fn close(&mut self) {
        if let Some((start, _)) = self.open.take() {
            self.seal(start);
            self.packer.reset();
        }
    }

    fn seal(&mut self, start: usize) {
        seal(&mut self.buffer[start..]);
    }

    fn write(&mut self) -> Result<(), SpoolError> {
        self.close();
        if self.buffer.is_empty() || !self.is_written() {
            return Ok(());
        }
        let is_too_long = self.total() + self.buffer.len() as u64 > self.limit;
        let written = if is_too_long { Err(SpoolError::Limit(self.path.clone())) } else { self.try_write() };
        if let Err(problem) = &written {
            self.state = if matches!(problem, SpoolError::Gone(_)) { Health::Gone } else { Health::Broken };
            // At the end, the cause is a full disk and not the requested limit.
            self.is_limited = matches!(problem, SpoolError::Limit(_));
            self.give_up();
        }
        written
    }

    /// Write the whole buffer, or nothing.
    fn try_write(&mut self) -> Result<(), SpoolError> {
        self.look()?;
        if let Err(source) = self.file.write_all(&self.buffer) {
            let _ = self.file.set_len(self.length);
            let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length));
            return Err(failure("write", &self.path, source));
        }
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Check that the file still exists under its path.
    fn look(&self) -> Result<(), SpoolError> {
        let there = fs::metadata(&self.path).map(|about| (about.dev(), about.ino()));
        match there {
            Ok(identity) if identity == self.identity => Ok(()),
            Ok(_) => Err(SpoolError::Gone(self.path.clone())),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Err(SpoolError::Gone(self.path.clone())),
            Err(source) => Err(failure("look at", &self.path, source)),
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn is_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
