//! What is written of one tap.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use sojourn_capture::{Passed, Seen};
use sojourn_port::pcap::{Described, Direction, NgWriter, Statistics};
use sojourn_record::tap::{TapCounts, Tapped};
use sojourn_record::{RecordError, TapAbout, TapFolder, private};
use sojourn_time::{HostClock, Time};

use super::arguments::TapOptions;
use super::output::Output;
use crate::stream::host;

const KERNEL: &str = "/proc/sys/kernel";

/// Rows are written when there are so many.
const ROWS: usize = 8192;

/// The files of one tap: those of one part, and after them those of the next.
pub struct Files {
    folder: PathBuf,
    of: Of,
    part: u16,
    frames: Option<Frames>,
    records: Option<Records>,
    is_broken: bool,
}

/// Whose files they are.
#[derive(Clone)]
pub struct Of {
    /// The tap's name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// Who stamps.
    pub source: &'static str,
    /// How it is captured.
    pub options: TapOptions,
}

/// What was counted of a part of a tap's frames, for the ends of its files.
#[derive(Clone, Copy)]
pub struct Counted {
    /// When it began and ended.
    pub span: [Time; 2],
    /// Frames that were seen.
    pub seen: u64,
    /// Frames that were lost.
    pub dropped: u64,
    /// Frames that the interface counted, of a whole capture.
    pub interface: Option<u64>,
    /// Packets that cannot carry the key.
    pub without_key: u64,
}

/// Files that are being ended by a thread of their own.
pub struct Ending {
    paths: Vec<PathBuf>,
    bytes: u64,
    thread: Option<JoinHandle<Result<(), RecordError>>>,
}

impl Files {
    /// Creates them.
    ///
    /// # Errors
    /// When one is there already, or cannot be made.
    pub fn create(folder: &Path, of: Of) -> Result<Self, RecordError> {
        let folder = folder.to_owned();
        let mut files = Self { folder, of, part: 0, frames: None, records: None, is_broken: false };
        files.begin()?;
        Ok(files)
    }

    fn begin(&mut self) -> Result<(), RecordError> {
        let format = self.of.options.format;
        self.records = format.has_records().then(|| Records::create(&self.folder, &self.of, self.part)).transpose()?;
        self.frames = format.has_frames().then(|| Frames::create(&self.folder, &self.of, self.part)).transpose()?;
        Ok(())
    }

    /// Writes what is recorded of a frame.
    ///
    /// # Errors
    /// When it cannot; nothing more is written then.
    pub fn write(&mut self, passed: &Passed<'_>, seen: &Seen<'_>) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let records = self.records.as_mut().map_or(Ok(()), |records| records.write(passed, seen));
        let frames = self.frames.as_mut().map_or(Ok(()), |frames| frames.write(passed, seen.kept));
        records.and(frames).inspect_err(|_| self.is_broken = true)
    }

    /// Makes what was written readable by others.
    ///
    /// # Errors
    /// When it cannot; nothing more is written then.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        let records = self.records.as_mut().map_or(Ok(()), Records::flush);
        let frames = self.frames.as_mut().map_or(Ok(()), Frames::flush);
        records.and(frames).inspect_err(|_| self.is_broken = true)
    }

    /// How long the files of this part are together.
    pub fn length(&self) -> u64 {
        let records = self.records.as_ref().map_or(0, |records| records.folder.length());
        records + self.frames.as_ref().map_or(0, |frames| frames.writer.output().length())
    }

    /// Ends the files of this part, by a thread of its own: a disk may take its time.
    pub fn end(&mut self, counted: Counted) -> Ending {
        let (frames, records) = (self.frames.take(), self.records.take());
        let paths = frames.iter().map(|frames| frames.path.clone());
        let paths = paths.chain(records.iter().flat_map(|records| records.paths(&self.folder, self.part))).collect();
        let bytes = frames.as_ref().map_or(0, |frames| frames.writer.output().length())
            + records.as_ref().map_or(0, |records| records.folder.length());
        let write = move || {
            let frames = frames.map_or(Ok(()), |frames| frames.finish(&counted));
            frames.and(records.map_or(Ok(()), |records| records.finish(&counted)))
        };
        let thread = thread::Builder::new().name("files".to_owned()).spawn(write).ok();
        Ending { paths, bytes, thread }
    }

    /// Ends the files of this part and begins those of the next.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn rotate(&mut self, counted: Counted) -> Result<Ending, RecordError> {
        let ending = self.end(counted);
        self.part = self.part.checked_add(1).ok_or_else(|| RecordError::Limit(self.folder.clone()))?;
        self.begin().inspect_err(|_| self.is_broken = true)?;
        Ok(ending)
    }
}

