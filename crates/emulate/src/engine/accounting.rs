//! State shared by all pipes: held frames, packet numbers, counters, dispositions.

use sojourn_time::{Nanos, Time};

use super::numbers::Numbers;
use crate::accuracy::{Account, Mark, MemoryReport, PerDirection, PipeReport, Report, Room, Waits};
use crate::config::Direction;
use crate::disposition::{Arrival, Cause, Disposition, Outcome, Packet};
use crate::queue::{Losses, Why};
use crate::standing::Windows;
use crate::store::Store;

/// The counters of all pipes, and the frames that they hold.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub store: Store,
    /// Packets that a queue has just lost; the buffer is reused.
    pub losses: Losses,
    pub numbers: Numbers,
    pub dispositions: Vec<Disposition>,
    pub keeps_dispositions: bool,
    limit: u64,
    budget: Nanos,
    pipes: Vec<OfPipe>,
    /// Counters of this block, and of all earlier blocks.
    outside: [Outside; 2],
}

/// The counters of one pipe.
#[derive(Debug)]
struct OfPipe {
    block: Account,
    before: Account,
    /// The minimum waiting times of the block.
    least: Windows,
    held: u64,
    /// Snapshot at the last live change of the pipe.
    changed: Option<Mark>,
    /// Waiting times since the last live change.
    waits_since: Waits,
}

/// The counters of packets that entered no pipe.
#[derive(Clone, Copy, Debug, Default)]
struct Outside {
    unmatched: [u64; 2],
    lost_by_rules: u64,
}

impl Accounting {
    pub fn new(limit: u64, budget: Nanos, pipes: usize, numbers: Numbers) -> Self {
        let account = || Account::new(Room::of(pipes));
        let of_pipe = || OfPipe {
            block: account(),
            before: account(),
            least: Windows::new(Room::of(pipes)),
            held: 0,
            changed: None,
            waits_since: Waits::new(Room::of(pipes)),
        };
        Self {
            store: Store::new(limit),
            losses: Losses::new(),
            numbers,
            dispositions: Vec::new(),
            keeps_dispositions: false,
            limit,
            budget,
            pipes: std::iter::repeat_with(of_pipe).take(pipes).collect(),
            outside: [Outside::default(); 2],
        }
    }

    /// Returns the counters of a pipe.
    pub fn counts(&mut self, pipe: u16) -> &mut crate::accuracy::Counts {
        &mut self.pipes[usize::from(pipe)].block.counts
    }

    /// Counts and records a packet that no rule sent into a pipe.
    pub fn unmatched(&mut self, arrival: &Arrival, frame: &[u8]) {
        self.outside[0].unmatched[arrival.direction.index()] += 1;
        self.note(|| arrival.disposition(frame, Outcome::Unmatched));
    }

    /// Counts packets that were bridged without the engine because no rule could select them.
    pub fn passed(&mut self, direction: Direction, packets: u64) {
        self.outside[0].unmatched[direction.index()] += packets;
    }

    /// Counts and records a packet that a rule dropped.
    pub fn lost_by_rule(&mut self, arrival: &Arrival, frame: &[u8]) {
        self.outside[0].lost_by_rules += 1;
        self.note(|| arrival.disposition(frame, Outcome::Lost(Cause::Rule)));
    }

    /// Stores a packet for its pipe; without memory the packet is lost.
    pub fn take(&mut self, packet: Packet, frame: &[u8]) -> Option<u32> {
        let Packet { pipe, arrival, .. } = packet;
        let counts = self.counts(pipe);
        counts.arrived += 1;
        counts.arrived_bytes += u64::from(arrival.bytes);
        let has_room = !self.numbers.had_no_memory(arrival.number);
        let slot = if has_room { self.store.take(frame, packet) } else { None };
        if slot.is_none() {
            self.counts(pipe).lost[Cause::Memory] += 1;
            self.note(|| packet.disposition(frame, Outcome::Lost(Cause::Memory), None));
        }
        self.pipes[usize::from(pipe)].held += u64::from(slot.is_some());
        slot
    }

    /// Duplicates a packet; without memory the copy is lost.
    pub fn copy(&mut self, slot: u32) -> Option<u32> {
        let original = self.store.packet_mut(slot);
        original.copies = original.copies.saturating_add(1);
        let mut packet = *original;
        let copied = packet.arrival.number;
        packet.arrival.number = self.numbers.of_copy(copied, packet.copies);
        packet.copy_of = Some(copied);
        packet.copies = 0;
        let pipe = packet.pipe;
        self.counts(pipe).duplicated += 1;
        let has_room = !self.numbers.had_no_memory(packet.arrival.number);
        let copy = if has_room { self.store.copy(slot, packet) } else { None };
        if copy.is_none() {
            self.counts(pipe).lost[Cause::Memory] += 1;
            if self.keeps_dispositions {
                self.dispositions.push(packet.disposition(self.store.head(slot), Outcome::Lost(Cause::Memory), None));
            }
        }
        self.pipes[usize::from(pipe)].held += u64::from(copy.is_some());
        copy
    }

