//! The transmit ring of a packet socket (`PACKET_TX_RING`, version 2): memory shared with the kernel.
//!
//! Each slot holds `struct tpacket2_hdr`, `struct virtio_net_hdr` and a frame. The latter header makes the kernel copy
//! the whole frame at once; for short frames that costs less than its default, which references the pages.

#![expect(unsafe_code, reason = "the ring is memory that the kernel reads and writes beside us")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

const PLACES: usize = 512;
const BLOCK_BYTES: usize = 1 << 16;
/// The offset of the virtio-net header in a slot: after `struct tpacket2_hdr`.
const HEADER_AT: usize = 32;
const LENGTH_AT: usize = 4;
const NETWORK_HEADER_BYTES: usize = 10;
/// The offset of `hdr_len` of `struct virtio_net_hdr`: how many bytes of the frame are copied at once.
const COPIED_AT: usize = HEADER_AT + 2;
const FRAME_AT: usize = HEADER_AT + NETWORK_HEADER_BYTES;

/// The transmit ring of a packet socket that is bound to an interface and receives nothing.
#[derive(Debug)]
pub struct TransmitRing {
    socket: OwnedFd,
    start: NonNull<u8>,
    place_bytes: usize,
    next: usize,
}

// SAFETY: on the user side this value alone owns the mapping, which is only accessed through it.
unsafe impl Send for TransmitRing {}

impl TransmitRing {
    /// The size of a slot, in bytes, for frames of at most `longest_frame` bytes.
    pub fn place_bytes(longest_frame: usize) -> usize {
        (FRAME_AT + longest_frame).next_power_of_two()
    }

    /// The kernel's `struct tpacket_req` for slots of this size.
    pub fn request(place_bytes: usize) -> [u8; 16] {
        let block = BLOCK_BYTES.max(place_bytes);
        let blocks = (PLACES * place_bytes).div_ceil(block);
        let words = [block, blocks, place_bytes, blocks * (block / place_bytes)];
        let mut bytes = [0; 16];
        for (target, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *target = (word as u32).to_ne_bytes();
        }
        bytes
    }

    /// Maps the ring that [`Self::request`] set up on the socket.
    pub fn map(socket: OwnedFd, place_bytes: usize) -> io::Result<Self> {
        let length = PLACES * place_bytes;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: requests a new mapping of the socket's ring, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { socket, start: first, place_bytes, next: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The longest frame that a slot holds.
    pub fn longest(&self) -> usize {
        self.place_bytes - FRAME_AT
    }

    /// Copies the frames of `bytes` bytes each that lie back to back in `frames` into the ring, until it is full, and
    /// returns how many it copied.
    pub fn put(&mut self, frames: &[u8], bytes: usize) -> usize {
        let mut count = 0;
        for frame in frames.chunks_exact(bytes.max(1)).take(PLACES) {
            if FRAME_AT + frame.len() > self.place_bytes || self.status(self.next).load(Ordering::Acquire) != 0 {
                break;
            }
            self.write(self.next, LENGTH_AT, &((frame.len() + NETWORK_HEADER_BYTES) as u32).to_ne_bytes());
            self.write(self.next, HEADER_AT, &[0; NETWORK_HEADER_BYTES]);
            self.write(self.next, COPIED_AT, &(frame.len() as u16).to_ne_bytes());
            self.write(self.next, FRAME_AT, frame);
            self.status(self.next).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
            self.next = (self.next + 1) % PLACES;
            count += 1;
        }
        count
    }

    /// Makes the kernel send the frames of the ring.
    pub fn push(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let result =
            unsafe { libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the kernel has not yet processed the last frame of the ring.
    pub fn is_waiting(&self) -> bool {
        self.status(self.last()).load(Ordering::Acquire) == libc::TP_STATUS_SEND_REQUEST
    }

    /// Withdraws the frames that the kernel has not processed or has rejected, and returns how many. The kernel
    /// processes frames only during [`Self::push`].
    pub fn withdraw(&mut self) -> usize {
        let mut count = 0;
        let unsent = [libc::TP_STATUS_SEND_REQUEST, libc::TP_STATUS_WRONG_FORMAT];
        while count < PLACES && unsent.contains(&self.status(self.last()).load(Ordering::Acquire)) {
            self.next = self.last();
            self.status(self.next).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
            count += 1;
        }
        count
    }

    fn last(&self) -> usize {
        (self.next + PLACES - 1) % PLACES
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        let at = place % PLACES * self.place_bytes;
        // SAFETY: the slot lies within the mapping, which lives as long as this value, at a multiple of 16; the kernel
        // accesses the word as a whole.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Writes into a slot that its status assigns to user space.
    fn write(&mut self, place: usize, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= self.place_bytes {
            // SAFETY: the check above keeps both ends within the slot, and the slot is within the mapping; `bytes` is
            // no part of it.
            unsafe {
                let to = self.start.as_ptr().add(place % PLACES * self.place_bytes + at);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
    }
}

impl Drop for TransmitRing {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping; it is unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), PLACES * self.place_bytes) };
    }
}
