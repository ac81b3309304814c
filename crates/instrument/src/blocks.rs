//! `probe blocks`: one JSON request a line in, one JSON answer a line out.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use sojourn_port::rights;
use sojourn_probe::{Request, Summary};
use sojourn_record::{Probe, RecordError, RecordSink, RunFolder};

use crate::arguments::Blocks;
use crate::failure::{self, WrongRequest};
use crate::place::{self, Fifo, Place};
use crate::session::{self, Measured, Session};
use crate::sys::STOP;

/// The longest line that is read as a request.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// Answers requests until the input ends or a signal comes.
///
/// # Errors
/// When the machine refuses what all blocks need, or records cannot be written any more.
pub fn run(arguments: &Blocks) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::IfPermitted)?;
    let mut records = Records { folder: arguments.record.clone(), part: arguments.part, open: None };
    let mut session = Session::new(place);
    say(&ready(&place))?;
    let mut lines = Lines::new(signal);
    while let Some(line) = lines.next()? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match answer(&line, &mut session, &mut records) {
            Ok(Some(answered)) => say(&answered)?,
            Ok(None) => break,
            Err(error) => {
                say(&Event::Error {
                    block: block_of(&line),
                    status: failure::status(&error),
                    message: &failure::sentence(&error),
                })?;
                if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(cause) if ends_records(cause))) {
                    return Err(error);
                }
            }
        }
    }
    records.finish()
}

/// Measures and records one block; `None` when a signal cut it short.
fn answer(line: &[u8], session: &mut Session, records: &mut Records) -> anyhow::Result<Option<Event<'static>>> {
    let request: Request = serde_json::from_slice(line).context("request")?;
    request.check()?;
    records.open(request.to.is_simulated())?;
    let measured = session.measure(&request, &STOP)?;
    if STOP.load(Ordering::Relaxed) && measured.block.counts.sent < u64::from(request.count) {
        return Ok(None);
    }
    records.write(&measured)?;
    Ok(Some(Event::of(&measured)))
}

/// One line of output.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Ready {
        version: &'a str,
        profile: &'a str,
        wait: &'a str,
        fifo: bool,
        nice: i32,
        cpu: Option<u32>,
        memory_locked: bool,
    },
    Block {
        block: u32,
        sent: u64,
        received: u64,
        lost: u64,
        late: u64,
        duplicated: u64,
        reordered: u64,
        foreign: u64,
        own_drops: u64,
        rtt: Option<Summary>,
        elapsed_ns: i64,
    },
    Error {
        block: Option<u32>,
        status: u8,
        message: &'a str,
    },
}

impl Event<'_> {
    fn of(Measured { block, probes }: &Measured) -> Self {
        let counts = block.counts;
        Self::Block {
            block: block.block,
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost,
            late: counts.late,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            foreign: counts.foreign,
            own_drops: counts.own_drops,
            rtt: Summary::of(probes.iter().filter(|probe| !probe.is_warmup).filter_map(Probe::rtt)),
            elapsed_ns: (block.ended_raw - block.started_raw).0,
        }
    }
}

fn ready(place: &Place) -> Event<'static> {
    Event::Ready {
        version: env!("CARGO_PKG_VERSION"),
        profile: crate::PROFILE,
        wait: session::name(place.wait),
        fifo: place.is_real_time,
        nice: place.nice,
        cpu: place.cpu,
        memory_locked: place.is_locked,
    }
}

/// Returns the block's number from a request that is wrong elsewhere.
pub fn block_of(line: &[u8]) -> Option<u32> {
    let request: serde_json::Value = serde_json::from_slice(line).ok()?;
    request.get("block")?.as_u64()?.try_into().ok()
}

fn ends_records(error: &RecordError) -> bool {
    !matches!(error, RecordError::Encode(_))
}

fn say(event: &Event<'_>) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    Ok(output.flush()?)
}

/// The records, opened when it is known whether time is simulated.
struct Records {
    folder: PathBuf,
    part: u16,
    open: Option<(RunFolder, bool)>,
}

impl Records {
    fn open(&mut self, is_simulated: bool) -> anyhow::Result<()> {
        match &self.open {
            Some((_, was)) if *was == is_simulated => Ok(()),
            Some(_) => {
                let problem =
                    "to: one process measures either simulated lines or real ones, for its records have one clock";
                Err(WrongRequest(problem.to_owned()).into())
            }
            None => {
                let origin = crate::origin(is_simulated);
                self.open = Some((RunFolder::create(&self.folder, self.part, &origin)?, is_simulated));
                // Its priority and its files it has now; only sockets are still to be opened.
                Ok(rights::keep_only(&rights::WHILE_PROBING)?)
            }
        }
    }

    fn write(&mut self, measured: &Measured) -> anyhow::Result<()> {
        let (folder, _) = self.open.as_mut().ok_or(RecordError::Broken)?;
        Ok(folder.write(&measured.block, &measured.probes)?)
    }

    fn finish(self) -> anyhow::Result<()> {
        match self.open {
            Some((mut folder, _)) => Ok(folder.finish()?),
            None => Ok(()),
        }
    }
}

/// Lines of standard input, until it ends or a signal comes.
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
