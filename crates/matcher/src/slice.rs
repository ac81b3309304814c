//! Some of what two taps saw: all packets of some digests, matched as they are among all others.
//!
//! Which packets a packet is matched with depends on those with its digest alone, and on time. What depends on all packets is
//! given from outside: how they are numbered, how far time has gone on, when the taps began and ended. Reordering depends on
//! all that arrive; so a slice says which packet arrived as which, and [`crate::Reordering`] takes that of all slices in order.

use std::collections::VecDeque;

use crate::arrivals::{Arrivals, Arrived};
use crate::direction::{Counts, DirectionMatcher, Limits};
use crate::matcher::{Observed, Outcome, Tap, Way};

/// A packet that the second tap of its direction saw, once it is known what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number among all that this tap saw in this direction, from 0.
    pub rank: u64,
    /// The number of the packet that it is, among all that came in this direction; `None`: it is a copy, or unexpected.
    pub number: Option<u64>,
}

/// When what both taps saw began and ended, each direction for itself; `None` where nothing was seen. ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The last packet at all.
    pub last: Option<i64>,
    /// The first packet that came, forward and backward.
    pub came_first: [Option<i64>; 2],
    /// The last packet that left, forward and backward.
    pub left_last: [Option<i64>; 2],
}

/// Lists arrivals by the numbers that packets have among all.
#[derive(Debug, Default)]
struct Listed {
    /// The numbers of the packets that the table holds.
    numbers: VecDeque<u64>,
    /// The number of the first of them in the table.
    base: u64,
    /// The ranks of packets that have not been judged.
    ranks: VecDeque<u64>,
    judged: Vec<Arrival>,
    /// The rank of the one that was judged last.
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
    // Its number, and its rank where it waits.
    const BYTES: usize = 2 * size_of::<u64>() * 3 / 2;
    const ARE_ALL: bool = false;

    fn matched(&mut self, number: u64) -> Arrived {
        let place = number.checked_sub(self.base).and_then(|place| usize::try_from(place).ok());
        let number = place.and_then(|place| self.numbers.get(place).copied());
        // All but the low half is found again by what was judged since.
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

/// Matches the packets of some digests.
#[derive(Debug)]
pub struct Slice {
    matchers: [DirectionMatcher<Listed>; 2],
}

impl Slice {
    /// Begins with nothing seen. The memory is for `ways` directions.
    pub fn new(limits: Limits, ways: usize) -> Self {
        let limits = Limits { memory: limits.memory / ways.max(1), ..limits };
        Self { matchers: [0, 1].map(|_| DirectionMatcher::new(limits, Listed::default())) }
    }

    /// Takes what a tap saw, as [`crate::Matcher::push`] does, and its number among all that this tap saw in this direction.
    /// A match is reported with the low half of its rank in place of its extent: see [`Self::rank`].
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

    /// Lets time pass until the last packet that any slice has been given.
    pub fn advance(&mut self, to: i64, sink: &mut impl FnMut(Way, Outcome)) {
        for way in [Way::Forward, Way::Backward] {
            self.matchers[place(way)].advance(to, &mut |outcome| sink(way, outcome));
        }
    }

    /// Says when all began and until when it went on, as far as that is known.
    pub fn lies_within(&mut self, ends: &Ends) {
        for (place, matcher) in self.matchers.iter_mut().enumerate() {
            matcher.lies_within(ends.came_first[place], ends.left_last[place]);
        }
    }

    /// Judges all that is left: no slice is given more.
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

    /// Moves the packets that were judged since to `into`, in the order in which they were seen.
    pub fn arrivals(&mut self, way: Way, into: &mut Vec<Arrival>) {
        into.append(&mut self.matchers[place(way)].arrivals().judged);
    }

    /// Returns the rank of a packet that was reported, by the low half of it.
    pub fn rank(&mut self, way: Way, low: u32) -> u64 {
        let latest = self.matchers[place(way)].arrivals().latest;
        latest - u64::from((latest as u32).wrapping_sub(low))
    }

    /// Returns the counts of a direction, without reordering; what was lost at the end is that where the end was known from the
    /// beginning.
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
