//! The log of an emulator, written by a separate thread so that no packet waits for a disk.
//!
//! Rows that do not fit the queue to that thread are skipped and counted, so that gaps are visible. A full disk or a
//! size limit ends only the log; its last line, for which space is reserved, states the reason.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;
use sojourn_emulate::Direction;
use sojourn_emulate::disposition::Disposition;
use sojourn_record::packet::Head;
use sojourn_record::{Packet, PacketFile, RecordError, failure, private};
use sojourn_rights::table::EMULATE;
use sojourn_rights::{self as rights, Right};
use sojourn_time::{Clock, Nanos, Stamp, SteadyClock, Time};

use super::Bridge;
use super::events::Event;
use crate::bounded;
use crate::failure::{NotTrusted, of_path};
use crate::place::Processors;

/// The maximum number of rows queued for the writer: 80 MB.
const MOST_WAITING: usize = 1 << 18;
/// The number of rows, or the age [`AGE`], at which rows go to the writer.
const BATCH: usize = 4096;
/// The maximum number of events queued for the writer; one more ends the log. A change of all pipes is one event per pipe.
const MOST_EVENTS: usize = 1 << 17;
const AGE: Nanos = Nanos::millis(10);
/// Disk space that is always reserved for the file of events, so that its last line fits.
const RESERVE: u64 = 64 << 10;
/// The part of a size limit that is reserved for the last line.
const LAST_LINE: u64 = 1 << 10;
/// The maximum size of a file of events that is read: a million changes of a pipe.
const MOST_READ_BYTES: u64 = 1 << 30;
/// The maximum size of one of its lines: the longest traces of both directions, of 4,194,304 points of 70 bytes each.
const MOST_LINE_BYTES: u64 = 640 << 20;

/// Reads the lines of a file of events, up to its maximum size.
pub fn lines(events: impl Read) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    bounded::lines(events, MOST_LINE_BYTES, MOST_READ_BYTES)
}

/// The log as seen by the thread that forwards packets.
pub struct Log {
    to_writer: Option<Sender<Item>>,
    back: Receiver<Vec<Disposition>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    gathered: Vec<Disposition>,
    since: Time,
    counts: Arc<Counts>,
    skipped: u64,
    /// Whether the early end was reported.
    is_told: bool,
    /// The offset of `CLOCK_TAI` from the log's clock, as last noted.
    tai_ahead: Option<Nanos>,
}

/// The files of a log.
pub struct Files {
    packets: PacketFile,
    events: File,
    path: PathBuf,
    /// The length of the file of events, and up to which length the disk space is reserved.
    length: u64,
    reserved: u64,
    /// The maximum total size of both files.
    limit: Option<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    events_waiting: AtomicUsize,
    written: AtomicU64,
    not_kept: AtomicU64,
    /// Rows that arrived after the log's early end.
    unwritten: AtomicU64,
    /// The reason for an early end.
    stopped: OnceLock<String>,
}

enum Item {
    Rows(Vec<Disposition>),
    Event(Box<Event>),
    /// The queue of events is full.
    Stop,
    End(Box<Value>, u64),
}

/// Creates the files of a log.
///
/// # Errors
/// If they exist already, or cannot be created.
pub fn create(folder: &Path, who: (&str, u16), pipes: Vec<String>, limit: Option<u64>) -> anyhow::Result<Files> {
    let packets = PacketFile::create(folder, who, pipes, &crate::origin(false))?;
    let path = folder.join(format!("emulation-{}-{:03}.jsonl", who.0, who.1));
    let events = private::create_file(&path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(RecordError::Exists(path.clone())),
        _ => of_path("create", &path, error),
    })?;
    Ok(Files { packets, events, path, length: 0, reserved: 0, limit })
}

impl Files {
    /// Writes rows, unless that would exceed the limit.
    fn write(&mut self, rows: &[Packet]) -> Result<(), RecordError> {
        if let Some(limit) = self.limit {
            self.packets.limit_to(limit.saturating_sub(self.length + LAST_LINE));
        }
        self.packets.write(rows)
    }

