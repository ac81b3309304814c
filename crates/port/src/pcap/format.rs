//! The pcap file format, as tcpdump writes it: both byte orders, timestamps in microseconds or nanoseconds. For pcapng
//! see `ng`.
//!
//! Source: `draft-ietf-opsawg-pcap`.

use std::io::{self, ErrorKind, Read, Write};

use sojourn_time::Time;

use super::link::ETHERNET;

const MICROSECONDS: u32 = 0xA1B2_C3D4;
const NANOSECONDS: u32 = 0xA1B2_3C4D;
pub(super) const PCAPNG: u32 = 0x0A0D_0D0A;
/// A variant that some kernels wrote (Alexey Kuznetzov's patch): eight more bytes in each record header.
const MODIFIED: u32 = 0xA1B2_CD34;
const MODIFIED_BYTES: usize = 8;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The longest frame: libpcap's own limit. A greater length is damage, and must not make the reader allocate so much.
pub const LONGEST_FRAME_BYTES: u32 = 262_144;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The magic number is unknown.
    #[error("not a pcap file: it begins with {0:#010x}")]
    Magic(u32),
    /// The file is pcapng.
    #[error("a pcapng file; write it anew with `editcap -F nsecpcap`")]
    Pcapng,
    /// The file does not hold Ethernet frames.
    #[error("link type {0}; expected 1 (Ethernet)")]
    LinkType(u32),
    /// A header is inconsistent.
    #[error("frame {number}: its header is damaged")]
    Damaged {
        /// The frame's number, from 1.
        number: u64,
    },
    /// A frame of a pcapng file has no timestamp.
    #[error("frame {number} has no time: it was saved as a simple packet block")]
    Untimed {
        /// The frame's number, from 1.
        number: u64,
    },
    /// A block's description of a frame is inconsistent; the next block is readable.
    #[error("frame {number}: what its block says of it cannot be")]
    Malformed {
        /// The frame's number, from 1.
        number: u64,
    },
    /// The file ends within a header or a frame.
    #[error("the file ends within frame {number}")]
    Truncated {
        /// The frame's number, from 1; 0 is the file's own header.
        number: u64,
    },
    /// The system returned a read error.
    #[error("read: {0}")]
    Read(#[from] io::Error),
}

impl From<PcapError> for io::Error {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::Read(error) => error,
            other => Self::new(ErrorKind::InvalidData, other),
        }
    }
}

/// One frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The timestamp, on the clock of the file: `CLOCK_REALTIME`.
    pub at: Time,
    /// The frame's length before truncation by the capture.
    pub original_bytes: u32,
    /// The index of the interface in its section.
    pub interface: u32,
    /// The direction, where the capture states it.
    pub direction: Option<Direction>,
}

/// The direction of a frame at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by the host.
    In,
    /// Sent by the host.
    Out,
}

/// An interface, as a capture describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name; empty where it is not stated.
    pub name: String,
    /// Its link type, as numbered by tcpdump.org.
    pub link_type: u32,
    /// The snapshot length: the most bytes kept of a frame; 0: all.
    pub most_bytes: u32,
    /// The number of FCS bytes at the end of each frame.
    pub fcs_bytes: u32,
    /// Timestamp units per second.
    pub per_second: u64,
    /// Seconds to add to a timestamp.
    pub(super) offset: i64,
    /// Frames that the capture reports lost here; `None`: it does not report them.
    pub dropped: Option<u64>,
}

