//! Reads and writes captures: pcap and pcapng files, compressed ones too.
//!
//! [`Capture`] takes Ethernet captures only and stops at the first error; [`Frames`] reads as much as is readable.
//! Timestamps are `CLOCK_REALTIME`.

mod format;
mod frames;
mod link;
mod ng;
mod ng_writer;
mod packed;

pub use format::{Direction, Interface, LONGEST_FRAME_BYTES, PcapError, Reader, Record, Writer};
pub use frames::{Frames, Skipped, Taken};
pub use ng::{Capture, NgReader};
pub use ng_writer::{Described, NgWriter, Statistics};
pub use packed::{open, unpacked};

#[cfg(test)]
mod tests;
