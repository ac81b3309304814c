//! An AF_XDP socket: its rings, and the memory (UMEM) behind them.
//!
//! The crate `xdp` requires its user to drop each packet before the memory that it lies in. This module keeps packets
//! inside: it copies sent bytes, and lends received bytes for the time of a call.

#![expect(unsafe_code, reason = "packets of the crate `xdp` must not outlive their memory, for which its user vouches")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{Packet, RingConfigBuilder, Umem, WakableRings};

/// The most frames that one call moves.
pub const MOST_AT_ONCE: usize = 64;
/// The bytes before a received frame in which the XDP program writes its metadata.
pub const HEADROOM: usize = 16;
const RECEIVE_CHUNKS: u32 = 8192;
const TRANSMIT_CHUNKS: u32 = 2048;

/// A socket on one queue of a device.
pub struct Rings {
    rings: WakableRings,
    socket: XdpSocket,
    received: Received,
    outgoing: HeapSlab,
    is_zero_copy: bool,
    // Last: fields are dropped in order, and the memory must outlive everything that points into it.
    memory: Umem,
}

// SAFETY: all pointers inside point to mappings that this value alone owns and accesses.
unsafe impl Send for Rings {}

impl Rings {
    /// Opens a socket on queue 0 of the interface with this index.
    pub fn open(interface: u32, is_zero_copy: bool) -> io::Result<Self> {
        let builder = UmemCfgBuilder {
            frame_size: FrameSize::FourK,
            head_room: HEADROOM as u32,
            frame_count: RECEIVE_CHUNKS + TRANSMIT_CHUNKS,
            ..UmemCfgBuilder::default()
        };
        let memory = Umem::map(builder.build().map_err(io::Error::other)?)?;
        let rings = RingConfigBuilder {
            rx_count: RECEIVE_CHUNKS,
            tx_count: TRANSMIT_CHUNKS,
            fill_count: RECEIVE_CHUNKS,
            completion_count: TRANSMIT_CHUNKS,
        };
        let mut socket = XdpSocketBuilder::new().map_err(system)?;
        let rings = rings.build().map_err(io::Error::other)?;
        let (rings, mut flags) = socket.build_wakable_rings(&memory, rings).map_err(system)?;
        if is_zero_copy {
            flags.force_zerocopy()
        } else {
            flags.force_copy()
        }
        let socket = socket.bind(NicIndex::new(interface), 0, flags).map_err(system)?;
        let received = Received { packets: VecDeque::with_capacity(MOST_AT_ONCE), most: 0 };
        let outgoing = HeapSlab::with_capacity(MOST_AT_ONCE);
        let mut opened = Self { rings, socket, received, outgoing, is_zero_copy, memory };
        opened.fill(RECEIVE_CHUNKS as usize)?;
        Ok(opened)
    }

    /// Whether the driver uses the memory directly.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Passes the waiting frames to `each`, at most `most` or [`MOST_AT_ONCE`], each with the [`HEADROOM`] bytes before
    /// it, and returns how many. Changes to them are discarded when `each` returns.
    pub fn receive(&mut self, most: usize, each: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        let Some(ring) = &mut self.rings.rx_ring else { return Ok(0) };
        self.received.most = most.min(MOST_AT_ONCE);
        // SAFETY: the packets are returned to their memory below, before this returns.
        let count = unsafe { ring.recv(&self.memory, &mut self.received) };
        while let Some(mut packet) = self.received.pop_back() {
            show(&mut packet, each);
            self.memory.free_packet(packet);
        }
        if count > 0 {
            self.fill(count)?;
        }
        Ok(count)
    }

    /// Queues a copy of a frame for [`Self::hand_over`]; returns whether there was room.
    pub fn put_one(&mut self, frame: &[u8]) -> io::Result<bool> {
        if self.outgoing.available() == 0 && self.hand_over() > 0 {
            return Ok(false);
        }
        if self.memory.allocatable() == 0 {
            self.rings.completion_ring.dequeue(&mut self.memory, TRANSMIT_CHUNKS as usize);
        }
        // SAFETY: `hand_over` puts the packet into the ring, or it stays in this value until it is dropped, memory
        // last.
        let Some(mut packet) = (unsafe { self.memory.alloc() }) else { return Ok(false) };
        if let Err(error) = packet.append(frame) {
            self.memory.free_packet(packet);
            return Err(io::Error::other(error));
        }
        self.outgoing.push_front(packet);
        Ok(true)
    }

