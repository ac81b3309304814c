//! Writes pcapng files: one section, one interface, timestamps in nanoseconds, and capture statistics.
//!
//! Source: `draft-ietf-opsawg-pcapng`, §4.1 to §4.6.

use std::io::{self, ErrorKind, Write};

use sojourn_time::Time;

use super::format::{Direction, LONGEST_FRAME_BYTES, PCAPNG};
use super::link::ETHERNET;
use super::ng::{BYTE_ORDER, INTERFACE, OPTION_END, OPTION_RESOLUTION, PACKET, STATISTICS};

const NANOSECONDS: u8 = 9;

const SECTION_HARDWARE: u16 = 2;
const SECTION_SYSTEM: u16 = 3;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION: u16 = 3;
const INTERFACE_FILTER: u16 = 11;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_STARTED: u16 = 2;
const STATISTICS_ENDED: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_ACCEPTED: u16 = 6;
const STATISTICS_DROPPED: u16 = 7;
const STATISTICS_DELIVERED: u16 = 8;

/// A filter as a libpcap expression, in the option for filters.
const FILTER_IN_WORDS: u8 = 0;

/// A description of where the frames were captured; empty texts are omitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Described<'a> {
    /// The machine.
    pub machine: &'a str,
    /// Its operating system.
    pub system: &'a str,
    /// The writing program.
    pub program: &'a str,
    /// The interface.
    pub interface: &'a str,
    /// How its timestamps are taken.
    pub stamps: &'a str,
    /// The filter, as a libpcap expression.
    pub filter: &'a str,
    /// The snapshot length: the most bytes kept of a frame; 0: all.
    pub snap: u32,
}

/// The counters of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The start time, on `CLOCK_REALTIME`.
    pub started: Time,
    /// The end time, on `CLOCK_REALTIME`.
    pub ended: Time,
    /// Frames that the interface counted, in both directions, where known.
    pub counted: Option<u64>,
    /// Frames that the filter accepted.
    pub accepted: u64,
    /// Accepted frames that the capture dropped.
    pub dropped: u64,
    /// Accepted frames that were captured.
    pub captured: u64,
}

/// Writes frames into a pcapng file, with timestamps in nanoseconds.
#[derive(Debug)]
pub struct NgWriter<W> {
    output: W,
    /// The block under construction.
    block: Vec<u8>,
    /// Whether it has options, which must then be terminated.
    has_options: bool,
}

