//! Packets in the order of the first tap, indexed by digest: a ring with an open-addressed hash table.
//!
//! Packets with equal digests form a chain, the oldest first. The head of a chain stores its end and its oldest open
//! packet, so that a train of equal packets costs no more than others. Numbers only increase; a slot stores their low
//! 31 bits.

use std::collections::VecDeque;

use crate::Observed;

/// The value for a packet that the second tap has not seen.
pub(crate) const OPEN: i64 = i64::MIN;
/// No packet of the chain is open.
const NONE: u32 = u32::MAX;
/// The initial and minimum number of slots.
const LEAST_SLOTS: usize = 1 << 10;

/// A packet of the first tap. Distances are counted in packets from this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub digest: u64,
    /// The timestamp.
    pub time: i64,
    /// The timestamp of the second tap, or [`OPEN`].
    pub second: i64,
    pub length: u32,
    /// The value kept from its arrival.
    pub kept: u32,
    /// The distance to the next packet of the chain; 0: it is the last.
    next: u32,
    /// In a head: the distance to the last packet of the chain.
    last: u32,
    /// In a head: the distance to the oldest open packet, or [`NONE`].
    open: u32,
    pub is_ambiguous: bool,
    /// The notes of both taps, returned unchanged.
    pub notes: [u8; 2],
}

/// A slot of the hash table: the digest and the head's number, both cut to 32 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    /// The low 31 bits of the number plus 1; 0: the slot is free.
    head: u32,
}

/// The bits by which numbers are compared: a ring is always less than half as long.
const NUMBER_BITS: u32 = (1 << 31) - 1;

/// How many packets before a packet becomes the oldest its slot is prefetched.
const FETCHED_AHEAD: usize = 12;

#[derive(Debug)]
pub(crate) struct Table {
    ring: VecDeque<Entry>,
    /// Packets whose ordering time is later than their timestamp: number and difference in ns.
    behind: VecDeque<(u64, i64)>,
    /// The number of the ring's first packet.
    base: u64,
    slots: Vec<Slot>,
    used: usize,
}

/// The memory per packet, including growth: during reallocation, the old storage of half the size exists too.
pub(crate) const BYTES_PER_ENTRY: usize = size_of::<Entry>() * 3 / 2 + size_of::<Slot>() * 4;

/// How many packets with such a difference take as much memory as one more packet.
const BEHIND_PER_ENTRY: usize = BYTES_PER_ENTRY / (size_of::<(u64, i64)>() * 3 / 2);

/// The result of looking up a packet of the second tap.
pub(crate) enum Found {
    /// An open packet, by its number.
    Open(u64),
    /// Equal packets exist, but all are matched already.
    Taken,
    /// No such packet.
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

    /// Return the memory used, in packets.
    #[inline]
    pub fn weight(&self) -> usize {
        self.ring.len() + self.behind.len().div_ceil(BEHIND_PER_ENTRY)
    }

    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Return the ordering time of the oldest packet.
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

    /// Append a packet; if its chain is not empty, mark it and the others as ambiguous.
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

    /// Take the oldest open packet with this digest that the first tap saw until `until`.
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

    /// Return the oldest packet, which heads its chain, and its ordering time.
    #[inline]
    pub fn front(&self) -> Option<(&Entry, i64)> {
        self.ring.front().map(|entry| (entry, entry.time.saturating_add(self.oldest_behind())))
    }

    /// Remove the oldest packet.
    pub fn evict(&mut self) {
        let Some(entry) = self.ring.front() else { return };
        let (digest, next, last, open) = (entry.digest, entry.next, entry.last, entry.open);
        // Prefetch the slot of a packet that will soon be the oldest: it is no longer in the cache.
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

    /// Return the index of a head in the ring.
    #[inline]
    fn place(&self, head: u32) -> usize {
        ((head - 1).wrapping_sub(self.base as u32) & NUMBER_BITS) as usize
    }

    /// Return the slot of a digest, or the free slot where it would be inserted.
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

    /// Free a slot, and move back the entries that it had displaced.
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
