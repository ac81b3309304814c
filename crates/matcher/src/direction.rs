//! Match one direction between two taps: the first tap that packets pass, and the second.

use std::collections::VecDeque;
use std::ops::Add;

use crate::arrivals::Arrivals;
use crate::matcher::{Observed, Outcome};
use crate::table::{BYTES_PER_ENTRY, Found, OPEN, Table};

/// Bounds on delay, clock difference and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum delay in ns: a packet that takes longer counts as lost, and as unexpected when it arrives.
    pub window: i64,
    /// The maximum time in ns by which a packet may appear to arrive before it was sent, because the taps' clocks
    /// differ; 0: one clock.
    pub ahead: i64,
    /// The memory limit in bytes for packets held, both directions together.
    pub memory: usize,
}

/// The packet counts of one direction. `seen_first = matched + lost + evicted + pending + open`, where `open` is 0
/// after the end; `seen_second = matched + duplicated + unexpected + waiting`, likewise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets seen by the first tap.
    pub seen_first: u64,
    /// Packets seen by the second tap.
    pub seen_second: u64,
    /// Packets seen by both.
    pub matched: u64,
    /// Of the matched: another pairing was possible.
    pub ambiguous: u64,
    /// Of the matched: evicted before their window was over, because the memory was full. Whether they are ambiguous is
    /// unknown, and their duplicates count as unexpected.
    pub matched_early: u64,
    /// Of the matched: their window was open at the end.
    pub matched_at_end: u64,
    /// Of the matched: received after a packet that was sent later (RFC 4737).
    pub reordered: u64,
    /// The largest reordering extent, in packets (RFC 4737, 4.2.2).
    pub reordering_extent_max: u32,
    /// Packets not seen by the second tap within the window.
    pub lost: u64,
    /// Of the lost: seen by the first tap after the last packet of the second tap.
    pub lost_at_end: u64,
    /// Unmatched packets evicted before their window was over, because the memory was full.
    pub evicted: u64,
    /// Unmatched packets whose window was open at the end.
    pub pending: u64,
    /// Packets that the second tap saw more often than the first.
    pub duplicated: u64,
    /// Packets of the second tap that were decided before the first tap's clock could have caught up, because the
    /// memory was full: they may be unexpected for that reason.
    pub judged_early: u64,
    /// Packets seen only by the second tap.
    pub unexpected: u64,
    /// Of the unexpected: at most one window after the first packet of the first tap.
    pub unexpected_at_start: u64,
}

impl Counts {
    /// Return the number of packets of the first tap whose window was complete; the loss ratio among these is unbiased.
    pub fn had_window(&self) -> u64 {
        self.lost + self.matched - self.matched_early - self.matched_at_end
    }
}

impl Add for Counts {
    type Output = Self;

    /// Add the counts of other packets of the same direction.
    fn add(self, more: Self) -> Self {
        Self {
            seen_first: self.seen_first + more.seen_first,
            seen_second: self.seen_second + more.seen_second,
            matched: self.matched + more.matched,
            ambiguous: self.ambiguous + more.ambiguous,
            matched_early: self.matched_early + more.matched_early,
            matched_at_end: self.matched_at_end + more.matched_at_end,
            reordered: self.reordered + more.reordered,
            reordering_extent_max: self.reordering_extent_max.max(more.reordering_extent_max),
            lost: self.lost + more.lost,
            lost_at_end: self.lost_at_end + more.lost_at_end,
            evicted: self.evicted + more.evicted,
            pending: self.pending + more.pending,
            duplicated: self.duplicated + more.duplicated,
            judged_early: self.judged_early + more.judged_early,
            unexpected: self.unexpected + more.unexpected,
            unexpected_at_start: self.unexpected_at_start + more.unexpected_at_start,
        }
    }
}

/// Why a packet is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Its window is over.
    Over,
    /// The memory is full.
    Full,
    /// No more packets follow.
    End,
}

/// Matches packets in one direction.
#[derive(Debug)]
pub(crate) struct DirectionMatcher<A> {
    limits: Limits,
    most: usize,
    table: Table,
    /// Packets of the second tap whose counterpart in the first may still follow.
    waiting: VecDeque<Observed>,
    arrivals: A,
    latest: i64,
    first_begin: Option<i64>,
    second_end: i64,
    counts: Counts,
}

const BYTES_PER_WAITING: usize = size_of::<Observed>() * 3 / 2;

impl<A: Arrivals> DirectionMatcher<A> {
    /// Create an empty matcher.
    pub fn new(limits: Limits, arrivals: A) -> Self {
        let waiting = if limits.ahead > 0 { BYTES_PER_WAITING } else { 0 };
        let most = (limits.memory / (BYTES_PER_ENTRY + A::BYTES + waiting)).max(2);
        Self {
            limits,
            // A power of 2, because the storage doubles and must not exceed the limit.
            most: 1 << most.ilog2(),
            table: Table::new(),
            waiting: VecDeque::new(),
            arrivals,
            latest: i64::MIN,
            first_begin: None,
            second_end: i64::MIN,
            counts: Counts::default(),
        }
    }

