//! Captures: pcap files are read and written, pcapng files too.
//!
//! Only Ethernet captures. Timestamps in them are `CLOCK_REALTIME`.

mod format;
mod ng;

pub use format::{LONGEST_FRAME_BYTES, PcapError, Reader, Record, Writer};
pub use ng::{Capture, NgReader, NgWriter};

#[cfg(test)]
mod tests;