    /// Writes an event, unless that would exceed the limit.
    fn say(&mut self, event: &Event, is_last: bool) -> Result<(), RecordError> {
        let line = [serde_json::to_vec(event).unwrap_or_default(), b"\n".to_vec()].concat();
        let length = self.length + line.len() as u64;
        let room = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.packets.length()));
        if !is_last && length + LAST_LINE > room {
            return Err(RecordError::Limit(self.path.clone()));
        }
        self.events.write_all(&line).map_err(|source| failure("write", &self.path, source))?;
        self.length = length;
        if length + RESERVE / 2 > self.reserved {
            self.reserved = length + RESERVE;
            // On a file system without fallocate, the last line is written only if there is space.
            let _ = fallocate(&self.events, FallocateFlags::KEEP_SIZE, 0, self.reserved);
        }
        Ok(())
    }

    /// Completes both files, synced to disk: the packets before the event that declares them complete.
    fn finish(&mut self, end: &Event) -> Result<(), RecordError> {
        self.packets.finish()?;
        self.say(end, false)?;
        self.sync()
    }

    fn sync(&self) -> Result<(), RecordError> {
        self.events.sync_all().map_err(|source| failure("write", &self.path, source))
    }

    /// Writes what could be read of a truncated log: the complete lines of its events, and rows.
    ///
    /// # Errors
    /// If something cannot be read or written.
    pub fn recover(&mut self, path: &Path, events: impl Read, rows: &[Packet]) -> anyhow::Result<()> {
        // Bytes, not text: a truncated line may end within a character.
        for line in lines(events) {
            let line = line.with_context(|| format!("read {}", path.display()))?;
            if let Ok(event) = serde_json::from_slice::<Event>(&line) {
                self.say(&event, false)?;
            }
        }
        for some in rows.chunks(BATCH) {
            self.packets.write(some)?;
        }
        Ok(self.finish(&Event::Recovered { written: rows.len() as u64 })?)
    }
}

impl Log {
    /// Starts the writer.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn begin(files: Files, processors: Processors, clock: SteadyClock) -> anyhow::Result<Self> {
        let (to_writer, from_bridge) = mpsc::channel();
        let (to_bridge, back) = mpsc::channel();
        let counts = Arc::new(Counts::default());
        let seen = Arc::clone(&counts);
        let mut writer =
            Writer { files, counts: seen, clock, blocks: vec![(0, 0, true)], rows: Vec::new(), failed: None };
        let write = move || {
            rights::keep_only(&[Right::IpcLock])?;
            EMULATE.restrict_calls()?;
            processors.lower_priority();
            writer.run(&from_bridge, &to_bridge)
        };
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write).context("start a thread")?;
        Ok(Self {
            to_writer: Some(to_writer),
            back,
            thread: Some(thread),
            gathered: Vec::with_capacity(BATCH),
            since: Time(0),
            counts,
            skipped: 0,
            is_told: false,
            tai_ahead: None,
        })
    }

    /// Collects the engine's new dispositions, and passes them to the writer when there are enough or they are old enough.
    pub fn keep(&mut self, bridge: &mut Bridge, now: Time) {
        if self.gathered.is_empty() {
            self.since = now;
        }
        self.gathered.extend(bridge.engine().dispositions());
        if self.gathered.len() >= BATCH || (!self.gathered.is_empty() && now - self.since >= AGE) {
            self.hand_over();
        }
    }

    /// Writes an event after the preceding rows.
    pub fn note(&mut self, event: Event) {
        if self.counts.events_waiting.fetch_add(1, Ordering::Relaxed) < MOST_EVENTS {
            self.send(Item::Event(Box::new(event)));
            return;
        }
        self.send(Item::Stop);
        self.to_writer = None;
    }

    /// Notes the offset of `CLOCK_TAI` from the log's clock: the first one, and each that differs from the one before.
    pub fn note_clock(&mut self, at_ns: Time, tai_ahead_ns: Nanos) {
        if self.tai_ahead.replace(tai_ahead_ns) != Some(tai_ahead_ns) {
            self.note(Event::Clock { at_ns, tai_ahead_ns });
        }
    }

    /// Returns the counters of rows so far, and why the log has ended, if it has.
    pub fn told(&self) -> Value {
        serde_json::json!({
            "written": self.counts.written.load(Ordering::Relaxed),
            "not_kept": self.counts.not_kept.load(Ordering::Relaxed),
            "skipped": self.skipped,
            "unwritten": self.counts.unwritten.load(Ordering::Relaxed),
            "stopped": self.counts.stopped.get(),
        })
    }

    /// Writes the remaining rows, and ends the log.
    ///
    /// # Errors
    /// If something could not be written, except because of the size limit.
    pub fn finish(&mut self, bridge: &mut Bridge, report: Value) -> anyhow::Result<()> {
        self.gathered.extend(bridge.engine().dispositions());
        self.hand_over();
        self.send(Item::End(Box::new(report), self.skipped));
        self.to_writer = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(anyhow!("write the log: its thread has died")),
            None => Ok(()),
        }
    }

    fn hand_over(&mut self) {
        let rows = self.gathered.len();
        if self.counts.waiting.load(Ordering::Relaxed) + rows > MOST_WAITING {
            self.skipped += rows as u64;
            self.gathered.clear();
            return;
        }
        self.counts.waiting.fetch_add(rows, Ordering::Relaxed);
        let emptied = self.back.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let full = std::mem::replace(&mut self.gathered, emptied);
        self.send(Item::Rows(full));
    }

    /// If the writer has died, [`Self::finish`] reports that.
    fn send(&mut self, item: Item) {
        let unsent = match &self.to_writer {
            Some(writer) => writer.send(item).err().map(|mpsc::SendError(item)| item),
            None => Some(item),
        };
        if let Some(Item::Rows(rows)) = unsent {
            let lost = rows.len() as u64;
            match self.to_writer {
                Some(_) => self.skipped += lost,
                None => drop(self.counts.unwritten.fetch_add(lost, Ordering::Relaxed)),
            }
        }
    }

    /// Returns, once, why the log has ended before the emulator.
    pub fn has_stopped(&mut self) -> Option<String> {
        let why = self.counts.stopped.get().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(why.clone())
    }
}

