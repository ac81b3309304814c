//! Many frames in one call: what a stream at a high rate needs beside [`Port`].

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use crate::{Port, PortError, Received, Sent};

/// The most frames that one call of [`Batch::receive_batch`] hands over, so that its caller can look at the clock.
pub const MOST_AT_ONCE: usize = 64;

/// A port that moves many frames with one call. The default methods move them one by one.
pub trait Batch: Port {
    /// Sends the frames of `frame_bytes` bytes each that lie back to back in `frames`; a rest that is shorter is not sent.
    /// Returns how many the kernel took: fewer when there was no room for the others in a queue. They have consecutive
    /// numbers, which go on from those of [`Port::transmit`]; one that was not taken has none.
    ///
    /// # Errors
    /// When the kernel refuses the first one for another reason than a full queue.
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

    /// Hands over the frames that are there, oldest first, [`MOST_AT_ONCE`] at most, and returns how many. Never blocks.
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

    /// Sends a frame to whom the `nth` frame (from 0) of the last [`Batch::receive_batch`] came from. Where frames carry their
    /// addresses themselves, this is [`Port::transmit`].
    ///
    /// # Errors
    /// As [`Port::transmit`].
    fn answer(&mut self, nth: usize, frame: &[u8]) -> Result<Sent, PortError> {
        let _ = nth;
        self.transmit(frame)
    }

    /// Says by what means of the kernel frames are sent, for the record: "`AF_PACKET` sendmmsg, qdisc bypassed".
    fn engine(&self) -> &str;

    /// The same of the frames that are received: "`AF_PACKET` recvmmsg".
    fn receive_engine(&self) -> &str {
        self.engine()
    }

    /// Whether a program that it needs still hangs on its interface; so, where it needs none.
    fn is_attached(&self) -> bool {
        true
    }

    /// The descriptor that becomes readable when a frame can be received, for those who wait for several ports at once.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

thread_local! {
    /// Where the default of [`Batch::receive_batch`] puts a frame.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
