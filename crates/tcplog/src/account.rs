//! Packet accounting: every packet that was seen is counted in exactly one disposition, in total and for each flow.
//!
//! For each direction, in packets and in segments, seen equals the sum of all dispositions, and the flows' counters add
//! up to the totals. Every number that a CPU assigned belongs to a record that was made or that had no room.
//!
//! Counters are read while the programs run: a packet may be counted as seen and have no disposition yet. They are
//! therefore exact only when the programs are disabled or detached and two successive readings agree
//! ([`Account::read_still`]). Inexact counters may be displayed, not checked.

use std::collections::BTreeMap;
use std::fmt;

use crate::layout::{Counts, Flow, Totals, disposition};
use crate::source::{Source, SourceError};

/// The disposition of a packet that was seen. Those up to [`Disposition::Late`] are counted in the kernel, in this
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "said once, in the header and in tcp_account")]
pub enum Disposition {
    Logged,
    Decimated,
    Unchanged,
    Early,
    Filtered,
    Full,
    Unparsed,
    NoSocket,
    NoState,
    Control,
    NoRoom,
    Late,
    /// Discarded by the flight recorder, because no trigger chose its flow; or deleted with the oldest part of the log.
    Forgotten,
    /// Could not be written, or could not be read back.
    Broken,
}

impl Disposition {
    /// All dispositions, in order.
    pub const ALL: [Self; 14] = [
        Self::Logged,
        Self::Decimated,
        Self::Unchanged,
        Self::Early,
        Self::Filtered,
        Self::Full,
        Self::Unparsed,
        Self::NoSocket,
        Self::NoState,
        Self::Control,
        Self::NoRoom,
        Self::Late,
        Self::Forgotten,
        Self::Broken,
    ];

    /// The name in `tcp_account`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logged => "logged",
            Self::Decimated => "decimated",
            Self::Unchanged => "unchanged",
            Self::Early => "early",
            Self::Filtered => "filtered",
            Self::Full => "full",
            Self::NoSocket => "no-socket",
            Self::NoState => "no-state",
            Self::Control => "control",
            Self::Unparsed => "unparsed",
            Self::NoRoom => "no-room",
            Self::Late => "late",
            Self::Forgotten => "forgotten",
            Self::Broken => "broken",
        }
    }

    /// Whether the packet is missing from the log although the options request it.
    #[must_use]
    pub const fn is_skipped(self) -> bool {
        !matches!(
            self,
            Self::Logged | Self::Decimated | Self::Unchanged | Self::Early | Self::Filtered | Self::Forgotten
        )
    }

    /// Whether packets with this disposition belong to a flow.
    #[must_use]
    pub const fn is_of_flow(self) -> bool {
        (self as usize) < disposition::OF_FLOW || matches!(self, Self::Forgotten | Self::Broken)
    }
}

/// A count of packets and of the segments in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As the programs see them: with many segments each where the kernel uses GSO or GRO.
    pub packets: u64,
    /// As on the wire.
    pub segments: u64,
}

impl Tally {
    /// Add another count.
    pub fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.segments = self.segments.saturating_add(other.segments);
    }

    /// The minimum of both, for packets and segments separately.
    pub(crate) fn at_most(self, other: Self) -> Self {
        Self { packets: self.packets.min(other.packets), segments: self.segments.min(other.segments) }
    }

    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            segments: self.segments.saturating_sub(other.segments),
        }
    }
}

/// The counters of one direction: packets seen, and each disposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counted at the entry of a program.
    pub seen: Tally,
    dispositions: [Tally; Disposition::ALL.len()],
    /// More packets were left out than the kernel had logged.
    is_overdrawn: bool,
}

impl Counters {
    /// Return the count of this disposition.
    #[must_use]
    pub const fn of(&self, disposition: Disposition) -> Tally {
        self.dispositions[disposition as usize]
    }

