//! The law of the log: every packet that was seen meets exactly one fate, in total and for each flow.
//!
//! For each direction, in packets and in segments: seen = sum of all fates; what the flows met adds up to what was met in
//! total. And every number that a CPU gave to a record belongs to a record that was made, or had no room.
//!
//! What programs count while traffic runs is read while it changes: a packet may be seen already and have no fate yet. So an
//! account is exact only when it is still: programs disabled or detached, and read twice with the same result
//! ([`Account::read_still`] does that). One that is not exact serves to look at, not to check.

use std::collections::BTreeMap;

use crate::layout::{Counts, Flow, Totals, fate};
use crate::source::{Source, SourceError};

/// What becomes of a packet that was seen. Those up to [`Fate::Late`] are the kernel's, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "said once, in the header and in tcp_account")]
pub enum Fate {
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
    /// Left out by the flight recorder, since its flow ended well.
    Forgotten,
    /// Could not be written.
    Broken,
}

impl Fate {
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
        (self as usize) < fate::OF_FLOW || matches!(self, Self::Forgotten | Self::Broken)
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
        self.packets += other.packets;
        self.segments += other.segments;
    }

    fn less(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            segments: self.segments.saturating_sub(other.segments),
        }
    }
}

/// What was seen one way, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Counted when a program begins.
    pub seen: Tally,
    fates: [Tally; Fate::ALL.len()],
    /// More was left out than the kernel had logged.
    is_overdrawn: bool,
}

impl Ledger {
    /// How many met this fate.
    #[must_use]
    pub const fn of(&self, fate: Fate) -> Tally {
        self.fates[fate as usize]
    }

    /// All fates together.
    #[must_use]
    pub fn sum(&self) -> Tally {
        self.fates.iter().fold(Tally::default(), |mut sum, &tally| {
            sum.add(tally);
            sum
        })
    }

    fn add(&mut self, other: &Self) {
        self.seen.add(other.seen);
        self.fates.iter_mut().zip(other.fates).for_each(|(sum, tally)| sum.add(tally));
        self.is_overdrawn |= other.is_overdrawn;
    }

    fn less(&self, earlier: &Self) -> Self {
        let mut ledger = Self { seen: self.seen.less(earlier.seen), ..*self };
        ledger.fates.iter_mut().zip(earlier.fates).for_each(|(tally, earlier)| *tally = tally.less(earlier));
        ledger
    }

    /// Takes packets that the kernel logged for left out.
    fn leave_out(&mut self, fate: Fate, left: Tally) {
        let logged = &mut self.fates[Fate::Logged as usize];
        self.is_overdrawn |= left.packets > logged.packets || left.segments > logged.segments;
        *logged = logged.less(left);
        self.fates[fate as usize].add(left);
    }
}

impl From<&Counts> for Ledger {
    fn from(counts: &Counts) -> Self {
        let mut ledger = Self { seen: Tally { packets: counts.seen, segments: counts.segments }, ..Self::default() };
        for (at, tally) in ledger.fates.iter_mut().enumerate().take(fate::OF_FLOW) {
            *tally = Tally { packets: counts.fates[at], segments: counts.segments_of_fates[at] };
        }
        ledger
    }
}

/// In and out, in this order, as [`crate::layout::point`] numbers them.
pub type Both = [Ledger; 2];

/// The names of the directions, as `tcp_account` has them.
pub const DIRECTIONS: [&str; 2] = ["in", "out"];

/// Packets that the kernel logged and user space did not write, by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    flows: BTreeMap<u64, [Tally; 2]>,
}

impl LeftOut {
    /// Takes note of one packet: of the flow with this cookie, in this direction.
    pub fn note(&mut self, cookie: u64, direction: usize, segments: u64) {
        if let Some(tally) = self.flows.entry(cookie).or_default().get_mut(direction) {
            tally.add(Tally { packets: 1, segments });
        }
    }

