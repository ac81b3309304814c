//! Readers of what the kernel and the tap's programs write into rings, for `tests/fuzz`: each takes any bytes, and
//! returns whether it found a frame. Nothing here opens a ring.

use sojourn_wire::stream::TAG_BYTES;

use crate::bpf::record;
use crate::ring::block;

/// A block of a packet socket's ring.
pub fn block(bytes: &[u8]) -> bool {
    let mut shown = 0;
    let (read, invalid) = block::each(bytes, &mut Vec::new(), |copied| {
        assert!(copied.frame.len() <= bytes.len() + TAG_BYTES);
        shown += 1;
    });
    assert_eq!(shown, read);
    read > 0 && invalid == 0
}

/// A record of the tap's programs.
pub fn record(bytes: &[u8]) -> bool {
    let mut scratch = Vec::new();
    let copied = record::read(bytes, &mut scratch);
    copied.is_some_and(|copied| {
        assert!(copied.frame.len() <= bytes.len() + TAG_BYTES);
        !copied.frame.is_empty()
    })
}
