//! Flows get numbers from 1, in the order in which a log first has a sample of them. Those without a sample get theirs when they
//! are released, or at the end.
//!
//! Who writes a log and who makes records of it number alike: both learn the same of flows in the same order. What is
//! held does not grow with how many flows there have been: a flow whose last word was said is dropped when so many have ended
//! since ([`LINGERING`]).

use std::collections::{HashMap, VecDeque};

/// So many flows are remembered after their last word: a record of theirs may have been stuck behind one that was not finished.
pub const LINGERING: usize = 16_384;

/// How many flows are found without a search, by the last bits of their slots.
const CACHED: usize = 1024;

/// The numbers of a log's flows, by the cookies of their sockets.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<u64, Known>,
    cache: Vec<(u64, i32)>,
    /// Flows whose last word has been said, the oldest first.
    ended: VecDeque<u64>,
    last: i32,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// 0: it has no sample yet.
    number: i32,
    /// The slots of which a word was said that was not the last: a socket that is used again keeps its cookie, and the slot of
    /// before is given back only while the new one lives.
    open: Vec<u32>,
    is_over: bool,
}

impl Numbers {
    /// Takes note of a sample; returns its flow's number.
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

    /// Takes note of a word on a flow in a slot, which may be the last; returns a flow that ended long ago, with its number, and
    /// drops it.
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

    /// Returns the number of a flow that has a sample.
    pub fn known(&self, cookie: u64) -> Option<i32> {
        self.known.get(&cookie).map(|known| known.number).filter(|number| *number != 0)
    }

    /// Returns a flow's number, the next one where it has none.
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

    /// Ends as many other flows as make one that is over be released; returns what was released.
    fn end_others(numbers: &mut Numbers) -> Vec<u64> {
        let ends = (0..=LINGERING as u64).filter_map(|other| numbers.word(1_000 + other, 9, true));
        ends.map(|(cookie, _)| cookie).collect()
    }

    #[test]
    fn a_socket_that_is_used_again_is_remembered_while_its_last_slot_lives() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.sample(7, 1), numbers.word(7, 1, false)), (1, None));
        // Used again in another slot, of which a word is said before the last one on the slot of before.
        assert_eq!((numbers.sample(7, 2), numbers.word(7, 2, false)), (1, None));
        assert_eq!(numbers.word(7, 1, true), None);
        assert!(!end_others(&mut numbers).contains(&7));
        assert_eq!(numbers.sample(7, 2), 1);
        assert_eq!(numbers.word(7, 2, true).map(|(cookie, _)| cookie), Some(1_001));
        assert!(end_others(&mut numbers).contains(&7));
        assert_eq!(numbers.known(7), None);
    }
}
