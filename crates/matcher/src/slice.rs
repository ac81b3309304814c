//! Match a slice: all packets with certain digests, with the same result as among all packets.
//!
//! The match of a packet depends only on packets with its digest, and on time. What depends on all packets is passed
//! in: their numbers, the current time, and when the taps began and ended. Reordering depends on all arrivals, so a
//! slice lists which packet arrived at which rank; [`crate::Reordering`] takes the lists of all slices in order.

use std::collections::VecDeque;

use crate::arrivals::{Arrivals, Arrived};
use crate::direction::{Counts, DirectionMatcher, Limits};
use crate::matcher::{Observed, Outcome, Tap, Way};

/// A packet of the second tap of its direction, once its match is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number among all packets of this tap in this direction, from 0.
    pub rank: u64,
    /// The number of its match among all packets sent in this direction; `None`: it is a duplicate or unexpected.
    pub number: Option<u64>,
}

/// The times in ns at which the captures of both taps began and ended, in each direction; `None` if nothing was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The last packet of both taps.
    pub last: Option<i64>,
    /// The first packet of the first tap, forward and backward.
    pub came_first: [Option<i64>; 2],
    /// The last packet of the second tap, forward and backward.
    pub left_last: [Option<i64>; 2],
}

/// Lists arrivals by packet numbers among all packets.
#[derive(Debug, Default)]
struct Listed {
    /// The numbers of the packets in the table.
    numbers: VecDeque<u64>,
    /// The table's number of the first of them.
    base: u64,
    /// The ranks of packets that are not decided yet.
    ranks: VecDeque<u64>,
    judged: Vec<Arrival>,
    /// The rank of the packet decided last.
    latest: u64,
}

impl Listed {
    fn judge(&mut self, number: Option<u64>) -> u64 {
        let rank = self.ranks.pop_front().unwrap_or(self.latest);
        self.latest = rank;
        self.judged.push(Arrival { rank, number });
        rank
    }
}

impl Arrivals for Listed {
    // Its number, and its rank while it waits.
    const BYTES: usize = 2 * size_of::<u64>() * 3 / 2;
    const ARE_ALL: bool = false;

    fn matched(&mut self, number: u64) -> Arrived {
        let place = number.checked_sub(self.base).and_then(|place| usize::try_from(place).ok());
        let number = place.and_then(|place| self.numbers.get(place).copied());
        // The low half is sufficient: the rest follows from the ranks decided since.
        Arrived { extent: 0, kept: self.judge(number) as u32 }
    }

    fn unmatched(&mut self) {
        self.judge(None);
    }

    fn release(&mut self, number: u64) -> u64 {
        self.base = number + 1;
        self.numbers.pop_front().unwrap_or(number)
    }
}

/// Matches the packets with certain digests.
#[derive(Debug)]
pub struct Slice {
    matchers: [DirectionMatcher<Listed>; 2],
}

impl Slice {
    /// Create an empty slice whose memory is divided among `ways` directions.
    pub fn new(limits: Limits, ways: usize) -> Self {
        let limits = Limits { memory: limits.memory / ways.max(1), ..limits };
        Self { matchers: [0, 1].map(|_| DirectionMatcher::new(limits, Listed::default())) }
    }

    /// Handle a packet of a tap as [`crate::Matcher::push`] does, with its number among all packets of this tap in this
    /// direction. In a match, the extent is replaced by the low half of the rank: see [`Self::rank`].
    pub fn push(&mut self, tap: Tap, way: Way, seen: &Observed, number: u64, sink: &mut impl FnMut(Way, Outcome)) {
        let matcher = &mut self.matchers[place(way)];
        let mut sink = |outcome| sink(way, outcome);
        if (way == Way::Forward) == (tap == Tap::First) {
            matcher.advance(seen.at, &mut sink);
            matcher.arrivals().numbers.push_back(number);
            matcher.first(seen, &mut sink);
        } else {
            matcher.advance(seen.at, &mut sink);
            matcher.arrivals().ranks.push_back(number);
            matcher.second(seen, &mut sink);
        }
    }

    /// Advance the time to the last packet of any slice.
    pub fn advance(&mut self, to: i64, sink: &mut impl FnMut(Way, Outcome)) {
        for way in [Way::Forward, Way::Backward] {
            self.matchers[place(way)].advance(to, &mut |outcome| sink(way, outcome));
        }
    }

    /// Set when the taps began and ended, as far as that is known.
    pub fn lies_within(&mut self, ends: &Ends) {
        for (place, matcher) in self.matchers.iter_mut().enumerate() {
            matcher.lies_within(ends.came_first[place], ends.left_last[place]);
        }
    }

    /// Decide all remaining packets; no slice gets more.
    pub fn end(&mut self, ends: &Ends, sink: &mut impl FnMut(Way, Outcome)) {
        self.lies_within(ends);
        for way in [Way::Forward, Way::Backward] {
            let (matcher, mut sink) = (&mut self.matchers[place(way)], |outcome| sink(way, outcome));
            if let Some(last) = ends.last {
                matcher.advance(last, &mut sink);
            }
            matcher.end(&mut sink);
        }
    }

    /// Move the packets decided since the last call to `into`, in the order in which they were seen.
    pub fn arrivals(&mut self, way: Way, into: &mut Vec<Arrival>) {
        into.append(&mut self.matchers[place(way)].arrivals().judged);
    }

    /// Return the rank of a reported packet from its low half.
    pub fn rank(&mut self, way: Way, low: u32) -> u64 {
        let latest = self.matchers[place(way)].arrivals().latest;
        latest - u64::from((latest as u32).wrapping_sub(low))
    }

    /// Return the counts of a direction, without reordering. Loss at the end is correct only if the end was known from
    /// the beginning.
    pub fn counts(&self, way: Way) -> Counts {
        self.matchers[place(way)].counts()
    }
}

const fn place(way: Way) -> usize {
    match way {
        Way::Forward => 0,
        Way::Backward => 1,
    }
}
