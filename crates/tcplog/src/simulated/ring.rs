//! A ring of one CPU as the programs have it, but counted in bytes: places are reserved in order, records appear in that order, and one that is still
//! being made holds back those behind it.

use std::collections::VecDeque;

/// What comes before each record.
const HEADER: usize = 8;

/// A bounded ring.
#[derive(Clone, Debug)]
pub struct Ring {
    room: usize,
    used: usize,
    /// The place of the first of `records`.
    first: u64,
    records: VecDeque<Record>,
}

#[derive(Clone, Debug)]
struct Record {
    takes: usize,
    /// None: still being made. Empty: discarded.
    event: Option<Vec<u8>>,
}

impl Ring {
    /// A ring of so many bytes.
    pub fn new(room: usize) -> Self {
        Self { room, used: 0, first: 0, records: VecDeque::new() }
    }

    /// Reserves a place for so many bytes; none: it is full.
    pub fn reserve(&mut self, bytes: usize) -> Option<u64> {
        let takes = HEADER + bytes.next_multiple_of(8);
        if self.used + takes > self.room {
            return None;
        }
        self.used += takes;
        self.records.push_back(Record { takes, event: None });
        Some(self.first + self.records.len() as u64 - 1)
    }

    /// Fills a place: with a record, or with nothing.
    pub fn submit(&mut self, place: u64, event: Vec<u8>) {
        let at = usize::try_from(place - self.first).unwrap_or(usize::MAX);
        if let Some(record) = self.records.get_mut(at) {
            record.event = Some(event);
        }
    }

    /// Takes the oldest record, if it is ready.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        while self.records.front()?.event.is_some() {
            let record = self.records.pop_front()?;
            self.used -= record.takes;
            self.first += 1;
            if let Some(event) = record.event.filter(|event| !event.is_empty()) {
                return Some(event);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_the_order_of_their_places() {
        let mut ring = Ring::new(100);
        let (first, second) = (ring.reserve(16).expect("room"), ring.reserve(16).expect("room"));
        ring.submit(second, vec![2]);
        assert_eq!(ring.take(), None, "the first one is still being made");
        let third = ring.reserve(16).expect("room");
        ring.submit(first, vec![1]);
        assert_eq!(ring.reserve(32), None, "it is full");
        assert_eq!((ring.take(), ring.take()), (Some(vec![1]), Some(vec![2])));
        ring.submit(third, Vec::new());
        assert_eq!(ring.take(), None, "what was discarded does not appear");
        assert!(ring.reserve(88).is_some(), "and all is free again");
    }
}