    /// Return the sum of all dispositions.
    #[must_use]
    pub fn sum(&self) -> Tally {
        self.dispositions.iter().fold(Tally::default(), |mut sum, &tally| {
            sum.add(tally);
            sum
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.seen.add(other.seen);
        self.dispositions.iter_mut().zip(other.dispositions).for_each(|(sum, tally)| sum.add(tally));
        self.is_overdrawn |= other.is_overdrawn;
    }

    /// Raise the number of logged packets to `logged` at least: that many samples exist.
    pub(crate) fn find(&mut self, logged: Tally) {
        let known = &mut self.dispositions[Disposition::Logged as usize];
        let more = logged.less(*known);
        known.add(more);
        self.seen.add(more);
    }

    /// Move packets from logged to another disposition.
    fn leave_out(&mut self, disposition: Disposition, left: Tally) {
        let logged = &mut self.dispositions[Disposition::Logged as usize];
        self.is_overdrawn |= left.packets > logged.packets || left.segments > logged.segments;
        *logged = logged.less(left);
        self.dispositions[disposition as usize].add(left);
    }
}

impl From<&Counts> for Counters {
    fn from(counts: &Counts) -> Self {
        let mut counters = Self { seen: Tally { packets: counts.seen, segments: counts.segments }, ..Self::default() };
        for (at, tally) in counters.dispositions.iter_mut().enumerate().take(disposition::OF_FLOW) {
            *tally = Tally { packets: counts.dispositions[at], segments: counts.segments_of_dispositions[at] };
        }
        counters
    }
}

/// Ingress and egress, in the order of [`crate::layout::point`].
pub type Both = [Counters; 2];

/// The names of the directions in `tcp_account`.
pub const DIRECTIONS: [&str; 2] = ["in", "out"];

/// Packets that the kernel logged and user space did not write, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    flows: BTreeMap<u64, [Tally; 2]>,
    /// The sum over flows that have been recorded elsewhere.
    gone: [Tally; 2],
}

impl LeftOut {
    /// Count one packet of the flow with this cookie in this direction.
    pub fn note(&mut self, cookie: u64, direction: usize, segments: u64) {
        if let Some(tally) = self.flows.entry(cookie).or_default().get_mut(direction) {
            tally.add(Tally { packets: 1, segments });
        }
    }

    /// Return and remove the counts of a flow, for the caller to record; they stay in the sum.
    pub fn tell(&mut self, cookie: u64) -> [Tally; 2] {
        let tallies = self.flows.remove(&cookie).unwrap_or_default();
        add_both(&mut self.gone, tallies);
        tallies
    }

    /// Iterate over the flows' cookies and their counts, in and out, without flows that have been recorded elsewhere.
    pub fn iter(&self) -> impl Iterator<Item = (u64, [Tally; 2])> + '_ {
        self.flows.iter().map(|(&cookie, &tallies)| (cookie, tallies))
    }

    /// Return the sum over all flows.
    #[must_use]
    pub fn sum(&self) -> [Tally; 2] {
        self.iter().fold(self.gone, |mut sum, (_, tallies)| {
            add_both(&mut sum, tallies);
            sum
        })
    }
}

/// The counters in total and of each flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// All packets, including those without a flow.
    pub all: Both,
    /// By socket cookie.
    pub flows: BTreeMap<u64, Both>,
    /// The sum over flows that have been recorded elsewhere and need not be kept one by one.
    pub gone: Both,
    /// The first breach among those flows.
    gone_breach: Option<Breach>,
    /// Records of events, and private states, which belong to no packet.
    pub events: u64,
    /// The same without room in the ring.
    pub events_full: u64,
    /// The numbers assigned to records, over all CPUs.
    pub numbers: u64,
    /// Packets that user space filtered: they have record numbers, unlike packets that the kernel filtered.
    filtered_late: u64,
}

/// One row of `tcp_account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The cookie of its flow; `None`: all packets.
    pub cookie: Option<u64>,
    /// 0 ingress, 1 egress.
    pub direction: usize,
    /// The disposition; `None`: seen.
    pub disposition: Option<Disposition>,
    /// How many packets it counts.
    pub tally: Tally,
}

/// A check of the accounting that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// The dispositions do not add up to the packets seen.
    #[error("{whose}, {direction}: {seen} {unit} were seen, but dispositions were counted for {met}")]
    Dispositions {
        /// A flow, or all.
        whose: String,
        /// in, out.
        direction: &'static str,
        /// packets, segments.
        unit: &'static str,
        /// The count of packets seen.
        seen: u64,
        /// The sum of the dispositions.
        met: u64,
    },
    /// The flows' counters do not add up to the total.
    #[error("{direction}, {disposition}: {all} {unit} in total, but {flows} of all flows together")]
    Flows {
        /// in, out.
        direction: &'static str,
        /// Which disposition.
        disposition: &'static str,
        /// packets, segments.
        unit: &'static str,
        /// The total.
        all: u64,
        /// The sum over the flows.
        flows: u64,
    },
    /// More packets were left out than were logged.
    #[error("{whose}, {direction}: more records were left out than the kernel had logged")]
    Overdrawn {
        /// A flow, or all.
        whose: String,
        /// in, out.
        direction: &'static str,
    },
    /// The numbers assigned differ from the records made or without room.
    #[error("{numbers} numbers were given to records, but {records} records were made or had no room")]
    Numbers {
        /// The numbers assigned.
        numbers: u64,
        /// The records.
        records: u64,
    },
    /// The gaps in the numbers differ from the records without room.
    #[error("{missing} records are missing in the rows of numbers, but {full} had no room")]
    Gaps {
        /// The numbers missing.
        missing: u64,
        /// The records without room.
        full: u64,
    },
}

