//! What left when: against the schedule, and between one packet and the next.

use sojourn_port::{StampKind, TxTimestamp};
use sojourn_time::{Nanos, Time};

use crate::{Fit, Spread, goodness};

/// How many gaps are tested against the exponential distribution: with ever more, every real stream differs from an
/// ideal.
const SAMPLED_GAPS: u64 = 1_000;

/// The departures of one stream, by one kind of stamp.
#[derive(Debug)]
pub struct Track {
    /// Departure less intended departure.
    pub error: Spread,
    /// Between departures.
    pub gaps: Spread,
    sample: Vec<f64>,
    /// Each so manieth gap is sampled; 0: none.
    stride: u64,
    /// Whether there is no schedule to be off from.
    is_flood: bool,
    count: u64,
    first: Option<Time>,
    last: Option<Time>,
    within: [u64; 2],
}

const WITHIN: [Nanos; 2] = [Nanos::micros(1), Nanos::micros(10)];

impl Track {
    /// Prepares to note departures. Gaps are sampled of as many packets as `sampled` says.
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

    /// Notes a departure.
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

    /// Notes departures of a flood, all with one call.
    pub fn record_burst(&mut self, left: Time, count: u64) {
        self.record(left, left);
        self.count += count - 1;
        self.gaps.record_many(0, count - 1);
    }

    /// Returns how many departures were noted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns when the first was.
    pub const fn first(&self) -> Option<Time> {
        self.first
    }

    /// Returns when the last was.
    pub const fn last(&self) -> Option<Time> {
        self.last
    }

    /// Returns how long they went on.
    pub fn span(&self) -> Nanos {
        self.first.zip(self.last).map_or(Nanos::ZERO, |(first, last)| last - first)
    }

    /// Returns the share of departures within 1 µs, or else 10 µs, of the intended ones; 0 of none.
    pub fn share_within(&self, limit: Nanos) -> f64 {
        let place = usize::from(limit > WITHIN[0]);
        if self.count > 0 { self.within[place] as f64 / self.count as f64 } else { 0.0 }
    }

    /// Tests the sampled gaps against an exponential distribution.
    pub fn fit(&self) -> Option<Fit> {
        goodness::exponential(&mut self.sample.clone())
    }
}

/// How many packets back a late stamp is still known.
const REMEMBERED: usize = 1 << 13;

/// What left by one port lately, by the numbers that its late stamps bear.
#[derive(Debug)]
pub struct Ring {
    entries: Box<[Entry]>,
    /// Packets whose departure has not been stamped.
    waiting: u64,
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    number: u32,
    /// The place of its stream.
    pub place: u32,
    /// Its row.
    pub row: u32,
    /// When it was to leave.
    pub intended: Time,
    /// Whether its departure had not been stamped before.
    pub is_first_stamp: bool,
}

impl Ring {
    /// Returns an empty one.
    pub fn new() -> Self {
        let none = Entry { number: u32::MAX, place: 0, row: 0, intended: Time(0), is_first_stamp: false };
        Self { entries: vec![none; REMEMBERED].into_boxed_slice(), waiting: 0 }
    }

    /// Notes a packet that left.
    pub fn put(&mut self, number: u32, place: u32, row: u32, intended: Time) {
        let entry = &mut self.entries[number as usize % REMEMBERED];
        // What is forgotten is not waited for.
        self.waiting -= u64::from(entry.is_first_stamp);
        *entry = Entry { number, place, row, intended, is_first_stamp: true };
        self.waiting += 1;
    }

    /// Returns the packet that a stamp is of; `None` when it is too long ago, or no packet of a stream.
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

    /// Returns whether departures are still to be stamped.
    pub const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}
