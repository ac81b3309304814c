//! Mapped memory of BPF maps: arrays of numbers, and the kernel's ring buffer (`BPF_MAP_TYPE_RINGBUF`). Reading needs
//! no system call and no capability.

#![expect(unsafe_code, reason = "maps are mapped memory that the kernel writes while we read")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle, MapType};

/// The header of each record: its length with two flags, and its page offset.
const HEADER_BYTES: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory of this process, not tied to a thread; all access is by atomic loads and stores, or to records
// that the kernel has committed.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, is_writable: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the address, so nothing is overwritten.
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
        // SAFETY: inside the mapping and aligned; an atomic number may change concurrently.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The numbers of an array that programs write or read.
#[derive(Debug)]
pub struct Numbers(Mapping);

impl Numbers {
    /// Maps an array (`BPF_F_MMAPABLE`) into memory.
    ///
    /// # Errors
    /// When the map is not an array, or the kernel refuses.
    pub(in crate::bpf) fn map(array: &MapHandle) -> io::Result<Self> {
        // Never a ring buffer: in its first page, the consumer position controls what the kernel may overwrite.
        let entries = entries_of(array, MapType::Array)?;
        let bytes = (array.value_size() as usize).next_multiple_of(8) * entries;
        Mapping::new(array.as_fd(), 0, bytes.next_multiple_of(page()), true).map(Self)
    }

    /// Loads the number at `offset`, a multiple of 8; 0 beyond the end.
    pub fn load(&self, offset: usize) -> u64 {
        self.0.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores the number at `offset`, a multiple of 8; does nothing beyond the end.
    pub fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.0.word(offset) {
            word.store(value, Ordering::Release);
        }
    }
}

/// The only reader of a ring buffer.
#[derive(Debug)]
pub struct Records {
    /// The page with the consumer position.
    read: Mapping,
    /// The page with the producer position, and behind it the ring, mapped twice so that each record is contiguous.
    written: Mapping,
    bytes: usize,
    position: u64,
}

impl Records {
    /// Maps a ring buffer. The caller must have no other [`Records`] of it.
    ///
    /// # Errors
    /// When the map is not a ring buffer, or the kernel refuses.
    pub(in crate::bpf) fn map(ring: &MapHandle) -> io::Result<Self> {
        let bytes = entries_of(ring, MapType::RingBuf)?;
        if !bytes.is_power_of_two() || !bytes.is_multiple_of(page()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let read = Mapping::new(ring.as_fd(), 0, page(), true)?;
        let written = Mapping::new(ring.as_fd(), page(), page() + 2 * bytes, false)?;
        Ok(Self { read, written, bytes, position: 0 })
    }

    /// Passes records to `show` in order, up to one that is still being written or until `most_bytes` are exceeded, and
    /// releases their space. Returns whether there was one.
    pub fn take(&mut self, most_bytes: u64, mut show: impl FnMut(&[u8])) -> bool {
        let first = self.position;
        let end = self.written.word(0).map_or(first, |word| word.load(Ordering::Acquire));
        while self.position < end && self.position - first < most_bytes {
            let at = page() + (self.position as usize & (self.bytes - 1));
            // SAFETY: within the mapping, which has the ring twice, and at a multiple of 8; the kernel writes the word
            // as a whole.
            let word = unsafe { &*self.written.start.as_ptr().add(at).cast::<AtomicU32>() };
            let length = word.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = ((length & !DISCARDED) as usize).min(self.bytes);
            if length & DISCARDED == 0 {
                // SAFETY: within the mapping, since a record is no longer than the ring, which is mapped twice; the
                // acquire load above sees its contents, and the kernel does not reuse them until the store below, after
                // the slice has ended.
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

/// The number of entries of a map of this type; the size in bytes of a ring buffer.
fn entries_of(map: &MapHandle, wanted: MapType) -> io::Result<usize> {
    if map.map_type() == wanted { Ok(map.max_entries() as usize) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn page() -> usize {
    // SAFETY: reads a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
