//! What was written of a log: counted record by record, said at the beginning of each file, and kept of files that were removed.
//!
//! Knows the files that are written no more, and removes them; reads and writes none.

use std::collections::VecDeque;
use std::path::PathBuf;

use super::{SpoolError, parts};
use crate::account::{Tally, add_both};
use crate::layout::{Sample, kind, point};

/// What was written of a log up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples of packets, in and out.
    pub packets: [Tally; 2],
    /// Samples of no packet.
    pub events: u64,
    /// Private states.
    pub privates: u64,
    /// Records that gaps say are missing.
    pub missing: u64,
    /// Packets that the flight recorder forgot, as the last words on their flows say.
    pub forgotten: [Tally; 2],
    /// Last words on flows.
    pub gone: u64,
}

impl Written {
    /// Numbers that make it, in a row.
    pub(super) const NUMBERS: usize = 12;

    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let tallies = [self.packets, self.forgotten].concat();
        let mut rest = [self.events, self.privates, self.missing, self.gone].into_iter();
        let mut numbers = tallies.iter().flat_map(|tally| [tally.packets, tally.segments]).chain(&mut rest);
        std::array::from_fn(|_| numbers.next().unwrap_or_default())
    }

    pub(super) fn of(numbers: [u64; Self::NUMBERS]) -> Self {
        let tally = |at: usize| Tally { packets: numbers[at], segments: numbers[at + 1] };
        let [.., events, privates, missing, gone] = numbers;
        Self { packets: [tally(0), tally(2)], forgotten: [tally(4), tally(6)], events, privates, missing, gone }
    }

    /// What this has beyond another.
    pub(crate) fn less(&self, other: &Self) -> Self {
        let (more, less) = (self.numbers(), other.numbers());
        Self::of(std::array::from_fn(|at| more[at].saturating_sub(less[at])))
    }

    /// Adds another.
    pub(crate) fn add(&mut self, other: &Self) {
        let (one, more) = (self.numbers(), other.numbers());
        *self = Self::of(std::array::from_fn(|at| one[at].saturating_add(more[at])));
    }

    /// Adds a record of a ring.
    pub(super) fn add_record(&mut self, bytes: &[u8]) {
        let at = std::mem::offset_of!(Sample, segments);
        match (bytes.first(), bytes.get(1), bytes.get(at..at + 2)) {
            (Some(&kind::SAMPLE), Some(&direction @ (point::IN | point::OUT)), Some(segments)) => {
                let segments = u16::from_ne_bytes([segments[0], segments[1]]);
                let mut one = [Tally::default(); 2];
                one[usize::from(direction).min(1)] = Tally { packets: 1, segments: segments.into() };
                add_both(&mut self.packets, one);
            }
            (Some(&kind::PRIVATE), ..) => self.privates += 1,
            _ => self.events += 1,
        }
    }
}

/// The files before the one that is written.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// Those that are there, the oldest first.
    parts: VecDeque<Part>,
    /// How long they are together.
    bytes: u64,
    /// What those had that were removed.
    removed: Written,
}

/// A file that is written no more.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: u64,
    /// What was written up to its end.
    until: Written,
}

impl Earlier {
    /// Adds the one that was written until now, with what was written up to its end.
    pub(super) fn push(&mut self, path: PathBuf, bytes: u64, until: Written) {
        self.bytes += bytes;
        self.parts.push_back(Part { path, bytes, until });
    }

    /// How many are there.
    pub(super) fn count(&self) -> u64 {
        self.parts.len() as u64
    }

    /// How long they are together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What those had that were removed.
    pub(super) fn removed(&self) -> &Written {
        &self.removed
    }

    /// Returns how much [`Self::remove_beyond`] would remove.
    pub(super) fn beyond(&self, most: u64) -> u64 {
        let mut removed = 0;
        for part in &self.parts {
            if self.bytes - removed <= most {
                break;
            }
            removed += part.bytes;
        }
        removed
    }

    /// Removes the oldest; says whether there was one.
    pub(super) fn remove_oldest(&mut self) -> Result<bool, SpoolError> {
        let Some(oldest) = self.parts.front() else { return Ok(false) };
        parts::remove(&oldest.path)?;
        self.removed = oldest.until;
        self.bytes -= oldest.bytes;
        self.parts.pop_front();
        Ok(true)
    }

    /// Removes the oldest until they are no longer than that together.
    pub(super) fn remove_beyond(&mut self, most: u64) -> Result<(), SpoolError> {
        while self.bytes > most && self.remove_oldest()? {}
        Ok(())
    }
}
