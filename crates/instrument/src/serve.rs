//! Shared code of all programs that read requests from standard input: the loop over lines, one JSON event per line on
//! standard output, the ready event, errors, and the check that all records use one clock.

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

/// The maximum length of a request line.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// Answers requests, one JSON object per line, until the input ends or a signal arrives. A request that fails is
/// answered with an error event.
///
/// # Errors
/// If the input cannot be read, the output cannot be written, or records can no longer be written.
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

/// Parses a request.
///
/// # Errors
/// If the line is not a valid request.
pub fn parse<R: DeserializeOwned>(line: &[u8]) -> anyhow::Result<R> {
    serde_json::from_slice(line).context("request")
}

/// Returns the block number of a request that is otherwise invalid.
pub fn block_of(line: &[u8]) -> Option<u32> {
    let request: Value = serde_json::from_slice(line).ok()?;
    request.get("block")?.as_u64()?.try_into().ok()
}

/// Reports what is wrong with a request.
///
/// # Errors
/// `error` itself, if records can no longer be written.
pub fn refuse(block: Option<u32>, error: anyhow::Error) -> anyhow::Result<()> {
    let (status, message) = (failure::status(&error), failure::sentence(&error));
    say(&json!({ "event": "error", "block": block, "status": status, "message": message }))?;
    if ends(&error) { Err(error) } else { Ok(()) }
}

/// Whether the error means that records can no longer be written. Rows that do not fit their columns are refused before
/// anything is written.
fn ends(error: &anyhow::Error) -> bool {
    let ends = |cause: &RecordError| !matches!(cause, RecordError::Encode(_) | RecordError::Unfit { .. });
    error.chain().any(|cause| cause.downcast_ref().is_some_and(ends))
}

/// Returns the first event of every serving program: its version, its scheduling settings where it has some, and the
/// program's `own` fields.
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
/// If the reader has closed the output.
pub fn say(event: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string(event)?)
}

/// Writes an event as JSON if `as_json`, otherwise the text.
///
/// # Errors
/// If the reader has closed the output.
pub fn tell(as_json: bool, event: &Value, text: &str) -> anyhow::Result<()> {
    if as_json { say(event) } else { print(text.trim_end()) }
}

fn print(line: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// A folder of records, all with the same clock.
pub struct Records<F> {
    folder: F,
    is_simulated: bool,
}

impl<F> Records<F> {
    /// Wraps an open folder for records of simulated time, or of the machine's clock.
    pub fn new(folder: F, is_simulated: bool) -> Self {
        Self { folder, is_simulated }
    }

    /// Returns the folder.
    ///
    /// # Errors
    /// If the folder holds records of the other clock.
    pub fn folder(&mut self, is_simulated: bool) -> anyhow::Result<&mut F> {
        match (self.is_simulated, is_simulated) {
            (true, false) => {
                Err(WrongRequest("it was started with --simulated, and measures nothing".to_owned()).into())
            }
            (false, true) => Err(WrongRequest("start it with --simulated to simulate".to_owned()).into()),
            _ => Ok(&mut self.folder),
        }
    }

    /// Returns the folder, consuming this.
    pub fn into_folder(self) -> F {
        self.folder
    }
}

/// The non-blank lines of standard input, until it ends or a signal arrives.
#[derive(Debug)]
pub struct Lines {
    signal: BorrowedFd<'static>,
    pending: Vec<u8>,
    /// The length of the start of `pending` that is known to hold no line end.
    searched: usize,
}

impl Lines {
    /// Starts at the next line; `signal` becomes readable once a signal has arrived.
    pub fn new(signal: BorrowedFd<'static>) -> Self {
        Self { signal, pending: Vec::new(), searched: 0 }
    }

    /// Returns the next line; `None` at the end of the input or after a signal.
    ///
    /// # Errors
    /// If the line is too long, or the input cannot be read.
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
    fn value_out_of_column_range_is_survived_and_a_broken_file_ends_the_service() {
        let unfit = Unfit { column: "answers", value: Some(1 << 40) };
        let unfit = RecordError::Unfit { path: "probes.arrow".into(), unfit };
        assert!(!ends(&anyhow::Error::new(unfit).context("block 3")));
        assert!(ends(&anyhow::Error::new(RecordError::Broken).context("block 3")));
        assert!(!ends(&anyhow::anyhow!("nonsense")));
    }
}