impl Account {
    /// Add the counters of one CPU.
    pub fn add_totals(&mut self, totals: &Totals) {
        for (direction, counters) in self.all.iter_mut().enumerate() {
            counters.seen.add(Tally { packets: totals.seen[direction], segments: totals.segments[direction] });
            for at in 0..disposition::ALL {
                let segments = totals.segments_of_dispositions[direction][at];
                counters.dispositions[at].add(Tally { packets: totals.dispositions[direction][at], segments });
            }
        }
        // A log may come from another host, with counters of any size.
        self.events = sum_of([self.events, totals.events, totals.privates]);
        self.events_full = sum_of([self.events_full, totals.events_full, totals.privates_full]);
        self.numbers = sum_of([self.numbers, totals.number]);
    }

    /// Add the counters of a flow, in use or released.
    pub fn add_flow(&mut self, flow: &Flow) {
        let both = self.flows.entry(flow.cookie).or_default();
        both.iter_mut().zip(both_of(flow)).for_each(|(counters, counts)| counters.add(&counts));
    }

    /// Add the counters of a released flow that is recorded elsewhere.
    pub fn add_gone(&mut self, flow: &Flow) {
        self.add_told(flow.cookie, &both_of(flow));
    }

    pub(crate) fn add_told(&mut self, cookie: u64, both: &Both) {
        if self.gone_breach.is_none() {
            self.gone_breach = check_flow(cookie, both).err();
        }
        self.gone.iter_mut().zip(both).for_each(|(counters, counts)| counters.add(counts));
    }

