//! Pack records: omit what equals the previous record of the same flow, because most of a control block is unchanged
//! from one packet to the next.
//!
//! A record is its length (16 bits), whether it is packed, and the index of the sample that it is packed against. A
//! packed record continues with one bit for each 32-bit word that differs, and those words; any other with its bytes
//! unchanged. The samples in memory are reset after each frame, so that a frame can be read by itself.

use crate::decode::Raw;
use crate::layout::{Sample, kind};

const WORD: usize = 4;
/// As many words as one byte of the bit map covers.
const GROUP: usize = 8 * WORD;
const GROUPS: usize = Sample::BYTES.div_ceil(GROUP);
const PADDED: usize = GROUPS * GROUP;
const HEADER: usize = 4;

/// The number of samples in memory.
const FLOWS: usize = 64;

type Words = [u8; PADDED];

/// The last sample of each flow, indexed by the last bits of its slot.
struct Memory(Box<[Words]>);

impl Default for Memory {
    fn default() -> Self {
        Self(vec![[0; PADDED]; FLOWS].into_boxed_slice())
    }
}

impl Memory {
    fn reset(&mut self) {
        self.0.fill([0; PADDED]);
    }

    fn of(&mut self, place: u8) -> &mut Words {
        &mut self.0[usize::from(place) % FLOWS]
    }
}

/// Pack records.
#[derive(Default)]
pub(super) struct Packer(Memory);

impl Packer {
    /// Begin a frame.
    pub(super) fn reset(&mut self) {
        self.0.reset();
    }

    /// Append a record; a record longer than any ring's is truncated.
    pub(super) fn put(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        length.put(to);
        if bytes.len() != Sample::BYTES || bytes[0] != kind::SAMPLE {
            [0_u8; 2].put(to);
            return to.extend_from_slice(&bytes[..usize::from(length)]);
        }
        let place = bytes[std::mem::offset_of!(Sample, slot)] % FLOWS as u8;
        [1, place].put(to);
        let mut words: Words = [0; PADDED];
        words[..Sample::BYTES].copy_from_slice(bytes);
        let mut packed = [0; GROUPS + PADDED];
        let length = put_words(&words, self.0.of(place), &mut packed);
        to.extend_from_slice(&packed[..length]);
    }
}

/// Write the bit map and the words that differ, and update the old words; return the length.
fn put_words(words: &Words, old: &mut Words, packed: &mut [u8; GROUPS + PADDED]) -> usize {
    let (map, changed) = packed.split_at_mut(GROUPS);
    let mut at = 0;
    let groups = words.chunks_exact(GROUP).zip(old.chunks_exact(GROUP));
    for (bits, (new, old)) in map.iter_mut().zip(groups) {
        if new == old {
            continue;
        }
        for (word, (new, old)) in new.chunks_exact(WORD).zip(old.chunks_exact(WORD)).enumerate() {
            // Always copied, and kept only if it differs: faster than an unpredictable branch.
            changed[at..at + WORD].copy_from_slice(new);
            let is_new = new != old;
            *bits |= u8::from(is_new) << word;
            at += usize::from(is_new) * WORD;
        }
    }
    *old = *words;
    GROUPS + at
}

/// Unpack the records of a frame.
#[derive(Default)]
pub(super) struct Unpacker(Memory);

/// The bytes are not a valid packed record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut;

impl Unpacker {
    /// Begin a frame.
    pub(super) fn reset(&mut self) {
        self.0.reset();
    }

    /// Read the next record from the front of a frame's payload; `None` at the end.
    pub(super) fn take<'a, 'p: 'a>(&'a mut self, payload: &mut &'p [u8]) -> Result<Option<&'a [u8]>, Cut> {
        if payload.is_empty() {
            return Ok(None);
        }
        let [low, high, is_packed, place] = *front::<HEADER>(payload)?;
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if is_packed == 1 {
            return if length == Sample::BYTES { self.unpack(place, payload).map(Some) } else { Err(Cut) };
        }
        let (record, rest) = payload.split_at_checked(length).ok_or(Cut)?;
        *payload = rest;
        Ok(Some(record))
    }

    fn unpack(&mut self, place: u8, payload: &mut &[u8]) -> Result<&[u8], Cut> {
        let map = *front::<GROUPS>(payload)?;
        let sample = self.0.of(place);
        for (bits, words) in map.into_iter().zip(sample.chunks_exact_mut(GROUP)) {
            let mut bits = bits;
            while bits != 0 {
                let at = bits.trailing_zeros() as usize * WORD;
                words[at..at + WORD].copy_from_slice(front::<WORD>(payload)?);
                bits &= bits - 1;
            }
        }
        Ok(&sample[..Sample::BYTES])
    }
}

/// Split off the first `N` bytes.
fn front<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], Cut> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Cut)?;
    *bytes = rest;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_record_of_another_length_is_refused() {
        let mut record = vec![0; Sample::BYTES];
        record[0] = kind::SAMPLE;
        let mut packed = Vec::new();
        Packer::default().put(&record, &mut packed);
        assert_eq!(Unpacker::default().take(&mut &packed[..]), Ok(Some(&record[..])));
        let longer = u16::try_from(Sample::BYTES + 8).unwrap();
        packed[..2].copy_from_slice(&longer.to_ne_bytes());
        assert_eq!(Unpacker::default().take(&mut &packed[..]), Err(Cut));
    }
}
