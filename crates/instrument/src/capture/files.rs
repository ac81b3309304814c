//! The output files of one tap.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use sojourn_capture::{Passed, Seen};
use sojourn_port::pcap::{Described, NgWriter, Statistics};
use sojourn_record::tap::{TapCounts, Tapped};
use sojourn_record::{RecordError, TapFolder, private};
use sojourn_time::{HostClock, Time};

use super::arguments::TapOptions;
use super::output::Output;
use super::rows::{about, kernel, row};

/// Rows are written in batches of this many.
const ROWS: usize = 8192;

/// The files of one tap: those of the current part; each rotation begins the next part.
pub struct Files {
    folder: PathBuf,
    of: Of,
    part: u32,
    frames: Option<Frames>,
    records: Option<Records>,
    is_broken: bool,
}

/// The tap to which files belong.
#[derive(Clone)]
pub struct Of {
    /// The tap's name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// The source of the timestamps.
    pub source: &'static str,
    /// The capture options.
    pub options: TapOptions,
}

/// The counters of one part of a tap's frames, for the end of its files.
#[derive(Clone, Copy)]
pub struct Counted {
    /// The start and end time.
    pub span: [Time; 2],
    /// Frames seen.
    pub seen: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames that the interface counted during the whole capture.
    pub interface: Option<u64>,
    /// Packets that cannot carry the packet key.
    pub without_key: u64,
}

/// Files that a separate thread completes.
pub struct Ending {
    paths: Vec<PathBuf>,
    bytes: u64,
    writing: Writing,
}

type Write = dyn FnOnce() -> Result<(), RecordError> + Send;

/// The state of completion.
enum Writing {
    /// A thread is at work.
    Thread(JoinHandle<Result<(), RecordError>>),
    /// Completed; the result is returned once.
    Over(Result<(), RecordError>),
}

impl Files {
    /// Creates the files.
    ///
    /// # Errors
    /// If one exists already, or cannot be created.
    pub fn create(folder: &Path, of: Of) -> Result<Self, RecordError> {
        let folder = folder.to_owned();
        let mut files = Self { folder, of, part: 0, frames: None, records: None, is_broken: false };
        files.begin()?;
        Ok(files)
    }

    fn begin(&mut self) -> Result<(), RecordError> {
        let format = self.of.options.format;
        let number = self.number();
        self.records = format.has_records().then(|| Records::create(&self.folder, &self.of, &number)).transpose()?;
        self.frames = format.has_frames().then(|| Frames::create(&self.folder, &self.of, &number)).transpose()?;
        Ok(())
    }

    /// Returns the part number for file names, with leading zeros so that names sort.
    fn number(&self) -> String {
        let digits = if self.of.options.rotates() { 6 } else { 3 };
        format!("{:0digits$}", self.part)
    }

