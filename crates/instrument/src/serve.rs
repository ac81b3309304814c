//! What all programs share that are asked on standard input: the loop over lines, one JSON event a line on standard output,
//! the first event, errors, and records of one clock.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sojourn_record::RecordError;

use crate::failure::{self, WrongRequest};
use crate::place::Place;
use crate::sys::STOP;

/// The longest line that is read as a request.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// Answers requests, one JSON object a line, until the input ends or a signal comes. A request that fails is answered by an
/// error event.
///
/// # Errors
/// When the input cannot be read, the output cannot be written, or records cannot be written any more.
pub fn serve<R: DeserializeOwned>(
    signal: BorrowedFd<'static>,
    mut answer: impl FnMut(R) -> anyhow::Result<Option<Value>>,
) -> anyhow::Result<()> {
    let mut lines = Lines::new(signal);
    while let Some(line) = lines.next()? {
        match parse(&line).and_then(&mut answer) {
            Ok(Some(event)) => say(&event)?,
            Ok(None) => {}
            Err(error) => refuse(block_of(&line), error)?,
        }
    }
    Ok(())
}

/// Reads a request.
///
/// # Errors
/// When the line is none.
pub fn parse<R: DeserializeOwned>(line: &[u8]) -> anyhow::Result<R> {
    serde_json::from_slice(line).context("request")
}

/// Returns the block's number from a request that is wrong elsewhere.
pub fn block_of(line: &[u8]) -> Option<u32> {
    let request: Value = serde_json::from_slice(line).ok()?;
    request.get("block")?.as_u64()?.try_into().ok()
}

/// Says what is wrong with a request.
///
/// # Errors
/// With `error` itself when records cannot be written any more.
pub fn refuse(block: Option<u32>, error: anyhow::Error) -> anyhow::Result<()> {
    let (status, message) = (failure::status(&error), failure::sentence(&error));
    say(&json!({ "event": "error", "block": block, "status": status, "message": message }))?;
    if ends(&error) { Err(error) } else { Ok(()) }
}

/// Whether records cannot be written any more. Rows that do not fit their columns are refused before anything is written.
fn ends(error: &anyhow::Error) -> bool {
    let ends = |cause: &RecordError| !matches!(cause, RecordError::Encode(_) | RecordError::Unfit { .. });
    error.chain().any(|cause| cause.downcast_ref().is_some_and(ends))
}

/// Returns the first event of every program that is asked or waited for: its version, its scheduling settings where it has
/// some, and `own` fields.
pub fn ready(place: Option<&Place>, own: Value) -> Value {
    let mut event = json!({ "event": "ready", "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE });
    add(&mut event, place.map_or(Value::Null, Place::json));
    add(&mut event, own);
    event
}

/// Adds the fields of another JSON object.
pub fn add(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}

/// Writes an event.
///
/// # Errors
/// When nobody reads any more.
pub fn say(event: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string(event)?)
}

/// Writes an event for a program, or a text for a person.
///
/// # Errors
/// When nobody reads any more.
pub fn tell(as_json: bool, event: &Value, text: &str) -> anyhow::Result<()> {
    if as_json { say(event) } else { print(text.trim_end()) }
}

fn print(line: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// A folder of records, which has one clock.
pub struct Records<F> {
    folder: F,
    is_simulated: bool,
}

impl<F> Records<F> {
    /// Keeps a folder that is open for records of simulated time, or of the machine's.
    pub fn new(folder: F, is_simulated: bool) -> Self {
        Self { folder, is_simulated }
    }

    /// Returns the folder.
    ///
    /// # Errors
    /// When it has the records of another clock.
    pub fn folder(&mut self, is_simulated: bool) -> anyhow::Result<&mut F> {
        match (self.is_simulated, is_simulated) {
            (true, false) => {
                Err(WrongRequest("it was started with --simulated, and measures nothing".to_owned()).into())
            }
            (false, true) => Err(WrongRequest("start it with --simulated to simulate".to_owned()).into()),
            _ => Ok(&mut self.folder),
        }
    }

    /// Returns the folder for good.
    pub fn into_folder(self) -> F {
        self.folder
    }
}

/// Lines of standard input that are not blank, until it ends or a signal comes.
#[derive(Debug)]
pub struct Lines {
    signal: BorrowedFd<'static>,
    pending: Vec<u8>,
    /// How much of `pending` is known to hold no line end.
    searched: usize,
}

impl Lines {
    /// Begins with the next line; `signal` can be read once a signal has come.
    pub fn new(signal: BorrowedFd<'static>) -> Self {
        Self { signal, pending: Vec::new(), searched: 0 }
    }

    /// Returns the next line; `None` at the end.
    ///
    /// # Errors
    /// When it is too long, or the input cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            match self.any()? {
                Some(line) if line.iter().all(u8::is_ascii_whitespace) => {}
                other => return Ok(other),
            }
        }
    }

    fn any(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if STOP.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(at) = self.pending[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
            self.searched = self.pending.len();
            if self.searched > LONGEST_LINE_BYTES {
                return Err(WrongRequest("a request is longer than 1 MiB".to_owned()).into());
            }
            if !self.read()? {
                self.searched = 0;
                let last = std::mem::take(&mut self.pending);
                return Ok((!last.is_empty()).then_some(last));
            }
        }
    }

    /// Reads more; `false` at the end of the input.
    fn read(&mut self) -> anyhow::Result<bool> {
        let input = rustix::stdio::stdin();
        let mut ready = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.signal, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if ready[0].revents().is_empty() {
            return Ok(true);
        }
        let mut chunk = [0; 1 << 16];
        match rustix::io::read(input, &mut chunk) {
            Ok(0) => Ok(false),
            Ok(length) => {
                self.pending.extend_from_slice(&chunk[..length]);
                Ok(true)
            }
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sojourn_record::Unfit;

    use super::*;

    #[test]
    fn rows_that_do_not_fit_end_nothing_and_files_that_are_broken_end_it() {
        let unfit = Unfit { column: "answers", value: Some(1 << 40) };
        let unfit = RecordError::Unfit { path: "probes.arrow".into(), unfit };
        assert!(!ends(&anyhow::Error::new(unfit).context("block 3")));
        assert!(ends(&anyhow::Error::new(RecordError::Broken).context("block 3")));
        assert!(!ends(&anyhow::anyhow!("nonsense")));
    }
}
