//! Memory for held frames: chunks, each divided into slots of one size, up to a limit over all pipes.
//!
//! Chunks are allocated on demand and kept, so that no packet waits for the allocator; an empty chunk is freed only
//! when frames of another size need its memory. The limit applies to all allocated memory: the chunks, the metadata of
//! packets, and their places in queues and delay lines. This module knows nothing of pipes.

use crate::disposition::{HEAD, Packet};
use crate::queue::Waiting;

/// log2 of the smallest slot: 2⁷ bytes.
const SMALLEST: u32 = 7;
/// Slot sizes: 128 bytes to 64 KiB.
const CLASSES: usize = 10;
/// The longest frame that can be held.
const LONGEST: usize = 1 << (SMALLEST as usize + CLASSES - 1);
/// Target size of a chunk in bytes, if that gives at least one slot and at most [`MOST`].
const CHUNK: usize = 16 << 10;
/// Maximum slots per chunk: the bits of a word.
const MOST: usize = 64;
/// The bits of a slot number that are the index within its chunk.
const INDEX_BITS: u32 = MOST.trailing_zeros();
/// Maximum memory of a packet in the queue and in the delay line, whose buffers grow by doubling.
const PLACES: usize = 2 * (size_of::<Waiting>() + 32);

/// The held frames, each in a slot.
#[derive(Debug)]
pub(crate) struct Store {
    limit: u64,
    taken: u64,
    held: u64,
    most_held: u64,
    frames: u64,
    keeps_heads: bool,
    chunks: Vec<Chunk>,
    /// For each size, the chunks that are neither empty nor full.
    open: [Vec<u32>; CLASSES],
    /// For each size, the empty chunks.
    empty: [Vec<u32>; CLASSES],
    /// Chunks whose memory was freed.
    gone: Vec<u32>,
}

/// One chunk.
#[derive(Debug, Default)]
struct Chunk {
    class: u8,
    /// Its position in the list of open chunks.
    place: u32,
    /// Bitmap of free slots.
    free: u64,
    bytes: Box<[u8]>,
    packets: Vec<Packet>,
    heads: Vec<[u8; HEAD]>,
}

