//! What the kernel has left undone of a frame that a tap copies, and how it is done. Pure.

use sojourn_wire::{offload, stream::TAG_BYTES};

/// Two MAC addresses, after which a tag has its place.
const ADDRESS_BYTES: usize = 12;

/// What the kernel left undone of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undone {
    /// Where to sum from, and how far behind that the sum goes.
    pub checksum: Option<(usize, usize)>,
    /// Whether it stands for several frames.
    pub is_super: bool,
}

impl Undone {
    /// Returns a frame of so many bytes as it will be on the wire: its sum, where all of it is there, and its tag. The sum of a
    /// super-frame is that of none of its frames, and stays as it is.
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
            // SCTP has a CRC, of which the kernel tells as of a sum.
            let _ = offload::complete(to) || offload::finish(to, start, offset);
        }
        if let Some(tag) = tag.filter(|_| to.len() >= ADDRESS_BYTES) {
            to.splice(ADDRESS_BYTES..ADDRESS_BYTES, tag);
        }
        to
    }
}
