//! A log that comes from another host: each frame is looked at before it is kept. Foreign bytes: nothing panics, and memory is
//! bounded by the longest frame.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::frames::{FRAME_HEADER, checksum, frame};
use super::pack::Unpacker;
use super::read::part;
use super::{MAGIC, NAME, SpoolError, VERSION, begin, create, failure};

/// No header is longer, and no frame: the longest are the ends of logs, which list their flows.
const LONGEST: usize = 8 << 20;

/// Why nothing more of a log can be received.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// What comes is no log of ours.
    #[error("expected a log of tcplog, of version {VERSION} and of this kind of machine: {0}")]
    Foreign(&'static str),
    /// It ends without its end.
    #[error("the log has no end: the connection was closed after {0} whole frames")]
    Cut(u64),
    /// The connection failed.
    #[error("the connection failed after {frames} whole frames: {source}")]
    Connection {
        /// How many came.
        frames: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// A log that is being received.
pub struct Arriving<R> {
    from: R,
    header: String,
    frame: Vec<u8>,
    unpacker: Unpacker,
    frames: u64,
    records: u64,
    footer: Vec<u8>,
    is_whole: bool,
}

impl<R: Read> Arriving<R> {
    /// Reads what a log begins with.
    ///
    /// # Errors
    /// When it is none.
    pub fn begin(mut from: R) -> Result<Self, ArrivalError> {
        let mut fixed = [0; 16];
        fill(&mut from, &mut fixed, 0)?;
        if !fixed.first_chunk().is_some_and(begins_a_log) {
            return Err(ArrivalError::Foreign("it begins otherwise"));
        }
        let length = u32::from_ne_bytes(part(&fixed, 12)) as usize;
        if length > LONGEST {
            return Err(ArrivalError::Foreign("its header is longer than any"));
        }
        let (mut text, mut sum) = (Vec::new(), [0; 4]);
        take(&mut from, &mut text, length, 0)?;
        fill(&mut from, &mut sum, 0)?;
        if crc32fast::hash(&text) != u32::from_ne_bytes(sum) {
            return Err(ArrivalError::Foreign("its header is damaged"));
        }
        let header = String::from_utf8(text).map_err(|_| ArrivalError::Foreign("its header is no text"))?;
        Ok(Self {
            from,
            header,
            frame: Vec::new(),
            unpacker: Unpacker::default(),
            frames: 0,
            records: 0,
            footer: Vec::new(),
            is_whole: false,
        })
    }

    /// The JSON that the log was begun with.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// How the sender says that it ended, as JSON.
    pub fn footer(&self) -> &[u8] {
        &self.footer
    }

    /// How many records have come.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether its end has come.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the next frame for a spool, whole and good; `None` behind the last.
    ///
    /// # Errors
    /// When none can be had.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, ArrivalError> {
        loop {
            if self.is_whole {
                return Ok(None);
            }
            let kind = self.read_frame()?;
            let payload = &self.frame[FRAME_HEADER..];
            match kind {
                frame::EVENTS => {
                    self.unpacker.reset();
                    let mut rest = payload;
                    while let Some(_record) = self
                        .unpacker
                        .take(&mut rest)
                        .map_err(|_| ArrivalError::Foreign("a frame does not hold what it says"))?
                    {
                        self.records += 1;
                    }
                }
                frame::FOOTER => {
                    self.footer = payload.to_vec();
                    continue;
                }
                frame::PART => return Err(ArrivalError::Foreign("it consists of parts")),
                frame::END => self.is_whole = true,
                _ => {}
            }
            return Ok(Some(&self.frame));
        }
    }

    fn read_frame(&mut self) -> Result<u32, ArrivalError> {
        let mut header = [0; FRAME_HEADER];
        fill(&mut self.from, &mut header, self.frames)?;
        let kind = u32::from_ne_bytes(part(&header, 0));
        let length = u32::from_ne_bytes(part(&header, 8)) as usize;
        if !(frame::EVENTS..=frame::FOOTER).contains(&kind) {
            return Err(ArrivalError::Foreign("a frame is of a kind that there is not"));
        }
        if length > LONGEST {
            return Err(ArrivalError::Foreign("a frame is longer than any"));
        }
        self.frame.clear();
        self.frame.extend_from_slice(&header);
        take(&mut self.from, &mut self.frame, length, self.frames)?;
        if checksum(&header[..12], &self.frame[FRAME_HEADER..]) != u32::from_ne_bytes(part(&header, 12)) {
            return Err(ArrivalError::Foreign("a frame is damaged"));
        }
        self.frames += 1;
        Ok(kind)
    }
}

/// Fills the bytes.
fn fill(from: &mut impl Read, bytes: &mut [u8], frames: u64) -> Result<(), ArrivalError> {
    from.read_exact(bytes).map_err(|source| ended(source, frames))
}

/// Appends so many bytes as they come: a length alone takes no memory.
fn take(from: &mut impl Read, to: &mut Vec<u8>, length: usize, frames: u64) -> Result<(), ArrivalError> {
    let read = from.take(length as u64).read_to_end(to).map_err(|source| ended(source, frames))?;
    if read < length { Err(ArrivalError::Cut(frames)) } else { Ok(()) }
}

fn ended(source: io::Error, frames: u64) -> ArrivalError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => ArrivalError::Cut(frames),
        _ => ArrivalError::Connection { frames, source },
    }
}

