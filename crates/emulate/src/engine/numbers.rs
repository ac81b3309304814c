//! Numbers of packets: counted, or as a log tells them.

use std::collections::{HashMap, HashSet};

/// Where numbers come from.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// In the order in which packets come to be.
    Counted(u64),
    /// From a log, for a replay: copies come to be between arrivals at times that depend on when the engine was called.
    Told(Box<Told>),
}

/// What a log tells.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The next arrival's.
    pub arrival: u64,
    /// Of a packet's first, second … copy.
    pub copies: HashMap<(u64, u8), u64>,
    /// For whom there was no memory: that depends on when others had really left.
    pub without_memory: HashSet<u64>,
    /// For copies of which the log knows nothing.
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

    /// Says the number of the next arrival, where numbers are recorded.
    pub fn is_told(&mut self, number: u64) {
        if let Self::Told(told) = self {
            told.arrival = number;
        }
    }

    /// Gives an arrival its number.
    pub fn of_arrival(&mut self) -> u64 {
        let number = self.next();
        if let Self::Counted(next) = self {
            *next += 1;
        }
        number
    }

    /// Gives a packet's so-many-th copy its number, from 1.
    pub fn of_copy(&mut self, original: u64, count: u8) -> u64 {
        match self {
            Self::Counted(_) => self.of_arrival(),
            Self::Told(told) => told.copies.get(&(original, count)).copied().unwrap_or_else(|| {
                told.unknown += 1;
                told.unknown - 1
            }),
        }
    }

    /// Whether a log says that there was no memory for a packet.
    pub fn had_no_memory(&self, number: u64) -> bool {
        match self {
            Self::Counted(_) => false,
            Self::Told(told) => told.without_memory.contains(&number),
        }
    }
}