    /// Writes the record of a frame.
    ///
    /// # Errors
    /// If writing fails; nothing more is written then.
    pub fn write(&mut self, passed: &Passed<'_>, seen: &Seen<'_>) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let records = self.records.as_mut().map_or(Ok(()), |records| records.write(passed, seen));
        let frames = self.frames.as_mut().map_or(Ok(()), |frames| frames.write(passed, seen.kept));
        records.and(frames).inspect_err(|_| self.is_broken = true)
    }

    /// Flushes what was written, so that other programs can read it.
    ///
    /// # Errors
    /// If writing fails; nothing more is written then.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        let records = self.records.as_mut().map_or(Ok(()), Records::flush);
        let frames = self.frames.as_mut().map_or(Ok(()), Frames::flush);
        records.and(frames).inspect_err(|_| self.is_broken = true)
    }

    /// Returns the total length of the files of this part.
    pub fn length(&self) -> u64 {
        let records = self.records.as_ref().map_or(0, |records| records.folder.length());
        records + self.frames.as_ref().map_or(0, |frames| frames.writer.output().length())
    }

    /// Completes the files of this part in a separate thread, because the disk may be slow.
    pub fn end(&mut self, counted: Counted) -> Ending {
        let (frames, records) = (self.frames.take(), self.records.take());
        let paths = frames.iter().map(|frames| frames.path.clone());
        let paths =
            paths.chain(records.iter().flat_map(|records| records.paths(&self.folder, &self.number()))).collect();
        let bytes = frames.as_ref().map_or(0, |frames| frames.writer.output().length())
            + records.as_ref().map_or(0, |records| records.folder.length());
        let write = move || {
            let frames = frames.map_or(Ok(()), |frames| frames.finish(&counted));
            frames.and(records.map_or(Ok(()), |records| records.finish(&counted)))
        };
        Ending { paths, bytes, writing: Writing::start(Builder::new().name("files".to_owned()), write) }
    }

    /// Completes the files of this part and begins the next part; returns whether its files could be created.
    pub fn rotate(&mut self, counted: Counted) -> (Ending, Result<(), RecordError>) {
        let ending = self.end(counted);
        let next = self.part.checked_add(1).ok_or_else(|| RecordError::Limit(self.folder.clone()));
        let begun = next.and_then(|next| {
            self.part = next;
            self.begin()
        });
        (ending, begun.inspect_err(|_| self.is_broken = true))
    }
}

impl Writing {
    /// Writes in a thread, or immediately if no thread can be started.
    fn start(thread: Builder, write: impl FnOnce() -> Result<(), RecordError> + Send + 'static) -> Self {
        let (hand_over, handed_over) = mpsc::channel();
        // If the thread cannot be started, `spawn` drops its closure: the work is therefore sent through a channel.
        let work = move || handed_over.recv().map_or(Err(RecordError::Broken), |write: Box<Write>| write());
        let write: Box<Write> = Box::new(write);
        match thread.spawn(work) {
            Ok(thread) => match hand_over.send(write) {
                Ok(()) => Self::Thread(thread),
                Err(mpsc::SendError(write)) => Self::Over(write()),
            },
            Err(_) => Self::Over(write()),
        }
    }
}

impl Ending {
    /// Returns the total length of the files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until the files are on the disk.
    ///
    /// # Errors
    /// If they could not be completed; what was written stays readable.
    pub fn wait(&mut self) -> Result<(), RecordError> {
        match mem::replace(&mut self.writing, Writing::Over(Ok(()))) {
            Writing::Thread(thread) => thread.join().unwrap_or(Err(RecordError::Broken)),
            Writing::Over(written) => written,
        }
    }

    /// Joins the thread if it has finished: an unjoined thread keeps its stack.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn look(&mut self) -> Result<(), RecordError> {
        let is_over = match &self.writing {
            Writing::Thread(thread) => thread.is_finished(),
            Writing::Over(_) => true,
        };
        if is_over { self.wait() } else { Ok(()) }
    }

    /// Removes the files.
    ///
    /// # Errors
    /// If they could not be completed or removed; the files that remain stay listed here.
    pub fn remove(&mut self) -> Result<(), RecordError> {
        self.wait()?;
        while let Some(path) = self.paths.last() {
            fs::remove_file(path).map_err(|source| failure("remove", path, source))?;
            self.paths.pop();
        }
        Ok(())
    }

    /// Returns the file names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.paths.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    }
}

/// A pcapng file of frames.
struct Frames {
    path: PathBuf,
    /// Opened in advance: after privileges are dropped, another user's folder may no longer be opened.
    folder: fs::File,
    writer: NgWriter<Output>,
}

