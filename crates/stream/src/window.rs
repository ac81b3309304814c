//! Which packets of a stream have arrived: a bitmap that slides with the highest number, and the runs of packets below it.

use crate::Spread;

/// Size of the window in packets: a packet reordered by more cannot be distinguished from a duplicate with certainty.
pub const SPAN: u64 = 1 << 18;

const WORD: u64 = u64::BITS as u64;

/// The arrivals of one stream. Memory does not grow with the stream.
#[derive(Clone, Debug)]
pub struct Window {
    /// A ring: the bit of packet `n` is bit `n % 64` of word `n / 64 % length`.
    words: Box<[u64]>,
    /// The first packet that the window covers; a multiple of 64.
    base: u64,
    /// The highest number that arrived plus one: `NextExp` of RFC 4737.
    next: u64,
    /// Number of packets below the window that have not arrived.
    missed: u64,
    runs: Runs,
}

/// The classification of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether the packet had arrived before.
    pub is_duplicate: bool,
    /// Whether a packet with a higher number had arrived before.
    pub is_reordered: bool,
}

/// Lengths of runs of arrived and of missing packets, in the order of sequence numbers.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Runs of missing packets.
    pub losses: Spread,
    /// Runs of arrived packets before, between and after those.
    pub gaps: Spread,
    is_loss: bool,
    length: u64,
}

impl Default for Window {
    fn default() -> Self {
        let words = vec![0; (SPAN / WORD) as usize].into_boxed_slice();
        Self { words, base: 0, next: 0, missed: 0, runs: Runs::default() }
    }
}

impl Window {
    /// Records the arrival of a packet.
    pub fn mark(&mut self, seq: u64) -> Place {
        if seq < self.base {
            // Below the window: it counts as one of the packets still missing there, as long as there are any.
            let is_duplicate = self.missed == 0;
            self.missed -= u64::from(!is_duplicate);
            return Place { is_duplicate, is_reordered: !is_duplicate };
        }
        if seq - self.base >= SPAN {
            self.slide_to((seq - SPAN + WORD) / WORD * WORD);
        }
        let bit = 1 << (seq % WORD);
        let word = self.word(seq);
        let is_duplicate = *word & bit != 0;
        *word |= bit;
        let is_reordered = !is_duplicate && seq < self.next;
        self.next = self.next.max(seq + 1);
        Place { is_duplicate, is_reordered }
    }

    /// Returns the highest number that arrived plus one.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns all runs of a stream of `sent` packets.
    pub fn finish(mut self, sent: u64) -> Runs {
        let end = sent.max(self.next);
        let last = end / WORD * WORD;
        self.slide_to(last.max(self.base));
        let rest = *self.word(last);
        self.runs.add_bits(rest, end - last);
        self.runs.close();
        self.runs
    }

    fn word(&mut self, seq: u64) -> &mut u64 {
        let place = seq / WORD % self.words.len() as u64;
        &mut self.words[place as usize]
    }

    /// Moves the window to `base`, a multiple of 64.
    fn slide_to(&mut self, base: u64) {
        let remembered = base.min(self.base + SPAN);
        while self.base < remembered {
            let bits = std::mem::take(self.word(self.base));
            self.missed += u64::from(bits.count_zeros());
            self.runs.add_bits(bits, WORD);
            self.base += WORD;
        }
        self.missed += base - self.base;
        self.runs.add(true, base - self.base);
        self.base = base;
    }
}

impl Runs {
    /// Adds the lowest `count` bits; each is a packet that arrived (1) or did not (0).
    fn add_bits(&mut self, mut bits: u64, mut count: u64) {
        while count > 0 {
            let is_loss = bits & 1 == 0;
            let same = if is_loss { bits.trailing_zeros() } else { bits.trailing_ones() };
            let length = u64::from(same).min(count);
            self.add(is_loss, length);
            bits = bits.checked_shr(same).unwrap_or(0);
            count -= length;
        }
    }

    fn add(&mut self, is_loss: bool, length: u64) {
        if length == 0 {
            return;
        }
        if is_loss != self.is_loss {
            self.close();
            self.is_loss = is_loss;
        }
        self.length += length;
    }

    fn close(&mut self) {
        let side = if self.is_loss { &mut self.losses } else { &mut self.gaps };
        if self.length > 0 {
            side.record(i64::try_from(self.length).unwrap_or(i64::MAX));
        }
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the runs of a stream whose arrivals are all known.
    fn runs(arrived: &BTreeSet<u64>, sent: u64) -> (Vec<u64>, Vec<u64>) {
        let (mut losses, mut gaps) = (Vec::new(), Vec::new());
        let mut seq = 0;
        while seq < sent {
            let came = arrived.contains(&seq);
            let length = (seq..sent).take_while(|seq| arrived.contains(seq) == came).count() as u64;
            if came {
                gaps.push(length)
            } else {
                losses.push(length)
            }
            seq += length;
        }
        losses.sort_unstable();
        gaps.sort_unstable();
        (losses, gaps)
    }

    fn lengths(spread: &Spread) -> Vec<u64> {
        let cells = spread.cells();
        cells.iter().flat_map(|cell| std::iter::repeat_n(cell.low as u64, cell.count as usize)).collect()
    }

    proptest! {
        #[test]
        fn duplicates_and_reordering_equal_those_of_a_set(
            steps in prop::collection::vec((0..400_u64, any::<bool>()), 1..400), sent in 0..900_u64,
        ) {
            let mut window = Window::default();
            let mut arrived = BTreeSet::new();
            for (place, (seq, near)) in steps.into_iter().enumerate() {
                let seq = if near { place as u64 + seq % 8 } else { seq };
                let reordered = arrived.last().is_some_and(|last| seq < *last);
                let fresh = arrived.insert(seq);
                let place = window.mark(seq);
                prop_assert_eq!(place, Place { is_duplicate: !fresh, is_reordered: fresh && reordered });
            }
            let end = sent.max(window.next());
            let told = window.finish(sent);
            prop_assert_eq!((lengths(&told.losses), lengths(&told.gaps)), runs(&arrived, end));
        }

        #[test]
        fn sequence_jump_counts_all_numbers_between_as_lost(jump in 1..10 * SPAN) {
            let mut window = Window::default();
            window.mark(0);
            window.mark(jump);
            prop_assert_eq!(window.mark(jump).is_duplicate, true);
            let missed: Vec<_> = window.finish(jump + 1).losses.cells();
            let total = if jump > 1 { 1 } else { 0 };
            prop_assert_eq!(missed.len(), total);
            prop_assert!(missed.iter().all(|cell| (cell.low..=cell.high).contains(&(jump as i64 - 1))));
        }
    }

    #[test]
    fn packet_before_the_window_is_new_only_if_missing() {
        let mut window = Window::default();
        (0..100).filter(|seq| *seq != 7).for_each(|seq| {
            window.mark(seq);
        });
        (100..100 + 2 * SPAN).for_each(|seq| {
            window.mark(seq);
        });
        assert_eq!(window.mark(7), Place { is_duplicate: false, is_reordered: true });
        assert_eq!(window.mark(7), Place { is_duplicate: true, is_reordered: false });
    }
}
