//! Memory of maps that programs in the kernel write while we read: numbers, and the kernel's ring of records
//! (`BPF_MAP_TYPE_RINGBUF`). Reading takes no system call and no right.

#![expect(unsafe_code, reason = "maps are mapped memory that the kernel writes while we read")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle, MapType};

/// Before each record: its length with two flags, and where the ring begins.
const HEADER_BYTES: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory of this process, which no thread owns; all access to it is by atomic loads and stores, or to what the
// kernel has finished.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, is_writable: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the place, so nothing else is there.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, map.as_raw_fd(), offset) };
        match NonNull::new(start.cast()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { start: first, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset + 8 > self.length {
            return None;
        }
        // SAFETY: inside the mapping and aligned, and an atomic number may change under us.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The numbers of an array that programs write, or that they are told by.
#[derive(Debug)]
pub struct Numbers(Mapping);

impl Numbers {
    /// Maps an array (`BPF_F_MMAPABLE`).
    ///
    /// # Errors
    /// When it is none, or the kernel refuses.
    pub(in crate::bpf) fn map(array: &MapHandle) -> io::Result<Self> {
        // A ring's first page tells the kernel what it may write over.
        let entries = entries_of(array, MapType::Array)?;
        let bytes = (array.value_size() as usize).next_multiple_of(8) * entries;
        Mapping::new(array.as_fd(), 0, bytes.next_multiple_of(page()), true).map(Self)
    }

    /// Loads the number at a multiple of 8; 0 behind the end.
    pub fn load(&self, offset: usize) -> u64 {
        self.0.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores the number at a multiple of 8; nothing behind the end.
    pub fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.0.word(offset) {
            word.store(value, Ordering::Release);
        }
    }
}

/// The only reader of a ring of records.
#[derive(Debug)]
pub struct Records {
    /// A page: up to where was read.
    read: Mapping,
    /// A page with up to where was written, and behind it the ring, twice, so that each record is in one piece.
    written: Mapping,
    bytes: usize,
    position: u64,
}

impl Records {
    /// Maps a ring. The caller has no other [`Records`] of it.
    ///
    /// # Errors
    /// When it is none, or the kernel refuses.
    pub(in crate::bpf) fn map(ring: &MapHandle) -> io::Result<Self> {
        let bytes = entries_of(ring, MapType::RingBuf)?;
        if !bytes.is_power_of_two() || !bytes.is_multiple_of(page()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let read = Mapping::new(ring.as_fd(), 0, page(), true)?;
        let written = Mapping::new(ring.as_fd(), page(), page() + 2 * bytes, false)?;
        Ok(Self { read, written, bytes, position: 0 })
    }

    /// Shows records in their order, up to one that is still being written and at most so many bytes of them, and gives their room
    /// back. Returns whether there was one.
    pub fn take(&mut self, most_bytes: u64, mut show: impl FnMut(&[u8])) -> bool {
        let first = self.position;
        let end = self.written.word(0).map_or(first, |word| word.load(Ordering::Acquire));
        while self.position < end && self.position - first < most_bytes {
            let at = page() + (self.position as usize & (self.bytes - 1));
            // SAFETY: within the mapping, which has the ring twice, and at a multiple of 8; the kernel writes the word as a whole.
            let word = unsafe { &*self.written.start.as_ptr().add(at).cast::<AtomicU32>() };
            let length = word.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = ((length & !DISCARDED) as usize).min(self.bytes);
            if length & DISCARDED == 0 {
                // SAFETY: within the mapping, since a record is no longer than the ring that it has twice; the load above sees what
                // was written before, and the kernel leaves it alone until the store below, when the slice has ended.
                show(unsafe { slice::from_raw_parts(self.written.start.as_ptr().add(at + HEADER_BYTES), bytes) });
            }
            self.position += (bytes + HEADER_BYTES).next_multiple_of(8) as u64;
        }
        if let Some(read) = self.read.word(0) {
            read.store(self.position, Ordering::Release);
        }
        self.position > first
    }
}

/// How many entries a map of this type has; of a ring: bytes.
fn entries_of(map: &MapHandle, wanted: MapType) -> io::Result<usize> {
    if map.map_type() == wanted { Ok(map.max_entries() as usize) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn page() -> usize {
    // SAFETY: asks for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
