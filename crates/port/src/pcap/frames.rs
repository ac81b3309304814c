//! Reads every readable frame of a capture; counts the others, and reports why it ends early.

use std::io::BufRead;

use sojourn_time::Time;

use super::format::{Direction, Interface};
use super::link::to_ethernet;
use super::{Capture, PcapError};

/// Reads the frames of a capture as Ethernet frames; skips everything else.
#[derive(Debug)]
pub struct Frames<R> {
    capture: Capture<R>,
    skipped: Skipped,
    end: Option<PcapError>,
    is_over: bool,
}

/// Counts of frames that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Frames without a timestamp: simple packet blocks.
    pub untimed: u64,
    /// Frames of unsupported link types.
    pub of_other_links: u64,
    /// Frames with inconsistent blocks.
    pub malformed: u64,
}

/// The properties of a frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The timestamp, on the clock of the file: `CLOCK_REALTIME`.
    pub at: Time,
    /// Length on the wire, without FCS.
    pub wire_bytes: u32,
    /// The index of the interface in its section.
    pub interface: u32,
    /// The direction, where the capture states it.
    pub direction: Option<Direction>,
}

impl<R: BufRead> Frames<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// When it is not a capture.
    pub fn new(input: R) -> Result<Self, PcapError> {
        let capture = Capture::of_any_link(input)?;
        Ok(Self { capture, skipped: Skipped::default(), end: None, is_over: false })
    }

    /// Reads the next readable frame into `frame`, without its FCS, replacing its contents; `None` at the end.
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Option<Taken> {
        while !self.is_over {
            match self.capture.next(frame) {
                Ok(None) => self.is_over = true,
                Err(PcapError::Untimed { .. }) => self.skipped.untimed += 1,
                Err(PcapError::Malformed { .. }) => self.skipped.malformed += 1,
                Err(error) => (self.is_over, self.end) = (true, Some(error)),
                Ok(Some(record)) => {
                    let interface = self.capture.interfaces().get(record.interface as usize)?;
                    let (link_type, fcs) = (interface.link_type, interface.fcs_bytes);
                    let mut wire_bytes = record.original_bytes.max(frame.len() as u32);
                    wire_bytes = wire_bytes.saturating_sub(fcs);
                    frame.truncate(wire_bytes as usize);
                    let Some((longer, direction)) = to_ethernet(link_type, frame) else {
                        self.skipped.of_other_links += 1;
                        continue;
                    };
                    return Some(Taken {
                        at: record.at,
                        wire_bytes: wire_bytes.saturating_add_signed(longer as i32),
                        interface: record.interface,
                        direction: direction.or(record.direction),
                    });
                }
            }
        }
        None
    }

    /// Returns the interfaces of the current section.
    pub fn interfaces(&self) -> &[Interface] {
        self.capture.interfaces()
    }

    /// Returns the frames that the capture has reported lost so far, in all sections; `None`: it reports none.
    pub fn dropped(&self) -> Option<u64> {
        self.capture.dropped()
    }

    /// Returns the counts of skipped frames.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns the error that ended reading; `None` where the file ended normally, or has not ended.
    pub fn end(&self) -> Option<&PcapError> {
        self.end.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a block in either byte order.
    fn block(is_big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
        let word = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        let padded = body.len().next_multiple_of(4);
        let total = word(12 + padded as u32);
        [&word(kind)[..], &total, body, &vec![0; padded - body.len()], &total].concat()
    }

    fn words(is_big: bool, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|value| if is_big { value.to_be_bytes() } else { value.to_le_bytes() }).collect()
    }

    fn halves(is_big: bool, one: u16, other: u16) -> Vec<u8> {
        let half = |value: u16| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        [half(one), half(other)].concat()
    }

    fn section(is_big: bool) -> Vec<u8> {
        let body = [words(is_big, &[0x1A2B_3C4D]), halves(is_big, 1, 0), vec![0xFF; 8]].concat();
        block(is_big, 0x0A0D_0D0A, &body)
    }

    fn interface(is_big: bool, link: u16, name: &str, more: &[u8]) -> Vec<u8> {
        let mut title = name.as_bytes().to_vec();
        title.resize(name.len().next_multiple_of(4), 0);
        let head = [halves(is_big, link, 0), words(is_big, &[0]), halves(is_big, 2, name.len() as u16)].concat();
        block(is_big, 1, &[head, title, more.to_vec(), halves(is_big, 0, 0)].concat())
    }

    fn packet(is_big: bool, interface: u32, micros: u32, frame: &[u8], flags: Option<u32>) -> Vec<u8> {
        let length = frame.len() as u32;
        let mut body = words(is_big, &[interface, 0, micros, length, length]);
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        if let Some(flags) = flags {
            body.extend([halves(is_big, 2, 4), words(is_big, &[flags]), halves(is_big, 0, 0)].concat());
        }
        block(is_big, 6, &body)
    }

    type Read = Vec<(Taken, Vec<u8>)>;

    fn all(bytes: &[u8]) -> (Read, Frames<&[u8]>) {
        let mut frames = Frames::new(bytes).unwrap();
        let (mut read, mut frame) = (Vec::new(), Vec::new());
        while let Some(taken) = frames.next(&mut frame) {
            read.push((taken, frame.clone()));
        }
        (read, frames)
    }

    #[test]
    fn readable_frames_are_returned_and_the_others_counted() {
        for is_big in [true, false] {
            let fcs = [halves(is_big, 13, 1), vec![4, 0, 0, 0]].concat();
            let resolution = [halves(is_big, 9, 1), vec![9, 0, 0, 0]].concat();
            let statistics = |dropped: u32| {
                let count = if is_big { [0, dropped] } else { [dropped, 0] };
                let option = |code| [halves(is_big, code, 8), words(is_big, &count)].concat();
                block(is_big, 5, &[words(is_big, &[0, 0, 0]), option(5), option(7)].concat())
            };
            let file = [
                section(is_big),
                interface(is_big, 1, "eth1", &[]),
                interface(is_big, 1, "eth22", &fcs),
                interface(is_big, 105, "wlan", &[]),
                interface(is_big, 276, "any", &resolution),
                packet(is_big, 0, 5, &[1; 60], Some(1)),
                packet(is_big, 1, 6, &[2; 64], Some(0xF2)),
                packet(is_big, 2, 7, &[3; 60], None),
                block(is_big, 3, &words(is_big, &[1, 9])),
                packet(is_big, 9, 8, &[4; 60], None),
                packet(
                    is_big,
                    3,
                    9,
                    &[&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 1, 2, 3, 4, 5, 6, 0, 0][..], &[0x45; 20]].concat(),
                    None,
                ),
                statistics(2),
                statistics(5),
                packet(is_big, 0, 10, &[5; 60], None),
                block(is_big, 6, &[0; 8]),
                vec![6, 6, 6],
            ];
            let file = file.concat();
            let (read, frames) = all(&file);
            let told: Vec<_> = read
                .iter()
                .map(|(taken, frame)| (taken.at.0, taken.wire_bytes, taken.direction, frame.len()))
                .collect();
            let expected = [
                (5_000, 60, Some(Direction::In), 60),
                (6_000, 60, Some(Direction::Out), 60),
                (9, 34, Some(Direction::Out), 34),
                (10_000, 60, None, 60),
            ];
            assert_eq!(told, expected);
            assert_eq!(read[2].1[12..15], [8, 0, 0x45]);
            assert_eq!(frames.skipped(), Skipped { untimed: 1, of_other_links: 1, malformed: 2 });
            assert!(matches!(frames.end(), Some(PcapError::Truncated { .. })), "{:?}", frames.end());
            let about: Vec<_> =
                frames.interfaces().iter().map(|interface| (interface.name.as_str(), interface.dropped)).collect();
            assert_eq!(about, [("eth1", Some(10)), ("eth22", None), ("wlan", None), ("any", None)]);
            assert_eq!(frames.dropped(), Some(10));
            // Losses of earlier sections still count.
            let twice = [&file[..file.len() - 3], &section(is_big), &interface(is_big, 1, "eth1", &[]), &statistics(3)];
            assert_eq!(all(&twice.concat()).1.dropped(), Some(16));
        }
    }

    #[test]
    fn pcap_files_of_all_variants_are_parsed() {
        let packet = [0x45; 20];
        for (magic, more, nanos) in [(0xA1B2_C3D4, 0, 7_000), (0xA1B2_3C4D, 0, 7), (0xA1B2_CD34_u32, 8, 7_000)] {
            for is_big in [true, false] {
                for (link, before, wire) in
                    [(1, 14, 34), (101, 0, 34), (228, 0, 34), (0, 4, 34), (113, 16, 34), (0x3400_0001, 14, 28)]
                {
                    let mut frame = vec![0; before];
                    frame.extend(packet);
                    let length = frame.len() as u32;
                    let bytes = [
                        words(is_big, &[magic, 0, 0, 0, 65_535, link]),
                        words(is_big, &[3, 7, length, length]),
                        vec![0; more],
                        frame,
                    ]
                    .concat();
                    let (read, frames) = all(&bytes);
                    assert!(frames.end().is_none());
                    assert_eq!((read[0].0.at.0, read[0].0.wire_bytes), (3_000_000_000 + nanos, wire), "{link}");
                    let direction = (link == 113).then_some(Direction::In);
                    assert_eq!((read[0].1.len() as u32, read[0].0.direction), (wire, direction));
                    assert_eq!(frames.interfaces()[0].most_bytes, 65_535);
                }
            }
        }
    }
}