impl Store {
    /// Makes an empty store that allocates at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            taken: 0,
            held: 0,
            most_held: 0,
            frames: 0,
            keeps_heads: false,
            chunks: Vec::new(),
            open: Default::default(),
            empty: Default::default(),
            gone: Vec::new(),
        }
    }

    /// From now on, keeps the beginning of each frame as it arrived; frames already held count as they are now.
    pub fn keep_heads(&mut self) {
        self.keeps_heads = true;
        for chunk in &mut self.chunks {
            let (before, bits) = (chunk.cost(), chunk.bits());
            chunk.heads =
                (0..chunk.packets.len()).map(|index| head_of(&chunk.bytes[index << bits..][..1 << bits])).collect();
            self.taken += chunk.cost() - before;
        }
    }

    /// Stores a frame; `None`: the limit is reached, or the frame is too long.
    pub fn take(&mut self, frame: &[u8], packet: Packet) -> Option<u32> {
        let slot = self.reserve(frame.len(), packet)?;
        self.frame_mut(slot).copy_from_slice(frame);
        if self.keeps_heads {
            self.chunks[chunk_of(slot)].heads[index_of(slot)] = head_of(frame);
        }
        Some(slot)
    }

    /// Stores a copy of a held frame.
    pub fn copy(&mut self, slot: u32, packet: Packet) -> Option<u32> {
        let length = packet.arrival.bytes as usize;
        let copy = self.reserve(length, packet)?;
        let [from, to] = [slot, copy].map(|slot| index_of(slot) << self.chunks[chunk_of(slot)].bits());
        if let Ok([one, other]) = self.chunks.get_disjoint_mut([chunk_of(slot), chunk_of(copy)]) {
            other.bytes[to..to + length].copy_from_slice(&one.bytes[from..from + length]);
        } else {
            self.chunks[chunk_of(slot)].bytes.copy_within(from..from + length, to);
        }
        if self.keeps_heads {
            self.chunks[chunk_of(copy)].heads[index_of(copy)] = self.chunks[chunk_of(slot)].heads[index_of(slot)];
        }
        Some(copy)
    }

    /// Reserves a slot for a frame of `bytes` bytes.
    fn reserve(&mut self, bytes: usize, packet: Packet) -> Option<u32> {
        debug_assert_eq!(bytes, packet.arrival.bytes as usize);
        let class = class_of(bytes)?;
        let number = match self.open[class].last() {
            Some(number) => *number,
            None => self.open_chunk(class)?,
        };
        let chunk = &mut self.chunks[number as usize];
        let index = chunk.occupy();
        chunk.packets[index] = packet;
        if chunk.is_full() {
            self.open[class].pop();
        }
        self.frames += 1;
        self.held += bytes as u64;
        self.most_held = self.most_held.max(self.held);
        Some(number << INDEX_BITS | index as u32)
    }

    /// Frees a slot.
    pub fn release(&mut self, slot: u32) {
        let number = chunk_of(slot);
        let chunk = &mut self.chunks[number];
        let (was_full, class) = (chunk.is_full(), usize::from(chunk.class));
        let bytes = chunk.packets[index_of(slot)].arrival.bytes;
        chunk.vacate(index_of(slot));
        let is_empty = chunk.is_empty();
        self.frames -= 1;
        self.held -= u64::from(bytes);
        if was_full {
            self.list(number as u32);
        }
        if is_empty {
            self.unlist(number);
            self.empty[class].push(number as u32);
        }
    }

    /// Returns the metadata of a packet.
    pub fn packet(&self, slot: u32) -> &Packet {
        &self.chunks[chunk_of(slot)].packets[index_of(slot)]
    }

    /// Returns the metadata of a packet.
    pub fn packet_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.chunks[chunk_of(slot)].packets[index_of(slot)]
    }

    /// Returns a frame.
    pub fn frame(&self, slot: u32) -> &[u8] {
        let (chunk, index) = (&self.chunks[chunk_of(slot)], index_of(slot));
        &chunk.bytes[index << chunk.bits()..][..chunk.packets[index].arrival.bytes as usize]
    }

    /// Returns a frame.
    pub fn frame_mut(&mut self, slot: u32) -> &mut [u8] {
        let (chunk, index) = (&mut self.chunks[chunk_of(slot)], index_of(slot));
        let (bits, length) = (chunk.bits(), chunk.packets[index].arrival.bytes as usize);
        &mut chunk.bytes[index << bits..][..length]
    }

    /// Returns the beginning of a frame as it arrived, if that is kept.
    pub fn head(&self, slot: u32) -> &[u8] {
        let length = self.frame(slot).len().min(HEAD);
        self.chunks[chunk_of(slot)].heads.get(index_of(slot)).map_or(&[], |head| &head[..length])
    }

    /// Returns all occupied slots.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            (0..chunk.packets.len())
                .filter(|index| !chunk.is_free(*index))
                .map(move |index| (number << INDEX_BITS | index) as u32)
        })
    }

    /// Returns the number of held frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the bytes of held frames.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the maximum of the bytes held at once.
    pub fn most_held(&self) -> u64 {
        self.most_held
    }

    /// Returns the bytes allocated, to which the limit applies.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes an empty chunk of a size, or allocates one.
    fn open_chunk(&mut self, class: usize) -> Option<u32> {
        let number = match self.empty[class].pop() {
            Some(number) => number,
            None => self.make(class)?,
        };
        self.list(number);
        Some(number)
    }

    fn make(&mut self, class: usize) -> Option<u32> {
        let cost = cost_of(class, self.keeps_heads);
        while self.taken + cost > self.limit {
            self.give_back()?;
        }
        let number = match self.gone.pop() {
            Some(number) => number,
            None => u32::try_from(self.chunks.len()).ok().filter(|number| *number < u32::MAX >> INDEX_BITS)?,
        };
        let chunk = Chunk::new(class, self.keeps_heads);
        match self.chunks.get_mut(number as usize) {
            Some(gone) => *gone = chunk,
            None => self.chunks.push(chunk),
        }
        self.taken += cost;
        Some(number)
    }

    /// Frees an empty chunk, if there is one.
    fn give_back(&mut self) -> Option<()> {
        let number = self.empty.iter_mut().find_map(Vec::pop)?;
        self.taken -= self.chunks[number as usize].cost();
        self.chunks[number as usize] = Chunk::default();
        self.gone.push(number);
        Some(())
    }

    /// Adds a chunk to the list of open chunks.
    fn list(&mut self, number: u32) {
        let chunk = &mut self.chunks[number as usize];
        let open = &mut self.open[usize::from(chunk.class)];
        chunk.place = open.len() as u32;
        open.push(number);
    }

    /// Removes a chunk from the list of open chunks.
    fn unlist(&mut self, number: usize) {
        let (class, place) = (usize::from(self.chunks[number].class), self.chunks[number].place as usize);
        self.open[class].swap_remove(place);
        if let Some(moved) = self.open[class].get(place) {
            self.chunks[*moved as usize].place = place as u32;
        }
    }
}

impl Chunk {
    /// Makes a chunk for frames of one size.
    fn new(class: usize, keeps_heads: bool) -> Self {
        let slots = slots_of(class);
        Self {
            class: class as u8,
            place: 0,
            free: u64::MAX >> (MOST - slots),
            bytes: vec![0; slots << (SMALLEST as usize + class)].into_boxed_slice(),
            packets: vec![Packet::nobody(); slots],
            heads: vec![[0; HEAD]; if keeps_heads { slots } else { 0 }],
        }
    }