impl<W: Write> NgWriter<W> {
    /// Writes the headers of the file and of its one interface.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn new(output: W) -> io::Result<Self> {
        Self::described(output, &Described::default())
    }

    /// Writes the headers of the file and of its one interface, with their descriptions.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn described(output: W, said: &Described<'_>) -> io::Result<Self> {
        let mut writer = Self { output, block: Vec::with_capacity(2048), has_options: false };
        // Version 1.0, of unknown length.
        writer.begin(&[BYTE_ORDER, 1, u32::MAX, u32::MAX]);
        let section =
            [(SECTION_HARDWARE, said.machine), (SECTION_SYSTEM, said.system), (SECTION_APPLICATION, said.program)];
        writer.texts(&section);
        writer.end(PCAPNG)?;
        writer.begin(&[ETHERNET, said.snap]);
        writer.texts(&[(INTERFACE_NAME, said.interface), (INTERFACE_DESCRIPTION, said.stamps)]);
        writer.option(OPTION_RESOLUTION, &[&[NANOSECONDS]]);
        if !said.filter.is_empty() {
            writer.option(INTERFACE_FILTER, &[&[FILTER_IN_WORDS], said.filter.as_bytes()]);
        }
        writer.end(INTERFACE)?;
        Ok(writer)
    }

    /// Writes a frame with the timestamp `at` on `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// When the system returns a write error, or the format cannot hold the time or the length.
    pub fn write(&mut self, at: Time, frame: &[u8]) -> io::Result<()> {
        self.write_cut(at, frame, frame.len())
    }

    /// Writes a truncated frame of `original` bytes with the timestamp `at` on `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_cut(&mut self, at: Time, frame: &[u8], original: usize) -> io::Result<()> {
        self.write_passed(at, frame, original, None)
    }

    /// As [`Self::write_cut`], with the frame's direction.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_passed(
        &mut self,
        at: Time,
        frame: &[u8],
        original: usize,
        direction: Option<Direction>,
    ) -> io::Result<()> {
        let length = u32::try_from(frame.len())
            .ok()
            .filter(|length| *length <= LONGEST_FRAME_BYTES)
            .ok_or_else(|| refusal("a frame of more than 262,144 bytes"))?;
        let [high, low] = halves(at)?;
        self.begin(&[0, high, low, length, u32::try_from(original).unwrap_or(u32::MAX)]);
        self.block.extend_from_slice(frame);
        self.pad();
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                Direction::In => 1,
                Direction::Out => 2,
            };
            self.option(PACKET_FLAGS, &[&flags.to_le_bytes()]);
        }
        self.end(PACKET)
    }

    /// Writes the statistics; call it after the last frame.
    ///
    /// # Errors
    /// When the system returns a write error, or the format cannot hold a time.
    pub fn write_statistics(&mut self, counted: &Statistics) -> io::Result<()> {
        let [high, low] = halves(counted.ended)?;
        self.begin(&[0, high, low]);
        for (code, at) in [(STATISTICS_STARTED, counted.started), (STATISTICS_ENDED, counted.ended)] {
            let [high, low] = halves(at)?;
            self.option(code, &[&high.to_le_bytes(), &low.to_le_bytes()]);
        }
        let counts = [
            (STATISTICS_RECEIVED, counted.counted),
            (STATISTICS_ACCEPTED, Some(counted.accepted)),
            (STATISTICS_DROPPED, Some(counted.dropped)),
            (STATISTICS_DELIVERED, Some(counted.captured)),
        ];
        for (code, count) in counts {
            if let Some(count) = count {
                self.option(code, &[&count.to_le_bytes()]);
            }
        }
        self.end(STATISTICS)
    }

    /// Returns the output.
    pub fn output(&self) -> &W {
        &self.output
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// When the system returns a write error.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    /// Starts a block with space for its type and length, followed by these words.
    fn begin(&mut self, words: &[u32]) {
        self.block.clear();
        self.block.extend_from_slice(&[0; 8]);
        words.iter().for_each(|word| self.block.extend_from_slice(&word.to_le_bytes()));
    }

    fn texts(&mut self, options: &[(u16, &str)]) {
        for (code, text) in options.iter().filter(|(_, text)| !text.is_empty()) {
            self.option(*code, &[text.as_bytes()]);
        }
    }

    /// Appends an option made of these parts, truncated to the longest option.
    fn option(&mut self, code: u16, parts: &[&[u8]]) {
        self.block.extend_from_slice(&code.to_le_bytes());
        let at = self.block.len();
        self.block.extend_from_slice(&[0; 2]);
        parts.iter().for_each(|part| self.block.extend_from_slice(part));
        self.block.truncate(at + 2 + usize::from(u16::MAX));
        let length = (self.block.len() - at - 2) as u16;
        self.block[at..at + 2].copy_from_slice(&length.to_le_bytes());
        self.pad();
        self.has_options = true;
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Completes the block and writes it.
    fn end(&mut self, kind: u32) -> io::Result<()> {
        if std::mem::take(&mut self.has_options) {
            self.block.extend_from_slice(&u32::from(OPTION_END).to_le_bytes());
        }
        let total = u32::try_from(self.block.len() + 4).map_err(|_| refusal("a block of more than 4 GiB"))?;
        self.block.extend_from_slice(&total.to_le_bytes());
        self.block[..4].copy_from_slice(&kind.to_le_bytes());
        self.block[4..8].copy_from_slice(&total.to_le_bytes());
        self.output.write_all(&self.block)
    }
}

fn halves(at: Time) -> io::Result<[u32; 2]> {
    let nanos = u64::try_from(at.0).map_err(|_| refusal("a time before 1970"))?;
    Ok([(nanos >> 32) as u32, nanos as u32])
}

fn refusal(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::Capture;

    #[test]
    fn descriptive_options_do_not_change_the_frames() {
        let said = Described {
            machine: "x86_64",
            system: "Linux 6.18",
            program: "sojourn",
            interface: "eth1",
            stamps: "kernel",
            filter: "udp port 53",
            snap: 60,
        };
        let mut writer = NgWriter::described(Vec::new(), &said).unwrap();
        writer.write_passed(Time(7), b"abcde", 900, Some(Direction::In)).unwrap();
        writer.write_passed(Time(8), b"fghi", 4, Some(Direction::Out)).unwrap();
        let counted =
            Statistics { started: Time(1), ended: Time(9), counted: Some(5), accepted: 3, dropped: 1, captured: 2 };
        writer.write_statistics(&counted).unwrap();
        let bytes = writer.finish().unwrap();
        let mut reader = Capture::new(bytes.as_slice()).unwrap();
        let mut frame = Vec::new();
        let mut next =
            || reader.next(&mut frame).unwrap().map(|record| (record.at, record.original_bytes, frame.clone()));
        assert_eq!(next(), Some((Time(7), 900, b"abcde".to_vec())));
        assert_eq!(next(), Some((Time(8), 4, b"fghi".to_vec())));
        assert_eq!(next(), None);
    }

    #[test]
    fn text_too_long_for_an_option_is_truncated() {
        let long = "x".repeat(70_000);
        let said = Described { filter: &long, ..Described::default() };
        let mut writer = NgWriter::described(Vec::new(), &said).unwrap();
        writer.write(Time(7), b"abcde").unwrap();
        let bytes = writer.finish().unwrap();
        let mut reader = Capture::new(bytes.as_slice()).unwrap();
        assert!(reader.next(&mut Vec::new()).unwrap().is_some());
    }
}