impl Ending {
    /// How long the files are together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until they are on the disk.
    ///
    /// # Errors
    /// When they could not be ended; what was written stays readable.
    pub fn wait(&mut self) -> Result<(), RecordError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or(Err(RecordError::Broken))
    }

    /// Removes them.
    ///
    /// # Errors
    /// When they could not be ended, or cannot be removed.
    pub fn remove(mut self) -> Result<(), RecordError> {
        self.wait()?;
        self.paths.iter().try_for_each(|path| fs::remove_file(path).map_err(|source| failure("remove", path, source)))
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.paths.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    }
}

/// A file of frames.
struct Frames {
    path: PathBuf,
    writer: NgWriter<Output>,
}

impl Frames {
    fn create(folder: &Path, of: &Of, part: u16) -> Result<Self, RecordError> {
        let options = &of.options;
        let number = if options.rotates() { format!("-{part:03}") } else { String::new() };
        let compressed = if options.compress { ".lz4" } else { "" };
        let path = folder.join(format!("{}{number}.pcapng{compressed}", of.name));
        let file = private::create_file(&path).map_err(|source| failure("create", &path, source))?;
        let system = format!("Linux {}", kernel("osrelease"));
        let said = Described {
            machine: std::env::consts::ARCH,
            system: &system,
            program: concat!("sojourn ", env!("CARGO_PKG_VERSION")),
            interface: &of.interface,
            stamps: &format!("timestamps: {}", of.source),
            filter: &options.filter,
            snap: options.snap,
        };
        let writer = NgWriter::described(Output::new(file, options.compress), &said);
        Ok(Self { writer: writer.map_err(|source| failure("write", &path, source))?, path })
    }

    fn write(&mut self, passed: &Passed<'_>, kept: &[u8]) -> Result<(), RecordError> {
        let written = self.writer.write_passed(passed.realtime, kept, passed.length, Some(passed.direction));
        written.map_err(|source| failure("write", &self.path, source))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.writer.flush().map_err(|source| failure("write", &self.path, source))
    }

    fn finish(self, counted: &Counted) -> Result<(), RecordError> {
        let Self { path, mut writer } = self;
        let ended = writer.write_statistics(&counted.statistics()).and_then(|()| writer.finish()?.finish());
        ended.map_err(|source| failure("write", &path, source))
    }
}

/// A row a packet.
struct Records {
    who: String,
    tap: String,
    folder: TapFolder,
    rows: Vec<Tapped>,
    written: u64,
}

impl Records {
    fn create(folder: &Path, of: &Of, part: u16) -> Result<Self, RecordError> {
        let who = plain(&of.name);
        let about = TapAbout {
            tap: of.name.clone(),
            interface: of.interface.clone(),
            host: kernel("hostname"),
            key: of.options.key.name().to_owned(),
            most: None,
            clock_id: host::clock_id(),
        };
        let folder = TapFolder::create(folder, (&who, part), &about, &crate::origin(false))?;
        Ok(Self { who, tap: of.name.clone(), folder, rows: Vec::with_capacity(ROWS), written: 0 })
    }

    fn write(&mut self, passed: &Passed<'_>, seen: &Seen<'_>) -> Result<(), RecordError> {
        self.rows.push(Tapped {
            at: passed.at,
            digest: seen.digest.map(|digest| digest.value),
            length_bytes: u32::try_from(passed.length).unwrap_or(u32::MAX),
            direction: Some(match passed.direction {
                Direction::In => "in",
                Direction::Out => "out",
            }),
            is_fragment: seen.is_fragment,
            is_super_packet: passed.is_super,
            is_truncated: seen.digest.is_some_and(|digest| digest.is_truncated),
        });
        if self.rows.len() >= ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.folder.write(&self.rows)?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    fn paths(&self, folder: &Path, part: u16) -> [PathBuf; 2] {
        ["taps", "tap_counts"].map(|table| folder.join(format!("{table}-{}-{part:03}.arrow", self.who)))
    }

    fn finish(mut self, counted: &Counted) -> Result<(), RecordError> {
        self.flush()?;
        let [opened, closed] = counted.span;
        self.folder.finish(&TapCounts {
            tap: self.tap,
            opened,
            closed,
            seen: self.written + counted.dropped,
            recorded: self.written,
            dropped: counted.dropped,
            without_key: counted.without_key,
        })
    }
}

impl Counted {
    fn statistics(&self) -> Statistics {
        let offset = HostClock.tai_offset().0;
        let [started, ended] = self.span.map(|at| at - offset);
        let accepted = self.seen + self.dropped;
        Statistics { started, ended, counted: self.interface, accepted, dropped: self.dropped, captured: self.seen }
    }
}

/// Returns what of a name can stand in the name of a record: letters and digits.
pub fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn kernel(file: &str) -> String {
    fs::read_to_string(Path::new(KERNEL).join(file)).unwrap_or_default().trim().to_owned()
}

fn failure(operation: &'static str, path: &Path, source: io::Error) -> RecordError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::AlreadyExists => RecordError::Exists(path),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RecordError::Full(path),
        _ => RecordError::File { operation, path, source },
    }
}