impl Frames {
    fn create(folder: &Path, of: &Of, part: &str) -> Result<Self, RecordError> {
        let options = of.options.told();
        let number = if options.rotates() { format!("-{part}") } else { String::new() };
        let compressed = if options.compress { ".lz4" } else { "" };
        let path = folder.join(format!("{}{number}.pcapng{compressed}", of.name));
        let file = private::create_file(&path).map_err(|source| failure("create", &path, source))?;
        let folder = fs::File::open(folder).map_err(|source| failure("open", folder, source))?;
        let system = format!("Linux {}", kernel("osrelease"));
        let addresses = if options.anonymise.is_some() { "; addresses anonymised" } else { "" };
        let said = Described {
            machine: std::env::consts::ARCH,
            system: &system,
            program: concat!("sojourn ", env!("CARGO_PKG_VERSION")),
            interface: &of.interface,
            stamps: &format!("timestamps: {}{addresses}", of.source),
            filter: &options.filter,
            snap: options.snap,
        };
        let writer = NgWriter::described(Output::new(file, options.compress), &said);
        Ok(Self { writer: writer.map_err(|source| failure("write", &path, source))?, path, folder })
    }

    fn write(&mut self, passed: &Passed<'_>, kept: &[u8]) -> Result<(), RecordError> {
        let written = self.writer.write_passed(passed.realtime, kept, passed.length, Some(passed.direction));
        written.map_err(|source| failure("write", &self.path, source))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.writer.flush().map_err(|source| failure("write", &self.path, source))
    }

    /// Completes the file; on return, the file and its directory entry survive a power failure.
    fn finish(self, counted: &Counted) -> Result<(), RecordError> {
        let Self { path, folder, mut writer } = self;
        let ended = writer.write_statistics(&counted.statistics()).and_then(|()| writer.finish()?.finish());
        ended.and_then(|()| folder.sync_all()).map_err(|source| failure("write", &path, source))
    }
}

/// The records of a tap, one row per packet.
struct Records {
    who: String,
    tap: String,
    folder: TapFolder,
    rows: Vec<Tapped>,
    written: u64,
}

impl Records {
    fn create(folder: &Path, of: &Of, part: &str) -> Result<Self, RecordError> {
        let who = plain(&of.name);
        let about = about(&of.name, &of.interface, of.options.key);
        let folder = TapFolder::create(folder, (&who, part), &about, &crate::origin(false))?;
        Ok(Self { who, tap: of.name.clone(), folder, rows: Vec::with_capacity(ROWS), written: 0 })
    }

