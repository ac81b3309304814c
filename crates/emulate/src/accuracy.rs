//! Emulation error (actual minus intended departure) and packet counters, for each pipe.
//!
//! Always on. Counts are kept since the start and since the last [`begin`](crate::Engine::begin), so that each block of
//! an experiment has its own numbers.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use hdrhistogram::Histogram;
use serde::Serialize;
use sojourn_time::{Nanos, Time};

use crate::disposition::Cause;
use crate::select::RuleCounter;
use crate::standing::LeastWaits;

/// The largest error that a histogram holds, in nanoseconds (100 s): larger errors are recorded as this.
const MOST_NS: u64 = 100_000_000_000;
/// Up to this number of pipes, all memory for histograms is allocated at the start: some 52 MB.
const MOST_WHOLE: usize = 64;

/// The counters and errors of an emulator, for `show` and for the end of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Pipes in the order of the configuration.
    pub pipes: Vec<PipeReport>,
    /// Rules in ascending order of their numbers.
    pub rules: Vec<RuleCounter>,
    /// Frames that no rule sent into a pipe: bridged unchanged.
    pub unmatched: PerDirection,
    /// Frames that a `drop` rule discarded.
    pub lost_by_rules: u64,
    /// Memory for held frames.
    pub memory: MemoryReport,
    /// The maximum emulation error: a packet that leaves later than this after its intended departure counts as late.
    pub budget_ns: Nanos,
}

/// A count for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerDirection {
    /// From the left port to the right one.
    pub forward: u64,
    /// From the right port to the left one.
    pub backward: u64,
}

/// Memory for frames, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The limit on memory.
    pub limit_bytes: u64,
    /// Memory allocated: chunks, packet metadata, and places in queues and delay lines.
    pub taken_bytes: u64,
    /// Bytes of the frames that are held.
    pub held_bytes: u64,
    /// Maximum of `held_bytes` so far.
    pub most_bytes: u64,
    /// Frames that are held.
    pub held_frames: u64,
}

/// The counters of a pipe: `arrived` + `duplicated` = `sent` + all of `lost` + `held`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PipeReport {
    /// The pipe's name.
    pub name: String,
    /// The pipe's counters.
    #[serde(flatten)]
    pub counts: Counts,
    /// Packets that are in the pipe now.
    pub held: u64,
    /// Flows that have a pipe of their own now; 1 without a mask.
    pub flows: u64,
    /// The emulation error.
    pub accuracy: Accuracy,
    /// Time that packets waited in the queue.
    pub queueing_delay: QueueingDelay,
    /// The minimum of it in each window; `None` where no packet left the queue, and outside block reports.
    pub least_waits: Option<LeastWaits>,
    /// Counters since the last live change of the pipe; `None` where it was never changed, and in block reports.
    pub since_change: Option<SinceChange>,
}

/// The counters of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets received, including those for which there was no memory.
    pub arrived: u64,
    /// Bytes received, without FCS.
    pub arrived_bytes: u64,
    /// Copies made by duplication.
    pub duplicated: u64,
    /// Packets sent by the port.
    pub sent: u64,
    /// Bytes sent, without FCS.
    pub sent_bytes: u64,
    /// Packets lost, by cause.
    pub lost: Lost,
    /// Packets whose ECN field was set to CE.
    pub marked: u64,
    /// Packets with flipped bits.
    pub corrupted: u64,
    /// Bits flipped.
    pub flipped_bits: u64,
    /// Packets selected for reordering.
    pub reordered: u64,
    /// Delays that were drawn below zero and set to zero.
    pub clipped: u64,
    /// Maximum packets in one queue.
    pub most_slots: u64,
    /// Maximum bytes in one queue.
    pub most_bytes: u64,
    /// Maximum packets in one delay line.
    pub most_delayed: u64,
    /// Packets that entered the shared pipe because there were too many flows.
    pub over_flow_limit: u64,
}

