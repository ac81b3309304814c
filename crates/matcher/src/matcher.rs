//! Match packets in both directions between two taps.

use crate::arrivals::Reordering;
use crate::direction::{Counts, DirectionMatcher, Limits};

/// A packet seen by a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The time for ordering and windows, ns: the packet's timestamp, or the latest before it at its tap if timestamps
    /// go backwards.
    pub at: i64,
    /// The timestamp, ns; the taps' clocks should agree as closely as possible.
    pub time: i64,
    /// The digest that identifies the packet.
    pub digest: u64,
    /// Length on the wire, without FCS. bytes.
    pub length: u32,
    /// A value that is returned to the caller.
    pub note: u8,
}

/// One of the two taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// The tap named first.
    First,
    /// The other tap.
    Second,
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// From the first tap to the second.
    #[default]
    Forward,
    /// From the second tap to the first.
    Backward,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both taps saw it.
    Matched {
        /// The packet at the tap that it passed first.
        seen: Observed,
        /// Its number among the packets sent in its direction, from 0.
        number: u64,
        /// The timestamp of the other tap.
        second: i64,
        /// The note of the other tap.
        second_note: u8,
        /// Whether another pairing was possible: the first tap saw an equal packet within the window.
        is_ambiguous: bool,
        /// Its reordering extent in packets (RFC 4737, 4.2.2); 0: it was not reordered.
        extent: u32,
    },
    /// The other tap did not see it within the window.
    Lost {
        /// The packet.
        seen: Observed,
        /// Its number, as of a match.
        number: u64,
    },
    /// Evicted before its window was over, because the memory was full.
    Evicted {
        /// The packet.
        seen: Observed,
        /// Its number, as of a match.
        number: u64,
    },
    /// Its window was open at the end.
    Pending {
        /// The packet.
        seen: Observed,
        /// Its number, as of a match.
        number: u64,
    },
    /// The second tap of its direction saw it once more than the first.
    Duplicated(Observed),
    /// Only the second tap of its direction saw it.
    Unexpected(Observed),
}

/// Matches the packets of two taps in both directions.
#[derive(Debug)]
pub struct Matcher {
    forward: DirectionMatcher<Reordering>,
    backward: DirectionMatcher<Reordering>,
}

impl Matcher {
    /// Create an empty matcher whose memory is divided among `ways` directions.
    pub fn new(limits: Limits, ways: usize) -> Self {
        let limits = Limits { memory: limits.memory / ways.max(1), ..limits };
        let matcher = || DirectionMatcher::new(limits, Reordering::default());
        Self { forward: matcher(), backward: matcher() }
    }

    /// Handle a packet of a tap in one direction; calls must be in order of [`Observed::at`] over both taps.
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

    /// Advance the time: all packets of both taps until `to` have been pushed, and the taps continue. Packets whose
    /// window is over are decided although no packet followed, and do not count as lost at the end.
    pub fn advance(&mut self, to: i64, sink: &mut impl FnMut(Way, Outcome)) {
        for (matcher, way) in [(&mut self.forward, Way::Forward), (&mut self.backward, Way::Backward)] {
            matcher.lies_within(None, Some(to));
            matcher.advance(to, &mut |outcome| sink(way, outcome));
            matcher.goes_on();
        }
    }

    /// Decide all remaining packets; no more follow.
    pub fn end(&mut self, sink: &mut impl FnMut(Way, Outcome)) {
        self.forward.end(&mut |outcome| sink(Way::Forward, outcome));
        self.backward.end(&mut |outcome| sink(Way::Backward, outcome));
    }

    /// Return the counts of a direction.
    pub fn counts(&self, way: Way) -> Counts {
        if way == Way::Forward { self.forward.counts() } else { self.backward.counts() }
    }
}
