//! Packets in the order in which the first tap saw them, found by their digests: a ring and an open-addressed table over it.
//!
//! Packets with one digest form a chain, the oldest first. The chain's head knows where it ends and which of it is the oldest
//! open packet, so that a train of equal packets costs no more than others. Numbers count up; all but the last few hold.

use std::collections::VecDeque;

use crate::Observed;

/// Of a packet that has not been seen by the second tap.
pub(crate) const OPEN: i64 = i64::MIN;
/// No packet of the chain is open.
const NONE: u32 = u32::MAX;
/// As few as the table begins with.
const LEAST_SLOTS: usize = 1 << 10;

/// A packet as the first tap saw it. Distances are counted in packets from this one on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub digest: u64,
    /// As it was stamped.
    pub time: i64,
    /// When the second tap saw it, or [`OPEN`].
    pub second: i64,
    pub length: u32,
    /// What is kept of its arrival.
    pub kept: u32,
    /// How far it is to the next of the chain; 0: it is the last.
    next: u32,
    /// Of a head: how far it is to the last of the chain.
    last: u32,
    /// Of a head: how far it is to the oldest open packet, or [`NONE`].
    open: u32,
    pub is_ambiguous: bool,
    /// What the taps add, given back as it is.
    pub notes: [u8; 2],
}

/// One place of the table: the digest's low half, and the head's number, both cut to 32 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    /// One more than the number's low half modulo 2³¹; 0: the slot is free.
    head: u32,
}

/// Numbers are compared by this many bits: a ring is never half as long.
const NUMBER_BITS: u32 = (1 << 31) - 1;

/// So many packets before it is the oldest, a packet's slot is fetched.
const FETCHED_AHEAD: usize = 12;

#[derive(Debug)]
pub(crate) struct Table {
    ring: VecDeque<Entry>,
    /// Of packets that count from a later time on than that of their stamp: their numbers, and by how much. ns.
    behind: VecDeque<(u64, i64)>,
    /// The number of the ring's first packet.
    base: u64,
    slots: Vec<Slot>,
    used: usize,
}

/// The memory that a packet takes, growth included: while the ring or the table is moved both are there, the old at half the size.
pub(crate) const BYTES_PER_ENTRY: usize = size_of::<Entry>() * 3 / 2 + size_of::<Slot>() * 4;

/// Of so many packets that are stamped too early the table keeps as much as of one more.
const BEHIND_PER_ENTRY: usize = BYTES_PER_ENTRY / (size_of::<(u64, i64)>() * 3 / 2);

/// What a second sighting is.
pub(crate) enum Found {
    /// Of this packet, by its number.
    Open(u64),
    /// Of packets that have all been seen before.
    Taken,
    /// Of none.
    Nothing,
}

