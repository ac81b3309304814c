//! `emulate offline`: the frames of a capture file through the engine, in the time of their stamps.

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

/// Lets every frame of a file pass.
///
/// # Errors
/// When the request is wrong, or a file cannot be read or written. What was read before damage is written.
pub fn run(asked: &Offline) -> anyhow::Result<()> {
    let config = asked::config(&asked.asked)?;
    let input = File::open(&asked.input).map_err(|error| of_path("open", &asked.input, error))?;
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
    // What could be written of a new file stays.
    let (read, (report, frames, cut)) = pass(&output).inspect_err(|_| output.abandon())?;
    tell(asked, &config, &report, frames, cut)?;
    read
}

/// Gives up all but the two files, and the folder of the second.
fn confine(output: &mut Output<'_>) -> anyhow::Result<()> {
    // While it can: the caller may be kept out of it.
    let writable = Folders::open([output.folder()])?;
    caller::become_caller(|| true)?;
    EMULATE_OFFLINE.drop_privileges()?;
    EMULATE_OFFLINE.write_only_below(writable)?;
    output.draft();
    Ok(EMULATE_OFFLINE.restrict_calls()?)
}

/// Reads up to the first frame, into `frame`.
fn begin(path: &Path, input: File, frame: &mut Vec<u8>) -> anyhow::Result<(Capture<BufReader<File>>, Record)> {
    let mut capture = Capture::new(BufReader::new(input)).map_err(|error| unreadable(path, &error, ""))?;
    let first = capture.next(frame).map_err(|error| unreadable(path, &error, ""))?;
    let none = || WrongRequest(format!("{}: the capture has no frame", path.display()));
    Ok((capture, first.ok_or_else(none)?))
}

/// Where the frames go: open before anything is read, and as it was until there is something to write; where its folder can be
/// written, until all is.
struct Output<'a> {
    file: File,
    path: &'a Path,
    /// The file that is to replace the one of that name.
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

    /// Begins a file that is to replace the one which is there. Where that cannot be, as in a folder that may not be written, it
    /// is written in its place.
    fn draft(&mut self) {
        let is_file = |about: &Metadata| about.is_file() && !is_system(self.path);
        let Some(about) = self.file.metadata().ok().filter(|about| !self.is_new && is_file(about)) else { return };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let part = self.path.with_file_name(format!(".{name}.part"));
        // One that was killed may have left it.
        let _ = fs::remove_file(&part);
        let Ok(file) = private::create_file(&part) else { return };
        // Who may read it may read it afterwards, as far as who writes it can say so.
        let _ = fchown(&file, None, Some(about.gid()));
        let _ = file.set_permissions(about.permissions());
        self.part = Some((file, part));
    }

    /// Removes the file where it is ours and empty.
    fn forget(&self) {
        self.abandon();
        if self.is_new {
            // In a folder of another user that cannot be, and the file stays empty.
            let _ = fs::remove_file(self.path);
        }
    }

    /// Leaves the file of that name as it was, where another was to replace it.
    fn abandon(&self) {
        if let Some((_, part)) = &self.part {
            let _ = fs::remove_file(part);
        }
    }

    /// The file to write to: an empty one; a pipe has nothing to empty.
    fn anew(&self) -> anyhow::Result<File> {
        let is_file = self.file.metadata().is_ok_and(|about| about.is_file());
        if is_file && self.part.is_none() && !self.is_new {
            self.file.set_len(0).with_context(|| writing(self.path))?;
        }
        let file = self.part.as_ref().map_or(&self.file, |(file, _)| file);
        file.try_clone().with_context(|| writing(self.path))
    }

    /// Gives the file its name, when all is written, so that it is not lost with the power.
    fn keep(&self) -> io::Result<()> {
        if let Some((file, part)) = &self.part {
            file.sync_all()?;
            if fs::rename(part, self.path).is_err() {
                // As with a mount point.
                self.file.set_len(0)?;
                io::copy(&mut File::open(part)?, &mut &self.file)?;
                fs::remove_file(part)?;
            }
        }
        if self.file.metadata()?.is_file() {
            self.file.sync_all()?;
            // Who may write there and not read has no way to sync it.
            File::open(self.folder()).map_or(Ok(()), |folder| folder.sync_all())?;
        }
        Ok(())
    }
}

/// Whether a name is one of the system's, as `/dev/stdout`: what it leads to is written to.
fn is_system(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Opens what is there already: a file of one name, a pipe or a device. A link may be of anyone's making, and lead to a file that is
/// not to be overwritten; those of `/dev`, as `/dev/stdout`, are the system's.
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

/// A file on its way through the engine.
struct Passage<'a> {
    config: &'a Config,
    capture: Capture<BufReader<File>>,
    writer: NgWriter<BufWriter<File>>,
    /// Made when the first frame's time is known: traces and outages begin there.
    engine: Option<Engine>,
    direction: Direction,
    input: &'a Path,
    output: &'a Path,
    latest: Time,
    frames: u64,
    /// Frames that the capture had not kept whole.
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

    /// Lets all frames in, of which the first has been read, and all out that leave.
    fn pass(&mut self, first: Record, mut frame: Vec<u8>) -> anyhow::Result<()> {
        let mut next = Some(first);
        while let Some(Record { at, original_bytes, .. }) = next {
            // Stamps of several interfaces may be out of order by a little: then a frame came when the one before it did.
            self.latest = self.latest.max(at);
            self.frames += 1;
            let original = (original_bytes as usize).min(LONGEST_FRAME_BYTES as usize);
            let kept = frame.len();
            if original > kept {
                self.cut += 1;
                // It takes its time and its room as it was; what was not kept is not looked at, and not written.
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

    /// Writes what leaves until then.
    fn leave(&mut self, until: Time) -> anyhow::Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        // From event to event: what a link does next depends on what it has done.
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
    let mut output = std::io::stdout().lock();
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

/// Whether both names are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
