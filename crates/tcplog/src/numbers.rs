//! Assign numbers to flows, from 1, in the order of their first samples in a log. Flows without a sample get a number
//! when they are released, or at the end.
//!
//! The writer of a log and its reader assign the same numbers, because both see the same entries in the same order.
//! Memory does not grow with the number of flows: a flow is dropped once [`LINGERING`] others have ended after its
//! final entry.

use std::collections::{HashMap, VecDeque};

/// How many flows are kept after their final entry: a record may still be delayed behind an unfinished one.
pub const LINGERING: usize = 16_384;

/// How many flows a log may have before it ends. The numbers above are left for the flows that are then in the table and
/// in the rings.
pub const MOST_FLOWS: i32 = i32::MAX - (1 << 24);

/// The number of cache entries, by the last bits of the slot.
const CACHED: usize = 1024;

/// The numbers of a log's flows, by the cookies of their sockets.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<u64, Known>,
    cache: Vec<(u64, i32)>,
    /// Flows whose final entry has been seen, the oldest first.
    ended: VecDeque<u64>,
    last: i32,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// 0: no sample yet.
    number: i32,
    /// Slots with an entry that was not final. A reused socket keeps its cookie, and its former slot is freed while the
    /// new flow exists.
    open: Vec<u32>,
    is_over: bool,
}

impl Numbers {
    /// Return numbers that go on after `last`.
    #[must_use]
    pub fn after(last: i32) -> Self {
        Self { last, ..Self::default() }
    }

    /// Whether there are as many flows as a log may have.
    pub fn are_used_up(&self) -> bool {
        self.last >= MOST_FLOWS
    }

    /// Handle a sample; return its flow's number.
    pub fn sample(&mut self, cookie: u64, slot: u32) -> i32 {
        if self.cache.is_empty() {
            self.cache = vec![(0, 0); CACHED];
        }
        let at = slot as usize % CACHED;
        let (known, number) = self.cache[at];
        if number != 0 && known == cookie {
            return number;
        }
        let number = self.number(cookie);
        self.cache[at] = (cookie, number);
        number
    }

    /// Handle an entry about a flow in a slot, which may be the final one. If too many ended flows are kept, drop the
    /// oldest and return its cookie and number.
    pub fn word(&mut self, cookie: u64, slot: u32, is_last: bool) -> Option<(u64, i32)> {
        let known = self.known.entry(cookie).or_default();
        if is_last {
            known.open.retain(|open| *open != slot);
        } else if !known.open.contains(&slot) {
            known.open.push(slot);
        }
        known.is_over = known.open.is_empty();
        if known.is_over {
            self.ended.push_back(cookie);
        }
        while self.ended.len() > LINGERING {
            let cookie = self.ended.pop_front()?;
            if self.known.get(&cookie).is_some_and(|known| known.is_over) {
                let number = self.number(cookie);
                self.known.remove(&cookie);
                self.cache.iter_mut().filter(|(known, _)| *known == cookie).for_each(|entry| *entry = (0, 0));
                return Some((cookie, number));
            }
        }
        None
    }

    /// Return the number of a flow, if it has one.
    pub fn known(&self, cookie: u64) -> Option<i32> {
        self.known.get(&cookie).map(|known| known.number).filter(|number| *number != 0)
    }

    /// Return a flow's number; assign the next one where it has none.
    pub fn number(&mut self, cookie: u64) -> i32 {
        let known = self.known.entry(cookie).or_default();
        if known.number == 0 {
            self.last = self.last.saturating_add(1);
            known.number = self.last;
        }
        known.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// End as many other flows as it takes to drop one that has ended; return the dropped ones.
    fn end_others(numbers: &mut Numbers) -> Vec<u64> {
        let ends = (0..=LINGERING as u64).filter_map(|other| numbers.word(1_000 + other, 9, true));
        ends.map(|(cookie, _)| cookie).collect()
    }

    #[test]
    fn last_numbers_are_left_for_flows_under_way() {
        let mut numbers = Numbers::after(MOST_FLOWS - 1);
        assert!(!numbers.are_used_up());
        assert_eq!((numbers.sample(7, 1), numbers.are_used_up()), (MOST_FLOWS, true));
        let under_way: Vec<_> = (8..16).map(|cookie| numbers.sample(cookie, 2)).collect();
        assert_eq!(under_way, (1..9).map(|more| MOST_FLOWS + more).collect::<Vec<_>>());
    }

    #[test]
    fn reused_socket_keeps_its_number_while_its_last_slot_is_in_use() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.sample(7, 1), numbers.word(7, 1, false)), (1, None));
        // The socket is reused in another slot, which has an entry before the final entry of the former slot.
        assert_eq!((numbers.sample(7, 2), numbers.word(7, 2, false)), (1, None));
        assert_eq!(numbers.word(7, 1, true), None);
        assert!(!end_others(&mut numbers).contains(&7));
        assert_eq!(numbers.sample(7, 2), 1);
        assert_eq!(numbers.word(7, 2, true).map(|(cookie, _)| cookie), Some(1_001));
        assert!(end_others(&mut numbers).contains(&7));
        assert_eq!(numbers.known(7), None);
    }
}
