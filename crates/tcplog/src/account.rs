//! The law of the log: every packet that was seen meets exactly one disposition, in total and for each flow.
//!
//! For each direction, in packets and in segments: seen = sum of all dispositions; what the flows met adds up to what was met in
//! total. And every number that a CPU gave to a record belongs to a record that was made, or had no room.
//!
//! What programs count while traffic runs is read while it changes: a packet may be seen already and have no disposition yet. So an
//! account is exact only when it is still: programs disabled or detached, and read twice with the same result
//! ([`Account::read_still`] does that). One that is not exact serves to look at, not to check.

use std::collections::BTreeMap;
use std::fmt;

use crate::layout::{Counts, Flow, Totals, disposition};
use crate::source::{Source, SourceError};

/// What becomes of a packet that was seen. Those up to [`Disposition::Late`] are the kernel's, in its order.
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
    /// Left out by the flight recorder, since its flow ended well; or removed with the oldest part of the log.
    Forgotten,
    /// Could not be written, or what was written could not be read again.
    Broken,
}

impl Disposition {
    /// All of them, in order.
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

    /// As `tcp_account` calls it.
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

    /// Whether nobody asked for it: the packet should have been in the log.
    #[must_use]
    pub const fn is_skipped(self) -> bool {
        !matches!(
            self,
            Self::Logged | Self::Decimated | Self::Unchanged | Self::Early | Self::Filtered | Self::Forgotten
        )
    }

    /// Whether a packet that met it belongs to a flow.
    #[must_use]
    pub const fn is_of_flow(self) -> bool {
        (self as usize) < disposition::OF_FLOW || matches!(self, Self::Forgotten | Self::Broken)
    }
}

/// Packets, and the segments in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As the programs see them: of many segments each, where the kernel puts them together.
    pub packets: u64,
    /// As they are, or were, on the wire.
    pub segments: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.segments = self.segments.saturating_add(other.segments);
    }

    /// The smaller of both, packets and segments each.
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

/// What was seen one way, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counted when a program begins.
    pub seen: Tally,
    dispositions: [Tally; Disposition::ALL.len()],
    /// More was left out than the kernel had logged.
    is_overdrawn: bool,
}

impl Counters {
    /// How many met this disposition.
    #[must_use]
    pub const fn of(&self, disposition: Disposition) -> Tally {
        self.dispositions[disposition as usize]
    }

    /// All dispositions together.
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

    /// Takes so many packets for logged at least: their samples are there.
    pub(crate) fn find(&mut self, logged: Tally) {
        let known = &mut self.dispositions[Disposition::Logged as usize];
        let more = logged.less(*known);
        known.add(more);
        self.seen.add(more);
    }

    /// Takes packets that the kernel logged for left out.
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

/// In and out, in this order, as [`crate::layout::point`] numbers them.
pub type Both = [Counters; 2];

/// The names of the directions, as `tcp_account` has them.
pub const DIRECTIONS: [&str; 2] = ["in", "out"];

/// Packets that the kernel logged and user space did not write, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    flows: BTreeMap<u64, [Tally; 2]>,
    /// Of flows that were recorded elsewhere, together.
    gone: [Tally; 2],
}

impl LeftOut {
    /// Takes note of one packet: of the flow with this cookie, in this direction.
    pub fn note(&mut self, cookie: u64, direction: usize, segments: u64) {
        if let Some(tally) = self.flows.entry(cookie).or_default().get_mut(direction) {
            tally.add(Tally { packets: 1, segments });
        }
    }

    /// Gives away what was left out of a flow, for whoever writes it down: only the sum of it is kept.
    pub fn tell(&mut self, cookie: u64) -> [Tally; 2] {
        let tallies = self.flows.remove(&cookie).unwrap_or_default();
        add_both(&mut self.gone, tallies);
        tallies
    }

    /// Each flow's cookie, with what was left out in and out; but for those that were recorded elsewhere.
    pub fn iter(&self) -> impl Iterator<Item = (u64, [Tally; 2])> + '_ {
        self.flows.iter().map(|(&cookie, &tallies)| (cookie, tallies))
    }

    /// All flows together.
    #[must_use]
    pub fn sum(&self) -> [Tally; 2] {
        self.iter().fold(self.gone, |mut sum, (_, tallies)| {
            add_both(&mut sum, tallies);
            sum
        })
    }
}

