//! Receive a log from another host; every frame is checked before it is stored. Input is untrusted: nothing panics, and
//! memory is bounded by the longest frame.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::frames::{FRAME_HEADER, checksum, frame};
use super::pack::Unpacker;
use super::read::part;
use super::{MAGIC, NAME, SpoolError, VERSION, begin, create, failure};

/// The maximum length of headers and frames; the longest are ends of logs, which list their flows.
const LONGEST: usize = 8 << 20;

/// Why receiving a log failed.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// The data is not a log of tcplog.
    #[error("expected a log of tcplog, of version {VERSION} and of this kind of machine: {0}")]
    Foreign(&'static str),
    /// The log ended before its last frame.
    #[error("the log has no end: the connection was closed after {0} whole frames")]
    Cut(u64),
    /// The connection failed.
    #[error("the connection failed after {frames} whole frames: {source}")]
    Connection {
        /// The number of frames received.
        frames: u64,
        /// The system's error.
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
    /// Read the header of a log.
    ///
    /// # Errors
    /// When the data is not a log.
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

    /// Return the JSON header.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Return the sender's result, as JSON.
    pub fn footer(&self) -> &[u8] {
        &self.footer
    }

    /// Return the number of records received.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Return whether the last frame has been received.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Return the next frame for a spool, complete and checked; `None` after the last one.
    ///
    /// # Errors
    /// When no valid frame can be received.
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

/// Fill the bytes.
fn fill(from: &mut impl Read, bytes: &mut [u8], frames: u64) -> Result<(), ArrivalError> {
    from.read_exact(bytes).map_err(|source| ended(source, frames))
}

/// Append `length` bytes as they arrive, so that a false length allocates no memory.
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

/// The locked spool of a log that is being received.
pub struct Arrived {
    path: PathBuf,
    file: File,
    length: u64,
    limit: u64,
}

impl Arrived {
    /// Create it, with a size limit.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(folder: &Path, header: &str, limit: u64) -> Result<Self, SpoolError> {
        let path = folder.join(NAME);
        let (file, _) = create(&path)?;
        let mut arrived = Self { path, file, length: 0, limit };
        let mut bytes = Vec::new();
        begin::put_header(header, &mut bytes);
        arrived.put(&bytes)?;
        Ok(arrived)
    }

    /// Append a frame, completely or not at all.
    ///
    /// # Errors
    /// When writing fails, or the limit would be exceeded.
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

    /// Write it to the disk, and unlock it for conversion.
    ///
    /// # Errors
    /// When writing fails.
    pub fn close(self) -> Result<(), SpoolError> {
        let synced = self.file.sync_all().map_err(|source| failure("write", &self.path, source));
        let _ = self.file.unlock();
        synced
    }
}

/// The number of bytes that identify a log.
pub const BEGINNING: usize = 12;

/// Return whether these bytes begin a log of this version and byte order.
pub fn begins_a_log(bytes: &[u8; BEGINNING]) -> bool {
    bytes[..8] == MAGIC && bytes[8..] == VERSION.to_ne_bytes()
}

/// The magic numbers of a receiver's greeting and receipt.
const READY: [u8; 8] = *b"SJTCPRCV";
const KEPT: [u8; 8] = *b"SJTCPEND";

/// The length of a receiver's greeting.
pub const GREETING: usize = 24;
/// The length of a receiver's receipt.
pub const RECEIPT: usize = 16;

/// Return a receiver's greeting: its boot ID (hashed), and the cookie of its socket.
pub fn greeting(boot: &str, cookie: u64) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&READY);
    bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[12..16].copy_from_slice(&crc32fast::hash(boot.as_bytes()).to_ne_bytes());
    bytes[16..].copy_from_slice(&cookie.to_ne_bytes());
    bytes
}

/// Decode a receiver's greeting: return the cookie of its socket, if it runs on this kernel and boot.
///
/// # Errors
/// When the peer is not a receiver of tcplog.
pub fn greeted(bytes: &[u8; GREETING], boot: &str) -> Result<Option<u64>, ArrivalError> {
    if bytes[..8] != READY {
        return Err(ArrivalError::Foreign("what listens there receives none"));
    }
    if bytes[8..12] != VERSION.to_ne_bytes() {
        return Err(ArrivalError::Foreign("what listens there receives others"));
    }
    // Without a boot ID it is unknown whether both are on the same host.
    let is_here = !boot.is_empty() && bytes[12..16] == crc32fast::hash(boot.as_bytes()).to_ne_bytes();
    let cookie = bytes[16..].first_chunk().map(|cookie| u64::from_ne_bytes(*cookie));
    Ok(cookie.filter(|cookie| is_here && *cookie != 0))
}

/// Return the receipt after all records are on the receiver's disk, with their number.
pub fn receipt(records: u64) -> [u8; RECEIPT] {
    let mut bytes = [0; RECEIPT];
    bytes[..8].copy_from_slice(&KEPT);
    bytes[8..].copy_from_slice(&records.to_ne_bytes());
    bytes
}

/// Decode a receipt; `None` where it is not one.
pub fn kept(bytes: &[u8; RECEIPT]) -> Option<u64> {
    let records = bytes[8..].first_chunk().map(|records| u64::from_ne_bytes(*records));
    records.filter(|_| bytes[..8] == KEPT)
}