    /// Moves the frames of [`Self::put_one`] into the ring, and returns how many did not fit.
    pub fn hand_over(&mut self) -> usize {
        self.rings.completion_ring.dequeue(&mut self.memory, TRANSMIT_CHUNKS as usize);
        if let Some(ring) = &mut self.rings.tx_ring {
            // SAFETY: all packets belong to the socket's memory, which outlives it. Nothing can fail without a system
            // call.
            let _ = unsafe { ring.send(&mut self.outgoing, false) };
        }
        self.outgoing.len()
    }

    /// Copies the frames of `bytes` bytes each that lie back to back in `frames` into the ring, [`MOST_AT_ONCE`] at
    /// most, and returns how many fitted.
    pub fn put(&mut self, frames: &[u8], bytes: usize) -> io::Result<usize> {
        self.rings.completion_ring.dequeue(&mut self.memory, TRANSMIT_CHUNKS as usize);
        let Some(ring) = &mut self.rings.tx_ring else { return Ok(0) };
        for frame in frames.chunks_exact(bytes.max(1)).take(MOST_AT_ONCE) {
            // SAFETY: the packet goes into the ring or returns to its memory below, before this returns.
            let Some(mut packet) = (unsafe { self.memory.alloc() }) else { break };
            packet.append(frame).map_err(io::Error::other)?;
            self.outgoing.push_front(packet);
        }
        // SAFETY: all packets belong to the socket's memory.
        let count = unsafe { ring.send(&mut self.outgoing, false)? };
        while let Some(packet) = self.outgoing.pop_back() {
            self.memory.free_packet(packet);
        }
        Ok(count)
    }

    /// Makes the kernel send the frames of the ring, as many as one call sends; `EAGAIN` when more are left.
    pub fn push(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::sendto(self.socket.raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Counts the frames that were dropped because a ring was full.
    pub fn drops(&self) -> u64 {
        self.socket.statistics().map_or(0, |counted| counted.rx_dropped + counted.rx_ring_full)
    }

    /// The descriptor of the socket, for poll(2).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket stays open for as long as this is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.raw_fd()) }
    }

    /// Gives the kernel buffers for this many future frames.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        // SAFETY: the memory is the one that the socket was created with.
        unsafe { self.rings.fill_ring.enqueue(&mut self.memory, count, self.is_zero_copy) }.map(drop)
    }
}

/// Received packets, up to the number requested.
struct Received {
    packets: VecDeque<Packet>,
    most: usize,
}

impl Slab for Received {
    fn available(&self) -> usize {
        self.most.saturating_sub(self.packets.len())
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn push_front(&mut self, packet: Packet) -> Option<Packet> {
        if self.available() == 0 {
            return Some(packet);
        }
        self.packets.push_front(packet);
        None
    }

    fn pop_back(&mut self) -> Option<Packet> {
        self.packets.pop_back()
    }
}

/// Passes a packet with the bytes before it to `each`, and zeroes those bytes: the next frame there may have no
/// metadata.
fn show(packet: &mut Packet, each: &mut dyn FnMut(&mut [u8])) {
    if packet.adjust_head(-(HEADROOM as i32)).is_ok() {
        each(packet);
        packet.clear();
        // Cannot fail: the packet has room for what it held.
        let _ = packet.append(&[0; HEADROOM]);
    }
}

fn system(error: SocketError) -> io::Error {
    match error {
        SocketError::SocketCreation(error) | SocketError::Bind(error) => error,
        SocketError::SetSockOpt { inner, .. }
        | SocketError::GetSockOpt { inner, .. }
        | SocketError::RingMap { inner, .. } => inner,
    }
}
