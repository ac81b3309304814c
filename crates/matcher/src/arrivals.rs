//! What is made of the order in which packets arrive: how far each was reordered, or a list for whoever knows the order of all.

use std::collections::VecDeque;

/// Takes what arrives at one direction's second tap, in its order.
pub(crate) trait Arrivals {
    /// The memory that it takes for a packet that is held, growth included.
    const BYTES: usize;
    /// Whether these are all arrivals: then one may be judged before its time where none before it waits.
    const ARE_ALL: bool;
    /// Takes a packet that is matched, by its number in the table.
    fn matched(&mut self, number: u64) -> Arrived;
    /// Takes a packet that is not.
    fn unmatched(&mut self);
    /// Releases the packet of the first tap with this number in the table, the oldest; returns the number that it is reported by.
    fn release(&mut self, number: u64) -> u64;
}

/// What is known of a packet when it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Its reordering extent; 0: it was not reordered, or that is found out elsewhere.
    pub extent: u32,
    /// What is kept of it until it is reported.
    pub kept: u32,
}

/// The extents of reordered packets.
#[derive(Clone, Debug, Default)]
pub struct Reordering {
    /// Packets that arrived with a higher number than all before them: when, and with which.
    maxima: VecDeque<(u32, u64)>,
    arrivals: u32,
}

impl Reordering {
    /// Takes the number of the packet that arrives next; returns its reordering extent in packets (RFC 4737, 4.2.2), or 0.
    #[inline]
    pub fn arrive(&mut self, number: u64) -> u32 {
        let arrival = self.arrivals;
        self.arrivals = arrival.wrapping_add(1);
        if self.maxima.back().is_none_or(|(_, highest)| *highest < number) {
            self.maxima.push_back((arrival, number));
            return 0;
        }
        let after = self.maxima.partition_point(|(_, other)| *other < number);
        self.maxima.get(after).map_or(0, |(earliest, _)| arrival.wrapping_sub(*earliest))
    }

    /// Discards what only packets up to this number would be compared with: none of them arrives any more.
    #[inline]
    pub fn discard(&mut self, number: u64) {
        while self.maxima.len() > 1 && self.maxima.front().is_some_and(|(_, highest)| *highest <= number) {
            self.maxima.pop_front();
        }
    }
}

impl Arrivals for Reordering {
    const BYTES: usize = size_of::<(u32, u64)>() * 3 / 2;
    const ARE_ALL: bool = true;

    #[inline]
    fn matched(&mut self, number: u64) -> Arrived {
        let extent = self.arrive(number);
        Arrived { extent, kept: extent }
    }

    fn unmatched(&mut self) {}

    #[inline]
    fn release(&mut self, number: u64) -> u64 {
        self.discard(number);
        number
    }
}