/// Reads frames in order. Give it a buffered input.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    is_big_endian: bool,
    /// The unit of a timestamp's fraction, in ns.
    fraction_ns: i64,
    is_modified: bool,
    interface: [Interface; 1],
    number: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// When it is not a pcap file of Ethernet frames.
    pub fn new(input: R) -> Result<Self, PcapError> {
        let reader = Self::of_any_link(input)?;
        match reader.interface[0].link_type {
            ETHERNET => Ok(reader),
            other => Err(PcapError::LinkType(other)),
        }
    }

    /// Reads the file's header; accepts any link type.
    ///
    /// # Errors
    /// When it is not a pcap file.
    pub fn of_any_link(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; FILE_HEADER_BYTES];
        if !fill(&mut input, &mut header)? {
            return Err(PcapError::Truncated { number: 0 });
        }
        let magic = word(&header, 0, true);
        let (is_big_endian, fraction_ns) = match (magic, magic.swap_bytes()) {
            (MICROSECONDS | MODIFIED, _) => (true, 1_000),
            (NANOSECONDS, _) => (true, 1),
            (_, MICROSECONDS | MODIFIED) => (false, 1_000),
            (_, NANOSECONDS) => (false, 1),
            (PCAPNG, _) => return Err(PcapError::Pcapng),
            _ => return Err(PcapError::Magic(magic)),
        };
        let link = word(&header, 20, is_big_endian);
        // If this bit is set, the four highest bits hold the length of the FCS, in units of two bytes.
        let fcs_bytes = if link & 0x0400_0000 == 0 { 0 } else { (link >> 28) * 2 };
        let interface = Interface {
            name: String::new(),
            link_type: link & 0xFFFF,
            most_bytes: word(&header, 16, is_big_endian),
            fcs_bytes,
            per_second: (NANOS_PER_SECOND / fraction_ns).cast_unsigned(),
            offset: 0,
            dropped: None,
        };
        let is_modified = [magic, magic.swap_bytes()].contains(&MODIFIED);
        Ok(Self { input, is_big_endian, fraction_ns, is_modified, interface: [interface], number: 0 })
    }

    /// Returns the interface that the file's header describes.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    /// Reads the next frame into `frame`, replacing its contents; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file is damaged or truncated; earlier frames remain valid.
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, PcapError> {
        self.number += 1;
        let number = self.number;
        let mut header = [0; RECORD_HEADER_BYTES];
        match fill(&mut self.input, &mut header) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return Err(cut(error, number)),
        }
        let word = |at| word(&header, at, self.is_big_endian);
        let fraction_ns = i64::from(word(4)) * self.fraction_ns;
        let length = word(8);
        if fraction_ns >= NANOS_PER_SECOND || length > LONGEST_FRAME_BYTES {
            return Err(PcapError::Damaged { number });
        }
        if self.is_modified {
            self.input.read_exact(&mut [0; MODIFIED_BYTES]).map_err(|error| cut(error, number))?;
        }
        frame.resize(length as usize, 0);
        self.input.read_exact(frame).map_err(|error| cut(error, number))?;
        let at = Time(i64::from(word(0)) * NANOS_PER_SECOND + fraction_ns);
        Ok(Some(Record { at, original_bytes: word(12), interface: 0, direction: None }))
    }
}

/// Writes frames, with timestamps in nanoseconds.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn new(mut output: W) -> io::Result<Self> {
        for word in [NANOSECONDS, 0x0004_0002, 0, 0, LONGEST_FRAME_BYTES, ETHERNET] {
            output.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { output })
    }

    /// Writes a frame with the timestamp `at` on `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// When the system returns a write error, or the format cannot hold the time or the length.
    pub fn write(&mut self, at: Time, frame: &[u8]) -> io::Result<()> {
        let refusal = |what| io::Error::new(ErrorKind::InvalidInput, what);
        let seconds = u32::try_from(at.0.div_euclid(NANOS_PER_SECOND))
            .map_err(|_| refusal("a time before 1970 or after 2106"))?;
        let length = u32::try_from(frame.len())
            .ok()
            .filter(|length| *length <= LONGEST_FRAME_BYTES)
            .ok_or_else(|| refusal("a frame of more than 262,144 bytes"))?;
        // Below 10⁹ by the division above.
        let nanos = at.0.rem_euclid(NANOS_PER_SECOND) as u32;
        for word in [seconds, nanos, length, length] {
            self.output.write_all(&word.to_le_bytes())?;
        }
        self.output.write_all(frame)
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Fills `buffer`; `false` when the input was already at its end.
pub(super) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

pub(super) fn cut(error: io::Error, number: u64) -> PcapError {
    if error.kind() == ErrorKind::UnexpectedEof { PcapError::Truncated { number } } else { error.into() }
}

pub(super) fn word<const N: usize>(header: &[u8; N], at: usize, is_big_endian: bool) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[at..at + 4]);
    if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}
