//! Memory for waiting packets: one slab for all lists of a discipline, so that a packet needs no allocation.
//!
//! A list stores its two ends and its two sums; its links are in the slab. The slab grows to its maximum use and never shrinks.

use super::Waiting;

/// No entry.
const NONE: u32 = u32::MAX;

/// A packet, its position in the order of all arrivals, and its neighbours.
#[derive(Clone, Copy, Debug)]
struct Entry {
    packet: Waiting,
    order: u64,
    before: u32,
    behind: u32,
}

/// The slab.
#[derive(Debug, Default)]
pub(super) struct Store {
    entries: Vec<Entry>,
    free: Vec<u32>,
    arrivals: u64,
    bytes: u64,
}

/// A FIFO list of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    slots: u64,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, slots: 0, bytes: 0 }
    }
}

impl Store {
    /// Returns the number of packets in all lists.
    pub(super) fn slots(&self) -> u64 {
        (self.entries.len() - self.free.len()) as u64
    }

    /// Returns the bytes of packets in all lists.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a packet to a list.
    pub(super) fn push(&mut self, list: &mut List, packet: Waiting) {
        let entry = Entry { packet, order: self.arrivals, before: list.last, behind: NONE };
        let place = self.place(entry);
        match self.entries.get_mut(list.last as usize) {
            Some(last) => last.behind = place,
            None => list.first = place,
        }
        list.last = place;
        list.slots += 1;
        list.bytes += u64::from(packet.bytes);
        self.arrivals += 1;
        self.bytes += u64::from(packet.bytes);
    }

    /// Returns the oldest packet.
    pub(super) fn first(&self, list: &List) -> Option<&Waiting> {
        self.entries.get(list.first as usize).map(|entry| &entry.packet)
    }

    /// Removes and returns the oldest packet.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<Waiting> {
        let place = list.first;
        let entry = *self.entries.get(place as usize)?;
        list.first = entry.behind;
        match self.entries.get_mut(entry.behind as usize) {
            Some(first) => first.before = NONE,
            None => list.last = NONE,
        }
        self.leave(list, place);
        Some(entry.packet)
    }

    /// Removes and returns the newest packet.
    pub(super) fn pop_last(&mut self, list: &mut List) -> Option<Waiting> {
        let place = list.last;
        let entry = *self.entries.get(place as usize)?;
        list.last = entry.before;
        match self.entries.get_mut(entry.before as usize) {
            Some(last) => last.behind = NONE,
            None => list.first = NONE,
        }
        self.leave(list, place);
        Some(entry.packet)
    }

    /// Empties the slab and returns the packets of all lists in the order of arrival. The lists are invalid afterwards.
    pub(super) fn drain(&mut self) -> Vec<Waiting> {
        for place in self.free.drain(..) {
            self.entries[place as usize].order = u64::MAX;
        }
        self.entries.retain(|entry| entry.order != u64::MAX);
        self.entries.sort_unstable_by_key(|entry| entry.order);
        self.bytes = 0;
        self.entries.drain(..).map(|entry| entry.packet).collect()
    }

    fn place(&mut self, entry: Entry) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        }
    }

    fn leave(&mut self, list: &mut List, place: u32) {
        let bytes = u64::from(self.entries[place as usize].packet.bytes);
        list.slots -= 1;
        list.bytes -= bytes;
        self.bytes -= bytes;
        self.free.push(place);
    }
}

impl List {
    /// Returns the number of packets.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the bytes of packets.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.slots == 0
    }
}
