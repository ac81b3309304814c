//! Departures compared with the schedule, and inter-departure times.

use sojourn_port::{StampKind, TxTimestamp};
use sojourn_time::{Nanos, Time};

use crate::{Fit, Spread, goodness};

/// How many gaps are tested against the exponential distribution: with ever more, every real stream differs
/// significantly from an ideal one.
const SAMPLED_GAPS: u64 = 1_000;

/// The departures of one stream, by one kind of timestamp.
#[derive(Debug)]
pub struct Track {
    /// The pacing error: actual minus intended departure.
    pub error: Spread,
    /// Inter-departure times.
    pub gaps: Spread,
    sample: Vec<f64>,
    /// One in `stride` gaps is sampled; 0: none.
    stride: u64,
    /// Whether the stream has maximum rate: then there is no pacing error.
    is_flood: bool,
    count: u64,
    first: Option<Time>,
    last: Option<Time>,
    within: [u64; 2],
}

const WITHIN: [Nanos; 2] = [Nanos::micros(1), Nanos::micros(10)];

impl Track {
    /// Prepares for departures. `sampled`: the number of packets, if gaps are to be sampled.
    pub fn new(sampled: Option<u64>, is_flood: bool) -> Self {
        let stride = sampled.map_or(0, |count| count.div_ceil(SAMPLED_GAPS).max(1));
        Self {
            error: Spread::default(),
            gaps: Spread::default(),
            sample: Vec::with_capacity(if stride > 0 { SAMPLED_GAPS as usize } else { 0 }),
            stride,
            is_flood,
            count: 0,
            first: None,
            last: None,
            within: [0; 2],
        }
    }

    /// Records a departure.
    pub fn record(&mut self, intended: Time, left: Time) {
        self.count += 1;
        if !self.is_flood {
            let error = (left - intended).0;
            self.error.record(error);
            for (count, limit) in self.within.iter_mut().zip(WITHIN) {
                *count += u64::from(error.unsigned_abs() <= limit.0.unsigned_abs());
            }
        }
        if let Some(last) = self.last {
            self.gaps.record((left - last).0);
            if self.stride > 0 && self.count.is_multiple_of(self.stride) && self.sample.len() < SAMPLED_GAPS as usize {
                self.sample.push((left - last).0 as f64);
            }
        }
        self.first.get_or_insert(left);
        self.last = Some(left);
    }

    /// Records departures of a maximum-rate stream, all sent with one call.
    pub fn record_burst(&mut self, left: Time, count: u64) {
        self.record(left, left);
        self.count += count - 1;
        self.gaps.record_many(0, count - 1);
    }

    /// Returns the number of departures.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first departure.
    pub const fn first(&self) -> Option<Time> {
        self.first
    }

    /// Returns the last departure.
    pub const fn last(&self) -> Option<Time> {
        self.last
    }

    /// Returns the time from the first to the last.
    pub fn span(&self) -> Nanos {
        self.first.zip(self.last).map_or(Nanos::ZERO, |(first, last)| last - first)
    }

    /// Returns the share of departures within 1 µs (or otherwise 10 µs) of the intended ones; 0 without departures.
    pub fn share_within(&self, limit: Nanos) -> f64 {
        let place = usize::from(limit > WITHIN[0]);
        if self.count > 0 { self.within[place] as f64 / self.count as f64 } else { 0.0 }
    }

    /// Tests the sampled gaps against an exponential distribution.
    pub fn fit(&self) -> Option<Fit> {
        goodness::exponential(&mut self.sample.clone())
    }
}

/// Number of recent packets per port whose TX timestamps can be matched.
const REMEMBERED: usize = 1 << 13;

/// Packets recently sent by one port, by transmission number, which their TX timestamps carry.
#[derive(Debug)]
pub struct Ring {
    entries: Box<[Entry]>,
    /// Packets without a TX timestamp so far.
    waiting: u64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    number: u32,
    /// The index of its stream.
    pub place: u32,
    /// Its row.
    pub row: u32,
    /// Its intended departure.
    pub intended: Time,
    /// Whether it has no TX timestamp yet.
    pub is_first_stamp: bool,
}

impl Ring {
    /// Returns an empty ring.
    pub fn new() -> Self {
        let none = Entry { number: u32::MAX, place: 0, row: 0, intended: Time(0), is_first_stamp: false };
        Self { entries: vec![none; REMEMBERED].into_boxed_slice(), waiting: 0 }
    }

    /// Adds a packet that was sent.
    pub fn put(&mut self, number: u32, place: u32, row: u32, intended: Time) {
        let entry = &mut self.entries[number as usize % REMEMBERED];
        // The packet that is overwritten is no longer awaited.
        self.waiting -= u64::from(entry.is_first_stamp);
        *entry = Entry { number, place, row, intended, is_first_stamp: true };
        self.waiting += 1;
    }

    /// Returns the packet that a timestamp belongs to; `None`: it is too old, or not a packet of a stream.
    pub fn take(&mut self, stamp: &TxTimestamp) -> Option<Entry> {
        let entry = &mut self.entries[stamp.number as usize % REMEMBERED];
        if entry.number != stamp.number {
            return None;
        }
        let found = *entry;
        if stamp.kind == StampKind::Left {
            self.waiting -= u64::from(entry.is_first_stamp);
            entry.is_first_stamp = false;
        }
        Some(found)
    }

    /// Returns whether TX timestamps are outstanding.
    pub const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}
