//! The ring protocol and the ring's bytes in one type: bytes can be read only between the writer's commit and the
//! reader's release.
//!
//! The writer (`take_slot` and `hand_over` of bpf/record.h) takes position p only if p is less than `room` ahead of the
//! released position, writes slot p mod room, and commits p + 1 into the slot. The reader shows a slot whose commit is
//! its position + 1, and releases it afterwards. A model checker tests it below against all permitted memory orders.

#![expect(unsafe_code, reason = "a record is shown where it lies, in memory that programs in the kernel write")]

use std::sync::Arc;

use crate::kernel::rings::READER;
use crate::kernel::sys::Mapping;
use crate::layout::SLOT_BYTES as SLOT;

/// The offset of the record in a slot.
const RECORD: usize = 8;

/// The memory of one ring.
///
/// # Safety
/// A value is the only reader of its ring. `commit` has acquire semantics and `release` release semantics; the writer
/// follows the protocol above.
pub unsafe trait Ring {
    /// Load the commit word of a slot.
    fn commit(&self, slot: usize) -> u64;

    /// Show the bytes of a slot.
    ///
    /// # Safety
    /// The slot is committed and not released.
    unsafe fn show(&self, slot: usize, see: &mut dyn FnMut(&[u8]));

    /// Announce to the writer that all records before this position have been read.
    fn release(&self, position: u64);
}

/// The only reader of a ring.
#[derive(Debug)]
pub struct Reader<R> {
    ring: R,
    /// A power of 2.
    room: u64,
    /// The position of the next record.
    position: u64,
}

impl<R: Ring> Reader<R> {
    /// Start at the beginning of an unread ring.
    pub const fn new(ring: R, room: u64) -> Self {
        Self { ring, room, position: 0 }
    }

    /// Show the waiting records, up to one that is still being written, and at most one ring's worth, because programs
    /// continue meanwhile. Return their number.
    pub fn drain(&mut self, see: &mut dyn FnMut(&[u8])) -> u64 {
        let first = self.position;
        for position in first..first + self.room {
            let slot = (position & (self.room - 1)) as usize;
            if self.ring.commit(slot) != position + 1 {
                break;
            }
            // SAFETY: committed, by the line above, and released below.
            unsafe { self.ring.show(slot, see) };
            self.position = position + 1;
        }
        self.ring.release(self.position);
        self.position - first
    }
}

/// A ring in memory that the programs in the kernel write.
#[derive(Debug)]
pub struct Mapped {
    slots: Arc<Mapping>,
    readers: Arc<Mapping>,
    cpu: usize,
    room: usize,
}

impl Mapped {
    /// Create the readers of all CPUs' rings, which lie one after the other with `room` slots each.
    pub fn all(slots: Mapping, readers: Mapping, cpus: usize, room: u32) -> Vec<Reader<Self>> {
        let (slots, readers) = (Arc::new(slots), Arc::new(readers));
        let one = |cpu| Self { slots: Arc::clone(&slots), readers: Arc::clone(&readers), cpu, room: room as usize };
        (0..cpus).map(|cpu| Reader::new(one(cpu), room.into())).collect()
    }

    fn at(&self, slot: usize) -> usize {
        SLOT * (self.cpu * self.room + slot)
    }
}

// SAFETY: only `all` creates it, with one reader each; loads acquire, stores release; the programs follow the protocol.
unsafe impl Ring for Mapped {
    fn commit(&self, slot: usize) -> u64 {
        self.slots.load(self.at(slot))
    }

    unsafe fn show(&self, slot: usize, see: &mut dyn FnMut(&[u8])) {
        // SAFETY: the caller ensures that the slot is committed, so the programs do not write these bytes.
        see(unsafe { self.slots.bytes(self.at(slot) + RECORD, SLOT - RECORD) });
    }

    fn release(&self, position: u64) {
        self.readers.store(READER * self.cpu, position);
    }
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;

    use super::*;

    const ROOM: usize = 2;

