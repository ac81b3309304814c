//! The pcapng file format, as Wireshark writes it: all byte orders and timestamp resolutions.
//!
//! Source: `draft-ietf-opsawg-pcapng`. `ng_writer` writes it. Reads sections, interfaces, packets and statistics; skips
//! all other blocks.

use std::io::{BufRead, Read};

use sojourn_time::Time;

use super::format::{Direction, Interface, LONGEST_FRAME_BYTES, PCAPNG, Reader, Record, cut, fill};
use super::link::ETHERNET;
use super::{PcapError, format};

pub(super) const BYTE_ORDER: u32 = 0x1A2B_3C4D;
pub(super) const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;
pub(super) const OPTION_END: u16 = 0;
/// Options of an interface.
const OPTION_NAME: u16 = 2;
pub(super) const OPTION_RESOLUTION: u16 = 9;
const OPTION_FCS: u16 = 13;
const OPTION_OFFSET: u16 = 14;
/// An option of a packet; its two lowest bits state the direction.
const OPTION_FLAGS: u16 = 2;
/// Options of statistics: frames that the interface and the system dropped.
const OPTION_DROPPED: [u16; 2] = [5, 7];
/// More interfaces mean damage, and must not make the reader allocate so much.
const MOST_INTERFACES: usize = 1 << 16;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// A longer block means damage, and must not make the reader allocate so much.
const LONGEST_BLOCK_BYTES: u32 = 1 << 24;

/// Reads a capture file of either format. Give it a buffered input.
#[derive(Debug)]
pub enum Capture<R> {
    /// pcap.
    Pcap(Reader<R>),
    /// pcapng.
    Pcapng(NgReader<R>),
}

impl<R: BufRead> Capture<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// When it has neither format, or holds no Ethernet frames.
    pub fn new(input: R) -> Result<Self, PcapError> {
        let mut capture = Self::of_any_link(input)?;
        match &mut capture {
            Self::Pcap(reader) => match reader.interfaces() {
                [interface] if interface.link_type != ETHERNET => Err(PcapError::LinkType(interface.link_type)),
                _ => Ok(capture),
            },
            Self::Pcapng(reader) => {
                reader.is_ethernet_alone = true;
                Ok(capture)
            }
        }
    }

    /// Reads the file's header; accepts any link type.
    ///
    /// # Errors
    /// When it has neither format.
    pub fn of_any_link(mut input: R) -> Result<Self, PcapError> {
        if input.fill_buf()?.starts_with(&PCAPNG.to_be_bytes()) {
            NgReader::new(input).map(Self::Pcapng)
        } else {
            Reader::of_any_link(input).map(Self::Pcap)
        }
    }

    /// Returns the interfaces described so far in the current section.
    pub fn interfaces(&self) -> &[Interface] {
        match self {
            Self::Pcap(reader) => reader.interfaces(),
            Self::Pcapng(reader) => &reader.interfaces,
        }
    }

    /// Returns the frames that the capture has reported lost so far; `None`: it reports none.
    pub fn dropped(&self) -> Option<u64> {
        match self {
            Self::Pcap(_) => None,
            Self::Pcapng(reader) => reader.dropped(),
        }
    }

    /// Reads the next frame into `frame`, replacing its contents; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file is damaged or truncated; earlier frames remain valid.
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, PcapError> {
        match self {
            Self::Pcap(reader) => reader.next(frame),
            Self::Pcapng(reader) => reader.next(frame),
        }
    }
}

/// Reads frames of a pcapng file.
#[derive(Debug)]
pub struct NgReader<R> {
    input: R,
    is_big_endian: bool,
    interfaces: Vec<Interface>,
    body: Vec<u8>,
    is_ethernet_alone: bool,
    /// Frames that the interfaces of earlier sections dropped; `None`: not reported.
    dropped_before: Option<u64>,
    /// The number of frames read.
    number: u64,
}

impl<R: Read> NgReader<R> {
    /// Reads the first section's header.
    ///
    /// # Errors
    /// When it is not a pcapng file.
    pub fn new(input: R) -> Result<Self, PcapError> {
        let (interfaces, body) = (Vec::new(), Vec::new());
        let mut reader = Self {
            input,
            is_big_endian: false,
            interfaces,
            body,
            is_ethernet_alone: false,
            dropped_before: None,
            number: 0,
        };
        match reader.block()? {
            Some(PCAPNG) => Ok(reader),
            Some(other) => Err(PcapError::Magic(other)),
            None => Err(PcapError::Truncated { number: 0 }),
        }
    }

