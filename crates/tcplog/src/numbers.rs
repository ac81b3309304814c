//! Flows get numbers from 1, in the order in which a log first has a sample of them. Those without a sample get theirs when they
//! are forgotten, or at the end.
//!
//! Who writes a log and who makes records of it number alike: both are told the same of flows in the same order. What is
//! held does not grow with how many flows there have been: a flow whose last word was said is forgotten when so many have ended
//! since ([`LINGERING`]).

use std::collections::{HashMap, VecDeque};

/// So many flows are remembered after their last word: a record of theirs may have been stuck behind one that was not finished.
pub const LINGERING: usize = 16_384;

/// How many flows are found without a search, by the last bits of their slots.
const QUICK: usize = 1024;

/// The numbers of a log's flows, by the cookies of their sockets.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<u64, Known>,
    quick: Vec<(u64, i32)>,
    /// Flows whose last word has been said, the oldest first.
    ended: VecDeque<u64>,
    last: i32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// 0: it has no sample yet.
    number: i32,
    is_over: bool,
}

impl Numbers {
    /// Takes note of a sample; returns its flow's number.
    pub fn sample(&mut self, cookie: u64, slot: u32) -> i32 {
        if self.quick.is_empty() {
            self.quick = vec![(0, 0); QUICK];
        }
        let quick = slot as usize % QUICK;
        let (known, number) = self.quick[quick];
        if number != 0 && known == cookie {
            return number;
        }
        let number = self.number(cookie);
        self.quick[quick] = (cookie, number);
        number
    }

    /// Takes note of a word on a flow, which may be the last; returns a flow that ended long ago, with its number, and forgets it.
    pub fn word(&mut self, cookie: u64, is_last: bool) -> Option<(u64, i32)> {
        self.known.entry(cookie).or_default().is_over = is_last;
        if is_last {
            self.ended.push_back(cookie);
        }
        while self.ended.len() > LINGERING {
            let cookie = self.ended.pop_front()?;
            if self.known.get(&cookie).is_some_and(|known| known.is_over) {
                let number = self.number(cookie);
                self.known.remove(&cookie);
                self.quick.iter_mut().filter(|(quick, _)| *quick == cookie).for_each(|quick| *quick = (0, 0));
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
