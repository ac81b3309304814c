//! `emulate replay`: runs the engine on the arrivals of a log; it must reproduce the same dispositions.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use sojourn_emulate::replay::{Change, Differences, before_gap, differences, replay};
use sojourn_emulate::{Config, Disposition};
use sojourn_record::{Packet, PacketReader, ReadError, private};
use sojourn_rights::table::{EMULATE_RECOVER, EMULATE_REPLAY};
use sojourn_time::Time;

use super::arguments::{Logs, Recover, Replay};
use super::events::Event;
use super::log;
use crate::caller;
use crate::failure::{NotTrusted, WrongRequest, of_path};
use crate::numbers::span;
use crate::printed::printed;
use crate::serve;

/// The maximum number of logs per command. Their files, two each, are opened before privileges are dropped, and stay
/// below the limit of 1,024 open files per process.
const MOST_LOGS: usize = 480;

/// The maximum number of changes of a log, and of the bytes of their lines: a value of 3 bytes takes 56 in memory.
const MOST_CHANGES: usize = 1 << 20;
const MOST_CHANGE_BYTES: usize = 64 << 20;

/// Replays each log of a folder.
///
/// # Errors
/// If there is no log, one cannot be replayed, or one does not reproduce the same dispositions.
pub fn run(asked: &Replay) -> anyhow::Result<()> {
    let found = open(&asked.logs)?;
    EMULATE_REPLAY.confine()?;
    let mut is_identical = true;
    for files in found {
        let (name, part) = (files.name.clone(), files.part);
        let told = Told::of(files)?;
        is_identical &= told.differences.is_identical();
        let sentence = told.sentence();
        if asked.json {
            writeln!(printed(), "{}", told.json(&name, part, &sentence))?;
        } else {
            writeln!(printed(), "{name}-{part:03}: {sentence}")?;
        }
    }
    if is_identical { Ok(()) } else { Err(NotTrusted("the replay differs from the log".to_owned()).into()) }
}

/// Recovers logs whose emulators did not end: writes complete files of what can be read.
///
/// # Errors
/// If there is no log, or files cannot be read or written.
pub fn recover(asked: &Recover) -> anyhow::Result<()> {
    // Below sudo the caller opens them: what is written, which is the caller's, is a copy.
    let (found, output) = (caller::as_caller(|| open(&asked.logs))??, &asked.output);
    private::create_folder(output).map_err(|error| of_path("create", output, error))?;
    let here = Path::new(caller::HERE);
    let writable = caller::enter(output)?;
    caller::become_owner(here, || caller::can_write(here))?;
    EMULATE_RECOVER.drop_privileges()?;
    EMULATE_RECOVER.write_only_below(writable)?;
    EMULATE_RECOVER.restrict_calls()?;
    for Files { name, part, path, mut events, packets } in found {
        let log = Log::read(&path, &events)?;
        let tell = |packets: Option<usize>, text: &str| {
            let event = json!({ "event": "recovered", "name": name, "part": part, "packets": packets });
            serve::tell(asked.json, &event, &format!("{name}-{part:03}: {text}"))
        };
        if log.has_ended {
            tell(None, "it ended well; there is nothing to recover")?;
            continue;
        }
        let rows = log.rows(packets)?;
        let pipes = log.config.pipes.iter().map(|pipe| pipe.name.clone()).collect();
        let below = || format!("below {}", output.display());
        let mut files = log::create(here, (&name, part), pipes, None).with_context(below)?;
        events.rewind().with_context(|| format!("read {}", path.display()))?;
        files.recover(&path, events, &rows).with_context(below)?;
        tell(Some(rows.len()), &format!("{} packets written to {}", rows.len(), output.display()))?;
    }
    Ok(())
}

/// The open files of a log, not yet read.
struct Files {
    name: String,
    part: u16,
    /// The path of its events.
    path: PathBuf,
    events: File,
    /// The packets, or why they cannot be opened.
    packets: Result<(File, PathBuf), ReadError>,
}

/// Opens the selected logs.
fn open(asked: &Logs) -> anyhow::Result<Vec<Files>> {
    let files = |(name, part, path): (String, u16, PathBuf)| {
        let events = File::open(&path).map_err(|error| of_path("open", &path, error))?;
        let packets = asked.folder.join(format!("packets-{name}-{part:03}.arrow"));
        let packets = match File::open(&packets) {
            Ok(file) => Ok((file, packets)),
            Err(source) => Err(ReadError::File { path: packets, source }),
        };
        Ok(Files { name, part, path, events, packets })
    };
    logs(asked)?.into_iter().map(files).collect()
}

