//! Read a spool frame by frame, up to its end or to where it is cut. Input is untrusted: nothing panics.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::pack::Unpacker;
use super::{FRAME_HEADER, MAGIC, SpoolError, VERSION, Written, checksum, disposition_of, failure, frame};
use crate::account::{Disposition, Entry, Tally};
use crate::decode::Raw;
use crate::gaps::Gap;
use crate::layout::{Flow, Totals};

/// The maximum length of a frame; a larger length means damage.
const LONGEST: u32 = 1 << 30;

/// The size of the read-ahead buffer for short frames.
const BUFFERED: usize = 16 << 10;

/// The content of a frame.
pub enum Frame<'a> {
    /// Records of a CPU's ring, in order.
    Events(u32, Records<'a>),
    /// A flow and its slot.
    Flow(u32, Box<Flow>),
    /// The final entry of a flow.
    Gone(u32, Box<Flow>),
    /// Logged packets of a flow that were left out: its cookie, their disposition, and their number, in addition to
    /// earlier ones.
    LeftOut(u64, Disposition, [Tally; 2]),
    /// The total counters.
    Totals(Vec<Totals>),
    /// Missing records.
    Gap(Gap),
    /// A note.
    Note(String),
    /// The size limit ended the log; the value counts the missing records of gaps that had no room.
    Limited(u64),
    /// The beginning of a later file: its number, and what the earlier files contain.
    Part(u32, Written),
    /// The final packet accounting.
    Account(Counted),
    /// The end of a complete log.
    End,
}

/// The final packet accounting as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The totals.
    pub entries: Vec<Entry>,
    /// Samples without a packet.
    pub events: u64,
    /// Records without room in a ring.
    pub full: u64,
    /// Flows whose final entry had no room.
    pub unrecorded: u64,
    /// The check that failed; empty: none.
    pub breach: String,
}

/// The records of one frame.
pub struct Records<'a> {
    payload: &'a [u8],
    unpacker: &'a mut Unpacker,
}

impl Records<'_> {
    /// Call `show` for each record. Return false where the frame is damaged; the rest of it cannot be read.
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
    /// After a complete frame, but without the last one: its writer was killed.
    Unfinished,
    /// Within a frame, or with a damaged one; everything after this offset is lost.
    Torn(u64),
}

/// A spool that is being read.
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    header: String,
    /// The bytes read so far, and the file's length.
    at: u64,
    length: u64,
    payload: Vec<u8>,
    unpacker: Unpacker,
    ending: Option<Ending>,
}

impl Reader {
    /// Open a spool.
    ///
    /// # Errors
    /// When it cannot be read, is not a spool, or has another version.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let file = File::open(path).map_err(|source| failure("open", path, source))?;
        let length = file.metadata().map_err(|source| failure("open", path, source))?.len();
        let mut reader = Self {
            path: path.to_owned(),
            // Small, because long frames are read directly, without this buffer.
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

    /// Return the JSON header.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Return how the spool ends; known after the last frame.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Read the next frame; `None` at the end.
    ///
    /// # Errors
    /// When reading the file fails; nothing more is read then. Damage is not an error but an end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, SpoolError> {
        loop {
            let read = self.read_frame();
            if read.is_err() {
                self.ending = Some(Ending::Torn(self.at));
            }
            let Some((kind, from)) = read? else { return Ok(None) };
            // Skip kinds that a later version may add.
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

    /// Read a frame's payload; return its kind and its source (CPU, slot or disposition).
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

    /// Fill `bytes`; return false where the file is too short.
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

/// Call `show` for each frame in a buffer that this program wrote, including headers.
pub(super) fn each_frame(mut bytes: &[u8], mut show: impl FnMut(u32, &[u8])) {
    while let Some(header) = bytes.first_chunk::<FRAME_HEADER>() {
        let length = FRAME_HEADER + u32::from_ne_bytes(part(header, 8)) as usize;
        let Some((whole, rest)) = bytes.split_at_checked(length) else { return };
        show(u32::from_ne_bytes(part(header, 0)), whole);
        bytes = rest;
    }
}

/// Return the four bytes at `at`; zeros where there are none.
pub(super) fn part(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
}

/// Split a value off the front, if there is one.
fn next<R: Raw>(payload: &mut &[u8]) -> Option<R> {
    (payload.len() >= R::BYTES).then(|| R::take(payload))
}

/// Return the value that makes up the whole payload.
fn exact<R: Raw>(payload: &mut &[u8]) -> Option<R> {
    next(payload).filter(|_| payload.is_empty())
}

/// Return the values that make up the whole payload.
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

    /// Create a spool of one note and a frame of the given length, whose content is a hole in the file.
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
    fn frame_above_the_maximum_length_is_damage_and_allocates_no_memory() {
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