    /// Reads the next frame, as [`Capture::next`].
    ///
    /// # Errors
    /// As [`Capture::next`].
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, PcapError> {
        loop {
            match self.block()? {
                None => return Ok(None),
                Some(INTERFACE) => self.interface()?,
                Some(PACKET) => return self.packet(frame, 0).map(Some),
                // The interface has 16 bits here; the other 16 count drops.
                Some(OLD_PACKET) => return self.packet(frame, 16).map(Some),
                Some(SIMPLE_PACKET) => {
                    self.number += 1;
                    return Err(PcapError::Untimed { number: self.number });
                }
                Some(STATISTICS) => self.statistics(),
                Some(_) => {}
            }
        }
    }

    /// Returns the frames that all interfaces of all sections report dropped; `None`: not reported.
    pub fn dropped(&self) -> Option<u64> {
        let said = self.interfaces.iter().filter_map(|interface| interface.dropped);
        self.dropped_before.into_iter().chain(said).reduce(u64::saturating_add)
    }

    /// Reads a block into `body`, without its type and lengths, and returns its type; `None` at the end of the file.
    fn block(&mut self) -> Result<Option<u32>, PcapError> {
        let number = self.number + 1;
        let mut head = [0; 8];
        match fill(&mut self.input, &mut head) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return Err(cut(error, number)),
        }
        let [kind, mut length] = [0, 4].map(|at| format::word(&head, at, self.is_big_endian));
        let mut taken = 8;
        self.body.clear();
        // This type is the same in both byte orders.
        if kind == PCAPNG {
            let mut magic = [0; 4];
            self.input.read_exact(&mut magic).map_err(|error| cut(error, number))?;
            self.is_big_endian = match u32::from_be_bytes(magic) {
                BYTE_ORDER => true,
                other if other.swap_bytes() == BYTE_ORDER => false,
                other => return Err(PcapError::Magic(other)),
            };
            length = format::word(&head, 4, self.is_big_endian);
            self.dropped_before = self.dropped();
            self.interfaces.clear();
            taken = 12;
        }
        if length % 4 != 0 || length < taken + 4 || length > LONGEST_BLOCK_BYTES {
            return Err(PcapError::Damaged { number });
        }
        self.body.resize((length - taken) as usize, 0);
        self.input.read_exact(&mut self.body).map_err(|error| cut(error, number))?;
        let at = self.body.len() - 4;
        if self.word(at) != Some(length) {
            return Err(PcapError::Damaged { number });
        }
        self.body.truncate(at);
        Ok(Some(kind))
    }

    /// Parses the description of an interface.
    fn interface(&mut self) -> Result<(), PcapError> {
        let damaged = PcapError::Damaged { number: self.number + 1 };
        let (Some(link_type), Some(most_bytes)) = (self.half(0), self.word(4)) else { return Err(damaged) };
        if self.interfaces.len() == MOST_INTERFACES {
            return Err(damaged);
        }
        let mut interface = Interface {
            name: String::new(),
            link_type: u32::from(link_type),
            most_bytes,
            fcs_bytes: 0,
            per_second: 1_000_000,
            offset: 0,
            dropped: None,
        };
        let mut at = 8;
        while let (Some(code), Some(length)) = (self.half(at), self.half(at + 2)) {
            let value = self.body.get(at + 4..at + 4 + usize::from(length));
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_NAME, Some(name)) => interface.name = String::from_utf8_lossy(name).into_owned(),
                (OPTION_FCS, Some(&[octets])) => interface.fcs_bytes = octets.into(),
                (OPTION_RESOLUTION, Some(&[power])) => match resolution(power) {
                    Some(per_second) => interface.per_second = per_second,
                    None => return Err(damaged),
                },
                (OPTION_OFFSET, Some(bytes)) => {
                    let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| damaged_at(self.number))?;
                    interface.offset =
                        if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                (_, None) => return Err(damaged),
                _ => {}
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Parses the drops of an interface; each such block holds the total since the capture began.
    fn statistics(&mut self) {
        let Some(index) = self.word(0) else { return };
        let mut dropped = None;
        let mut at = 12;
        while let (Some(code), Some(length)) = (self.half(at), self.half(at + 2)) {
            if let (true, 8, Some(low), Some(high)) =
                (OPTION_DROPPED.contains(&code), length, self.word(at + 4), self.word(at + 8))
            {
                let (low, high) = if self.is_big_endian { (high, low) } else { (low, high) };
                let more = u64::from(high) << 32 | u64::from(low);
                dropped = Some(dropped.unwrap_or(0_u64).saturating_add(more));
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        if let Some(interface) = self.interfaces.get_mut(index as usize) {
            interface.dropped = interface.dropped.max(dropped);
        }
    }

    /// Reads the direction from a packet's options, which begin at `at`.
    fn direction(&self, mut at: usize) -> Option<Direction> {
        while let (Some(code), Some(length)) = (self.half(at), self.half(at + 2)) {
            match (code, length) {
                (OPTION_END, _) => return None,
                (OPTION_FLAGS, 4) => {
                    return match self.word(at + 4)? & 3 {
                        1 => Some(Direction::In),
                        2 => Some(Direction::Out),
                        _ => None,
                    };
                }
                _ => at += 4 + usize::from(length).next_multiple_of(4),
            }
        }
        None
    }

    /// Parses a frame from a block; the lowest `dropped` bits of its first word are not part of the interface's index.
    fn packet(&mut self, frame: &mut Vec<u8>, dropped: u32) -> Result<Record, PcapError> {
        self.number += 1;
        let damaged = || PcapError::Malformed { number: self.number };
        let index = if dropped == 0 { self.word(0) } else { self.half(0).map(u32::from) }.ok_or_else(damaged)?;
        let [high, low, length, original_bytes] =
            [4, 8, 12, 16].map(|at| self.word(at)).map(|word| word.ok_or_else(damaged));
        let (length, original_bytes) = (length?, original_bytes?);
        let interface = self.interfaces.get(index as usize).ok_or_else(damaged)?;
        if self.is_ethernet_alone && interface.link_type != ETHERNET {
            return Err(PcapError::LinkType(interface.link_type));
        }
        let bytes = self.body.get(20..20 + length as usize).filter(|_| length <= LONGEST_FRAME_BYTES);
        frame.clear();
        frame.extend_from_slice(bytes.ok_or_else(damaged)?);
        let units = u64::from(high?) << 32 | u64::from(low?);
        Ok(Record {
            at: interface.time(units).ok_or_else(damaged)?,
            original_bytes,
            interface: index,
            direction: self.direction(20 + (length as usize).next_multiple_of(4)),
        })
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes: [u8; 4] = self.body.get(at..at + 4)?.try_into().ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn half(&self, at: usize) -> Option<u16> {
        let bytes: [u8; 2] = self.body.get(at..at + 2)?.try_into().ok()?;
        Some(if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }
}

fn damaged_at(before: u64) -> PcapError {
    PcapError::Damaged { number: before + 1 }
}

/// Returns the number of timestamp units per second.
fn resolution(power: u8) -> Option<u64> {
    let exponent = u32::from(power & 0x7F);
    if power & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent).filter(|_| exponent < 64) }
}

impl Interface {
    /// Converts a timestamp; `None` where it is out of range.
    fn time(&self, units: u64) -> Option<Time> {
        if self.per_second == 1_000_000_000 && self.offset == 0 {
            return i64::try_from(units).ok().map(Time);
        }
        let nanos = i128::from(units) * NANOS_PER_SECOND / i128::from(self.per_second);
        i64::try_from(nanos + i128::from(self.offset) * NANOS_PER_SECOND).ok().map(Time)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pcap::NgWriter;

    fn read_all(bytes: &[u8]) -> (Vec<(Time, Vec<u8>)>, Option<PcapError>) {
        let (mut frames, mut frame) = (Vec::new(), Vec::new());
        let mut reader = match Capture::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (frames, Some(error)),
        };
        loop {
            match reader.next(&mut frame) {
                Ok(Some(record)) => frames.push((record.at, frame.clone())),
                Ok(None) => return (frames, None),
                Err(error) => return (frames, Some(error)),
            }
        }
    }

    fn written(frames: &[(Time, Vec<u8>)]) -> Vec<u8> {
        let mut writer = NgWriter::new(Vec::new()).unwrap();
        frames.iter().for_each(|(at, frame)| writer.write(*at, frame).unwrap());
        writer.finish().unwrap()
    }

    fn frames() -> impl Strategy<Value = Vec<(Time, Vec<u8>)>> {
        let frame = (0..i64::MAX, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(at, bytes)| (Time(at), bytes));
        prop::collection::vec(frame, 0..20)
    }

    proptest! {
        #[test]
        fn frames_round_trip_through_the_file(frames in frames()) {
            let (read, error) = read_all(&written(&frames));
            prop_assert_eq!(read, frames);
            prop_assert!(error.is_none());
        }

        #[test]
        fn foreign_bytes_never_panic(
            frames in frames(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            keep: prop::sample::Index,
        ) {
            let mut bytes = written(&frames);
            for (place, value) in damage {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            bytes.truncate(keep.index(bytes.len() + 1));
            let _ = read_all(&bytes);
        }
    }

    /// Builds a block of a big-endian file.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let total = (12 + body.len().next_multiple_of(4)) as u32;
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        [&kind.to_be_bytes()[..], &total.to_be_bytes(), body, &padding, &total.to_be_bytes()].concat()
    }

    #[test]
    fn byte_order_binary_resolution_and_time_offset_are_honoured() {
        let section = block(PCAPNG, &[&BYTE_ORDER.to_be_bytes()[..], &[0, 1, 0, 0], &[0xFF; 8]].concat());
        // Timestamps in 2⁻¹⁰ s, an offset of 100 s, and a name.
        let options = [
            &[0, 2, 0, 3, b'e', b't', b'h', 0][..],
            &[0, 9, 0, 1, 0x8A, 0, 0, 0],
            &[0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 100],
            &[0, 0, 0, 0],
        ];
        let interface = block(INTERFACE, &[&[0, 1, 0, 0, 0, 0, 0, 0][..], &options.concat()].concat());
        let packet = block(PACKET, &[&[0; 8][..], &[0, 0, 8, 0], &[0, 0, 0, 5], &[0, 0, 0, 9], b"abcde"].concat());
        let file = [section, interface, block(0x0BAD, b"unknown"), packet].concat();
        let (read, error) = read_all(&file);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(read, [(Time(102_000_000_000), b"abcde".to_vec())]);
    }

    #[test]
    fn too_many_interfaces_and_too_long_blocks_are_refused() {
        let section = block(PCAPNG, &[&BYTE_ORDER.to_be_bytes()[..], &[0, 1, 0, 0], &[0xFF; 8]].concat());
        let with = |interfaces: usize| {
            let mut file = section.clone();
            (0..interfaces).for_each(|_| file.extend(block(INTERFACE, &[0, 1, 0, 0, 0, 0, 0, 0])));
            read_all(&file).1
        };
        assert!(with(MOST_INTERFACES).is_none());
        assert!(matches!(with(MOST_INTERFACES + 1), Some(PcapError::Damaged { number: 1 })));
        let of_length = |length: u32| {
            read_all(&[&section[..], &0x0BAD_u32.to_be_bytes(), &length.to_be_bytes(), &[0; 64]].concat()).1
        };
        assert!(matches!(of_length(LONGEST_BLOCK_BYTES), Some(PcapError::Truncated { .. })));
        assert!(matches!(of_length(LONGEST_BLOCK_BYTES + 4), Some(PcapError::Damaged { number: 1 })));
    }

    #[test]
    fn frame_without_timestamp_and_unknown_link_type_are_errors() {
        let section = block(PCAPNG, &[&BYTE_ORDER.to_be_bytes()[..], &[0, 1, 0, 0], &[0xFF; 8]].concat());
        let simple =
            [section.clone(), block(INTERFACE, &[0, 1, 0, 0, 0, 0, 0, 0]), block(SIMPLE_PACKET, b"\0\0\0\x01a")];
        assert!(matches!(read_all(&simple.concat()).1, Some(PcapError::Untimed { number: 1 })));
        let wireless = block(INTERFACE, &[0, 105, 0, 0, 0, 0, 0, 0]);
        let other = [section, wireless, block(PACKET, &[0; 20])].concat();
        assert!(matches!(read_all(&other).1, Some(PcapError::LinkType(105))));
    }
}