/// Lost packets by cause. JSON has an entry for every cause, under its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "BTreeMap<&'static str, u64>")]
pub struct Lost([u64; Cause::ALL.len()]);

/// Time from the arrival of packets at the queue until they start on the link, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueingDelay {
    /// Packets that started on the link.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median; quantiles are accurate to one part in a thousand.
    pub p50_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Maximum, exact.
    pub max_ns: i64,
}

/// Counters of a pipe since its last live change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SinceChange {
    /// Time of the change.
    pub at_ns: Time,
    /// Packets received, and copies made.
    pub arrived: u64,
    /// Packets sent by the port.
    pub sent: u64,
    /// Bytes sent, without FCS.
    pub sent_bytes: u64,
    /// Packets lost, for any cause; some may have arrived before the change.
    pub lost: u64,
    /// Waiting time of packets that started on the link since the change.
    pub queueing_delay: QueueingDelay,
}

/// Emulation error: actual minus intended departure, in nanoseconds. A positive error is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Number of departures.
    pub count: u64,
    /// Departures later than the budget.
    pub late: u64,
    /// Mean error.
    pub mean_ns: f64,
    /// Minimum, exact.
    pub min_ns: i64,
    /// Median; quantiles are accurate to one part in a thousand.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// 99.9th percentile.
    pub p999_ns: i64,
    /// Maximum, exact.
    pub max_ns: i64,
}

/// When histograms allocate memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// At the start, 0.1 MB each: the thread that moves packets never waits for the allocator.
    Whole,
    /// On demand: full histograms for this number of pipes would take too much.
    Growing,
}

impl Room {
    /// Chooses by the number of pipes.
    pub fn of(pipes: usize) -> Self {
        if pipes <= MOST_WHOLE { Self::Whole } else { Self::Growing }
    }
}

/// Statistics of signed errors.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    early: Sizes,
    late: Sizes,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
    missed: u64,
}

impl Errors {
    pub fn new(room: Room) -> Self {
        Self {
            early: Sizes::new(room),
            late: Sizes::new(room),
            count: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
            missed: 0,
        }
    }

    pub fn record(&mut self, error: Nanos, budget: Nanos) {
        let side = if error.0 < 0 { &mut self.early } else { &mut self.late };
        side.record(error.0.unsigned_abs());
        self.count += 1;
        self.sum += i128::from(error.0);
        self.min = self.min.min(error.0);
        self.max = self.max.max(error.0);
        self.missed += u64::from(error > budget);
    }

    /// Adds the counts of another.
    fn add(&mut self, other: &Self) {
        self.early.add(&other.early);
        self.late.add(&other.late);
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.missed += other.missed;
    }

    fn clear(&mut self) {
        self.early.clear();
        self.late.clear();
        (self.count, self.sum, self.min, self.max, self.missed) = (0, 0, i64::MAX, i64::MIN, 0);
    }

    /// Summarises several parts. Neither copies nor adds histograms: the thread that moves packets calls this.
    pub fn summary(parts: &[&Self]) -> Accuracy {
        let count: u64 = parts.iter().map(|part| part.count).sum();
        if count == 0 {
            return Accuracy::default();
        }
        let min = parts.iter().map(|part| part.min).min().unwrap_or_default();
        let max = parts.iter().map(|part| part.max).max().unwrap_or_default();
        let quantile = |share| Self::quantile(parts, share).clamp(min, max);
        Accuracy {
            count,
            late: parts.iter().map(|part| part.missed).sum(),
            mean_ns: parts.iter().map(|part| part.sum).sum::<i128>() as f64 / count as f64,
            min_ns: min,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: max,
        }
    }

    /// Returns the smallest error that is at least as large as this share of all errors.
    fn quantile(parts: &[&Self], share: f64) -> i64 {
        let sizes = |side: fn(&Self) -> &Sizes| parts.iter().map(move |part| side(part));
        let (early, late) = (|| sizes(|part| &part.early), || sizes(|part| &part.late));
        let count: u64 = parts.iter().map(|part| part.count).sum();
        let rank = rank(share, count);
        let early_count = early().map(|sizes| sizes.values.len()).sum();
        if rank <= early_count {
            // The early side holds absolute values: its largest is the smallest error.
            -(Sizes::at_rank(early, early_count - rank + 1) as i64)
        } else {
            Sizes::at_rank(late, rank - early_count) as i64
        }
    }
}