/// The state of the writer's thread.
struct Writer {
    files: Files,
    counts: Arc<Counts>,
    clock: SteadyClock,
    /// The first packet, the number and the keep flag of each block.
    blocks: Vec<(u64, i32, bool)>,
    rows: Vec<Packet>,
    /// The reason for an early end; nothing is written any more.
    failed: Option<RecordError>,
}

impl Writer {
    fn run(&mut self, items: &Receiver<Item>, back: &Sender<Vec<Disposition>>) -> anyhow::Result<()> {
        while let Ok(item) = items.recv() {
            match item {
                Item::Rows(mut dispositions) => {
                    self.write(&dispositions);
                    self.counts.waiting.fetch_sub(dispositions.len(), Ordering::Relaxed);
                    dispositions.clear();
                    let _ = back.send(dispositions);
                }
                Item::Event(event) => {
                    self.counts.events_waiting.fetch_sub(1, Ordering::Relaxed);
                    if let Event::Begin { block, number, keep } = *event {
                        self.blocks.push((number, block, keep));
                    }
                    self.attempt(|files| files.say(&event, false));
                }
                Item::Stop => {
                    let why = format!("{MOST_EVENTS} events wait for the disk");
                    self.attempt(|files| Err(failure("write", &files.path, io::Error::other(why))));
                }
                Item::End(report, skipped) => {
                    let (written, not_kept) = (count(&self.counts.written), count(&self.counts.not_kept));
                    let end = Event::End { written, skipped, not_kept, report: *report };
                    self.attempt(|files| files.finish(&end));
                }
            }
        }
        match self.failed.take() {
            // The requested limit is not an error.
            None | Some(RecordError::Limit(_)) => Ok(()),
            Some(error) => Err(anyhow!(error).context("the log ended before the emulator")),
        }
    }

