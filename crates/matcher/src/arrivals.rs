//! Process the order of arrivals: either compute each packet's reordering, or list the arrivals for a caller that knows
//! the order of all.

use std::collections::VecDeque;

/// Processes the arrivals at the second tap of a direction, in order.
pub(crate) trait Arrivals {
    /// The memory per packet held, including growth.
    const BYTES: usize;
    /// Whether these are all arrivals: only then may a packet be decided early when none waits before it.
    const ARE_ALL: bool;
    /// Handle a matched packet, by its number in the table.
    fn matched(&mut self, number: u64) -> Arrived;
    /// Handle an arrival without a match.
    fn unmatched(&mut self);
    /// Release the oldest packet of the first tap, by its number in the table; return the number to report.
    fn release(&mut self, number: u64) -> u64;
}

/// The result of an arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// The reordering extent; 0: not reordered, or computed elsewhere.
    pub extent: u32,
    /// The value to keep with the packet until it is reported.
    pub kept: u32,
}

/// Computes the extents of reordered packets.
#[derive(Clone, Debug, Default)]
pub struct Reordering {
    /// Packets that arrived with a higher number than all before them: arrival index and number.
    maxima: VecDeque<(u32, u64)>,
    arrivals: u32,
}

impl Reordering {
    /// Handle an arrival with this number; return its reordering extent in packets (RFC 4737, 4.2.2), or 0.
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

    /// Discard state that only packets up to this number need, because none of them arrives any more.
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
