//! The pcap file format, as tcpdump writes it: both byte orders, stamps in microseconds or nanoseconds. pcapng is in
//! `ng`.
//!
//! Source: `draft-ietf-opsawg-pcap`.

use std::io::{self, ErrorKind, Read, Write};

use sojourn_time::Time;

const MICROSECONDS: u32 = 0xA1B2_C3D4;
const NANOSECONDS: u32 = 0xA1B2_3C4D;
pub(super) const PCAPNG: u32 = 0x0A0D_0D0A;
pub(super) const ETHERNET: u32 = 1;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The longest frame: libpcap's own limit. A length beyond it is damage, and must not make us take so much memory.
pub const LONGEST_FRAME_BYTES: u32 = 262_144;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// It is something else.
    #[error("not a pcap file: it begins with {0:#010x}")]
    Magic(u32),
    /// It is pcapng.
    #[error("a pcapng file; write it anew with `editcap -F nsecpcap`")]
    Pcapng,
    /// It does not hold Ethernet frames.
    #[error("link type {0}; expected 1 (Ethernet)")]
    LinkType(u32),
    /// A header says what cannot be.
    #[error("frame {number}: its header is damaged")]
    Damaged {
        /// Which frame, from 1.
        number: u64,
    },
    /// A frame of a pcapng file has no stamp.
    #[error("frame {number} has no time: it was saved as a simple packet block")]
    Untimed {
        /// Which frame, from 1.
        number: u64,
    },
    /// It ends within a header or a frame.
    #[error("the file ends within frame {number}")]
    Truncated {
        /// Which frame, from 1; 0 is the file's own header.
        number: u64,
    },
    /// The system would not read it.
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
    /// When it was stamped, on the clock of the file: `CLOCK_REALTIME`.
    pub at: Time,
    /// How long the frame was, where the capture cut it.
    pub original_bytes: u32,
}

/// Reads frames, one after the other. Give it a buffered input.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    is_big_endian: bool,
    /// What one unit of a stamp's fraction is, in ns.
    fraction_ns: i64,
    number: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// When it is not a pcap file of Ethernet frames.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; FILE_HEADER_BYTES];
        if !fill(&mut input, &mut header)? {
            return Err(PcapError::Truncated { number: 0 });
        }
        let magic = word(&header, 0, true);
        let (is_big_endian, fraction_ns) = match (magic, magic.swap_bytes()) {
            (MICROSECONDS, _) => (true, 1_000),
            (NANOSECONDS, _) => (true, 1),
            (_, MICROSECONDS) => (false, 1_000),
            (_, NANOSECONDS) => (false, 1),
            (PCAPNG, _) => return Err(PcapError::Pcapng),
            _ => return Err(PcapError::Magic(magic)),
        };
        // The upper bits tell of an FCS.
        let link_type = word(&header, 20, is_big_endian) & 0xFFFF;
        if link_type != ETHERNET {
            return Err(PcapError::LinkType(link_type));
        }
        Ok(Self { input, is_big_endian, fraction_ns, number: 0 })
    }

    /// Reads the next frame into `frame`, in place of what was there; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file is damaged or cut; what was read before stays good.
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
        frame.resize(length as usize, 0);
        self.input.read_exact(frame).map_err(|error| cut(error, number))?;
        let at = Time(i64::from(word(0)) * NANOS_PER_SECOND + fraction_ns);
        Ok(Some(Record { at, original_bytes: word(12) }))
    }
}

/// Writes frames, with stamps in nanoseconds.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// When the system would not write.
    pub fn new(mut output: W) -> io::Result<Self> {
        for word in [NANOSECONDS, 0x0004_0002, 0, 0, LONGEST_FRAME_BYTES, ETHERNET] {
            output.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { output })
    }

    /// Writes a frame that was stamped at `at` on `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// When the system would not write, or the time or the length cannot be in such a file.
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

    /// Writes what is held back, and returns the output.
    ///
    /// # Errors
    /// When the system would not write.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Fills `buffer`; `false` when there was nothing at all.
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
