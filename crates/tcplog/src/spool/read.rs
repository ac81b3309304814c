//! Reads a spool, frame by frame, to its end or to where it was cut. Foreign bytes: nothing panics.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::pack::Unpacker;
use super::{FRAME_HEADER, MAGIC, SpoolError, VERSION, Written, checksum, disposition_of, failure, frame};
use crate::account::{Disposition, Entry, Tally};
use crate::decode::Raw;
use crate::gaps::Gap;
use crate::layout::{Flow, Totals};

/// No frame is longer: one that says so is damaged.
const LONGEST: u32 = 1 << 30;

/// How much is read ahead, for frames that are short.
const BUFFERED: usize = 16 << 10;

/// What a frame says.
pub enum Frame<'a> {
    /// Records of a CPU's ring, in its order.
    Events(u32, Records<'a>),
    /// A flow: its slot, and itself.
    Flow(u32, Box<Flow>),
    /// The same, for the last time.
    Gone(u32, Box<Flow>),
    /// Packets of a flow that the kernel logged and that were left out then: its cookie, their disposition, and how many more of them.
    LeftOut(u64, Disposition, [Tally; 2]),
    /// What was counted in total.
    Totals(Vec<Totals>),
    /// Records that are missing.
    Gap(Gap),
    /// A sentence.
    Note(String),
    /// Its limit ended it: so many missing records are of gaps that found no room.
    Limited(u64),
    /// A file that follows others begins: its number, and what was written in those.
    Part(u32, Written),
    /// What became of all packets.
    Account(Counted),
    /// The log is whole.
    End,
}

/// What became of all packets, as the account had it when it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// In total.
    pub entries: Vec<Entry>,
    /// Samples of no packet.
    pub events: u64,
    /// Records without room.
    pub full: u64,
    /// Flows whose last word found no room.
    pub unrecorded: u64,
    /// How the law was broken; empty: it was not.
    pub breach: String,
}

/// Records of one frame.
pub struct Records<'a> {
    payload: &'a [u8],
    unpacker: &'a mut Unpacker,
}