/// Finds the selected logs: their name, their part, and the file of their events.
fn logs(asked: &Logs) -> anyhow::Result<Vec<(String, u16, PathBuf)>> {
    let folder = &asked.folder;
    let entries = fs::read_dir(folder).map_err(|error| of_path("read", folder, error))?;
    let mut found: Vec<_> = entries.flatten().filter_map(|entry| named(&entry.path())).collect();
    found.retain(|(name, part, _)| {
        asked.name.as_ref().is_none_or(|only| only == name) && asked.part.is_none_or(|only| only == *part)
    });
    found.sort();
    if found.is_empty() {
        let problem = format!("{}: no such log of an emulator there (emulation-NAME-KKK.jsonl)", folder.display());
        return Err(WrongRequest(problem).into());
    }
    if found.len() > MOST_LOGS {
        let problem = format!(
            "{}: {} logs are there, and at most {MOST_LOGS} are read at once: choose some by --name or --part",
            folder.display(),
            found.len()
        );
        return Err(WrongRequest(problem).into());
    }
    Ok(found)
}

fn named(path: &Path) -> Option<(String, u16, PathBuf)> {
    let name = path.file_name()?.to_str()?.strip_prefix("emulation-")?.strip_suffix(".jsonl")?;
    let (name, part) = name.rsplit_once('-')?;
    Some((name.to_owned(), part.parse().ok()?, path.to_owned()))
}

/// The result of a replay.
struct Told {
    differences: Differences,
    errors: Vec<i64>,
    /// For a truncated log: the number of rows that can be read, and the reason.
    cut: Option<(usize, String)>,
}

impl Told {
    fn of(Files { name, part, path, events, packets }: Files) -> anyhow::Result<Self> {
        let log = Log::read(&path, &events)?;
        let rows = log.rows(packets)?;
        Self::of_rows(&log, &rows, (&path, &format!("{name}-{part:03}")))
    }

    /// Replays the rows of a log; `path` is that of its events, `name` its own.
    fn of_rows(log: &Log, rows: &[Packet], (path, name): (&Path, &str)) -> anyhow::Result<Self> {
        let read = rows.len();
        let logged = rows.iter().map(log::disposition).collect::<anyhow::Result<Vec<_>>>();
        let logged = logged.with_context(|| name.to_owned())?;
        let twice = {
            let mut numbers = HashSet::new();
            logged.iter().find(|disposition| !numbers.insert(disposition.number)).map(|disposition| disposition.number)
        };
        if let Some(twice) = twice {
            return Err(refusal(path, &format!("packet {twice} has two rows")));
        }
        let logged = if log.has_ended { logged } else { before_gap(logged) };
        if !log.has_ended && logged.is_empty() {
            let problem = format!(
                "{}, and its first packet is missing: of {read} rows that can be read none can be replayed",
                log.why_cut()
            );
            return Err(refusal(path, &problem));
        }
        let replayed = replay(&log.config, log.start, &log.changes, &logged)?;
        let mut errors: Vec<i64> = logged.iter().filter_map(error).collect();
        errors.sort_unstable();
        Ok(Self {
            differences: differences(&logged, &replayed),
            errors,
            cut: (!log.has_ended).then(|| (read, log.why_cut())),
        })
    }

    fn sentence(&self) -> String {
        let Differences { packets, unfinished, dispositions, drawn, intended, first } = self.differences;
        let mut told = if self.differences.is_identical() {
            format!("identical: {packets} packets have the dispositions, delays and intended departures of the log")
        } else {
            let first = first.map_or(String::new(), |first| format!(", first at packet {first}"));
            format!(
                "of {packets} packets {dispositions} have another disposition, {drawn} another delay, {intended} another intended departure{first}"
            )
        };
        if unfinished > 0 {
            told.push_str(&format!("; {unfinished} still waited at the end"));
        }
        if let Some((read, why)) = &self.cut {
            told.push_str(&format!(
                "; {why}: of {read} rows that can be read only those before the first missing packet count"
            ));
        }
        if !self.errors.is_empty() {
            let at = |share| span(self.quantile(share));
            told.push_str(&format!(
                "; emulation error p50 {}, p99 {}, p99.9 {}, at most {}",
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0)
            ));
        }
        told
    }

    fn json(&self, name: &str, part: u16, sentence: &str) -> serde_json::Value {
        let Differences { packets, unfinished, dispositions, drawn, intended, first } = self.differences;
        json!({
            "event": "replayed",
            "name": name,
            "part": part,
            "identical": self.differences.is_identical(),
            "is_cut": self.cut.is_some(),
            "packets": packets,
            "unfinished": unfinished,
            "dispositions": dispositions,
            "drawn": drawn,
            "intended": intended,
            "first": first,
            "departures": self.errors.len(),
            "error_p50_ns": self.quantile(0.5),
            "error_p99_ns": self.quantile(0.99),
            "error_p999_ns": self.quantile(0.999),
            "error_max_ns": self.quantile(1.0),
            "sentence": sentence,
        })
    }

    /// Returns a quantile of the emulation errors.
    fn quantile(&self, share: f64) -> i64 {
        let rank = (share * self.errors.len() as f64).ceil() as usize;
        self.errors.get(rank.max(1) - 1).copied().unwrap_or_default()
    }
}

/// Returns the emulation error: actual minus intended departure.
fn error(disposition: &Disposition) -> Option<i64> {
    Some((disposition.departed? - disposition.intended?).0)
}