/// The spool of a log that is being received, which nobody else makes records of.
pub struct Arrived {
    path: PathBuf,
    file: File,
    length: u64,
    limit: u64,
}

impl Arrived {
    /// Makes it, of so many bytes at most.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(folder: &Path, header: &str, limit: u64) -> Result<Self, SpoolError> {
        let path = folder.join(NAME);
        let (file, _) = create(&path)?;
        let mut arrived = Self { path, file, length: 0, limit };
        let mut bytes = Vec::new();
        begin::put_header(header, &mut bytes);
        arrived.put(&bytes)?;
        Ok(arrived)
    }

    /// Appends a frame, whole or not at all.
    ///
    /// # Errors
    /// When it cannot, or would make it too long.
    pub fn put(&mut self, frame: &[u8]) -> Result<(), SpoolError> {
        if self.length + frame.len() as u64 > self.limit {
            return Err(SpoolError::Limit(self.path.clone()));
        }
        if let Err(source) = self.file.write_all(frame) {
            let _ = self.file.set_len(self.length);
            return Err(failure("write", &self.path, source));
        }
        self.length += frame.len() as u64;
        Ok(())
    }

    /// Puts it on the disk, and lets others make records of it.
    ///
    /// # Errors
    /// When it cannot.
    pub fn close(self) -> Result<(), SpoolError> {
        let synced = self.file.sync_all().map_err(|source| failure("write", &self.path, source));
        let _ = self.file.unlock();
        synced
    }
}

/// So many bytes say whether a log begins.
pub const BEGINNING: usize = 12;

/// Whether what comes begins as a log of this version and kind of machine does.
pub fn begins_a_log(bytes: &[u8; BEGINNING]) -> bool {
    bytes[..8] == MAGIC && bytes[8..] == VERSION.to_ne_bytes()
}

/// What a receiver says first, and at the end.
const READY: [u8; 8] = *b"SJTCPRCV";
const KEPT: [u8; 8] = *b"SJTCPEND";

/// How long what a receiver says first is.
pub const GREETING: usize = 24;
/// How long its receipt is.
pub const RECEIPT: usize = 16;

/// Returns what a receiver says first: on which running kernel it is, and the cookie of its socket there.
pub fn greeting(boot: &str, cookie: u64) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&READY);
    bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[12..16].copy_from_slice(&crc32fast::hash(boot.as_bytes()).to_ne_bytes());
    bytes[16..].copy_from_slice(&cookie.to_ne_bytes());
    bytes
}

/// Reads what a receiver says first: the cookie of its socket, where it is on this running kernel.
///
/// # Errors
/// When it is no receiver of ours.
pub fn greeted(bytes: &[u8; GREETING], boot: &str) -> Result<Option<u64>, ArrivalError> {
    if bytes[..8] != READY {
        return Err(ArrivalError::Foreign("what listens there receives none"));
    }
    if bytes[8..12] != VERSION.to_ne_bytes() {
        return Err(ArrivalError::Foreign("what listens there receives others"));
    }
    // A kernel that does not say which run of it this is has no socket in common with another.
    let is_here = !boot.is_empty() && bytes[12..16] == crc32fast::hash(boot.as_bytes()).to_ne_bytes();
    let cookie = bytes[16..].first_chunk().map(|cookie| u64::from_ne_bytes(*cookie));
    Ok(cookie.filter(|cookie| is_here && *cookie != 0))
}

/// Returns what a receiver says when all is on its disk: how many records that is.
pub fn receipt(records: u64) -> [u8; RECEIPT] {
    let mut bytes = [0; RECEIPT];
    bytes[..8].copy_from_slice(&KEPT);
    bytes[8..].copy_from_slice(&records.to_ne_bytes());
    bytes
}

/// Reads it; `None`: it is none.
pub fn kept(bytes: &[u8; RECEIPT]) -> Option<u64> {
    let records = bytes[8..].first_chunk().map(|records| u64::from_ne_bytes(*records));
    records.filter(|_| bytes[..8] == KEPT)
}
