//! The receive ring of a packet socket (`PACKET_RX_RING`, version 3): memory that is shared with the kernel, in blocks.
//!
//! A block is the kernel's or ours by a word in it. [`Ring::take`] is the one way to a block: it looks at that word, shows the
//! block while it is ours, and gives it back.

#![expect(unsafe_code, reason = "the ring is memory that the kernel reads and writes beside us")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where `struct tpacket_block_desc` has whose it is, and how much of it is used.
const STATUS_AT: usize = 8;
const USED_AT: usize = 20;

/// The blocks of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many.
    pub blocks: usize,
    /// How long each is, a multiple of the page size.
    pub block_bytes: usize,
}

/// The receive ring of a packet socket.
#[derive(Debug)]
pub struct Ring {
    start: NonNull<u8>,
    shape: Shape,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone on our side, and is only reached through it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring that `socket` was asked for in this shape. It stays when the socket is closed.
    pub fn map(socket: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let length = shape.blocks * shape.block_bytes;
        if length == 0 || !shape.block_bytes.is_multiple_of(page()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the socket's ring is asked for, wherever the kernel likes; it refuses one that is longer than
        // the ring.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { start: first, shape, next: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Shows the next block, as far as it is used, if the kernel has filled it, and gives it back; `None`: it has not.
    pub fn take<T>(&mut self, show: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let at = self.next * self.shape.block_bytes;
        // SAFETY: the word lies in the mapping, which lives as long as this value, at a multiple of 4; the kernel reads and writes
        // it as a whole.
        let status = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at + STATUS_AT).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block lies within the mapping and is ours by its status, which the kernel changes no more until we do: what
        // it wrote before is seen by the load above, and nobody writes while the slice lives, which ends before the store below.
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
        // SAFETY: the mapping was made by `map` and is given back once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.shape.blocks * self.shape.block_bytes) };
    }
}

fn page() -> usize {
    // SAFETY: asks for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
