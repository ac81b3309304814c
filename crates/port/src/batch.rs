//! Sends and receives many frames with one call, for streams at a high rate.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use crate::{Port, PortError, Received, Sent};

/// The most frames that one call of [`Batch::receive_batch`] returns, so that its caller can read the clock between
/// calls.
pub const MOST_AT_ONCE: usize = 64;

/// A port that moves many frames with one call. The default methods move them one by one.
pub trait Batch: Port {
    /// Sends the frames of `frame_bytes` bytes each that lie back to back in `frames`; a shorter remainder is not sent.
    /// Returns how many the kernel accepted: fewer when a queue was full. Accepted frames have consecutive numbers that
    /// continue those of [`Port::transmit`]; a frame that was not accepted has none.
    ///
    /// # Errors
    /// When the kernel refuses the first frame, unless a queue is full.
    fn transmit_batch(&mut self, frames: &[u8], frame_bytes: usize) -> Result<usize, PortError> {
        let mut taken = 0;
        for frame in frames.chunks_exact(frame_bytes.max(1)) {
            match self.transmit(frame) {
                Ok(_) => taken += 1,
                Err(error) if error.is_full_queue() => break,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Passes each waiting frame to `each`, oldest first, at most [`MOST_AT_ONCE`], and returns how many. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses, not when there is nothing to take.
    fn receive_batch(&mut self, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let mut buffer = BUFFER.take();
        buffer.resize(self.capabilities().max_frame, 0);
        let mut count = 0;
        let ended = loop {
            match self.receive(&mut buffer) {
                Ok(Some(received)) => each(&buffer[..received.length], received),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            count += 1;
            if count == MOST_AT_ONCE {
                break Ok(());
            }
        };
        BUFFER.replace(buffer);
        ended.map(|()| count)
    }

    /// Sends a frame to the sender of the `nth` frame (from 0) of the last [`Batch::receive_batch`]. Where frames carry
    /// their addresses, this is [`Port::transmit`].
    ///
    /// # Errors
    /// As [`Port::transmit`].
    fn answer(&mut self, nth: usize, frame: &[u8]) -> Result<Sent, PortError> {
        let _ = nth;
        self.transmit(frame)
    }

    /// Names the I/O backend that sends frames, for the record: "`AF_PACKET` sendmmsg, qdisc bypassed".
    fn engine(&self) -> &str;

    /// Names the I/O backend that receives frames: "`AF_PACKET` recvmmsg".
    fn receive_engine(&self) -> &str {
        self.engine()
    }

    /// Whether the BPF program that it needs is still attached to its interface; `true` where it needs none.
    fn is_attached(&self) -> bool {
        true
    }

    /// The descriptor that becomes readable when a frame can be received, for callers that poll several ports.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

thread_local! {
    /// The buffer of the default [`Batch::receive_batch`].
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
