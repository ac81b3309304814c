//! The flows of a pipe with a mask: which instance of the pipe belongs to which flow, and which instance is reclaimed.

use std::collections::HashMap;

use sojourn_time::{Nanos, Time};

use crate::config::Mask;
use crate::select::{Key, flow_of};

/// Default limit on flows, as the mask's documentation says.
const MOST: u32 = 4_096;
/// Idle time before an instance is reclaimed, so that its state (credit, a burst of losses) survives a pause of a round trip.
pub(crate) const REST: Nanos = Nanos::seconds(1);
/// The flow identifier of the pipe shared by flows beyond the limit.
pub(crate) const SHARED: u64 = u64::MAX;
const NOBODY: u32 = u32::MAX;

/// The flows of one pipe with a mask, in the order of their last packet.
#[derive(Debug)]
pub(crate) struct Flows {
    pub mask: Mask,
    most: usize,
    places: HashMap<u64, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// The path shared by flows beyond the limit.
    pub shared: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: u64,
    path: u32,
    last: Time,
    older: u32,
    newer: u32,
}

impl Flows {
    pub fn new(mask: Mask) -> Self {
        let most = if mask.most == 0 { MOST } else { mask.most };
        Self {
            mask,
            most: most as usize,
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NOBODY,
            newest: NOBODY,
            shared: None,
        }
    }

    /// Returns the flow of a packet.
    pub fn of(&self, key: &Key) -> u64 {
        flow_of(&self.mask, key)
    }

    /// Returns the path of a flow that has a packet now, and makes it the newest; [`Flows::note`] then records the entry time.
    pub fn touch(&mut self, flow: u64) -> Option<u32> {
        let place = *self.places.get(&flow)?;
        if self.newest != place {
            self.unlink(place);
            self.append(place);
        }
        Some(self.entries[place as usize].path)
    }

    /// Records the entry time of the newest flow's last packet.
    pub fn note(&mut self, at: Time) {
        if let Some(entry) = self.entries.get_mut(self.newest as usize) {
            entry.last = entry.last.max(at);
        }
    }

    /// Returns whether the limit on flows is reached.
    pub fn is_full(&self) -> bool {
        self.places.len() >= self.most
    }

    /// Returns the path of the least recently used flow, if it has been idle long enough.
    pub fn idle(&self, now: Time) -> Option<u32> {
        let entry = self.entries.get(self.oldest as usize)?;
        (now - entry.last >= REST).then_some(entry.path)
    }

    /// Evicts the least recently used flow.
    pub fn evict(&mut self) {
        let place = self.oldest;
        if place != NOBODY {
            self.unlink(place);
            self.places.remove(&self.entries[place as usize].flow);
            self.free.push(place);
        }
    }

    /// Assigns a path to a flow.
    pub fn insert(&mut self, flow: u64, path: u32, at: Time) {
        let entry = Entry { flow, path, last: at, older: NOBODY, newer: NOBODY };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.places.insert(flow, place);
        self.append(place);
    }

    /// Returns the number of paths.
    pub fn len(&self) -> u64 {
        self.places.len() as u64 + u64::from(self.shared.is_some())
    }

    /// Returns all paths.
    pub fn paths(&self) -> impl Iterator<Item = u32> {
        self.places.values().map(|place| self.entries[*place as usize].path).chain(self.shared)
    }

    fn unlink(&mut self, place: u32) {
        let Entry { older, newer, .. } = self.entries[place as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    fn append(&mut self, place: u32) {
        let last = std::mem::replace(&mut self.newest, place);
        (self.entries[place as usize].older, self.entries[place as usize].newer) = (last, NOBODY);
        match self.entries.get_mut(last as usize) {
            Some(entry) => entry.newer = place,
            None => self.oldest = place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_that_was_idle_longest_is_evicted_first() {
        let mut flows = Flows::new(Mask { most: 3, ..Mask::default() });
        let second = |n: i64| Time(0) + Nanos::seconds(n);
        (0..3).for_each(|n| flows.insert(100 + n, n as u32, second(n as i64)));
        assert!(flows.is_full());
        assert_eq!(flows.touch(100), Some(0));
        flows.note(second(3));
        assert_eq!(flows.touch(7), None);
        assert_eq!(flows.idle(second(1)), None, "not long enough");
        assert_eq!(flows.idle(second(2)), Some(1));
        flows.evict();
        assert_eq!((flows.len(), flows.touch(101), flows.is_full()), (2, None, false));
        flows.insert(200, 9, second(4));
        assert_eq!(flows.idle(second(9)), Some(2));
        flows.evict();
        assert_eq!(flows.idle(second(9)), Some(0));
        flows.evict();
        flows.evict();
        flows.evict();
        assert_eq!((flows.len(), flows.idle(second(99))), (0, None));
    }
}
