//! Frames of a pcap file, in the time of their stamps: received ones are read, sent ones are written.
//!
//! Only Ethernet captures. Time is simulated: it goes on to the next frame when the driver waits, so a file is read as fast
//! as can be. Stamps in pcap files are `CLOCK_REALTIME`; what to add for `CLOCK_TAI` is an argument, for the file does not
//! tell.

mod format;
mod ng;

pub use format::{LONGEST_FRAME_BYTES, PcapError, Reader, Record, Writer};
pub use ng::{Capture, NgReader, NgWriter};

use std::io::{self, Read, Write};

use sojourn_time::{Clock, Nanos, SimulatedClock, Source, Stamp, TaiOffset, Time};

use crate::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, TransmitStamp};

/// The longest frame that is read or written.
pub const MAX_FRAME_BYTES: usize = format::LONGEST_FRAME_BYTES as usize;

/// A port over two pcap files.
#[derive(Debug)]
pub struct Pcap<R, W> {
    reader: Reader<R>,
    writer: Writer<W>,
    offset: TaiOffset,
    clock: SimulatedClock,
    /// The next frame of the file, and when it was stamped, once it has been read.
    next: Option<Time>,
    frame: Vec<u8>,
    has_ended: bool,
    sent: u32,
}

impl<R: Read, W: Write> Pcap<R, W> {
    /// Returns a port that receives what `reader` holds and sends to `writer`.
    pub fn new(reader: Reader<R>, writer: Writer<W>, offset: TaiOffset, clock: SimulatedClock) -> Self {
        Self { reader, writer, offset, clock, next: None, frame: Vec::new(), has_ended: false, sent: 0 }
    }

    /// Returns whether all frames of the file were received.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns when the next frame comes.
    fn peek(&mut self) -> Result<Option<Time>, PortError> {
        if self.next.is_none() && !self.has_ended {
            let record = self.reader.next(&mut self.frame).map_err(|error| failure("read", error.into()))?;
            self.next = record.map(|record| self.offset.convert(record.at));
            self.has_ended = record.is_none();
        }
        Ok(self.next)
    }
}

impl<R: Read, W: Write> Port for Pcap<R, W> {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        let called = self.clock.now();
        self.writer.write(called - self.offset.0, frame).map_err(|error| failure("write", error))?;
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        Ok(Sent { number, called })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let now = self.clock.now();
        let Some(at) = self.peek()?.filter(|at| *at <= now) else { return Ok(None) };
        self.next = None;
        let length = self.frame.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.frame[..length]);
        Ok(Some(Received { length, arrived: Stamp { at, source: Source::Kernel }, returned: now }))
    }

    fn transmit_stamp(&mut self) -> Result<Option<TransmitStamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        let until = self.peek()?.map_or(deadline, |at| at.min(deadline));
        self.clock.wait_until(until, Nanos::ZERO);
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Ethernet, max_frame: MAX_FRAME_BYTES, transmit_stamps: false }
    }

    fn own_drops(&mut self) -> u64 {
        0
    }
}

impl<R: Read, W: Write> Batch for Pcap<R, W> {
    fn engine(&self) -> &str {
        "pcap file"
    }
}

fn failure(operation: &'static str, source: io::Error) -> PortError {
    PortError::System { operation, object: "pcap file".to_owned(), source }
}

#[cfg(test)]
mod tests;