    /// A ring whose accesses loom tracks: a data race fails the test.
    struct Model {
        taken: AtomicU64,
        released: AtomicU64,
        commits: [AtomicU64; ROOM],
        records: [UnsafeCell<[u8; 2]>; ROOM],
        acquires: Ordering,
        releases: Ordering,
    }

    // SAFETY: loom runs one thread at a time, and fails the test at an unordered access.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    impl Model {
        fn new(acquires: Ordering, releases: Ordering) -> Self {
            let zero = || AtomicU64::new(0);
            Self {
                taken: zero(),
                released: zero(),
                commits: [zero(), zero()],
                records: [UnsafeCell::new([0; 2]), UnsafeCell::new([0; 2])],
                acquires,
                releases,
            }
        }

        /// Write a record as bpf/record.h does; return whether there was room.
        fn write(&self, value: u8, commit: Ordering) -> bool {
            let position = loop {
                // `take_slot`: two volatile loads, then a compare-and-swap that is a full barrier.
                let position = self.taken.load(Ordering::Relaxed);
                if position.wrapping_sub(self.released.load(Ordering::Relaxed)).cast_signed() >= ROOM as i64 {
                    return false;
                }
                fence(Ordering::SeqCst);
                let next = position + 1;
                if self.taken.compare_exchange(position, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    fence(Ordering::SeqCst);
                    break position;
                }
            };
            let slot = position as usize % ROOM;
            // SAFETY: the slot belongs to this writer until it commits; loom checks it.
            self.records[slot].with_mut(|record| unsafe { *record = [value; 2] });
            self.commits[slot].store(position + 1, commit);
            true
        }
    }

    // SAFETY: this is what the test checks.
    unsafe impl Ring for Arc<Model> {
        fn commit(&self, slot: usize) -> u64 {
            self.commits[slot].load(self.acquires)
        }

        unsafe fn show(&self, slot: usize, see: &mut dyn FnMut(&[u8])) {
            // SAFETY: loom fails the test if the slot is not committed.
            self.records[slot].with(|record| see(unsafe { &*record }));
        }

        fn release(&self, position: u64) {
            self.released.store(position, self.releases);
        }
    }

    /// Check all interleavings, with at most three preemptions, of a reader and two writers, one of which interrupts or
    /// follows the other.
    fn check(acquires: Ordering, releases: Ordering, commit: Ordering) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let model = Arc::new(Model::new(acquires, releases));
            let mut reader = Reader::new(Arc::clone(&model), ROOM as u64);
            let writers: Vec<_> = [[1, 2].as_slice(), &[3]]
                .into_iter()
                .map(|values| {
                    let model = Arc::clone(&model);
                    thread::spawn(move || {
                        values.iter().map(|value| u64::from(model.write(*value, commit))).sum::<u64>()
                    })
                })
                .collect();
            let mut seen = Vec::new();
            let mut read = |reader: &mut Reader<_>| {
                reader.drain(&mut |record: &[u8]| {
                    assert_eq!(record[0], record[1], "a record in pieces");
                    seen.push(record[0]);
                })
            };
            let mut taken = read(&mut reader);
            let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            taken += read(&mut reader);
            assert_eq!(taken, written, "every record that had room is read, once");
            assert_eq!(seen.len() as u64, taken);
            assert!(seen.iter().filter(|value| **value < 3).is_sorted(), "in the order in which they were written");
        });
    }

    #[test]
    fn no_memory_ordering_exposes_an_incomplete_record() {
        check(Ordering::Acquire, Ordering::Release, Ordering::Release);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn missing_acquire_is_detected() {
        check(Ordering::Relaxed, Ordering::Release, Ordering::Release);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn missing_release_is_detected() {
        check(Ordering::Acquire, Ordering::Release, Ordering::Relaxed);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn slot_released_too_early_is_detected() {
        check(Ordering::Acquire, Ordering::Relaxed, Ordering::Release);
    }
}
