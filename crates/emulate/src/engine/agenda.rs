//! A timer queue: an indexed binary heap of paths, each with one time. Costs are logarithmic in the number of paths, not of packets.

use sojourn_time::Time;

const NOWHERE: u32 = u32::MAX;

/// The next event of each path.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Binary heap of paths with an event: the earliest first; at equal times the lower rank first.
    heap: Vec<u32>,
    /// The position of each path in the heap.
    places: Vec<u32>,
    times: Vec<Time>,
    ranks: Vec<u64>,
}

impl Agenda {
    /// Sets the rank of a path that has no event.
    pub fn rank(&mut self, who: u32, rank: u64) {
        self.know(who);
        self.ranks[who as usize] = rank;
    }

    /// Sets the time of a path's next event; [`Time::NEVER`]: none.
    pub fn set(&mut self, who: u32, at: Time) {
        let index = who as usize;
        self.know(who);
        if self.times[index] == at {
            return;
        }
        self.times[index] = at;
        match (self.places[index], at == Time::NEVER) {
            (NOWHERE, true) => {}
            (NOWHERE, false) => {
                self.heap.push(who);
                self.places[index] = self.heap.len() as u32 - 1;
                self.rise(self.heap.len() - 1);
            }
            (place, true) => self.remove(place as usize),
            (place, false) => {
                self.rise(place as usize);
                self.sink(self.places[index] as usize);
            }
        }
    }

    /// Returns the earliest event: its time and its path.
    pub fn first(&self) -> Option<(Time, u32)> {
        let who = *self.heap.first()?;
        Some((self.times[who as usize], who))
    }

    /// Returns the time of the earliest event.
    pub fn next(&self) -> Time {
        self.first().map_or(Time::NEVER, |(at, _)| at)
    }

    fn know(&mut self, who: u32) {
        let count = who as usize + 1;
        if count > self.times.len() {
            self.times.resize(count, Time::NEVER);
            self.places.resize(count, NOWHERE);
            self.ranks.resize(count, 0);
        }
    }

    fn remove(&mut self, place: usize) {
        let who = self.heap.swap_remove(place);
        self.places[who as usize] = NOWHERE;
        if let Some(moved) = self.heap.get(place) {
            let moved = *moved as usize;
            self.places[moved] = place as u32;
            self.rise(place);
            self.sink(self.places[moved] as usize);
        }
    }

    fn key(&self, place: usize) -> (Time, u64, u32) {
        let who = self.heap[place];
        (self.times[who as usize], self.ranks[who as usize], who)
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.key(place) < self.key((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.key(*child)) else { return };
            if self.key(place) <= self.key(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.places[self.heap[one] as usize] = one as u32;
        self.places[self.heap[other] as usize] = other as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_entry_is_the_earliest_after_any_changes(turns in prop::collection::vec((0..20_u32, 0..50_i64), 1..300)) {
            let (mut agenda, mut truth) = (Agenda::default(), std::collections::BTreeMap::new());
            for (who, at) in turns {
                let at = if at == 0 { Time::NEVER } else { Time(at) };
                agenda.set(who, at);
                truth.insert(who, at);
                let first = truth.iter().filter(|(_, at)| **at != Time::NEVER).map(|(who, at)| (*at, *who)).min();
                prop_assert_eq!(agenda.first(), first);
            }
        }
    }
}