/// Statistics of waiting times; negative ones count as zero.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    sizes: Sizes,
    count: u64,
    sum: i128,
    max: i64,
}

impl Waits {
    pub fn new(room: Room) -> Self {
        Self { sizes: Sizes::new(room), count: 0, sum: 0, max: 0 }
    }

    pub fn record(&mut self, span: Nanos) {
        let span = span.0.max(0);
        self.sizes.record(span.unsigned_abs());
        self.count += 1;
        self.sum += i128::from(span);
        self.max = self.max.max(span);
    }

    /// Adds the counts of another.
    fn add(&mut self, other: &Self) {
        self.sizes.add(&other.sizes);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub fn clear(&mut self) {
        if self.count > 0 {
            self.sizes.clear();
        }
        (self.count, self.sum, self.max) = (0, 0, 0);
    }

    /// Summarises several parts. Neither copies nor adds histograms: the thread that moves packets calls this.
    fn summary(parts: &[&Self]) -> QueueingDelay {
        let count: u64 = parts.iter().map(|part| part.count).sum();
        if count == 0 {
            return QueueingDelay::default();
        }
        let max = parts.iter().map(|part| part.max).max().unwrap_or_default();
        let sizes = || parts.iter().map(|part| &part.sizes);
        let quantile = |share| (Sizes::at_rank(sizes, rank(share, count)) as i64).min(max);
        QueueingDelay {
            count,
            mean_ns: parts.iter().map(|part| part.sum).sum::<i128>() as f64 / count as f64,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns: max,
        }
    }
}

/// Returns the rank, from 1, of the quantile `share` among `count` values.
fn rank(share: f64, count: u64) -> u64 {
    ((share * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// Absolute values of errors of one sign, or waiting times.
#[derive(Clone, Debug)]
struct Sizes {
    /// Of 64 bits: an hour at a million packets a second is nearly what 32 count, and they would stay there.
    values: Histogram<u64>,
    /// Number of values by bit length, so that a rank is found without iterating over all bins.
    of_bits: [u64; 65],
}

impl Sizes {
    fn new(room: Room) -> Self {
        let values = match room {
            Room::Whole => Histogram::new_with_bounds(1, MOST_NS, 3),
            Room::Growing => Histogram::new(3),
        };
        let values = values.unwrap_or_else(|_| unreachable!("three digits up to a hundred seconds can be had"));
        Self { values, of_bits: [0; 65] }
    }

    fn record(&mut self, size: u64) {
        let size = size.min(MOST_NS);
        // Cannot fail: the histogram covers the largest size, or grows.
        let _ = self.values.record(size);
        self.of_bits[bits(size)] += 1;
    }

    fn add(&mut self, other: &Self) {
        // Cannot fail: both cover the same range, or grow.
        let _ = self.values.add(&other.values);
        self.of_bits.iter_mut().zip(other.of_bits).for_each(|(count, more)| *count += more);
    }

    fn clear(&mut self) {
        self.values.reset();
        self.of_bits = [0; 65];
    }

    /// Returns the count of the bin that holds a size.
    fn count_at(&self, size: u64) -> u64 {
        if size > self.values.max() { 0 } else { self.values.count_at(size) }
    }

    /// Returns the size at a rank, from 1, over several parts together.
    fn at_rank<'a, I: Iterator<Item = &'a Self>>(parts: impl Fn() -> I, rank: u64) -> u64 {
        let mut seen = 0;
        for bits in 0..=64 {
            let count: u64 = parts().map(|part| part.of_bits[bits]).sum();
            if seen + count < rank {
                seen += count;
                continue;
            }
            let Some(bins) = parts().next().map(|part| &part.values) else { break };
            let mut size = if bits == 0 { 0 } else { 1 << (bits - 1) };
            loop {
                seen += parts().map(|part| part.count_at(size)).sum::<u64>();
                let next = bins.next_non_equivalent(size);
                // The last bin of the octave ends it, whatever was counted.
                if seen >= rank || self::bits(next) > bits {
                    return bins.median_equivalent(size);
                }
                size = next;
            }
        }
        parts().map(|part| part.values.max()).max().unwrap_or_default()
    }
}

/// Returns the bit length of a number. No bin of a histogram spans a power of two.
fn bits(size: u64) -> usize {
    (u64::BITS - size.leading_zeros()) as usize
}

/// The counters and histograms of a pipe.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub counts: Counts,
    pub errors: Errors,
    /// Time that packets waited in the queue.
    pub waits: Waits,
}

/// A snapshot of a pipe's counters at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    at: Time,
    counts: Counts,
}

impl Lost {
    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<Cause> for Lost {
    type Output = u64;

    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause.index()]
    }
}

impl IndexMut<Cause> for Lost {
    fn index_mut(&mut self, cause: Cause) -> &mut u64 {
        &mut self.0[cause.index()]
    }
}

impl From<Lost> for BTreeMap<&'static str, u64> {
    fn from(lost: Lost) -> Self {
        Cause::ALL.into_iter().map(|cause| (cause.name(), lost[cause])).collect()
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.arrived_bytes += other.arrived_bytes;
        self.duplicated += other.duplicated;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.lost.0.iter_mut().zip(other.lost.0).for_each(|(lost, more)| *lost += more);
        self.marked += other.marked;
        self.corrupted += other.corrupted;
        self.flipped_bits += other.flipped_bits;
        self.reordered += other.reordered;
        self.clipped += other.clipped;
        self.most_slots = self.most_slots.max(other.most_slots);
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.most_delayed = self.most_delayed.max(other.most_delayed);
        self.over_flow_limit += other.over_flow_limit;
    }
}

