//! Completes what the kernel left undone in a frame that a tap copied. Pure.

use sojourn_wire::{offload, stream::TAG_BYTES};

/// The length of the two MAC addresses, which a tag follows.
const ADDRESS_BYTES: usize = 12;

/// What the kernel left undone in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The start of the checksummed range, and the offset of the checksum field from there.
    pub checksum: Option<(usize, usize)>,
    /// Whether it is a super-frame.
    pub is_super: bool,
}

impl Undone {
    /// Returns a frame of `length` bytes as on the wire: completes the checksum if the whole frame was copied, and
    /// inserts the tag. The checksum of a super-frame belongs to none of its frames and stays as it is.
    pub fn finish<'a>(
        &self,
        frame: &'a [u8],
        length: usize,
        tag: Option<[u8; TAG_BYTES]>,
        to: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let checksum = self.checksum.filter(|_| !self.is_super && frame.len() == length);
        if checksum.is_none() && tag.is_none() {
            return frame;
        }
        to.clear();
        to.extend_from_slice(frame);
        if let Some((start, offset)) = checksum {
            // SCTP uses a CRC, which the kernel reports like an Internet checksum.
            let _ = offload::complete(to) || offload::finish(to, start, offset);
        }
        if let Some(tag) = tag.filter(|_| to.len() >= ADDRESS_BYTES) {
            to.splice(ADDRESS_BYTES..ADDRESS_BYTES, tag);
        }
        to
    }
}