    /// Read the counters. `released` holds the counters of the flows whose slots have been freed, each or in sum. The
    /// result is exact if no program is counting now.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read(source: &(impl Source + ?Sized), released: &Self) -> Result<Self, SourceError> {
        let mut account = released.clone();
        source.totals()?.iter().for_each(|totals| account.add_totals(totals));
        source.flows(&mut |_, flow| account.add_flow(flow));
        Ok(account)
    }

    /// Read until two successive readings agree and pass the check, at most `tries` times; call `wait` in between.
    /// Return the last reading, and whether it is exact.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read_still(
        source: &(impl Source + ?Sized),
        released: &Self,
        tries: u32,
        wait: &mut dyn FnMut(),
    ) -> Result<(Self, bool), SourceError> {
        let mut last = Self::read(source, released)?;
        for _ in 1..tries {
            wait();
            let next = Self::read(source, released)?;
            if next == last && next.check().is_ok() {
                return Ok((next, true));
            }
            last = next;
        }
        Ok((last, false))
    }

    /// Move packets that the kernel logged and user space did not write to [`Disposition::Forgotten`],
    /// [`Disposition::Broken`], or, for the log's own connections, [`Disposition::Filtered`].
    pub fn leave_out(&mut self, disposition: Disposition, left_out: &LeftOut) {
        if disposition == Disposition::Filtered {
            let late = left_out.sum().map(|tally| tally.packets);
            self.filtered_late = sum_of([self.filtered_late].into_iter().chain(late));
        }
        for (cookie, tallies) in left_out.iter() {
            // A flow that is not kept by itself is part of the sum.
            leave_out(self.flows.get_mut(&cookie).unwrap_or(&mut self.gone), disposition, tallies);
        }
        leave_out(&mut self.gone, disposition, left_out.gone);
        leave_out(&mut self.all, disposition, left_out.sum());
    }

    /// Return the number of records without room, of any kind.
    #[must_use]
    pub fn full(&self) -> u64 {
        let packets = self.all.iter().map(|counters| counters.of(Disposition::Full).packets);
        sum_of(packets.chain([self.events_full]))
    }

    /// Check the accounting; valid for exact counters only.
    ///
    /// # Errors
    /// The first breach.
    pub fn check(&self) -> Result<(), Breach> {
        check_counters(&"all", &self.all)?;
        self.gone_breach.clone().map_or(Ok(()), Err)?;
        check_counters(&"flows that have ended", &self.gone)?;
        self.flows.iter().try_for_each(|(&cookie, both)| check_flow(cookie, both))?;
        self.check_flows()?;
        // Packets that were left out later have record numbers too.
        let of_packets = |counters: &Counters| {
            let with_number = [Disposition::Logged, Disposition::Forgotten, Disposition::Broken, Disposition::Full];
            sum_of(with_number.map(|disposition| counters.of(disposition).packets))
        };
        let others = [self.filtered_late, self.events, self.events_full];
        let records = sum_of(self.all.iter().map(of_packets).chain(others));
        require(self.numbers == records, || Breach::Numbers { numbers: self.numbers, records })
    }

    /// Compare the gaps found in the numbers with the records without room.
    ///
    /// # Errors
    /// When they differ.
    pub fn check_gaps(&self, missing: u64) -> Result<(), Breach> {
        require(missing == self.full(), || Breach::Gaps { missing, full: self.full() })
    }

    /// Iterate over the rows of `tcp_account` for all packets: seen, and every disposition.
    pub fn totals(&self) -> impl Iterator<Item = Entry> + use<> {
        rows(None, &self.all)
    }

    /// The same, with packets of deleted parts moved from logged to forgotten.
    pub fn totals_without(&self, removed: [Tally; 2]) -> impl Iterator<Item = Entry> + use<> {
        let mut all = self.all;
        leave_out(&mut all, Disposition::Forgotten, removed);
        rows(None, &all)
    }

    /// Iterate over the rows of `tcp_account`: for all packets, then for each flow that is not recorded elsewhere.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.totals().chain(self.flows.iter().flat_map(|(&cookie, both)| rows(Some(cookie), both)))
    }

    fn check_flows(&self) -> Result<(), Breach> {
        for (direction, all) in self.all.iter().enumerate() {
            let mut flows = self.gone[direction];
            self.flows.values().for_each(|both| flows.add(&both[direction]));
            for disposition in Disposition::ALL.into_iter().filter(|disposition| disposition.is_of_flow()) {
                for (unit, all, flows) in units(all.of(disposition), flows.of(disposition)) {
                    let direction = DIRECTIONS[direction];
                    require(all == flows, || Breach::Flows {
                        direction,
                        disposition: disposition.name(),
                        unit,
                        all,
                        flows,
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the sum, at most the largest number.
fn sum_of(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

fn both_of(flow: &Flow) -> Both {
    [0, 1].map(|direction| Counters::from(&flow.directions[direction]))
}

pub(crate) fn add_both(sum: &mut [Tally; 2], more: [Tally; 2]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}

/// Move packets that the kernel logged to another disposition, in both directions.
pub(crate) fn leave_out(both: &mut Both, disposition: Disposition, tallies: [Tally; 2]) {
    both.iter_mut().zip(tallies).for_each(|(counters, tally)| counters.leave_out(disposition, tally));
}

/// Check the counters of one flow.
pub(crate) fn check_flow(cookie: u64, both: &Both) -> Result<(), Breach> {
    check_counters(&format_args!("flow {cookie:#x}"), both)
}

fn check_counters(whose: &dyn fmt::Display, both: &Both) -> Result<(), Breach> {
    for (counters, direction) in both.iter().zip(DIRECTIONS) {
        require(!counters.is_overdrawn, || Breach::Overdrawn { whose: whose.to_string(), direction })?;
        for (unit, seen, met) in units(counters.seen, counters.sum()) {
            require(seen == met, || Breach::Dispositions { whose: whose.to_string(), direction, unit, seen, met })?;
        }
    }
    Ok(())
}

fn units(one: Tally, other: Tally) -> [(&'static str, u64, u64); 2] {
    [("packets", one.packets, other.packets), ("segments", one.segments, other.segments)]
}

fn require(holds: bool, breach: impl FnOnce() -> Breach) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err(breach()) }
}

pub(crate) fn rows(cookie: Option<u64>, both: &Both) -> impl Iterator<Item = Entry> + use<> {
    let both = *both;
    (0..2).flat_map(move |direction| {
        let counters = both[direction];
        let seen = Entry { cookie, direction, disposition: None, tally: counters.seen };
        let dispositions =
            Disposition::ALL.into_iter().filter(move |disposition| cookie.is_none() || disposition.is_of_flow());
        std::iter::once(seen).chain(dispositions.map(move |disposition| Entry {
            cookie,
            direction,
            disposition: Some(disposition),
            tally: counters.of(disposition),
        }))
    })
}

#[cfg(test)]
mod tests;
