//! The frames of a spool: kinds, headers with length and checksum, and entries of the packet accounting.

use crate::account::{Disposition, Entry};
use crate::decode::Raw;

/// The size of a header: kind, source, length, checksum.
pub(super) const FRAME_HEADER: usize = 16;

/// The kinds of frames.
pub(super) mod frame {
    pub const EVENTS: u32 = 1;
    pub const FLOW: u32 = 2;
    pub const TOTALS: u32 = 3;
    pub const GAP: u32 = 4;
    pub const NOTE: u32 = 5;
    pub const ACCOUNT: u32 = 6;
    pub const END: u32 = 7;
    pub const GONE: u32 = 8;
    pub const LEFT_OUT: u32 = 9;
    pub const LIMITED: u32 = 10;
    pub const PART: u32 = 11;
    pub const LAST: u32 = PART;
    /// The result of a log that is exported to another host; not used in spools.
    pub const FOOTER: u32 = 12;
}

/// Set a frame's length and checksum in its header.
pub(super) fn seal(frame: &mut [u8]) {
    let (header, payload) = frame.split_at_mut(FRAME_HEADER);
    header[8..12].copy_from_slice(&count(payload.len()).to_ne_bytes());
    let sum = checksum(&header[..12], payload);
    header[12..].copy_from_slice(&sum.to_ne_bytes());
}

/// Append an entry of the packet accounting.
pub(super) fn put_entry(entry: &Entry, bytes: &mut Vec<u8>) {
    let disposition = entry.disposition.map_or(0, |disposition| disposition as u32 + 1);
    // Socket cookies begin at 1, so 0 means none.
    entry.cookie.unwrap_or_default().put(bytes);
    [u32::try_from(entry.direction).unwrap_or_default(), disposition].put(bytes);
    [entry.tally.packets, entry.tally.segments].put(bytes);
}

/// Decode the disposition that [`put_entry`] wrote; `Some(None)`: seen.
pub(super) fn disposition_of(number: u32) -> Option<Option<Disposition>> {
    match number.checked_sub(1) {
        None => Some(None),
        Some(place) => Disposition::ALL.get(place as usize).map(|disposition| Some(*disposition)),
    }
}

/// Whether a frame is a final entry, in contrast to one that only a killed log needs.
pub(super) fn is_final(kind: u32) -> bool {
    !matches!(kind, frame::EVENTS | frame::FLOW | frame::TOTALS)
}

/// Return the checksum of a frame: of its header before the checksum, and of its payload.
pub(super) fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// Convert a length to the type that frames use.
pub(super) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