    fn write(&mut self, dispositions: &[Disposition]) {
        self.rows.clear();
        for disposition in dispositions {
            let after = self.blocks.partition_point(|(first, _, _)| *first <= disposition.number);
            let (_, block, keep) = self.blocks[after.saturating_sub(1)];
            if keep {
                self.rows.push(row(disposition, block));
            }
        }
        let rows = std::mem::take(&mut self.rows);
        self.counts.not_kept.fetch_add((dispositions.len() - rows.len()) as u64, Ordering::Relaxed);
        let is_written = rows.is_empty() || self.attempt(|files| files.write(&rows));
        let counter = if is_written { &self.counts.written } else { &self.counts.unwritten };
        counter.fetch_add(rows.len() as u64, Ordering::Relaxed);
        self.rows = rows;
    }

    /// Writes, unless the log has ended. A failed write ends the log; its last line states the reason.
    fn attempt(&mut self, write: impl FnOnce(&mut Files) -> Result<(), RecordError>) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let Err(error) = write(&mut self.files) else { return true };
        let why = error.to_string();
        let (at_ns, written) = (self.clock.now(), count(&self.counts.written));
        // Best effort: a log without its last line counts as truncated. Sync the rows first, because that line counts them.
        let _ = self.files.packets.sync();
        let last = Event::Stopped { at_ns, written, why: why.clone() };
        let _ = self.files.say(&last, true).and_then(|()| self.files.sync());
        let _ = self.counts.stopped.set(why);
        self.failed = Some(error);
        false
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The length of the FCS, which frames in the engine do not include.
const FCS_BYTES: u32 = 4;

fn row(disposition: &Disposition, block: i32) -> Packet {
    Packet {
        block,
        number: disposition.number,
        copy_of: disposition.copy_of,
        direction: disposition.direction.name(),
        pipe: disposition.pipe,
        flow: disposition.flow,
        frame_bytes: disposition.bytes.saturating_add(FCS_BYTES),
        head: Head { bytes: disposition.head, length: disposition.head_len },
        arrival: Stamp { at: disposition.arrived, source: disposition.source },
        entered: disposition.entered,
        disposition: disposition.outcome.name(),
        cause: disposition.outcome.cause().map_or("", |cause| cause.name()),
        drawn: disposition.drawn,
        link_left: disposition.link_left,
        intended: disposition.intended,
        departure: disposition.departed,
        is_marked: disposition.is_marked,
        flipped: disposition.flipped,
        is_reordered: disposition.is_reordered,
        queue_slots: disposition.queue_slots,
        queue_bytes: disposition.queue_bytes,
        class: disposition.sub_queue,
    }
}

/// The maximum frame length of an interface, and thus of a frame in an emulator.
const LONGEST_FRAME: u32 = 1 << 16;

/// Converts a row back to the engine's disposition.
///
/// # Errors
/// If the row contradicts itself, or contains impossible values.
pub fn disposition(row: &Packet) -> anyhow::Result<Disposition> {
    use sojourn_emulate::disposition::{Cause, Outcome};
    if row.frame_bytes > LONGEST_FRAME + FCS_BYTES {
        let problem =
            format!("packet {}: a frame of {} bytes, which no interface carries", row.number, row.frame_bytes);
        return Err(NotTrusted(problem).into());
    }
    let outcome = match row.disposition {
        "unmatched" => Outcome::Unmatched,
        "sent" => Outcome::Sent,
        _ => Outcome::Lost(
            Cause::named(row.cause).with_context(|| format!("packet {}: lost without cause", row.number))?,
        ),
    };
    let direction = if row.direction == Direction::Forward.name() { Direction::Forward } else { Direction::Backward };
    Ok(Disposition {
        number: row.number,
        copy_of: row.copy_of,
        direction,
        pipe: row.pipe,
        flow: row.flow,
        bytes: row.frame_bytes.saturating_sub(FCS_BYTES),
        head: row.head.bytes,
        head_len: row.head.length,
        arrived: row.arrival.at,
        source: row.arrival.source,
        entered: row.entered,
        outcome,
        drawn: row.drawn,
        link_left: row.link_left,
        intended: row.intended,
        departed: row.departure,
        is_marked: row.is_marked,
        flipped: row.flipped,
        is_reordered: row.is_reordered,
        queue_slots: row.queue_slots,
        queue_bytes: row.queue_bytes,
        sub_queue: row.class,
    })
}

#[cfg(test)]
mod tests {
    use sojourn_emulate::disposition::{HEAD, Outcome};
    use sojourn_time::Source;