/// The events of a log.
struct Log {
    config: Config,
    start: Time,
    changes: Vec<Change>,
    /// Whether the emulator ended normally; otherwise the end of both files may be missing.
    has_ended: bool,
    /// The reason if the log ended before its emulator.
    stopped: Option<String>,
}

impl Log {
    fn why_cut(&self) -> String {
        self.stopped.as_ref().map_or_else(
            || "its emulator did not end".to_owned(),
            |why| format!("it ended before its emulator ({why})"),
        )
    }

    fn read(path: &Path, file: impl Read) -> anyhow::Result<Self> {
        Self::read_up_to(MOST_CHANGES, path, file)
    }

    fn read_up_to(most_changes: usize, path: &Path, file: impl Read) -> anyhow::Result<Self> {
        let mut begun = None;
        let (mut changes, mut change_bytes) = (Vec::new(), 0);
        let (mut has_ended, mut stopped) = (false, None);
        // Bytes, not text: a killed emulator may have written a part of a character.
        let mut lines = log::lines(file).enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let line = line.map_err(|error| unreadable(path, error))?;
            let event: Event = match serde_json::from_slice(&line) {
                Ok(event) => event,
                // A killed emulator may have written a part of a line.
                Err(_) if number > 0 && lines.peek().is_none() => break,
                Err(error) => return Err(refusal(path, &format!("line {}: {error}", number + 1))),
            };
            if matches!(event, Event::Set { .. }) {
                change_bytes += line.len();
                if change_bytes > MOST_CHANGE_BYTES {
                    let most = MOST_CHANGE_BYTES >> 20;
                    return Err(refusal(path, &format!("its changes of pipes have more than {most} MiB")));
                }
            }
            match event {
                Event::Start { config, start_ns, .. } => begun = Some((*config, start_ns)),
                Event::Set { .. } if changes.len() == most_changes => {
                    return Err(refusal(path, &format!("it has more than {most_changes} changes of pipes")));
                }
                Event::Set { number, at_ns, pipe, to } => changes.push((number, at_ns, pipe, *to)),
                Event::Begin { .. } | Event::Notice { .. } | Event::Clock { .. } | Event::Recovered { .. } => {}
                Event::Stopped { why, .. } => stopped = Some(why),
                Event::End { skipped: 0, not_kept: 0, .. } => has_ended = true,
                Event::End { skipped, not_kept, .. } => {
                    let problem = format!(
                        "the log has gaps: {skipped} packets came too fast for it and {not_kept} were not to be logged; \
                         without them nobody knows what the others met"
                    );
                    return Err(refusal(path, &problem));
                }
            }
        }
        let (config, start) = begun.ok_or_else(|| refusal(path, "its first line is missing"))?;
        Ok(Self { config, start, changes, has_ended, stopped })
    }

    /// Reads the packets of a log; of a truncated one, as many as can be read.
    fn rows(&self, packets: Result<(File, PathBuf), ReadError>) -> anyhow::Result<Vec<Packet>> {
        let pipes = self.config.pipes.iter().map(|pipe| pipe.name.clone()).collect();
        let (file, path) = packets?;
        let mut reader = PacketReader::of((file, &path), pipes)?;
        let (mut batch, mut rows) = (Vec::new(), Vec::new());
        loop {
            batch.clear();
            let more = match reader.next(&mut batch) {
                Err(_) if !self.has_ended => false,
                read => read?,
            };
            rows.append(&mut batch);
            if !more {
                return Ok(rows);
            }
        }
    }
}

/// Checks that a log of these events and rows can be replayed, with any result.
///
/// # Errors
/// If it cannot.
pub fn understood(events: &[u8], rows: &[Packet]) -> anyhow::Result<()> {
    let path = Path::new("emulation-a-000.jsonl");
    let told = Told::of_rows(&Log::read(path, events)?, rows, (path, "a-000"))?;
    let sentence = told.sentence();
    assert!(!sentence.is_empty() && told.json("a", 0, &sentence).is_object());
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::FileTooLarge => refusal(path, &error.to_string()),
        _ => anyhow::Error::from(error).context(format!("read {}", path.display())),
    }
}

fn refusal(path: &Path, problem: &str) -> anyhow::Error {
    NotTrusted(format!("{}: {problem}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_with_too_many_changes_is_refused() {
        let start = json!({
            "event": "start", "config": Config::default(), "start_ns": 0, "left": "a", "right": "b", "engine": ["x", "y"],
            "wait": "spin", "version": "0", "profile": "debug",
        });
        let set = json!({ "event": "set", "number": 1, "at_ns": 0, "pipe": "a", "to": {} });
        let read = |changes| {
            let text = format!("{start}\n{}", format!("{set}\n").repeat(changes));
            Log::read_up_to(3, Path::new("events"), text.as_bytes()).map(|log| log.changes.len())
        };
        assert_eq!(read(3).expect("is read"), 3);
        assert_eq!(read(4).expect_err("is too many").to_string(), "events: it has more than 3 changes of pipes");
    }
}