/// What was counted, in total and for each flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// All packets, also those without a flow.
    pub all: Both,
    /// By the cookies of their sockets.
    pub flows: BTreeMap<u64, Both>,
    /// Flows that are recorded elsewhere, together: nobody has to remember each.
    pub gone: Both,
    /// The first of those that broke the law.
    gone_breach: Option<Breach>,
    /// Records that were made and belong to no packet.
    pub events: u64,
    /// Records without room that belong to no packet.
    pub events_full: u64,
    /// Numbers given to records, of all CPUs together.
    pub numbers: u64,
    /// Packets that user space left out as filtered: they had numbers, which those that the kernel filters have not.
    filtered_late: u64,
}

/// One row of `tcp_account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The cookie of its flow; none: all packets.
    pub cookie: Option<u64>,
    /// 0 in, 1 out.
    pub direction: usize,
    /// Its disposition; none: seen.
    pub disposition: Option<Disposition>,
    /// How many met it.
    pub tally: Tally,
}

/// Where the law is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// What was seen has not met one disposition each.
    #[error("{whose}, {direction}: {seen} {unit} were seen, but dispositions were counted for {met}")]
    Dispositions {
        /// A flow, or all.
        whose: String,
        /// in, out.
        direction: &'static str,
        /// packets, segments.
        unit: &'static str,
        /// How many were seen.
        seen: u64,
        /// How many met a disposition.
        met: u64,
    },
    /// The flows do not add up to the total.
    #[error("{direction}, {disposition}: {all} {unit} in total, but {flows} of all flows together")]
    Flows {
        /// in, out.
        direction: &'static str,
        /// Which disposition.
        disposition: &'static str,
        /// packets, segments.
        unit: &'static str,
        /// How many there were in total.
        all: u64,
        /// How many the flows had.
        flows: u64,
    },
    /// More was left out than there was.
    #[error("{whose}, {direction}: more records were left out than the kernel had logged")]
    Overdrawn {
        /// A flow, or all.
        whose: String,
        /// in, out.
        direction: &'static str,
    },
    /// Numbers were given to no record.
    #[error("{numbers} numbers were given to records, but {records} records were made or had no room")]
    Numbers {
        /// How many numbers.
        numbers: u64,
        /// How many records.
        records: u64,
    },
    /// The gaps do not add up to what had no room.
    #[error("{missing} records are missing in the rows of numbers, but {full} had no room")]
    Gaps {
        /// How many numbers are missing.
        missing: u64,
        /// How many records had no room.
        full: u64,
    },
}

impl Account {
    /// Adds what one CPU counted.
    pub fn add_totals(&mut self, totals: &Totals) {
        for (direction, counters) in self.all.iter_mut().enumerate() {
            counters.seen.add(Tally { packets: totals.seen[direction], segments: totals.segments[direction] });
            for at in 0..disposition::ALL {
                let segments = totals.segments_of_dispositions[direction][at];
                counters.dispositions[at].add(Tally { packets: totals.dispositions[direction][at], segments });
            }
        }
        self.events += totals.events + totals.privates;
        self.events_full += totals.events_full + totals.privates_full;
        self.numbers += totals.number;
    }

    /// Adds what a flow counted: one in use, or one that has been released.
    pub fn add_flow(&mut self, flow: &Flow) {
        let both = self.flows.entry(flow.cookie).or_default();
        both.iter_mut().zip(both_of(flow)).for_each(|(counters, counts)| counters.add(&counts));
    }

    /// Adds what a flow counted that has been released and is recorded elsewhere.
    pub fn add_gone(&mut self, flow: &Flow) {
        self.add_told(flow.cookie, &both_of(flow));
    }

    pub(crate) fn add_told(&mut self, cookie: u64, both: &Both) {
        if self.gone_breach.is_none() {
            self.gone_breach = check_flow(cookie, both).err();
        }
        self.gone.iter_mut().zip(both).for_each(|(counters, counts)| counters.add(counts));
    }

