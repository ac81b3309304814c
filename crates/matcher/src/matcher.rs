//! Both directions between two taps.

use crate::arrivals::Reordering;
use crate::direction::{Counts, DirectionMatcher, Limits};

/// A packet as a tap saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// From when on it counts: its time, or the latest before it at its tap where the tap's times go back. ns.
    pub at: i64,
    /// When, on a clock that both taps share as nearly as can be. ns.
    pub time: i64,
    /// What it is known by.
    pub digest: u64,
    /// Length on the wire, without FCS. bytes.
    pub length: u32,
    /// Whatever the caller wants back.
    pub note: u8,
}

/// Which of the two taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// The one that is named first.
    First,
    /// The other.
    Second,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// From the first tap to the second.
    #[default]
    Forward,
    /// From the second tap to the first.
    Backward,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both taps saw it.
    Matched {
        /// As it came.
        seen: Observed,
        /// Its number among those that came in its direction, from 0.
        number: u64,
        /// When the other tap saw it.
        second: i64,
        /// The note of the other tap.
        second_note: u8,
        /// Whether another pairing was possible: its tap saw its like within the window.
        is_ambiguous: bool,
        /// Its reordering extent in packets (RFC 4737, 4.2.2); 0: it was not reordered.
        extent: u32,
    },
    /// The other tap did not see it within the window.
    Lost {
        /// As it came.
        seen: Observed,
        /// As of a match.
        number: u64,
    },
    /// It was evicted before its window was over, because the memory was full.
    Evicted {
        /// As it came.
        seen: Observed,
        /// As of a match.
        number: u64,
    },
    /// Its window was open at the end.
    Pending {
        /// As it came.
        seen: Observed,
        /// As of a match.
        number: u64,
    },
    /// The tap that it should leave by saw it once more than the other.
    Duplicated(Observed),
    /// The tap that it should leave by saw it alone.
    Unexpected(Observed),
}

/// Matches what two taps saw, in both directions.
#[derive(Debug)]
pub struct Matcher {
    forward: DirectionMatcher<Reordering>,
    backward: DirectionMatcher<Reordering>,
}

impl Matcher {
    /// Begins with nothing seen. The memory is for `ways` directions.
    pub fn new(limits: Limits, ways: usize) -> Self {
        let limits = Limits { memory: limits.memory / ways.max(1), ..limits };
        let matcher = || DirectionMatcher::new(limits, Reordering::default());
        Self { forward: matcher(), backward: matcher() }
    }

    /// Takes what a tap saw, of packets that go one way, in the order in which what both taps saw counts.
    #[inline]
    pub fn push(&mut self, tap: Tap, way: Way, seen: &Observed, sink: &mut impl FnMut(Way, Outcome)) {
        let (matcher, other, is_first) = match way {
            Way::Forward => (&mut self.forward, &mut self.backward, tap == Tap::First),
            Way::Backward => (&mut self.backward, &mut self.forward, tap == Tap::Second),
        };
        let rest = if way == Way::Forward { Way::Backward } else { Way::Forward };
        if !other.is_idle() {
            other.advance(seen.at, &mut |outcome| sink(rest, outcome));
        }
        let mut sink = |outcome| sink(way, outcome);
        if is_first { matcher.first(seen, &mut sink) } else { matcher.second(seen, &mut sink) }
    }

    /// Lets time pass: all that both taps saw until then has been pushed, and they go on. What is over its window is judged although
    /// nothing came since, and is not lost at the end.
    pub fn advance(&mut self, to: i64, sink: &mut impl FnMut(Way, Outcome)) {
        for (matcher, way) in [(&mut self.forward, Way::Forward), (&mut self.backward, Way::Backward)] {
            matcher.lies_within(None, Some(to));
            matcher.advance(to, &mut |outcome| sink(way, outcome));
            matcher.goes_on();
        }
    }

    /// Judges all that is left: nothing more will come.
    pub fn end(&mut self, sink: &mut impl FnMut(Way, Outcome)) {
        self.forward.end(&mut |outcome| sink(Way::Forward, outcome));
        self.backward.end(&mut |outcome| sink(Way::Backward, outcome));
    }

    /// Returns the counts of a direction.
    pub fn counts(&self, way: Way) -> Counts {
        if way == Way::Forward { self.forward.counts() } else { self.backward.counts() }
    }
}
