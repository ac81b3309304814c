//! The transmit ring of a packet socket (`PACKET_TX_RING`, version 2): memory that is shared with the kernel.
//!
//! Each place holds `struct tpacket2_hdr`, `struct virtio_net_hdr` and a frame. The latter header says that the kernel is to
//! copy the whole frame, which for short ones costs less than what it does otherwise: to lend the memory and to copy later.

#![expect(unsafe_code, reason = "the ring is memory that the kernel reads and writes beside us")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

const PLACES: usize = 512;
const BLOCK_BYTES: usize = 1 << 16;
/// Where the network header stands in a place: after `struct tpacket2_hdr`.
const HEADER_AT: usize = 32;
const LENGTH_AT: usize = 4;
const NETWORK_HEADER_BYTES: usize = 10;
/// `hdr_len` of `struct virtio_net_hdr`: how much of the frame is copied at once.
const COPIED_AT: usize = HEADER_AT + 2;
const FRAME_AT: usize = HEADER_AT + NETWORK_HEADER_BYTES;

/// The transmit ring of a packet socket, which is bound to an interface and hears nothing.
#[derive(Debug)]
pub struct TransmitRing {
    socket: OwnedFd,
    start: NonNull<u8>,
    place_bytes: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone on our side, and is only reached through it.
unsafe impl Send for TransmitRing {}

impl TransmitRing {
    /// How many bytes a place takes that holds frames of at most so many.
    pub fn place_bytes(longest_frame: usize) -> usize {
        (FRAME_AT + longest_frame).next_power_of_two()
    }

    /// The kernel's `struct tpacket_req` for such places.
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

    /// Maps the ring that a socket was asked for by [`Self::request`].
    pub fn map(socket: OwnedFd, place_bytes: usize) -> io::Result<Self> {
        let length = PLACES * place_bytes;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the socket's ring is asked for, wherever the kernel likes.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { socket, start: first, place_bytes, next: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The longest frame that a place holds.
    pub fn longest(&self) -> usize {
        self.place_bytes - FRAME_AT
    }

    /// Puts copies of the frames of `bytes` bytes each that lie back to back in `frames` into the ring, as many as there is
    /// room for, and returns how many.
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

    /// Makes the kernel send what is in the ring.
    pub fn push(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let result =
            unsafe { libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the frame that was put last still waits for the kernel to look at it.
    pub fn is_waiting(&self) -> bool {
        self.status(self.last()).load(Ordering::Acquire) == libc::TP_STATUS_SEND_REQUEST
    }

    /// Takes the frames out again that the kernel has not looked at or did not like, and returns how many. It looks at none
    /// but during [`Self::push`].
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
        // SAFETY: the place lies within the mapping, which lives as long as this value, at a multiple of 16; the kernel
        // reads and writes the word as a whole.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Writes into a place, which is ours by its status.
    fn write(&mut self, place: usize, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= self.place_bytes {
            // SAFETY: both ends lie within the place, as was just seen, and the place within the mapping; `bytes` is no part
            // of it.
            unsafe {
                let to = self.start.as_ptr().add(place % PLACES * self.place_bytes + at);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
    }
}

impl Drop for TransmitRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and is given back once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), PLACES * self.place_bytes) };
    }
}