    fn bits(&self) -> u32 {
        SMALLEST + u32::from(self.class)
    }

    fn is_full(&self) -> bool {
        self.free == 0
    }

    fn is_empty(&self) -> bool {
        self.free.count_ones() as usize == self.packets.len()
    }

    fn is_free(&self, index: usize) -> bool {
        self.free >> index & 1 == 1
    }

    /// Occupies the first free slot; the caller ensures that there is one.
    fn occupy(&mut self) -> usize {
        let index = self.free.trailing_zeros() as usize;
        self.free &= self.free - 1;
        index
    }

    fn vacate(&mut self, index: usize) {
        debug_assert!(!self.is_free(index), "a slot is given back once");
        self.free |= 1 << index;
    }

    fn cost(&self) -> u64 {
        let of_packet = size_of::<Packet>() + PLACES;
        (self.bytes.len() + self.packets.len() * of_packet + self.heads.len() * HEAD) as u64
    }
}

/// Returns the memory of a chunk of a size.
fn cost_of(class: usize, keeps_heads: bool) -> u64 {
    let of_packet = size_of::<Packet>() + PLACES + if keeps_heads { HEAD } else { 0 };
    (slots_of(class) * ((1 << (SMALLEST as usize + class)) + of_packet)) as u64
}

/// Returns the number of slots of a chunk.
fn slots_of(class: usize) -> usize {
    (CHUNK >> (SMALLEST as usize + class)).clamp(1, MOST)
}

fn chunk_of(slot: u32) -> usize {
    (slot >> INDEX_BITS) as usize
}

fn index_of(slot: u32) -> usize {
    slot as usize & (MOST - 1)
}

/// Returns the slot size that a frame needs; `None`: the frame is too long.
fn class_of(bytes: usize) -> Option<usize> {
    let bits = bytes.max(1).next_power_of_two().trailing_zeros().max(SMALLEST);
    (bytes <= LONGEST).then_some((bits - SMALLEST) as usize)
}

fn head_of(frame: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let kept = frame.len().min(HEAD);
    head[..kept].copy_from_slice(&frame[..kept]);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: usize) -> Packet {
        let mut packet = Packet::nobody();
        packet.arrival.bytes = bytes as u32;
        packet
    }

    #[test]
    fn stored_frames_of_all_sizes_are_unchanged() {
        let mut store = Store::new(64 << 20);
        let frames: Vec<Vec<u8>> = (0..2_000).map(|n| vec![n as u8; 60 + n * 31 % 9_000]).collect();
        let slots: Vec<u32> = frames.iter().map(|frame| store.take(frame, packet(frame.len())).unwrap()).collect();
        for (slot, frame) in slots.iter().zip(&frames) {
            assert_eq!(store.frame(*slot), frame);
        }
        assert_eq!(store.slots().count(), frames.len());
        assert_eq!(store.held(), frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        slots.into_iter().for_each(|slot| store.release(slot));
        assert_eq!((store.frames(), store.held(), store.slots().count()), (0, 0, 0));
    }

    #[test]
    fn memory_limit_holds_and_released_memory_serves_frames_of_other_sizes() {
        let limit = 4 << 20;
        let mut store = Store::new(limit);
        for size in [60, 1_514, 9_000, 60, 65_536, 300] {
            let mut slots = Vec::new();
            while let Some(slot) = store.take(&vec![7; size], packet(size)) {
                slots.push(slot);
            }
            assert!(store.taken() <= limit);
            // A slot is at most twice the frame, and the metadata of a packet takes less than 512 bytes.
            assert!(slots.len() as u64 * (2 * size.max(128) as u64 + 512) > limit - 300_000, "{size}: {}", slots.len());
            slots.into_iter().for_each(|slot| store.release(slot));
        }
        assert_eq!(store.take(&[0; LONGEST + 1], packet(LONGEST + 1)), None);
    }

    #[test]
    fn the_smallest_memory_that_is_allowed_holds_some_of_each_size() {
        for size in [60, 300, 1_514, 9_000] {
            let mut store = Store::new(1 << 16);
            store.keep_heads();
            assert!(store.take(&vec![1; size], packet(size)).is_some(), "{size}");
        }
    }

    #[test]
    fn kept_heads_are_those_at_arrival() {
        let mut store = Store::new(1 << 20);
        let early = store.take(&[1; 200], packet(200)).unwrap();
        store.keep_heads();
        let slot = store.take(&[2; 60], packet(60)).unwrap();
        store.frame_mut(slot).fill(3);
        let copy = store.copy(slot, packet(60)).unwrap();
        assert_eq!(
            (store.head(early), store.head(slot), store.head(copy)),
            (&[1; HEAD][..], &[2; 60][..], &[2; 60][..])
        );
        assert_eq!(store.frame(copy), [3; 60]);
    }
}