    use super::*;

    const ROW: Disposition = Disposition {
        number: 0,
        copy_of: None,
        direction: Direction::Forward,
        pipe: None,
        flow: 0,
        bytes: 60,
        head: [0; HEAD],
        head_len: 0,
        arrived: Time(0),
        source: Source::Simulated,
        entered: Time(0),
        outcome: Outcome::Sent,
        drawn: None,
        link_left: None,
        intended: None,
        departed: None,
        is_marked: false,
        flipped: 0,
        is_reordered: false,
        queue_slots: 0,
        queue_bytes: 0,
        sub_queue: 0,
    };

    /// Returns a log, and the queue to a writer that reads nothing.
    fn log_of_a_slow_writer() -> (Log, Receiver<Item>) {
        let (to_writer, slow) = mpsc::channel();
        let log = Log {
            to_writer: Some(to_writer),
            back: mpsc::channel().1,
            thread: None,
            gathered: Vec::new(),
            since: Time(0),
            counts: Arc::default(),
            skipped: 0,
            is_told: false,
            tai_ahead: None,
        };
        (log, slow)
    }

    #[test]
    fn events_that_the_writer_is_too_slow_for_end_the_log() {
        let (mut log, slow) = log_of_a_slow_writer();
        let event = || Event::Clock { at_ns: Time(0), tai_ahead_ns: Nanos::ZERO };
        for _ in 0..MOST_EVENTS {
            log.note(event());
        }
        log.note(event());
        log.note(event());
        log.gathered.resize(BATCH, ROW);
        log.hand_over();
        let told = log.told();
        assert_eq!((&told["skipped"], &told["unwritten"]), (&0.into(), &BATCH.into()));
        let stops = |item: &Item| matches!(item, Item::Stop);
        let sent: Vec<_> = slow.iter().collect();
        assert_eq!((sent.len(), sent.iter().position(stops)), (MOST_EVENTS + 1, Some(MOST_EVENTS)));
    }

    #[test]
    fn log_records_the_clock_at_its_start_and_each_step_in_either_direction_once() {
        let (mut log, slow) = log_of_a_slow_writer();
        let [start, forward, back] = [Nanos::ZERO, Nanos::seconds(37), Nanos::millis(-20)];
        for (at, ahead) in [start, start, forward, forward, back, back, start].into_iter().enumerate() {
            log.note_clock(Time(at as i64), ahead);
        }
        drop(log);
        let noted = slow.iter().map(|item| match item {
            Item::Event(event) => match *event {
                Event::Clock { at_ns, tai_ahead_ns } => (at_ns, tai_ahead_ns),
                other => panic!("{other:?}"),
            },
            _ => panic!("something else than an event"),
        });
        assert_eq!(
            noted.collect::<Vec<_>>(),
            [(0, start), (2, forward), (4, back), (6, start)].map(|(at, ahead)| (Time(at), ahead))
        );
    }

    #[test]
    fn rows_that_the_writer_is_too_slow_for_are_skipped_and_counted() {
        let (mut log, slow) = log_of_a_slow_writer();
        let batches = MOST_WAITING / BATCH;
        for _ in 0..batches + 3 {
            log.gathered.resize(BATCH, ROW);
            log.hand_over();
        }
        assert_eq!((log.told()["skipped"].as_u64(), log.gathered.len()), (Some(3 * BATCH as u64), 0));
        let waiting = || slow.try_iter().map(|item| matches!(item, Item::Rows(rows) if rows.len() == BATCH));
        assert_eq!(waiting().filter(|is_whole| *is_whole).count(), batches);
        // The writer has caught up.
        log.counts.waiting.store(0, Ordering::Relaxed);
        log.gathered.resize(BATCH, ROW);
        log.hand_over();
        assert_eq!((waiting().count(), log.skipped), (1, 3 * BATCH as u64));
    }
}
