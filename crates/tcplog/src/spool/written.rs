//! The contents of a log's files: counted record by record, repeated at the beginning of each file, and kept for files
//! that were removed.
//!
//! Also keeps the list of earlier files and removes them; it neither reads nor writes them.

use std::collections::VecDeque;
use std::path::PathBuf;

use super::{SpoolError, parts};
use crate::account::{Tally, add_both};
use crate::layout::{Sample, kind, point};

/// The contents of a log up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples of packets, ingress and egress.
    pub packets: [Tally; 2],
    /// Samples without a packet.
    pub events: u64,
    /// Private states.
    pub privates: u64,
    /// Missing records in gaps.
    pub missing: u64,
    /// Packets that the flight recorder discarded, by the final entries of their flows.
    pub forgotten: [Tally; 2],
    /// Final entries of flows.
    pub gone: u64,
}

impl Written {
    /// The number of fields in the array form.
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

    /// Return the difference from another value; 0 where that is larger.
    pub(crate) fn less(&self, other: &Self) -> Self {
        let (more, less) = (self.numbers(), other.numbers());
        Self::of(std::array::from_fn(|at| more[at].saturating_sub(less[at])))
    }

    /// Add another value.
    pub(crate) fn add(&mut self, other: &Self) {
        let (one, more) = (self.numbers(), other.numbers());
        *self = Self::of(std::array::from_fn(|at| one[at].saturating_add(more[at])));
    }

    /// Count a record of a ring.
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

/// The files before the current one.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The existing ones, the oldest first.
    parts: VecDeque<Part>,
    /// Their total size.
    bytes: u64,
    /// The contents of the removed ones.
    removed: Written,
}

/// A file that is no longer written.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: u64,
    /// The contents of the log up to its end.
    until: Written,
}

impl Earlier {
    /// Add the file that was the current one until now.
    pub(super) fn push(&mut self, path: PathBuf, bytes: u64, until: Written) {
        self.bytes += bytes;
        self.parts.push_back(Part { path, bytes, until });
    }

    /// Return how many exist.
    pub(super) fn count(&self) -> u64 {
        self.parts.len() as u64
    }

    /// Return their total size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Return the contents of the removed ones.
    pub(super) fn removed(&self) -> &Written {
        &self.removed
    }

    /// Return how many bytes [`Self::remove_beyond`] would remove.
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

    /// Remove the oldest; return whether there was one.
    pub(super) fn remove_oldest(&mut self) -> Result<bool, SpoolError> {
        let Some(oldest) = self.parts.front() else { return Ok(false) };
        parts::remove(&oldest.path)?;
        self.removed = oldest.until;
        self.bytes -= oldest.bytes;
        self.parts.pop_front();
        Ok(true)
    }

    /// Remove the oldest until the rest is at most `most` bytes.
    pub(super) fn remove_beyond(&mut self, most: u64) -> Result<(), SpoolError> {
        while self.bytes > most && self.remove_oldest()? {}
        Ok(())
    }
}
