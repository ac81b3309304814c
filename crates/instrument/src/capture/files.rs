//! What is written of one tap.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use sojourn_capture::{Account, Passed, Seen};
use sojourn_port::pcap::{Described, Direction, NgWriter, Statistics};
use sojourn_record::tap::{TapCounts, Tapped};
use sojourn_record::{RecordError, TapAbout, TapFolder, private};
use sojourn_time::HostClock;

use super::arguments::TapOptions;
use crate::stream::host::{self, Took};

const BUFFER_BYTES: usize = 1 << 20;
const KERNEL: &str = "/proc/sys/kernel";

/// Rows are written when there are so many.
const ROWS: usize = 8192;

/// The files of one tap.
pub struct Files {
    frames: Option<Frames>,
    records: Option<Records>,
    is_broken: bool,
}

/// Whose files they are.
pub struct Of<'a> {
    /// The tap's name.
    pub name: &'a str,
    /// Its interface.
    pub interface: &'a str,
    /// Who stamps.
    pub source: &'static str,
    /// How it is captured.
    pub options: &'a TapOptions,
}

/// What was counted of a tap, for the ends of its files.
pub struct Counted {
    /// When it was opened and closed.
    pub took: Took,
    /// Each frame in one count.
    pub account: Account,
    /// Packets that cannot carry the key.
    pub without_key: u64,
}

impl Files {
    /// Creates them.
    ///
    /// # Errors
    /// When one is there already, or cannot be made.
    pub fn create(folder: &Path, of: &Of<'_>) -> Result<Self, RecordError> {
        let format = of.options.format;
        let records = format.has_records().then(|| Records::create(folder, of)).transpose()?;
        let frames = format.has_frames().then(|| Frames::create(folder, of)).transpose()?;
        Ok(Self { frames, records, is_broken: false })
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

    /// Ends them with what was counted.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self, counted: &Counted) -> Result<(), RecordError> {
        let frames = self.frames.as_mut().map_or(Ok(()), |frames| frames.finish(counted));
        let records = self.records.as_mut().map_or(Ok(()), |records| records.finish(counted));
        frames.and(records)
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        let frames = self.frames.iter().map(|frames| frames.path.file_name().unwrap_or_default().to_string_lossy());
        let records = self.records.iter().map(|records| format!("taps-{}-000.arrow", records.who));
        frames.map(String::from).chain(records).collect()
    }
}

/// A file of frames.
struct Frames {
    path: PathBuf,
    writer: Option<NgWriter<BufWriter<File>>>,
}

impl Frames {
    fn create(folder: &Path, of: &Of<'_>) -> Result<Self, RecordError> {
        let path = folder.join(format!("{}.pcapng", of.name));
        let file = private::create_file(&path).map_err(|source| failure("create", &path, source))?;
        let system = format!("Linux {}", kernel("osrelease"));
        let said = Described {
            machine: std::env::consts::ARCH,
            system: &system,
            program: concat!("sojourn ", env!("CARGO_PKG_VERSION")),
            interface: of.interface,
            stamps: &format!("timestamps: {}", of.source),
            filter: &of.options.filter,
            snap: of.options.snap,
        };
        let writer = NgWriter::described(BufWriter::with_capacity(BUFFER_BYTES, file), &said);
        let writer = writer.map_err(|source| failure("write", &path, source))?;
        Ok(Self { path, writer: Some(writer) })
    }

    fn write(&mut self, passed: &Passed<'_>, kept: &[u8]) -> Result<(), RecordError> {
        let writer = self.writer.as_mut().ok_or(RecordError::Broken)?;
        let written = writer.write_passed(passed.realtime, kept, passed.length, Some(passed.direction));
        written.map_err(|source| failure("write", &self.path, source))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let writer = self.writer.as_mut().ok_or(RecordError::Broken)?;
        writer.flush().map_err(|source| failure("write", &self.path, source))
    }

    fn finish(&mut self, counted: &Counted) -> Result<(), RecordError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let failed = |source| failure("write", &self.path, source);
        writer.write_statistics(&counted.statistics()).map_err(failed)?;
        let buffered = writer.finish().map_err(failed)?;
        let file = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(|source| failure("sync", &self.path, source))
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
    fn create(folder: &Path, of: &Of<'_>) -> Result<Self, RecordError> {
        let who = plain(of.name);
        let about = TapAbout {
            tap: of.name.to_owned(),
            interface: of.interface.to_owned(),
            host: kernel("hostname"),
            key: of.options.key.name().to_owned(),
            most: None,
            clock_id: host::clock_id(),
        };
        let folder = TapFolder::create(folder, (&who, 0), &about, &crate::origin(false))?;
        Ok(Self { who, tap: of.name.to_owned(), folder, rows: Vec::with_capacity(ROWS), written: 0 })
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

    fn finish(&mut self, counted: &Counted) -> Result<(), RecordError> {
        self.flush()?;
        self.folder.finish(&TapCounts {
            tap: self.tap.clone(),
            opened: counted.took.started.tai,
            closed: counted.took.ended.tai,
            seen: self.written + counted.account.dropped,
            recorded: self.written,
            dropped: counted.account.dropped,
            without_key: counted.without_key,
        })
    }
}

impl Counted {
    fn statistics(&self) -> Statistics {
        let offset = HostClock.tai_offset().0;
        Statistics {
            started: self.took.started.tai - offset,
            ended: self.took.ended.tai - offset,
            counted: self.account.interface,
            accepted: self.account.accepted,
            dropped: self.account.dropped,
            captured: self.account.seen,
        }
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