    /// Return the counts; open packets are not included yet.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether no packet is held, so that time changes nothing.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.waiting.is_empty()
    }

    /// Return the state of the arrivals.
    pub fn arrivals(&mut self) -> &mut A {
        &mut self.arrivals
    }

    /// Set when the first tap began and until when the second continued, where they saw other packets besides these.
    pub fn lies_within(&mut self, first: Option<i64>, last: Option<i64>) {
        self.first_begin = first.or(self.first_begin);
        self.second_end = last.map_or(self.second_end, |last| self.second_end.max(last));
    }

    /// Handle a packet of the first tap.
    #[inline]
    pub fn first(&mut self, seen: &Observed, sink: &mut impl FnMut(Outcome)) {
        self.advance(seen.at, sink);
        self.counts.seen_first += 1;
        self.first_begin.get_or_insert(seen.at);
        while self.table.weight() >= self.most {
            self.release(sink, Why::Full);
        }
        self.table.append(seen);
    }

    /// Handle a packet of the second tap.
    #[inline]
    pub fn second(&mut self, seen: &Observed, sink: &mut impl FnMut(Outcome)) {
        self.advance(seen.at, sink);
        self.counts.seen_second += 1;
        self.second_end = self.second_end.max(seen.at);
        // Packets lost so far are not lost at the end.
        self.counts.lost_at_end = 0;
        if self.limits.ahead == 0 {
            self.arrive(seen, sink);
            return;
        }
        // The sent packet is mostly in the table already. No older one can follow, and none before it is expired until
        // then. If the memory is full, it is found here before it would be evicted during the wait.
        let last = seen.at.saturating_sub(self.limits.window);
        if A::ARE_ALL
            && self.waiting.is_empty()
            && self.table.oldest().is_none_or(|oldest| oldest >= last)
            && let Found::Open(number) = self.table.take(seen.digest, seen.time.saturating_add(self.limits.ahead))
        {
            self.matched(number, seen);
            return;
        }
        if self.waiting.len() == self.most
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.counts.judged_early += 1;
            self.arrive(&oldest, sink);
        }
        self.waiting.push_back(*seen);
    }

    /// Advance the time, and decide the packets that have waited long enough.
    #[inline]
    pub fn advance(&mut self, to: i64, sink: &mut impl FnMut(Outcome)) {
        if to <= self.latest {
            return;
        }
        self.latest = to;
        let judged = to.saturating_sub(self.limits.ahead);
        while let Some(seen) = self.waiting.front().copied().filter(|seen| seen.at < judged) {
            self.waiting.pop_front();
            self.expire(seen.at, sink);
            self.arrive(&seen, sink);
        }
        self.expire(judged, sink);
    }

    /// Note that the second tap continues: packets lost so far are not lost at the end.
    pub fn goes_on(&mut self) {
        self.counts.lost_at_end = 0;
    }

    /// Decide all remaining packets; no more follow.
    pub fn end(&mut self, sink: &mut impl FnMut(Outcome)) {
        while let Some(seen) = self.waiting.pop_front() {
            self.expire(seen.at, sink);
            self.arrive(&seen, sink);
        }
        self.expire(self.second_end, sink);
        while self.table.len() > 0 {
            self.release(sink, Why::End);
        }
    }

    /// Release packets whose window was over at `by`.
    #[inline]
    fn expire(&mut self, by: i64, sink: &mut impl FnMut(Outcome)) {
        let before = by.saturating_sub(self.limits.window);
        while self.table.oldest().is_some_and(|oldest| oldest < before) {
            self.release(sink, Why::Over);
        }
    }

    #[inline]
    fn arrive(&mut self, seen: &Observed, sink: &mut impl FnMut(Outcome)) {
        match self.table.take(seen.digest, seen.time.saturating_add(self.limits.ahead)) {
            Found::Open(number) => self.matched(number, seen),
            Found::Taken => {
                self.arrivals.unmatched();
                self.counts.duplicated += 1;
                sink(Outcome::Duplicated(*seen));
            }
            Found::Nothing => {
                self.arrivals.unmatched();
                self.counts.unexpected += 1;
                let begin = self.first_begin.unwrap_or(i64::MAX);
                self.counts.unexpected_at_start += u64::from(seen.at.saturating_sub(self.limits.window) <= begin);
                sink(Outcome::Unexpected(*seen));
            }
        }
    }

    /// Record a match and its reordering. It is reported when its window is over, because it may become ambiguous until
    /// then.
    #[inline]
    fn matched(&mut self, number: u64, seen: &Observed) {
        let arrived = self.arrivals.matched(number);
        self.counts.reordered += u64::from(arrived.extent > 0);
        self.counts.reordering_extent_max = self.counts.reordering_extent_max.max(arrived.extent);
        if let Some(entry) = self.table.entry(number) {
            (entry.second, entry.kept, entry.notes[1]) = (seen.time, arrived.kept, seen.note);
        }
    }

    /// Release the oldest packet and report its outcome.
    fn release(&mut self, sink: &mut impl FnMut(Outcome), why: Why) {
        let Some((entry, at)) = self.table.front() else { return };
        let entry = *entry;
        self.table.evict();
        let number = self.arrivals.release(self.table.base() - 1);
        let seen = Observed { at, time: entry.time, digest: entry.digest, length: entry.length, note: entry.notes[0] };
        if entry.second != OPEN {
            self.counts.matched += 1;
            self.counts.matched_early += u64::from(why == Why::Full);
            self.counts.matched_at_end += u64::from(why == Why::End);
            self.counts.ambiguous += u64::from(entry.is_ambiguous);
            sink(Outcome::Matched {
                seen,
                number,
                second: entry.second,
                second_note: entry.notes[1],
                is_ambiguous: entry.is_ambiguous,
                extent: entry.kept,
            });
            return;
        }
        sink(match why {
            Why::Over => {
                self.counts.lost += 1;
                self.counts.lost_at_end += u64::from(at > self.second_end);
                Outcome::Lost { seen, number }
            }
            Why::Full => {
                self.counts.evicted += 1;
                Outcome::Evicted { seen, number }
            }
            Why::End => {
                self.counts.pending += 1;
                Outcome::Pending { seen, number }
            }
        });
    }
}
