//! The ring of one CPU as the programs see it: slots are taken in order, records become readable in that order, and an
//! unfinished record delays those after it.

use std::collections::VecDeque;

use crate::decide;

/// A bounded ring.
#[derive(Clone, Debug)]
pub struct Ring {
    slots: u32,
    /// The position of the first of `records`.
    read: u64,
    /// `None`: not finished yet.
    records: VecDeque<Option<Vec<u8>>>,
}

impl Ring {
    /// Create a ring of `slots` slots.
    pub fn new(slots: u32) -> Self {
        Self { slots, read: 0, records: VecDeque::new() }
    }

    /// Take the next slot and return its position; `None`: the ring is full.
    pub fn reserve(&mut self) -> Option<u64> {
        let position = self.read + self.records.len() as u64;
        if decide::is_full(position, self.read, self.slots) {
            return None;
        }
        self.records.push_back(None);
        Some(position)
    }

    /// Publish a record in its slot.
    pub fn submit(&mut self, position: u64, event: Vec<u8>) {
        let at = usize::try_from(position - self.read).unwrap_or(usize::MAX);
        if let Some(record) = self.records.get_mut(at) {
            *record = Some(event);
        }
    }

    /// Take the oldest record, if it is finished.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let event = self.records.front_mut()?.take()?;
        self.records.pop_front();
        self.read += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_in_reservation_order() {
        let mut ring = Ring::new(4);
        let (first, second) = (ring.reserve().expect("room"), ring.reserve().expect("room"));
        ring.submit(second, vec![2]);
        assert_eq!(ring.take(), None, "the first one is still being made");
        ring.submit(first, vec![1]);
        let more = [ring.reserve(), ring.reserve(), ring.reserve()];
        assert!(more[1].is_some() && more[2].is_none(), "it is full: {more:?}");
        assert_eq!((ring.take(), ring.take(), ring.take()), (Some(vec![1]), Some(vec![2]), None));
        assert!((0..2).all(|_| ring.reserve().is_some()), "what was read is free again");
    }
}
