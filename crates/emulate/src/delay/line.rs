//! The delay line: which packet leaves when.
//!
//! If order is kept, an arriving packet adds a departure time and joins a FIFO; at each of the added times the oldest
//! packet leaves. The set of departure times is therefore exactly the drawn one, the mean delay is as configured, and
//! no packet overtakes another. Reordered packets leave at their own times.
//!
//! Order is kept within each sub-queue (lane) of the line; each range of ports with its own delay has one.
//!
//! Ascending times, as with a constant delay, are appended to a list; only the others need a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sojourn_time::{Nanos, Time};

/// Packets that wait for their departure, by their slots.
#[derive(Debug)]
pub(crate) struct Line {
    /// Sub-queues: each keeps its order, independently of the others.
    lanes: Vec<Lane>,
    /// Packets that leave at their own times.
    own: Rising<u32>,
    latest: Time,
}

/// A sub-queue: a FIFO of packets.
#[derive(Debug)]
struct Lane {
    /// Packets in order of arrival.
    kept: VecDeque<u32>,
    /// As many departure times.
    times: Rising<()>,
    /// The last departure time.
    clock: Time,
}

impl Lane {
    fn new() -> Self {
        Self { kept: VecDeque::new(), times: Rising::new(), clock: Time(i64::MIN) }
    }
}

impl Line {
    pub fn new() -> Self {
        Self { lanes: vec![Lane::new()], own: Rising::new(), latest: Time(i64::MIN) }
    }

    /// Adds a packet with departure time `until` to a sub-queue; `None`: it leaves then, regardless of order.
    pub fn push(&mut self, slot: u32, until: Time, lane: Option<usize>) {
        self.latest = self.latest.max(until);
        let Some(lane) = lane else {
            self.own.push(until, slot);
            return;
        };
        while self.lanes.len() <= lane {
            self.lanes.push(Lane::new());
        }
        let lane = &mut self.lanes[lane];
        lane.kept.push_back(slot);
        // The sub-queue's past cannot change: an earlier time becomes that of the last departure.
        lane.times.push(until.max(lane.clock), ());
    }

    /// Returns the time of the next departure.
    pub fn next(&self) -> Time {
        self.lanes.iter().fold(self.own.first(), |next, lane| next.min(lane.times.first()))
    }

    /// Removes and returns the next packet to leave.
    pub fn pop(&mut self) -> Option<(u32, Time)> {
        let lane = self.lanes.iter_mut().min_by_key(|lane| lane.times.first())?;
        if self.own.first() < lane.times.first() {
            let (at, slot) = self.own.pop()?;
            return Some((slot, at));
        }
        let (at, ()) = lane.times.pop()?;
        lane.clock = at;
        Some((lane.kept.pop_front()?, at))
    }

    /// Returns the earliest time at which a packet may enter if it stays at least `least` in its sub-queue: it must not
    /// leave before an earlier packet of that sub-queue has left. Sub-queues beyond `least` get no more packets.
    pub fn earliest(&self, least: &[Nanos]) -> Time {
        let of_lane = |(lane, least): (&Lane, &Nanos)| lane.clock - *least;
        self.lanes.iter().zip(least).map(of_lane).max().unwrap_or(Time(i64::MIN))
    }

    /// Returns the latest departure time of all packets so far.
    pub fn latest(&self) -> Time {
        self.latest
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> u64 {
        (self.lanes.iter().map(|lane| lane.kept.len()).sum::<usize>() + self.own.len()) as u64
    }
}

/// A priority queue by time; equal times are served in order of insertion.
#[derive(Debug)]
struct Rising<T> {
    /// Entries inserted in ascending order of time.
    sorted: VecDeque<(Time, u64, T)>,
    /// Entries inserted with a time below that of an earlier entry.
    others: BinaryHeap<Reverse<(Time, u64, T)>>,
    count: u64,
}

impl<T: Ord + Copy> Rising<T> {
    fn new() -> Self {
        Self { sorted: VecDeque::new(), others: BinaryHeap::new(), count: 0 }
    }

