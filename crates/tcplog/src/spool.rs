//! Where samples wait while traffic runs: one file, or some after each other, appended to with one write a drain, made into
//! records afterwards.
//!
//! Whatever kills the program, the file is readable to its last whole frame. A frame is a kind, a checksum and a payload;
//! records of rings are packed against the one before them of the same flow ([`pack`]), since writing is what costs. A disk
//! that is full ends the events but not the account: what has to be said after that waits in memory until the end, and room for
//! it is kept aside. A file that was removed is noticed and not made again. Memory is bounded by [`BUFFER`] and one record.
//!
//! Whoever writes a spool, or makes records of it, holds a lock on it: it is not converted under somebody's hands. The bytes are
//! in this host's order: a spool is converted where it was written.

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

/// The name of its first file in its folder.
pub const NAME: &str = "spool-000.tcplog";

const MAGIC: [u8; 8] = *b"SJTCPLOG";
const VERSION: u32 = 4;

/// How much waits in memory at most before it is written.
const BUFFER: usize = 1 << 20;
/// How long a frame of events gets before the next is begun.
const FRAME: usize = 256 << 10;
/// Kept aside, to be given back when the disk is full: the account of what was lost must not be.
const RESERVE_NAME: &str = "spool-000.reserve";
const RESERVE: usize = WAITING + ACCOUNT;
/// How much may wait for it, so that the account finds room behind it: all that the buffer may hold when a write fails.
const WAITING: usize = BUFFER;
/// What the account takes at most.
const ACCOUNT: usize = 128 << 10;

/// The least that a spool may be limited to: the account, and room for as much besides.
pub const LEAST_LIMIT: u64 = 2 * ACCOUNT as u64;

/// A spool that is being written.
pub struct Spool {
    path: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    /// What each file begins with.
    header: String,
    /// The number of this file, and those before it.
    number: u32,
    earlier: Earlier,
    written: Written,
    /// Notes that each file has.
    lasting: Vec<String>,
    /// Up to where the file holds whole frames.
    length: u64,
    /// How much of it says again what the files before it said.
    repeated: u64,
    /// How much that may be, and all files that are there together.
    most_repeated: u64,
    most_together: u64,
    /// The last word on what was counted in total.
    totals: Option<Vec<u8>>,
    /// Up to where it may hold events.
    limit: u64,
    /// How much waits in memory before it is written, and for the end when events are written no more.
    waiting: usize,
    buffer: Vec<u8>,
    /// Where the open frame of events begins in the buffer, and its CPU.
    open: Option<(usize, u32)>,
    packer: Packer,
    state: Health,
    /// What went wrong before [`Spool::flush`] was called.
    failure: Option<SpoolError>,
    left_out: LeftOut,
    events_left_out: u64,
    privates_left_out: u64,
    /// Flows whose last word found no room.
    unrecorded: u64,
    /// Records that are missing by gaps which found none.
    gaps_unrecorded: u64,
    /// Whether it ended because it has the size that it may have.
    is_limited: bool,
    /// Whether nothing but last words follows, which the limit does not hold for.
    is_ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    /// Events are counted, not written; the rest waits for the end.
    Broken,
    /// Nothing is written.
    Gone,
}