    fn write(&mut self, passed: &Passed<'_>, seen: &Seen<'_>) -> Result<(), RecordError> {
        self.rows.push(row(passed, seen));
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

    fn paths(&self, folder: &Path, part: &str) -> [PathBuf; 2] {
        ["taps", "tap_counts"].map(|table| folder.join(format!("{table}-{}-{part}.arrow", self.who)))
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

/// Returns the characters of a name that a record's name may contain: ASCII letters and digits.
pub fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn failure(operation: &'static str, path: &Path, source: io::Error) -> RecordError {
    match source.kind() {
        io::ErrorKind::AlreadyExists => RecordError::Exists(path.to_owned()),
        _ => sojourn_record::failure(operation, path, source),
    }
}

#[cfg(test)]
mod tests {
    use sojourn_port::pcap::Direction;
    use sojourn_time::{Clock, Nanos, Source, Stamp};

    use super::super::arguments::Format;
    use super::*;

    const COUNTED: Counted = Counted { span: [Time(1), Time(2)], seen: 0, dropped: 0, interface: None, without_key: 0 };

    /// Creates the files of a tap that rotates, in an empty folder.
    fn files(name: &str, options: TapOptions) -> Files {
        let folder = std::env::temp_dir().join(format!("sojourn-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let options = TapOptions { rotate_size: Some(1 << 16), ..options };
        let of = Of { name: "eth1".to_owned(), interface: "eth1".to_owned(), source: "kernel", options };
        Files::create(&folder, of).unwrap()
    }

    fn frames() -> TapOptions {
        TapOptions { format: Format::Pcapng, ..TapOptions::default() }
    }

    /// Returns the names in the folder, and removes it.
    fn lies_in(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        fs::remove_dir_all(folder).unwrap();
        names
    }

    #[test]
    fn part_numbers_go_beyond_65_535_and_file_names_stay_sorted() {
        let mut files = files("many", frames());
        let mut names = Vec::new();
        for part in [998, 999, 65_534, 65_535] {
            files.part = part;
            let (mut ending, begun) = files.rotate(COUNTED);
            begun.unwrap();
            ending.wait().unwrap();
            files.end(COUNTED).wait().unwrap();
            names.push(format!("eth1-{:06}.pcapng", part + 1));
        }
        names.insert(0, "eth1-000000.pcapng".to_owned());
        assert_eq!(lies_in(&files.folder), names);
    }

    #[test]
    fn ended_part_stays_listed_when_the_next_part_cannot_be_created() {
        let mut files = files("accounting", frames());
        fs::write(files.folder.join("eth1-000001.pcapng"), "").unwrap();
        let (mut ending, begun) = files.rotate(COUNTED);
        assert!(matches!(begun, Err(RecordError::Exists(_))), "{begun:?}");
        ending.wait().unwrap();
        assert_eq!(ending.names().collect::<Vec<_>>(), ["eth1-000000.pcapng"]);
        assert_eq!(lies_in(&files.folder), ["eth1-000000.pcapng", "eth1-000001.pcapng"]);
    }

    #[test]
    fn files_that_cannot_be_removed_stay_listed() {
        let mut files = files("kept", TapOptions::default());
        let mut ending = files.end(COUNTED);
        ending.wait().unwrap();
        fs::remove_file(&ending.paths[1]).unwrap();
        assert!(ending.remove().is_err());
        assert_eq!(ending.names().count(), 2);
        lies_in(&files.folder);
    }

    #[test]
    fn files_are_closed_also_when_no_thread_can_be_started() {
        let too_much = Builder::new().stack_size(1 << 60);
        assert!(too_much.spawn(|| ()).is_err());
        let (told, tells) = mpsc::channel();
        let write = move || {
            told.send(()).unwrap();
            Err(RecordError::Broken)
        };
        let writing = Writing::start(Builder::new().stack_size(1 << 60), write);
        tells.recv().expect("it was called");
        let mut ending = Ending { paths: Vec::new(), bytes: 0, writing };
        assert!(matches!(ending.look(), Err(RecordError::Broken)), "its error is returned");
        ending.wait().expect("once");
    }

    #[test]
    fn finished_writer_thread_is_joined_and_a_running_one_continues() {
        let (go_on, waits) = mpsc::channel::<()>();
        let write = move || waits.recv().map_err(|_| RecordError::Broken);
        let writing = Writing::start(Builder::new(), write);
        let mut ending = Ending { paths: Vec::new(), bytes: 0, writing };
        ending.look().unwrap();
        assert!(matches!(ending.writing, Writing::Thread(_)), "it is not over");
        drop(go_on);
        while let Ok(()) = ending.look() {
            HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
        }
        assert!(matches!(ending.writing, Writing::Over(Ok(()))));
    }

    #[test]
    fn addresses_in_the_filter_are_not_written_to_an_anonymised_capture() {
        let filter = "host 192.0.2.7".to_owned();
        for (anonymise, is_there) in [(None, true), (Some(PathBuf::from("key")), false)] {
            let mut files = files("nobody", TapOptions { filter: filter.clone(), anonymise, ..frames() });
            let frame = [0_u8; 60];
            let at = Stamp { at: Time(7), source: Source::Kernel };
            let (direction, length) = (Direction::In, frame.len());
            let passed = Passed { frame: &frame, length, at, realtime: Time(7), direction, is_super: false };
            files.write(&passed, &Seen { digest: None, is_fragment: false, kept: &frame }).unwrap();
            let mut ending = files.end(COUNTED);
            ending.wait().unwrap();
            let bytes = fs::read(&ending.paths[0]).unwrap();
            let has = |text: &str| bytes.windows(text.len()).any(|some| some == text.as_bytes());
            assert_eq!((has(&filter), has("; addresses anonymised")), (is_there, !is_there));
            let told = serde_json::to_string(&files.of.options.told()).unwrap();
            assert_eq!(told.contains("192.0.2.7"), is_there, "{told}");
            lies_in(&files.folder);
        }
    }
}
