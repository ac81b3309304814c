//! Packet numbers: counted, or taken from a log.

use std::collections::{HashMap, HashSet};

/// The source of packet numbers.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// Counted in the order of arrivals and copies.
    Counted(u64),
    /// From a log, for a replay: copies are made between arrivals at times that depend on when the engine was called.
    Told(Box<Told>),
}

/// Numbers from a log.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The number of the next arrival.
    pub arrival: u64,
    /// The number of a packet's n-th copy, by packet and n.
    pub copies: HashMap<(u64, u8), u64>,
    /// Packets that found no memory: that depends on actual departures.
    pub without_memory: HashSet<u64>,
    /// The next number for copies that are not in the log.
    pub unknown: u64,
}

impl Numbers {
    /// Returns the number that the next arrival will get.
    pub fn next(&self) -> u64 {
        match self {
            Self::Counted(next) => *next,
            Self::Told(told) => told.arrival,
        }
    }

    /// Sets the number of the next arrival, if numbers come from a log.
    pub fn is_told(&mut self, number: u64) {
        if let Self::Told(told) = self {
            told.arrival = number;
        }
    }

    /// Assigns a number to an arrival.
    pub fn of_arrival(&mut self) -> u64 {
        let number = self.next();
        if let Self::Counted(next) = self {
            *next += 1;
        }
        number
    }

    /// Assigns a number to a packet's `count`-th copy, from 1.
    pub fn of_copy(&mut self, original: u64, count: u8) -> u64 {
        match self {
            Self::Counted(_) => self.of_arrival(),
            Self::Told(told) => told.copies.get(&(original, count)).copied().unwrap_or_else(|| {
                told.unknown += 1;
                told.unknown - 1
            }),
        }
    }

    /// Returns whether a log says that a packet found no memory.
    pub fn had_no_memory(&self, number: u64) -> bool {
        match self {
            Self::Counted(_) => false,
            Self::Told(told) => told.without_memory.contains(&number),
        }
    }
}