impl Account {
    pub fn new(room: Room) -> Self {
        Self { counts: Counts::default(), errors: Errors::new(room), waits: Waits::new(room) }
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.errors.add(&other.errors);
        self.waits.add(&other.waits);
    }

    /// Resets everything.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.errors.clear();
        self.waits.clear();
    }

    /// Takes a snapshot of the sum of several parts.
    pub fn mark(parts: &[&Self], at: Time) -> Mark {
        let mut counts = Counts::default();
        parts.iter().for_each(|part| counts.add(&part.counts));
        Mark { at, counts }
    }

    /// Reports several parts together; `held` and `flows` are the current values.
    pub fn report(parts: &[&Self], name: &str, held: u64, flows: u64) -> PipeReport {
        let mut counts = Counts::default();
        parts.iter().for_each(|part| counts.add(&part.counts));
        let errors: Vec<_> = parts.iter().map(|part| &part.errors).collect();
        let waits: Vec<_> = parts.iter().map(|part| &part.waits).collect();
        PipeReport {
            name: name.to_owned(),
            counts,
            held,
            flows,
            accuracy: Errors::summary(&errors),
            queueing_delay: Waits::summary(&waits),
            least_waits: None,
            since_change: None,
        }
    }
}

impl Mark {
    /// Returns the differences between this snapshot and a later one, with the waiting times of the same period.
    pub fn until(&self, now: &Self, waits: &Waits) -> SinceChange {
        let arrived = |counts: &Counts| counts.arrived + counts.duplicated;
        SinceChange {
            at_ns: self.at,
            arrived: arrived(&now.counts) - arrived(&self.counts),
            sent: now.counts.sent - self.counts.sent,
            sent_bytes: now.counts.sent_bytes - self.counts.sent_bytes,
            lost: now.counts.lost.total() - self.counts.lost.total(),
            queueing_delay: Waits::summary(&[waits]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_both_signs_are_right_to_a_thousandth() {
        let mut errors = Errors::new(Room::Whole);
        for error in -30_000..70_000 {
            errors.record(Nanos(error), Nanos(60_000));
        }
        let Accuracy { count, late, mean_ns, min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } =
            Errors::summary(&[&errors]);
        assert_eq!((count, late, mean_ns, min_ns, max_ns), (100_000, 9_999, 19_999.5, -30_000, 69_999));
        for (is, truth) in [(p50_ns, 19_999), (p90_ns, 59_999), (p99_ns, 68_999), (p999_ns, 69_899)] {
            assert!((is - truth).abs() <= truth / 1_000, "{is} for {truth}");
        }
        assert!((Errors::quantile(&[&errors], 0.1) + 20_001).abs() <= 20);
        assert_eq!(Errors::quantile(&[&errors], 0.0).max(-30_000), -30_000);
    }

    /// As a pipe does whose link is mostly idle: an hour at a million packets a second.
    #[test]
    fn quantiles_of_more_values_than_32_bits_count_are_right() {
        let mut sizes = Sizes::new(Room::Growing);
        let (idle, waited) = (6_000_000_000_u64, 5_000_000_000_u64);
        for (size, count) in [(0, idle), (1_000, waited)] {
            sizes.values.record_n(size, count).expect("grows");
            sizes.of_bits[bits(size)] += count;
        }
        let at = |sizes: &Sizes, rank| Sizes::at_rank(|| std::iter::once(sizes), rank);
        assert_eq!([at(&sizes, 1), at(&sizes, idle)], [0, 0]);
        assert_eq!([at(&sizes, idle + 1), at(&sizes, idle + waited)], [1_000, 1_000]);
        // A count that is too small ends the search all the same.
        sizes.of_bits[0] += 1;
        assert_eq!(at(&sizes, idle + 1), 0);
    }

    #[test]
    fn account_of_two_parts_equals_the_account_of_the_whole() {
        let (mut one, mut other, mut whole) =
            (Account::new(Room::Whole), Account::new(Room::Whole), Account::new(Room::Whole));
        for error in 0..10_000_i64 {
            let part = if error % 3 == 0 { &mut one } else { &mut other };
            for account in [part, &mut whole] {
                account.counts.arrived += 1;
                account.counts.most_slots = account.counts.most_slots.max(error as u64);
                account.errors.record(Nanos(error * 7 - 20_000), Nanos(0));
            }
        }
        let told = |parts: &[&Account]| Account::report(parts, "", 0, 1);
        assert_eq!(told(&[&one, &other]), told(&[&whole]));
        one.add(&other);
        assert_eq!(told(&[&one]), told(&[&whole]));
        one.clear();
        assert_eq!(told(&[&one]), told(&[&Account::new(Room::Whole)]));
    }

    #[test]
    fn queueing_delays_have_quantiles_in_bounded_memory() {
        let (mut few, mut many) = (Waits::new(Room::Whole), Waits::new(Room::Whole));
        let room = many.sizes.values.distinct_values();
        for span in 0..100_000 {
            if span % 10 == 0 { &mut few } else { &mut many }.record(Nanos(span));
        }
        let QueueingDelay { count, mean_ns, p50_ns, p99_ns, max_ns } = Waits::summary(&[&few, &many]);
        assert_eq!((count, mean_ns, max_ns), (100_000, 49_999.5, 99_999));
        for (is, truth) in [(p50_ns, 49_999), (p99_ns, 98_999)] {
            assert!((is - truth).abs() <= truth / 1_000, "{is} for {truth}");
        }
        many.record(Nanos(i64::MAX));
        many.add(&few);
        assert_eq!((many.max, many.sizes.values.distinct_values()), (i64::MAX, room));
    }

    #[test]
    fn summary_of_no_packets_is_empty() {
        assert_eq!(Errors::summary(&[&Errors::new(Room::Whole)]), Accuracy::default());
        assert_eq!(Waits::summary(&[&Waits::new(Room::Whole)]), QueueingDelay::default());
    }
}
