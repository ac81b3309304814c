//! `emulate offline`: runs the frames of a capture file through the engine, in the time of their timestamps.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::json;
use sojourn_emulate::{Arrived, Config, Direction, Engine, Report};
use sojourn_port::pcap::{Capture, LONGEST_FRAME_BYTES, NgWriter, PcapError, Record};
use sojourn_record::private;
use sojourn_rights::Folders;
use sojourn_rights::table::EMULATE_OFFLINE;
use sojourn_time::Time;

use super::arguments::Offline;
use super::{asked, show};
use crate::caller;
use crate::failure::{NotTrusted, WrongRequest, of_path};
use crate::printed::printed;
use crate::secret;

/// A draft is locked within this time after it was created.
const LOCKED_WITHIN_S: i64 = 60;

/// Runs every frame of a file through the engine.
///
/// # Errors
/// If the request is invalid, or a file cannot be read or written. Frames before a damaged part are still written.
pub fn run(asked: &Offline) -> anyhow::Result<()> {
    let config = asked::config(&asked.asked)?;
    // Below sudo the caller opens it, unless it is open already: the output, which is the caller's, is a copy of it.
    let open = || File::open(&asked.input);
    let input = if asked.input == Path::new("/dev/stdin") { open() } else { caller::as_caller(open)? };
    let input = input.map_err(|error| of_path("open", &asked.input, error))?;
    if is_same(&asked.input, &asked.output) {
        let problem = format!("--output {}: that is the input; give another file", asked.output.display());
        return Err(WrongRequest(problem).into());
    }
    let mut output = Output::open(&asked.output)?;
    confine(&mut output).inspect_err(|_| output.forget())?;
    let mut frame = Vec::new();
    let (capture, first) = begin(&asked.input, input, &mut frame).inspect_err(|_| output.forget())?;
    let pass = |output: &Output<'_>| {
        let writer = NgWriter::new(BufWriter::new(output.anew()?)).with_context(|| writing(&asked.output))?;
        let mut offline = Passage::new(&config, asked, capture, writer);
        let read = offline.pass(first, frame);
        let passed = offline.finish()?;
        output.keep().with_context(|| writing(&asked.output))?;
        Ok::<_, anyhow::Error>((read, passed))
    };
    // The part of a new file that was written stays.
    let (read, (report, frames, cut)) = pass(&output).inspect_err(|_| output.abandon())?;
    tell(asked, &config, &report, frames, cut)?;
    read
}

/// Removes older drafts of the same output that killed programs left: nobody has them locked.
fn sweep(part: &Path, ours: &File) {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (like, number) = (name(part), "0123456789abcdef.part".len());
    let Some(head) = like.len().checked_sub(number).and_then(|at| like.get(..at)) else { return };
    let folder = part.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = name(&path);
        let is_draft = name.len() == like.len() && name.starts_with(head) && name.ends_with(".part");
        if is_draft && is_left(&path, ours).is_ok_and(|is_left| is_left) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_left(draft: &Path, ours: &File) -> io::Result<bool> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(draft)?;
    let age_s = ours.metadata()?.mtime() - file.metadata()?.mtime();
    Ok(age_s > LOCKED_WITHIN_S && file.try_lock().is_ok())
}

/// Drops all privileges except access to the two files, and to the folder of the output.
fn confine(output: &mut Output<'_>) -> anyhow::Result<()> {
    // Open the folder first: the caller may have no access to it.
    let writable = Folders::open([output.folder()])?;
    caller::become_caller(|| true)?;
    EMULATE_OFFLINE.drop_privileges()?;
    EMULATE_OFFLINE.write_only_below(writable)?;
    output.draft();
    Ok(EMULATE_OFFLINE.restrict_calls()?)
}

/// Reads the header and the first frame, into `frame`.
fn begin(path: &Path, input: File, frame: &mut Vec<u8>) -> anyhow::Result<(Capture<BufReader<File>>, Record)> {
    let mut capture = Capture::new(BufReader::new(input)).map_err(|error| unreadable(path, &error, ""))?;
    let first = capture.next(frame).map_err(|error| unreadable(path, &error, ""))?;
    let none = || WrongRequest(format!("{}: the capture has no frame", path.display()));
    Ok((capture, first.ok_or_else(none)?))
}