    fn push(&mut self, at: Time, what: T) {
        self.count += 1;
        if self.sorted.back().is_none_or(|(last, ..)| *last <= at) {
            self.sorted.push_back((at, self.count, what));
        } else {
            self.others.push(Reverse((at, self.count, what)));
        }
    }

    fn first(&self) -> Time {
        let sorted = self.sorted.front().map_or(Time::NEVER, |(at, ..)| *at);
        self.others.peek().map_or(sorted, |Reverse((at, ..))| sorted.min(*at))
    }

    fn pop(&mut self) -> Option<(Time, T)> {
        let is_other = match (self.sorted.front(), self.others.peek()) {
            (Some(sorted), Some(Reverse(other))) => (other.0, other.1) < (sorted.0, sorted.1),
            (None, other) => other.is_some(),
            (Some(_), None) => false,
        };
        let (at, _, what) = if is_other { self.others.pop()?.0 } else { self.sorted.pop_front()? };
        Some((at, what))
    }

    fn len(&self) -> usize {
        self.sorted.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shorter_delay_reorders_nothing_and_changes_no_earlier_departure() {
        let mut line = Line::new();
        [(0, 100), (1, 110), (2, 25)].into_iter().for_each(|(slot, until)| line.push(slot, Time(until), Some(0)));
        let left: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(left, [(0, Time(25)), (1, Time(100)), (2, Time(110))]);
    }

    #[test]
    fn chosen_packets_leave_at_their_own_time() {
        let mut line = Line::new();
        line.push(0, Time(100), Some(0));
        line.push(1, Time(30), None);
        line.push(2, Time(120), Some(0));
        assert_eq!(line.next(), Time(30));
        let left: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(left, [(1, Time(30)), (0, Time(100)), (2, Time(120))]);
    }

    #[test]
    fn packet_due_before_the_last_departure_leaves_at_that_departure() {
        let mut line = Line::new();
        line.push(0, Time(50), Some(0));
        line.pop();
        line.push(1, Time(40), Some(0));
        assert_eq!(line.pop(), Some((1, Time(50))));
    }

    #[test]
    fn no_flow_waits_for_another() {
        let mut line = Line::new();
        for (slot, at, lane) in [(0, 100, 1), (1, 20, 0), (2, 110, 1), (3, 30, 0)] {
            line.push(slot, Time(at), Some(lane));
        }
        let left: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(left, [(1, Time(20)), (3, Time(30)), (0, Time(100)), (2, Time(110))]);
        assert_eq!(line.earliest(&[Nanos(10), Nanos(90)]), Time(20));
        assert_eq!(line.earliest(&[Nanos(25), Nanos(60)]), Time(50));
    }

    proptest! {
        #[test]
        fn packets_of_one_flow_leave_in_order_at_the_sorted_due_times(times in prop::collection::vec(0..1_000_i64, 1..200)) {
            let mut line = Line::new();
            times.iter().enumerate().for_each(|(slot, at)| line.push(slot as u32, Time(*at), Some(0)));
            let left: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            prop_assert_eq!(left, sorted.into_iter().enumerate().map(|(slot, at)| (slot as u32, Time(at))).collect::<Vec<_>>());
        }

        #[test]
        fn packets_without_a_flow_leave_sorted_by_due_time(times in prop::collection::vec(0..1_000_i64, 1..200)) {
            let mut line = Line::new();
            times.iter().enumerate().for_each(|(slot, at)| line.push(slot as u32, Time(*at), None));
            let left: Vec<_> = std::iter::from_fn(|| line.pop()).map(|(slot, at)| (at, slot)).collect();
            let mut sorted: Vec<_> = times.iter().enumerate().map(|(slot, at)| (Time(*at), slot as u32)).collect();
            sorted.sort_unstable();
            prop_assert_eq!(left, sorted);
        }
    }
}