impl Table {
    pub fn new() -> Self {
        Self {
            ring: VecDeque::new(),
            behind: VecDeque::new(),
            base: 0,
            slots: vec![Slot::default(); LEAST_SLOTS],
            used: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Returns how many packets would take as much memory as it does.
    #[inline]
    pub fn weight(&self) -> usize {
        self.ring.len() + self.behind.len().div_ceil(BEHIND_PER_ENTRY)
    }

    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns from when on the oldest packet counts.
    #[inline]
    pub fn oldest(&self) -> Option<i64> {
        self.front().map(|(_, at)| at)
    }

    #[inline]
    fn oldest_behind(&self) -> i64 {
        self.behind.front().filter(|(number, _)| *number == self.base).map_or(0, |(_, behind)| *behind)
    }

    #[inline]
    pub fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        self.ring.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Appends a packet, and marks it and those of its chain as ambiguous where there are any.
    pub fn append(&mut self, seen: &Observed) {
        let Observed { at, time, digest, length, note } = *seen;
        let number = self.base + self.ring.len() as u64;
        let mut entry = Entry {
            digest,
            time,
            second: OPEN,
            length,
            kept: 0,
            next: 0,
            last: 0,
            open: 0,
            is_ambiguous: false,
            notes: [note, 0],
        };
        match self.find(digest) {
            Err(free) => {
                self.slots[free] = Slot { tag: digest as u32, head: name(number) };
                self.used += 1;
            }
            Ok(slot) => {
                let head = self.place(self.slots[slot].head);
                let place = self.ring.len();
                let tail = head + self.ring[head].last as usize;
                self.ring[tail].next = (place - tail) as u32;
                self.ring[tail].is_ambiguous = true;
                let head_entry = &mut self.ring[head];
                head_entry.last = (place - head) as u32;
                if head_entry.open == NONE {
                    head_entry.open = (place - head) as u32;
                }
                entry.is_ambiguous = true;
            }
        }
        self.ring.push_back(entry);
        if at > time {
            self.behind.push_back((number, at.saturating_sub(time)));
        }
        if self.used * 2 > self.slots.len() {
            self.grow();
        }
    }

    /// Finds the oldest open packet with this digest, one that the first tap saw until then, and takes it.
    pub fn take(&mut self, digest: u64, until: i64) -> Found {
        let Ok(slot) = self.find(digest) else { return Found::Nothing };
        let head = self.place(self.slots[slot].head);
        let open = self.ring[head].open;
        if open == NONE {
            return Found::Taken;
        }
        let place = head + open as usize;
        let found = self.ring[place];
        if found.time > until {
            return if open == 0 { Found::Nothing } else { Found::Taken };
        }
        self.ring[head].open = if found.next == 0 { NONE } else { open + found.next };
        Found::Open(self.base + place as u64)
    }

    /// Returns the oldest packet, its chain's head, and from when on it counts.
    #[inline]
    pub fn front(&self) -> Option<(&Entry, i64)> {
        self.ring.front().map(|entry| (entry, entry.time.saturating_add(self.oldest_behind())))
    }

    /// Takes out the oldest packet.
    pub fn evict(&mut self) {
        let Some(entry) = self.ring.front() else { return };
        let (digest, next, last, open) = (entry.digest, entry.next, entry.last, entry.open);
        // The slot of a packet that will be the oldest soon is fetched meanwhile: it is in no cache any more.
        if let Some(soon) = self.ring.get(FETCHED_AHEAD) {
            std::hint::black_box(self.slots[self.home(soon.digest as u32)].tag);
        }
        if let Ok(slot) = self.find(digest) {
            if next == 0 {
                self.free(slot);
            } else {
                let heir = &mut self.ring[next as usize];
                heir.last = last - next;
                heir.open = match open {
                    NONE => NONE,
                    open => open.saturating_sub(next),
                };
                self.slots[slot].head = name(self.base + u64::from(next));
            }
        }
        if self.oldest_behind() > 0 {
            self.behind.pop_front();
        }
        self.ring.pop_front();
        self.base += 1;
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    /// Returns the place in the ring of a head.
    #[inline]
    fn place(&self, head: u32) -> usize {
        ((head - 1).wrapping_sub(self.base as u32) & NUMBER_BITS) as usize
    }

    /// Returns the slot of a digest, or the free one where it would be.
    fn find(&self, digest: u64) -> Result<usize, usize> {
        let (tag, mask) = (digest as u32, self.slots.len() - 1);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot.head == 0 {
                return Err(at);
            }
            if slot.tag == tag && self.ring[self.place(slot.head)].digest == digest {
                return Ok(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Frees a slot, and moves up those behind it that were pushed on by it.
    fn free(&mut self, slot: usize) {
        let mask = self.slots.len() - 1;
        let (mut hole, mut at) = (slot, slot);
        loop {
            at = (at + 1) & mask;
            if self.slots[at].head == 0 {
                break;
            }
            let home = self.home(self.slots[at].tag);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
        self.used -= 1;
    }

    fn grow(&mut self) {
        let wider = vec![Slot::default(); self.slots.len() * 2];
        let slots = std::mem::replace(&mut self.slots, wider);
        let mask = self.slots.len() - 1;
        for slot in slots.into_iter().filter(|slot| slot.head != 0) {
            let mut at = self.home(slot.tag);
            while self.slots[at].head != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

fn name(number: u64) -> u32 {
    (number as u32 & NUMBER_BITS) + 1
}