    /// Each flow's cookie, with what was left out in and out.
    pub fn iter(&self) -> impl Iterator<Item = (u64, [Tally; 2])> + '_ {
        self.flows.iter().map(|(&cookie, &tallies)| (cookie, tallies))
    }

    /// All flows together.
    #[must_use]
    pub fn sum(&self) -> [Tally; 2] {
        self.iter().fold([Tally::default(); 2], |mut sum, (_, tallies)| {
            sum.iter_mut().zip(tallies).for_each(|(sum, tally)| sum.add(tally));
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
    /// Records that were made and belong to no packet.
    pub events: u64,
    /// Records without room that belong to no packet.
    pub events_full: u64,
    /// Numbers given to records, of all CPUs together.
    pub numbers: u64,
}

/// One row of `tcp_account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The cookie of its flow; none: all packets.
    pub cookie: Option<u64>,
    /// 0 in, 1 out.
    pub direction: usize,
    /// Its fate; none: seen.
    pub fate: Option<Fate>,
    /// How many met it.
    pub tally: Tally,
}

/// Where the law is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// What was seen has not met one fate each.
    #[error("{whose}, {direction}: {seen} {unit} were seen, but {met} met a fate")]
    Fates {
        /// A flow, or all.
        whose: String,
        /// in, out.
        direction: &'static str,
        /// packets, segments.
        unit: &'static str,
        /// How many were seen.
        seen: u64,
        /// How many met a fate.
        met: u64,
    },
    /// The flows do not add up to the total.
    #[error("{direction}, {fate}: {all} {unit} in total, but {flows} of all flows together")]
    Flows {
        /// in, out.
        direction: &'static str,
        /// Which fate.
        fate: &'static str,
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
        for (direction, ledger) in self.all.iter_mut().enumerate() {
            ledger.seen.add(Tally { packets: totals.seen[direction], segments: totals.segments[direction] });
            for at in 0..fate::ALL {
                let segments = totals.segments_of_fates[direction][at];
                ledger.fates[at].add(Tally { packets: totals.fates[direction][at], segments });
            }
        }
        self.events += totals.events + totals.privates;
        self.events_full += totals.events_full + totals.privates_full;
        self.numbers += totals.number;
    }

    /// Adds what a flow counted: one in use, or one that has been released.
    pub fn add_flow(&mut self, flow: &Flow) {
        let both = self.flows.entry(flow.cookie).or_default();
        both.iter_mut().zip(&flow.directions).for_each(|(ledger, counts)| ledger.add(&counts.into()));
    }

    /// Reads what was counted so far; `released` are the flows whose slots have been given back, as they were then. Exact if
    /// nothing is being counted now.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read<'a>(
        source: &(impl Source + ?Sized),
        released: impl IntoIterator<Item = &'a Flow>,
    ) -> Result<Self, SourceError> {
        let mut account = Self::default();
        source.totals()?.iter().for_each(|totals| account.add_totals(totals));
        source.flows(&mut |_, flow| account.add_flow(flow));
        released.into_iter().for_each(|flow| account.add_flow(flow));
        Ok(account)
    }

    /// Reads until two readings in a row are the same and lawful, at most so often, and waits in between. The last reading, and
    /// whether it is still: exact.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read_still<'a>(
        source: &(impl Source + ?Sized),
        released: impl IntoIterator<Item = &'a Flow> + Clone,
        tries: u32,
        wait: &mut dyn FnMut(),
    ) -> Result<(Self, bool), SourceError> {
        let mut last = Self::read(source, released.clone())?;
        for _ in 1..tries {
            wait();
            let next = Self::read(source, released.clone())?;
            if next == last && next.check().is_ok() {
                return Ok((next, true));
            }
            last = next;
        }
        Ok((last, false))
    }

    /// What was counted since an earlier account of the same source: of one block of several. Flows that have counted nothing
    /// since then are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |both: &Both, earlier: Option<&Both>| {
            earlier.map_or(*both, |earlier| [both[0].less(&earlier[0]), both[1].less(&earlier[1])])
        };
        let flows = self.flows.iter().map(|(cookie, both)| (*cookie, less(both, earlier.flows.get(cookie))));
        Self {
            all: less(&self.all, Some(&earlier.all)),
            flows: flows.filter(|(_, both)| both.iter().any(|ledger| ledger.seen.packets > 0)).collect(),
            events: self.events.saturating_sub(earlier.events),
            events_full: self.events_full.saturating_sub(earlier.events_full),
            numbers: self.numbers.saturating_sub(earlier.numbers),
        }
    }

    /// Takes packets that the kernel logged and user space did not write: [`Fate::Forgotten`] or [`Fate::Broken`].
    pub fn leave_out(&mut self, fate: Fate, left_out: &LeftOut) {
        for (cookie, tallies) in left_out.iter() {
            let flow = self.flows.entry(cookie).or_default();
            for (direction, tally) in tallies.into_iter().enumerate() {
                flow[direction].leave_out(fate, tally);
                self.all[direction].leave_out(fate, tally);
            }
        }
    }

    /// Records that had no room, of any kind.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.all.iter().map(|ledger| ledger.of(Fate::Full).packets).sum::<u64>() + self.events_full
    }

    /// Holds the account to the law; of one that is exact.
    ///
    /// # Errors
    /// The first breach.
    pub fn check(&self) -> Result<(), Breach> {
        check_ledgers("all", &self.all)?;
        for (cookie, both) in &self.flows {
            check_ledgers(&format!("flow {cookie:#x}"), both)?;
        }
        self.check_flows()?;
        // What was left out later had a number too.
        let of_packets = |ledger: &Ledger| {
            [Fate::Logged, Fate::Forgotten, Fate::Broken, Fate::Full]
                .map(|fate| ledger.of(fate).packets)
                .iter()
                .sum::<u64>()
        };
        let records = self.all.iter().map(of_packets).sum::<u64>() + self.events + self.events_full;
        require(self.numbers == records, || Breach::Numbers { numbers: self.numbers, records })
    }

    /// Holds the gaps that were found to the records that had no room.
    ///
    /// # Errors
    /// When they differ.
    pub fn check_gaps(&self, missing: u64) -> Result<(), Breach> {
        require(missing == self.full(), || Breach::Gaps { missing, full: self.full() })
    }

    /// The rows of `tcp_account`: seen and every fate, in total; of each flow, those that it can meet.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let all = rows(None, &self.all);
        all.chain(self.flows.iter().flat_map(|(&cookie, both)| rows(Some(cookie), both)))
    }

    fn check_flows(&self) -> Result<(), Breach> {
        for (direction, all) in self.all.iter().enumerate() {
            let mut flows = Ledger::default();
            self.flows.values().for_each(|both| flows.add(&both[direction]));
            for fate in Fate::ALL.into_iter().filter(|fate| fate.is_of_flow()) {
                for (unit, all, flows) in units(all.of(fate), flows.of(fate)) {
                    let direction = DIRECTIONS[direction];
                    require(all == flows, || Breach::Flows { direction, fate: fate.name(), unit, all, flows })?;
                }
            }
        }
        Ok(())
    }
}

fn check_ledgers(whose: &str, both: &Both) -> Result<(), Breach> {
    for (ledger, direction) in both.iter().zip(DIRECTIONS) {
        require(!ledger.is_overdrawn, || Breach::Overdrawn { whose: whose.to_owned(), direction })?;
        for (unit, seen, met) in units(ledger.seen, ledger.sum()) {
            require(seen == met, || Breach::Fates { whose: whose.to_owned(), direction, unit, seen, met })?;
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

fn rows(cookie: Option<u64>, both: &Both) -> impl Iterator<Item = Entry> + use<> {
    let both = *both;
    (0..2).flat_map(move |direction| {
        let ledger = both[direction];
        let seen = Entry { cookie, direction, fate: None, tally: ledger.seen };
        let fates = Fate::ALL.into_iter().filter(move |fate| cookie.is_none() || fate.is_of_flow());
        std::iter::once(seen).chain(fates.map(move |fate| Entry {
            cookie,
            direction,
            fate: Some(fate),
            tally: ledger.of(fate),
        }))
    })
}

#[cfg(test)]
mod tests;
