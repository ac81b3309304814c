//! The receive ring of a packet socket (`PACKET_RX_RING`, version 3): memory shared with the kernel, in blocks.
//!
//! A status word in a block says whether the kernel or the user owns it. [`Ring::take`] is the only access to a block:
//! it checks the status, lends the block while the user owns it, and returns it.

#![expect(unsafe_code, reason = "the ring is memory that the kernel reads and writes beside us")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// The offsets in `struct tpacket_block_desc` of the status and of the number of bytes used.
const STATUS_AT: usize = 8;
const USED_AT: usize = 20;

/// The dimensions of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of blocks.
    pub blocks: usize,
    /// The size of each block, a multiple of the page size.
    pub block_bytes: usize,
}

/// The receive ring of a packet socket.
#[derive(Debug)]
pub struct Ring {
    start: NonNull<u8>,
    shape: Shape,
    next: usize,
}

// SAFETY: on the user side this value alone owns the mapping, which is only accessed through it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring that was requested on `socket` with this shape. The mapping outlives the socket.
    pub fn map(socket: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let length = shape.blocks * shape.block_bytes;
        if length == 0 || !shape.block_bytes.is_multiple_of(page()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: requests a new mapping of the socket's ring, at an address of the kernel's choice; the kernel refuses
        // one longer than the ring.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { start: first, shape, next: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Passes the used part of the next block to `show` if the kernel has filled it, and returns it; `None`: it is not
    /// filled.
    pub fn take<T>(&mut self, show: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let at = self.next * self.shape.block_bytes;
        // SAFETY: the word lies in the mapping, which lives as long as this value, at a multiple of 4; the kernel
        // accesses it as a whole.
        let status = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at + STATUS_AT).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block lies within the mapping, and its status assigns it to the user until the store below. The
        // acquire load above sees the kernel's writes, and nobody writes while the slice lives, which ends before that
        // store.
        let block = unsafe { slice::from_raw_parts(self.start.as_ptr().add(at), self.shape.block_bytes) };
        let used = block[USED_AT..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word) as usize);
        let shown = show(&block[..used.min(self.shape.block_bytes)]);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.shape.blocks;
        Some(shown)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping; it is unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.shape.blocks * self.shape.block_bytes) };
    }
}

fn page() -> usize {
    // SAFETY: reads a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
