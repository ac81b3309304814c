//! Merges the departures of several streams into one sequence, which one thread sends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sojourn_time::Nanos;

use crate::Departures;

/// Departures in ascending order of time; at equal times, in the order of the streams.
#[derive(Debug)]
pub struct Merge {
    streams: Vec<Departures>,
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Merge {
    /// Merges streams, which are identified by their index.
    pub fn new(mut streams: Vec<Departures>) -> Self {
        let firsts = streams.iter_mut().enumerate();
        let next = firsts.filter_map(|(place, stream)| Some(Reverse((stream.next()?, place)))).collect();
        Self { streams, next }
    }

    /// Returns the next departure and the index of its stream, without advancing.
    pub fn peek(&self) -> Option<(Nanos, usize)> {
        self.next.peek().map(|Reverse(next)| *next)
    }
}

impl Iterator for Merge {
    type Item = (Nanos, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let mut top = self.next.peek_mut()?;
        let Reverse((offset, place)) = *top;
        match self.streams[place].next() {
            Some(following) => *top = Reverse((following, place)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
        Some((offset, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Schedule};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_departures_are_complete_and_ordered(rates in prop::collection::vec((1.0..1e6_f64, 0..200_u64), 0..8)) {
            let streams = rates.iter().enumerate().map(|(place, (rate, count))| {
                let pattern = if place % 2 == 0 { Pattern::Poisson } else { Pattern::Regular };
                Schedule::new(pattern, *rate, *count, place as u64).departures()
            });
            let streams: Vec<_> = streams.collect();
            let merged: Vec<_> = Merge::new(streams.clone()).collect();
            prop_assert!(merged.is_sorted());
            for (place, stream) in streams.into_iter().enumerate() {
                let own: Vec<_> = merged.iter().filter(|(_, of)| *of == place).map(|(offset, _)| *offset).collect();
                prop_assert_eq!(own, stream.collect::<Vec<_>>());
            }
        }
    }
}