impl Records<'_> {
    /// Shows each record. False where the frame does not hold what it says: nothing more of it can be read.
    pub fn each(mut self, mut show: impl FnMut(&[u8])) -> bool {
        loop {
            match self.unpacker.take(&mut self.payload) {
                Ok(Some(record)) => show(record),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// How a spool ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its last frame.
    Whole,
    /// Behind a whole frame, without the last: whoever wrote it was killed.
    Unfinished,
    /// Within a frame, or with one that is damaged; what follows this place is lost.
    Torn(u64),
}

/// A spool that is being read.
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    header: String,
    /// How much has been read, and how long it is.
    at: u64,
    length: u64,
    payload: Vec<u8>,
    unpacker: Unpacker,
    ending: Option<Ending>,
}

impl Reader {
    /// Opens a spool.
    ///
    /// # Errors
    /// When it cannot be read, is none, or one of another version.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let file = File::open(path).map_err(|source| failure("open", path, source))?;
        let length = file.metadata().map_err(|source| failure("open", path, source))?.len();
        let mut reader = Self {
            path: path.to_owned(),
            // Small: what is long is read where it is wanted, past this buffer.
            file: BufReader::with_capacity(BUFFERED, file),
            header: String::new(),
            at: 0,
            length,
            payload: Vec::new(),
            unpacker: Unpacker::default(),
            ending: None,
        };
        reader.header = reader.begin().map_err(|problem| SpoolError::Foreign { path: path.to_owned(), problem })?;
        Ok(reader)
    }

    /// The JSON that the spool was created with.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// How it ends; known behind the last frame.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Reads the next frame; `None` at the end.
    ///
    /// # Errors
    /// When the file system refuses; nothing more is read then. What is damaged is no error, but the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, SpoolError> {
        loop {
            let read = self.read_frame();
            if read.is_err() {
                self.ending = Some(Ending::Torn(self.at));
            }
            let Some((kind, from)) = read? else { return Ok(None) };
            // Of a kind that a later version may add: passed over.
            if (frame::EVENTS..=frame::LAST).contains(&kind) {
                return Ok(self.interpret(kind, from));
            }
        }
    }

    fn interpret(&mut self, kind: u32, from: u32) -> Option<Frame<'_>> {
        if kind == frame::END {
            self.ending = Some(Ending::Whole);
        } else if kind == frame::EVENTS {
            self.unpacker.reset();
            return Some(Frame::Events(from, Records { payload: &self.payload, unpacker: &mut self.unpacker }));
        }
        let payload = &mut self.payload.as_slice();
        let found = match kind {
            frame::FLOW => exact::<Flow>(payload).map(|flow| Frame::Flow(from, Box::new(flow))),
            frame::GONE => exact::<Flow>(payload).map(|flow| Frame::Gone(from, Box::new(flow))),
            frame::LEFT_OUT => left_out(from, payload),
            frame::TOTALS => every::<Totals>(payload).map(Frame::Totals),
            frame::GAP => exact::<[u64; 4]>(payload).map(|numbers| Frame::Gap(gap_of(from, numbers))),
            frame::NOTE => Some(Frame::Note(String::from_utf8_lossy(payload).into_owned())),
            frame::LIMITED => exact::<u64>(payload).map(Frame::Limited),
            frame::PART => exact::<[u64; Written::NUMBERS]>(payload).map(|all| Frame::Part(from, Written::of(all))),
            frame::ACCOUNT => counted(payload).map(Frame::Account),
            _ => Some(Frame::End),
        };
        if found.is_none() {
            self.ending = Some(Ending::Torn(self.at));
        }
        found
    }

    /// Reads a frame's payload; returns its kind and where it comes from.
    fn read_frame(&mut self) -> Result<Option<(u32, u32)>, SpoolError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        if self.at == self.length {
            self.ending = Some(Ending::Unfinished);
            return Ok(None);
        }
        let start = self.at;
        let mut header = [0; FRAME_HEADER];
        let is_whole = self.read(&mut header)? && {
            let length = u64::from(u32::from_ne_bytes(part(&header, 8)));
            let fits = length <= u64::from(LONGEST) && length <= self.length - self.at;
            self.payload.resize(if fits { length as usize } else { 0 }, 0);
            let mut payload = std::mem::take(&mut self.payload);
            let is_read = fits && self.read(&mut payload)?;
            self.payload = payload;
            is_read && checksum(&header[..12], &self.payload) == u32::from_ne_bytes(part(&header, 12))
        };
        if !is_whole {
            self.ending = Some(Ending::Torn(start));
            return Ok(None);
        }
        Ok(Some((u32::from_ne_bytes(part(&header, 0)), u32::from_ne_bytes(part(&header, 4)))))
    }

    /// Fills the bytes; false where the file ends before.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool, SpoolError> {
        match self.file.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(true)
            }
            Err(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(source) => Err(failure("read", &self.path, source)),
        }
    }

    fn begin(&mut self) -> Result<String, String> {
        let mut fixed = [0; 16];
        let is_ours = self.read(&mut fixed).unwrap_or_default() && fixed[..8] == MAGIC;
        let found = if is_ours { u32::from_ne_bytes(part(&fixed, 8)) } else { 0 };
        if (1..VERSION).contains(&found) {
            return Err(format!(
                "a spool of version {found}, not {VERSION}: recover it with the Sojourn that wrote it"
            ));
        }
        let header = if found == VERSION { self.read_header(u32::from_ne_bytes(part(&fixed, 12))) } else { None };
        header.ok_or_else(|| format!("expected a spool of tcplog, version {VERSION}, of this kind of machine"))
    }

    fn read_header(&mut self, length: u32) -> Option<String> {
        if u64::from(length) > self.length {
            return None;
        }
        let mut text = vec![0; length as usize];
        let mut sum = [0; 4];
        let is_whole = self.read(&mut text).ok()? && self.read(&mut sum).ok()?;
        (is_whole && crc32fast::hash(&text) == u32::from_ne_bytes(sum)).then(|| String::from_utf8(text).ok())?
    }
}

/// Shows the frames of a buffer that this program has written, headers included.
pub(super) fn each_frame(mut bytes: &[u8], mut show: impl FnMut(u32, &[u8])) {
    while let Some(header) = bytes.first_chunk::<FRAME_HEADER>() {
        let length = FRAME_HEADER + u32::from_ne_bytes(part(header, 8)) as usize;
        let Some((whole, rest)) = bytes.split_at_checked(length) else { return };
        show(u32::from_ne_bytes(part(header, 0)), whole);
        bytes = rest;
    }
}