impl Spool {
    /// Creates the spool in a folder that exists; `header` is kept in it, as JSON.
    ///
    /// # Errors
    /// When there is one, or it cannot be made.
    pub fn create(folder: &Path, header: &str) -> Result<Self, SpoolError> {
        if is_spent(folder) {
            // Who removed an earlier one was killed at that.
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

    /// Keeps the file to so many bytes, or [`LEAST_LIMIT`] where that is more, until [`Self::begin_end`]. What would make it longer
    /// ends the events as a full disk does, and not the account, for which room is left.
    #[must_use]
    pub fn limited_to(mut self, bytes: u64) -> Self {
        let bytes = bytes.max(LEAST_LIMIT);
        self.waiting = WAITING.min((bytes / 4) as usize);
        self.limit = bytes - (self.waiting + ACCOUNT) as u64;
        self
    }

    /// Keeps all parts together to so many bytes where the oldest are removed, also while another begins. What that says again is a
    /// third of it at most: the part before it, which stays until then, repeats as much and has as much that is new. What would be
    /// longer ends the events as a limit does.
    #[must_use]
    pub fn parts_within(mut self, bytes: u64) -> Self {
        (self.most_repeated, self.most_together) = (bytes / 3, bytes);
        self
    }

    /// Says that nothing but last words follows: the limit ends what is logged, not what is said of it.
    pub fn begin_end(&mut self) {
        self.is_ending = true;
        self.limit = u64::MAX;
        self.waiting = WAITING;
    }

    /// Removes the oldest file, unless it is the one that is being written; says whether there was one.
    ///
    /// # Errors
    /// When it cannot.
    pub fn remove_oldest(&mut self) -> Result<bool, SpoolError> {
        let removed = self.earlier.remove_oldest();
        if removed.is_err() {
            self.state = Health::Broken; // else what is written had no bound
        }
        removed
    }

    /// How many files were begun, and how many of them are gone.
    pub fn parts(&self) -> [u64; 2] {
        let begun = u64::from(self.number) + 1;
        [begun, begun - 1 - self.earlier.count()]
    }

    /// What the files had that were removed.
    pub fn removed(&self) -> &Written {
        self.earlier.removed()
    }

    /// How long all files are that are there.
    pub fn total(&self) -> u64 {
        self.earlier.bytes() + self.length
    }

    /// How much of the file is new: all of it but what it says again of what the files before it said.
    pub fn fresh(&self) -> u64 {
        self.length - self.repeated
    }

    /// How much of the file says again what the files before it said.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    fn begin(&mut self, folder: &Path) -> Result<(), SpoolError> {
        begin::put_header(&self.header, &mut self.buffer);
        self.write()?;
        let reserve = folder.join(RESERVE_NAME);
        // A new file: a link that somebody left there would lead anywhere.
        let created = fs::remove_file(&reserve).or_else(is_missing);
        let written =
            created.and_then(|()| private::create_file(&reserve)).and_then(|mut file| file.write_all(&[0; RESERVE]));
        written.map_err(|source| failure("write", &reserve, source))
    }

    /// Appends a record of a CPU's ring; what cannot be written is counted.
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

    /// Says what a flow is and has counted so far; the last word on it counts.
    pub fn flow(&mut self, slot: u32, flow: &Flow) {
        self.frame(frame::FLOW, slot, |bytes| flow.put(bytes));
    }

    /// Says for the last time what a flow is and has counted, and how many of its packets the flight recorder forgot: nobody else
    /// has to remember it any more.
    pub fn gone(&mut self, slot: u32, flow: &Flow, forgotten: [Tally; 2]) {
        let broken = self.left_out.tell(flow.cookie);
        self.left_out_of(flow.cookie, Disposition::Forgotten, forgotten);
        self.left_out_of(flow.cookie, Disposition::Broken, broken);
        if self.frame(frame::GONE, slot, |bytes| flow.put(bytes)) {
            self.written.gone += 1;
        }
    }

    /// Says how many of a flow's packets were logged by the kernel and then left out; added to what was said before.
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

    /// Says what was counted so far in total, an entry as [`crate::Source::totals`] gives it; the last word counts.
    pub fn totals(&mut self, totals: &[Totals]) {
        let mut said = Vec::new();
        totals.iter().for_each(|one| one.put(&mut said));
        if self.totals.as_ref() == Some(&said) {
            return self.go_on();
        }
        self.frame(frame::TOTALS, 0, |bytes| bytes.extend_from_slice(&said));
        self.totals = Some(said);
    }

    /// Says that the log goes on, and nothing else: a file that is not made longer has been changed nevertheless, and tells by
    /// that when a killed log was last alive.
    fn go_on(&self) {
        if self.state == Health::Good {
            let _ = self.file.set_len(self.length);
        }
    }

    /// Says what is missing.
    pub fn gap(&mut self, gap: &Gap) {
        let has_room = self.frame(frame::GAP, gap.cpu, |bytes| {
            // A time of all ones is none.
            let times = [gap.after_ns, gap.before_ns].map(|time| time.unwrap_or(u64::MAX));
            [gap.number, gap.missing, times[0], times[1]].put(bytes);
        });
        *(if has_room { &mut self.written.missing } else { &mut self.gaps_unrecorded }) += gap.missing;
    }

    /// Keeps a sentence.
    pub fn note(&mut self, text: &str) {
        self.frame(frame::NOTE, 0, |bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Keeps a sentence that each file has which follows: it must not go with one that is removed.
    pub fn lasting_note(&mut self, text: &str) {
        self.note(text);
        self.lasting.push(text.to_owned());
    }

    /// Says what became of all packets together, once that is known; without it, flows and totals must do. Flows were written one by
    /// one, when they were gone.
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

    /// Writes what waits. To be called once a drain, and before flows are gone.
    ///
    /// # Errors
    /// When it cannot: from then on events are only counted, see [`Spool::left_out`]. It is said once.
    pub fn flush(&mut self) -> Result<(), SpoolError> {
        let written = self.write();
        match self.failure.take() {
            Some(earlier) => Err(earlier),
            None => written,
        }
    }

    /// Writes the last frame: the log is whole.
    ///
    /// # Errors
    /// When it cannot.
    pub fn end(&mut self) -> Result<(), SpoolError> {
        self.frame(frame::END, 0, |_| ());
        let ended = self.flush();
        let _ = fs::remove_file(self.path.with_file_name(RESERVE_NAME));
        // Where the reserve was, there is room for what has waited.
        let rest = if self.state == Health::Broken { self.try_write() } else { Ok(()) };
        let _ = self.file.unlock();
        ended.and(rest)
    }

    /// Removes the spool: its records are not wanted, or are made.
    pub fn remove(&mut self) {
        if let Some(folder) = self.path.parent() {
            discard(folder);
        }
    }

    /// Whether events are no longer written.
    pub fn is_broken(&self) -> bool {
        self.state != Health::Good
    }

    /// How long the file is.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes a frame; false where there is no room for it.
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

    /// Whether a frame is to be written, or can wait for the end.
    fn has_room_for(&self, kind: u32) -> bool {
        match self.state {
            Health::Good => true,
            Health::Broken if matches!(kind, frame::LIMITED | frame::ACCOUNT | frame::END) => true,
            Health::Broken => is_final(kind) && (self.is_written() || self.buffer.len() < self.waiting),
            Health::Gone => false,
        }
    }

    /// Whether what is put in the buffer goes to the file: at the end also of a log that its limit has ended.
    fn is_written(&self) -> bool {
        self.state == Health::Good || (self.state == Health::Broken && self.is_limited && self.is_ending)
    }

    fn write_much(&mut self) {
        if self.is_written() && self.buffer.len() >= self.waiting {
            self.failure = self.write().err().or(self.failure.take());
        }
    }

    /// Leaves room for a frame's header; its length and checksum follow in [`Spool::seal`].
    fn begin_frame(&mut self, kind: u32, from: u32) -> usize {
        self.close();
        let start = self.buffer.len();
        [kind, from, 0, 0].put(&mut self.buffer);
        start
    }

    /// Ends the open frame of events.
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
            // At the end it is the disk that has no room, which nobody asked for.
            self.is_limited = matches!(problem, SpoolError::Limit(_));
            self.give_up();
        }
        written
    }

    /// Writes all that waits, or nothing.
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

    /// Makes sure that the file is still where it was made.
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
