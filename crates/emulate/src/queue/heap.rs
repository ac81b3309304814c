//! An indexed binary heap: identifiers by key, whose keys can be changed.

/// Marks an identifier that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Identifiers by ascending key, then by identifier; each is in the heap at most once.
#[derive(Debug)]
pub(super) struct Heap<K> {
    heap: Vec<(K, u32)>,
    /// The position of each identifier.
    at: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { heap: Vec::new(), at: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// Returns the minimum.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Inserts an identifier, or changes its key.
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

    /// Removes an identifier, if it is in the heap.
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
