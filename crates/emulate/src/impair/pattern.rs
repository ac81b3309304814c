//! Deterministic losses: every n-th packet, or a pattern by packets or by milliseconds.

use sojourn_time::Time;

const MILLISECOND: i64 = 1_000_000;

/// Loses every `every`-th packet.
#[derive(Debug)]
pub(super) struct Every {
    every: u64,
    /// Packets until the next lost one, inclusive.
    left: u64,
}

impl Every {
    /// Makes a counter. A period of 0 loses nothing; a `first` of 0 means 1.
    pub(super) fn new(every: u64, first: u64) -> Self {
        Self { every, left: first.max(1) }
    }

    pub(super) fn meets(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.left -= 1;
        let is_lost = self.left == 0;
        if is_lost {
            self.left = self.every;
        }
        is_lost
    }
}

/// The position in a pattern by packets, which repeats.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    next: usize,
}

impl Pattern {
    /// Returns the next entry of a pattern; an empty pattern loses nothing.
    pub(super) fn meets(&mut self, lost: &[bool]) -> bool {
        let is_lost = lost.get(self.next).copied().unwrap_or(false);
        self.next = if self.next + 1 < lost.len() { self.next + 1 } else { 0 };
        is_lost
    }
}

/// The start of a pattern by milliseconds since the first packet, which repeats.
#[derive(Debug, Default)]
pub(super) struct TimePattern {
    first: Option<Time>,
}

impl TimePattern {
    /// Returns the entry at a time; an empty pattern loses nothing.
    pub(super) fn meets(&mut self, lost: &[bool], at: Time) -> bool {
        let first = *self.first.get_or_insert(at);
        let Ok(letters @ 1..) = i64::try_from(lost.len()) else {
            return false;
        };
        let letter = (at - first).0.div_euclid(MILLISECOND).rem_euclid(letters);
        lost[letter as usize]
    }
}