/// The output file. It is opened before anything is read, and stays unchanged until there is something to write; if its
/// folder is writable, until everything is written.
struct Output<'a> {
    file: File,
    path: &'a Path,
    /// The temporary file that will replace an existing one.
    part: Option<(File, PathBuf)>,
    is_new: bool,
}

impl<'a> Output<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        match private::create_file(path) {
            Ok(file) => Ok(Self { file, path, part: None, is_new: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(Self { file: open_again(path)?, path, part: None, is_new: false })
            }
            Err(error) => Err(of_path("create", path, error)),
        }
    }

    fn folder(&self) -> &'a Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Creates the temporary file that will replace an existing one. If it cannot be created, for example in a
    /// read-only folder, the existing file is overwritten in place.
    fn draft(&mut self) {
        let is_file = |about: &Metadata| about.is_file() && !is_system(self.path);
        let Some(about) = self.file.metadata().ok().filter(|about| !self.is_new && is_file(about)) else { return };
        let Ok(part) = secret::draft_name(self.path) else { return };
        let Ok(file) = private::create_file(&part) else { return };
        // As long as it is locked, it is no killed program's.
        let _ = file.try_lock();
        sweep(&part, &file);
        // Keep the group and the permissions, as far as this user may set them.
        let _ = fchown(&file, None, Some(about.gid()));
        let _ = file.set_permissions(about.permissions());
        self.part = Some((file, part));
    }

    /// Removes the file if this program created it and nothing was written.
    fn forget(&self) {
        self.abandon();
        if self.is_new && self.is_there() {
            // In another user's folder this fails, and the file stays empty.
            let _ = fs::remove_file(self.path);
        }
    }

    /// Whether the path still names the file that was opened: another program may have replaced it.
    fn is_there(&self) -> bool {
        let number = |about: Metadata| (about.dev(), about.ino());
        let (ours, there) = (self.file.metadata().map(number), fs::symlink_metadata(self.path).map(number));
        matches!((ours, there), (Ok(ours), Ok(there)) if ours == there)
    }

    /// Removes the temporary file, which leaves the existing one unchanged.
    fn abandon(&self) {
        if let Some((_, part)) = &self.part {
            let _ = fs::remove_file(part);
        }
    }

    /// Returns the file to write to, truncated; a pipe is not truncated.
    fn anew(&self) -> anyhow::Result<File> {
        let is_file = self.file.metadata().is_ok_and(|about| about.is_file());
        if is_file && self.part.is_none() && !self.is_new {
            self.file.set_len(0).with_context(|| writing(self.path))?;
        }
        let file = self.part.as_ref().map_or(&self.file, |(file, _)| file);
        file.try_clone().with_context(|| writing(self.path))
    }

    /// Renames the temporary file and syncs, so that the file survives a power failure.
    fn keep(&self) -> io::Result<()> {
        if let Some((file, part)) = &self.part {
            file.sync_all()?;
            if fs::rename(part, self.path).is_err() {
                // A rename fails on a mount point, for example.
                self.file.set_len(0)?;
                io::copy(&mut File::open(part)?, &mut &self.file)?;
                fs::remove_file(part)?;
            }
        }
        if self.file.metadata()?.is_file() {
            self.file.sync_all()?;
            // A folder that is writable but not readable cannot be opened for sync.
            File::open(self.folder()).map_or(Ok(()), |folder| folder.sync_all())?;
        }
        Ok(())
    }
}

/// Whether the path is a system device, such as `/dev/stdout`: its target is written to.
fn is_system(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Opens an existing file, pipe or device. Another user may have created a symbolic link to a file that must not be
/// overwritten, so links are refused, except those in `/dev`, such as `/dev/stdout`.
fn open_again(path: &Path) -> anyhow::Result<File> {
    let follows = is_system(path);
    let flags = if follows { 0 } else { libc::O_NOFOLLOW };
    let a_link =
        || WrongRequest(format!("{}: it is a link; name the file that it leads to, or another", path.display()));
    let opened = OpenOptions::new().write(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(a_link().into()),
        opened => opened.map_err(|error| of_path("create", path, error))?,
    };
    let is_linked = file.metadata().is_ok_and(|about| about.is_file() && about.nlink() > 1);
    if is_linked && !follows { Err(a_link().into()) } else { Ok(file) }
}

/// The passage of a capture file through the engine.
struct Passage<'a> {
    config: &'a Config,
    capture: Capture<BufReader<File>>,
    writer: NgWriter<BufWriter<File>>,
    /// Created at the first frame's time, where traces and outages begin.
    engine: Option<Engine>,
    direction: Direction,
    input: &'a Path,
    output: &'a Path,
    latest: Time,
    frames: u64,
    /// The number of frames that the capture had truncated.
    cut: u64,
}