    /// Counts and records the loss of a held packet, and frees its slot.
    pub fn lose(&mut self, slot: u32, cause: Cause) {
        let pipe = self.store.packet(slot).pipe;
        self.counts(pipe).lost[cause] += 1;
        self.end(slot, pipe, Outcome::Lost(cause), None);
    }

    /// Does so for all packets that a queue lost.
    pub fn lose_all(&mut self, losses: &mut Losses) {
        for (waiting, why) in losses.drain(..) {
            let cause = match why {
                Why::Full => Cause::Full,
                Why::Managed => Cause::Managed,
            };
            self.lose(waiting.slot, cause);
        }
    }

    /// Takes a snapshot of a pipe's counters when its parameters change.
    pub fn changed(&mut self, pipe: u16, now: Time) {
        let own = &mut self.pipes[usize::from(pipe)];
        own.changed = Some(Account::mark(&[&own.block, &own.before], now));
        own.waits_since.clear();
    }

    /// Records the waiting time of a packet that leaves a pipe's queue now.
    pub fn waited(&mut self, pipe: u16, now: Time, span: Nanos) {
        let own = &mut self.pipes[usize::from(pipe)];
        own.block.waits.record(span);
        if own.changed.is_some() {
            own.waits_since.record(span);
        }
        own.least.record(now, span);
    }

    /// Records the departure of a packet.
    pub fn sent(&mut self, slot: u32, intended: Time, actual: Time) {
        let packet = self.store.packet(slot);
        let (pipe, bytes) = (packet.pipe, u64::from(packet.arrival.bytes));
        let account = &mut self.pipes[usize::from(pipe)].block;
        account.counts.sent += 1;
        account.counts.sent_bytes += bytes;
        account.errors.record(actual - intended, self.budget);
        self.end(slot, pipe, Outcome::Sent, Some(actual));
    }

    /// Makes the report of this block, or of all blocks. `names` has each pipe's name and number of flows.
    pub fn report(&self, is_block: bool, names: impl Iterator<Item = (String, u64)>) -> Report {
        let pipe = |(own, (name, flows)): (&OfPipe, (String, u64))| {
            let parts = [&own.block, &own.before];
            if is_block {
                let report = Account::report(&parts[..1], &name, own.held, flows);
                return PipeReport { least_waits: own.least.told(), ..report };
            }
            let now = Account::mark(&parts, Time(0));
            let since_change = own.changed.as_ref().map(|mark| mark.until(&now, &own.waits_since));
            PipeReport { since_change, ..Account::report(&parts, &name, own.held, flows) }
        };
        let [block, before] = self.outside;
        let outside = if is_block { block } else { block.and(before) };
        Report {
            pipes: self.pipes.iter().zip(names).map(pipe).collect(),
            rules: Vec::new(),
            unmatched: PerDirection {
                forward: outside.unmatched[Direction::Forward.index()],
                backward: outside.unmatched[Direction::Backward.index()],
            },
            lost_by_rules: outside.lost_by_rules,
            memory: MemoryReport {
                limit_bytes: self.limit,
                taken_bytes: self.store.taken(),
                held_bytes: self.store.held(),
                most_bytes: self.store.most_held(),
                held_frames: self.store.frames(),
            },
            budget_ns: self.budget,
        }
    }

    /// Begins a block.
    pub fn begin(&mut self) {
        for own in &mut self.pipes {
            own.before.add(&own.block);
            own.block.clear();
            own.least.clear();
        }
        let [block, before] = self.outside;
        self.outside = [Outside::default(), block.and(before)];
    }

    fn end(&mut self, slot: u32, pipe: u16, outcome: Outcome, departed: Option<Time>) {
        if self.keeps_dispositions {
            let disposition = self.store.packet(slot).disposition(self.store.head(slot), outcome, departed);
            self.dispositions.push(disposition);
        }
        self.pipes[usize::from(pipe)].held -= 1;
        self.store.release(slot);
    }

    /// Records the disposition of a packet that is not held.
    fn note(&mut self, disposition: impl FnOnce() -> Disposition) {
        if self.keeps_dispositions {
            self.dispositions.push(disposition());
        }
    }
}

impl Outside {
    fn and(self, other: Self) -> Self {
        Self {
            unmatched: [0, 1].map(|way| self.unmatched[way] + other.unmatched[way]),
            lost_by_rules: self.lost_by_rules + other.lost_by_rules,
        }
    }
}
