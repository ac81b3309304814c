//! Captures: pcap files are read and written, pcapng files too, also compressed ones.
//!
//! [`Capture`] takes Ethernet captures alone and stops at what is wrong with them; [`Frames`] reads what can be read. Timestamps are
//! `CLOCK_REALTIME`.

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