    /// Reads what was counted so far; `released` has the flows whose slots have been given back, as they were then, or their
    /// sum. Exact if nothing is being counted now.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read(source: &(impl Source + ?Sized), released: &Self) -> Result<Self, SourceError> {
        let mut account = released.clone();
        source.totals()?.iter().for_each(|totals| account.add_totals(totals));
        source.flows(&mut |_, flow| account.add_flow(flow));
        Ok(account)
    }

    /// Reads until two readings in a row are the same and lawful, at most so often, and waits in between. The last reading, and
    /// whether it is still: exact.
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

    /// Takes packets that the kernel logged and user space did not write: [`Disposition::Forgotten`], [`Disposition::Broken`], or
    /// [`Disposition::Filtered`] where they are the log's own.
    pub fn leave_out(&mut self, disposition: Disposition, left_out: &LeftOut) {
        if disposition == Disposition::Filtered {
            self.filtered_late += left_out.sum().iter().map(|tally| tally.packets).sum::<u64>();
        }
        for (cookie, tallies) in left_out.iter() {
            // What comes of a flow when it is gone is a part of that sum.
            leave_out(self.flows.get_mut(&cookie).unwrap_or(&mut self.gone), disposition, tallies);
        }
        leave_out(&mut self.gone, disposition, left_out.gone);
        leave_out(&mut self.all, disposition, left_out.sum());
    }

    /// Records that had no room, of any kind.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.all.iter().map(|counters| counters.of(Disposition::Full).packets).sum::<u64>() + self.events_full
    }

    /// Holds the account to the law; of one that is exact.
    ///
    /// # Errors
    /// The first breach.
    pub fn check(&self) -> Result<(), Breach> {
        check_counters(&"all", &self.all)?;
        self.gone_breach.clone().map_or(Ok(()), Err)?;
        check_counters(&"flows that have ended", &self.gone)?;
        self.flows.iter().try_for_each(|(&cookie, both)| check_flow(cookie, both))?;
        self.check_flows()?;
        // What was left out later had a number too.
        let of_packets = |counters: &Counters| {
            [Disposition::Logged, Disposition::Forgotten, Disposition::Broken, Disposition::Full]
                .map(|disposition| counters.of(disposition).packets)
                .iter()
                .sum::<u64>()
        };
        let left_out = self.filtered_late;
        let records = self.all.iter().map(of_packets).sum::<u64>() + left_out + self.events + self.events_full;
        require(self.numbers == records, || Breach::Numbers { numbers: self.numbers, records })
    }

    /// Holds the gaps that were found to the records that had no room.
    ///
    /// # Errors
    /// When they differ.
    pub fn check_gaps(&self, missing: u64) -> Result<(), Breach> {
        require(missing == self.full(), || Breach::Gaps { missing, full: self.full() })
    }

    /// The rows of `tcp_account` on all packets: seen and every disposition.
    pub fn totals(&self) -> impl Iterator<Item = Entry> + use<> {
        rows(None, &self.all)
    }

    /// The same where so many packets that were logged have been removed again.
    pub fn totals_without(&self, removed: [Tally; 2]) -> impl Iterator<Item = Entry> + use<> {
        let mut all = self.all;
        leave_out(&mut all, Disposition::Forgotten, removed);
        rows(None, &all)
    }

    /// The rows of `tcp_account`: those on all packets; of each flow that is not recorded elsewhere, the dispositions that it can meet.
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

fn both_of(flow: &Flow) -> Both {
    [0, 1].map(|direction| Counters::from(&flow.directions[direction]))
}

pub(crate) fn add_both(sum: &mut [Tally; 2], more: [Tally; 2]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}

/// Takes packets that the kernel logged for left out, both ways.
pub(crate) fn leave_out(both: &mut Both, disposition: Disposition, tallies: [Tally; 2]) {
    both.iter_mut().zip(tallies).for_each(|(counters, tally)| counters.leave_out(disposition, tally));
}

/// Holds one flow to the law.
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