/// Returns four bytes from `at` on, which must be there.
pub(super) fn part(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
}

/// Takes a value off the front, if it is there.
fn next<R: Raw>(payload: &mut &[u8]) -> Option<R> {
    (payload.len() >= R::BYTES).then(|| R::take(payload))
}

/// Returns the value that the payload is.
fn exact<R: Raw>(payload: &mut &[u8]) -> Option<R> {
    next(payload).filter(|_| payload.is_empty())
}

/// Returns the values that the payload is.
fn every<R: Raw>(payload: &mut &[u8]) -> Option<Vec<R>> {
    let mut all = Vec::new();
    while !payload.is_empty() {
        all.push(next(payload)?);
    }
    Some(all)
}

fn gap_of(cpu: u32, [number, missing, after, before]: [u64; 4]) -> Gap {
    let [after_ns, before_ns] = [after, before].map(|time| (time != u64::MAX).then_some(time));
    Gap { cpu, number, missing, after_ns, before_ns }
}

fn left_out(disposition: u32, payload: &mut &[u8]) -> Option<Frame<'static>> {
    let disposition = Disposition::ALL.get(disposition as usize)?;
    let [cookie, packets_in, segments_in, packets_out, segments_out] = exact::<[u64; 5]>(payload)?;
    let tallies = [(packets_in, segments_in), (packets_out, segments_out)];
    Some(Frame::LeftOut(cookie, *disposition, tallies.map(|(packets, segments)| Tally { packets, segments })))
}

fn counted(payload: &mut &[u8]) -> Option<Counted> {
    let [events, full, unrecorded, length] = next(payload)?;
    let (breach, rest) = payload.split_at_checked(usize::try_from(length).ok()?)?;
    *payload = rest;
    let mut entries = Vec::new();
    while !payload.is_empty() {
        entries.push(entry(payload)?);
    }
    Some(Counted { entries, events, full, unrecorded, breach: String::from_utf8_lossy(breach).into_owned() })
}

fn entry(payload: &mut &[u8]) -> Option<Entry> {
    let cookie: u64 = next(payload)?;
    let [direction, disposition]: [u32; 2] = next(payload)?;
    let [packets, segments] = next(payload)?;
    Some(Entry {
        cookie: (cookie != 0).then_some(cookie),
        direction: usize::try_from(direction).ok().filter(|&direction| direction < 2)?,
        disposition: disposition_of(disposition)?,
        tally: Tally { packets, segments },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// A spool of one note, before a frame that says that it has so many bytes, and has them: a hole in the file.
    fn spool(path: &Path, length: u32) -> u64 {
        let frame = |kind: u32, payload: &[u8], length: u32| {
            let head = [kind, 0, length].map(u32::to_ne_bytes).concat();
            let sum = checksum(&head, payload);
            [&head[..], &sum.to_ne_bytes(), payload].concat()
        };
        let text = b"{}";
        let head = [&MAGIC[..], &VERSION.to_ne_bytes(), &(text.len() as u32).to_ne_bytes(), text].concat();
        let sum = crc32fast::hash(text).to_ne_bytes();
        let before = [&head[..], &sum, &frame(frame::NOTE, b"a sentence", 10)].concat();
        let mut file = File::create(path).unwrap();
        file.write_all(&before).unwrap();
        file.write_all(&frame(frame::NOTE, b"", length)).unwrap();
        file.set_len(before.len() as u64 + FRAME_HEADER as u64 + u64::from(length)).unwrap();
        before.len() as u64
    }

    #[test]
    fn a_frame_that_is_longer_than_any_is_damage_and_takes_no_memory() {
        let path = std::env::temp_dir().join(format!("sojourn-tcplog-longest-{}", std::process::id()));
        for (length, is_read) in [(LONGEST + 1, false), (u32::MAX, false), (1 << 16, true)] {
            let at = spool(&path, length);
            let mut reader = Reader::open(&path).unwrap();
            assert!(matches!(reader.next_frame().unwrap(), Some(Frame::Note(said)) if said == "a sentence"));
            assert!(reader.next_frame().unwrap().is_none());
            assert_eq!(reader.ending(), Some(&Ending::Torn(at)));
            assert_eq!(reader.payload.capacity() >= 1 << 16, is_read, "{length}");
        }
        fs::remove_file(path).unwrap();
    }
}