impl<'a> Passage<'a> {
    fn new(
        config: &'a Config,
        asked: &'a Offline,
        capture: Capture<BufReader<File>>,
        writer: NgWriter<BufWriter<File>>,
    ) -> Self {
        Self {
            config,
            capture,
            writer,
            engine: None,
            direction: asked.direction.into(),
            input: &asked.input,
            output: &asked.output,
            latest: Time(i64::MIN),
            frames: 0,
            cut: 0,
        }
    }

    /// Passes all frames to the engine, of which the first has been read, and writes all that depart.
    fn pass(&mut self, first: Record, mut frame: Vec<u8>) -> anyhow::Result<()> {
        let mut next = Some(first);
        while let Some(Record { at, original_bytes, .. }) = next {
            // Timestamps of several interfaces may be slightly out of order: such a frame counts as simultaneous with
            // the one before it.
            self.latest = self.latest.max(at);
            self.frames += 1;
            let original = (original_bytes as usize).min(LONGEST_FRAME_BYTES as usize);
            let kept = frame.len();
            if original > kept {
                self.cut += 1;
                // The engine uses the original length; the missing octets are neither inspected nor written.
                frame.resize(original, 0);
            }
            self.arrive(&frame, kept)?;
            let written = "; what was before it has been written";
            next = self.capture.next(&mut frame).map_err(|error| unreadable(self.input, &error, written))?;
        }
        self.leave(Time(Time::NEVER.0 - 1))
    }

    fn arrive(&mut self, frame: &[u8], kept: usize) -> anyhow::Result<()> {
        if self.engine.is_none() {
            self.engine = Some(Engine::new(self.config, self.latest)?);
        }
        self.leave(self.latest)?;
        let Some(engine) = &mut self.engine else { return Ok(()) };
        if let Arrived::Unmatched = engine.arrive_cut(self.direction, frame, kept, self.latest) {
            let kept = &frame[..kept];
            self.writer.write_cut(self.latest, kept, frame.len()).with_context(|| writing(self.output))?;
        }
        Ok(())
    }

    /// Writes the frames that depart up to a time.
    fn leave(&mut self, until: Time) -> anyhow::Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        // Step from event to event: the next event of a link depends on the previous ones.
        loop {
            let next = engine.next();
            if next > until {
                return Ok(());
            }
            engine.advance(next);
            while let Some(departure) = engine.due(next) {
                let (kept, length) = (engine.known(&departure), engine.frame(&departure).len());
                self.writer.write_cut(departure.intended, kept, length).with_context(|| writing(self.output))?;
                engine.departed(departure, departure.intended);
            }
        }
    }

    fn finish(mut self) -> anyhow::Result<(Report, u64, u64)> {
        let mut output = self.writer.finish().with_context(|| writing(self.output))?;
        output.flush().with_context(|| writing(self.output))?;
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => Engine::new(self.config, Time(0))?,
        };
        Ok((engine.report(), self.frames, self.cut))
    }
}

fn tell(asked: &Offline, config: &Config, report: &Report, frames: u64, cut: u64) -> anyhow::Result<()> {
    let mut output = printed();
    if asked.json {
        let told = json!({ "event": "passed", "frames": frames, "cut": cut, "report": report, "config": config });
        writeln!(output, "{told}")?;
        return Ok(());
    }
    writeln!(output, "{frames} frames read")?;
    if cut > 0 {
        writeln!(output, "note: the capture had not kept {cut} of them whole; they take as long as they were")?;
    }
    write!(output, "{}", show::pipes_alone(&json!(report), &json!(config)))?;
    Ok(())
}

fn unreadable(path: &Path, error: &PcapError, written: &str) -> anyhow::Error {
    match error {
        PcapError::Truncated { number: 1.. } | PcapError::Damaged { .. } | PcapError::Malformed { .. } => {
            NotTrusted(format!("{}: {error}{written}", path.display())).into()
        }
        PcapError::Read(_) => anyhow!("{}: {error}", path.display()),
        _ => WrongRequest(format!("{}: {error}", path.display())).into(),
    }
}

fn writing(path: &Path) -> String {
    format!("write {}", path.display())
}

/// Whether both paths name the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
