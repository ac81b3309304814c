//! A heap in which everyone has a number and can be found again.

/// No place.
const NOWHERE: u32 = u32::MAX;

/// Numbers by key, the least first, equal ones by number; each is in it once at most.
#[derive(Debug)]
pub(super) struct Heap<K> {
    heap: Vec<(K, u32)>,
    /// Where each number is.
    at: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { heap: Vec::new(), at: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// Looks at the least.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Puts a number in, or changes its key.
    pub(super) fn set(&mut self, id: u32, key: K) {
        if self.at.len() <= id as usize {
            self.at.resize(id as usize + 1, NOWHERE);
        }
        if self.at[id as usize] == NOWHERE {
            self.at[id as usize] = self.heap.len() as u32;
            self.heap.push((key, id));
        }
        let place = self.at[id as usize] as usize;
        self.heap[place].0 = key;
        self.sift(place);
    }

    /// Takes a number out, if it is in.
    pub(super) fn remove(&mut self, id: u32) {
        let place = self.at.get(id as usize).copied().unwrap_or(NOWHERE);
        if place == NOWHERE {
            return;
        }
        self.heap.swap_remove(place as usize);
        self.at[id as usize] = NOWHERE;
        if let Some((_, moved)) = self.heap.get(place as usize) {
            self.at[*moved as usize] = place;
            self.sift(place as usize);
        }
    }

    fn sift(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.heap[child] < self.heap[least] {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.at[self.heap[one].1 as usize] = one as u32;
        self.at[self.heap[other].1 as usize] = other as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_an_ordered_set(steps in prop::collection::vec((0_u32..20, prop::option::of(0_u8..10)), 1..200)) {
            let (mut heap, mut set) = (Heap::default(), BTreeSet::new());
            for (id, key) in steps {
                set.retain(|(_, other)| *other != id);
                match key {
                    Some(key) => {
                        heap.set(id, key);
                        set.insert((key, id));
                    }
                    None => heap.remove(id),
                }
                prop_assert_eq!(heap.first(), set.first().copied());
            }
        }
    }
}
