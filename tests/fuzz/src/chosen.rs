//! Targets of several small readers: the first byte of the input chooses one.
//!
//! New readers are added at the end, so that the seeds keep theirs.

/// A reader, and an input that it understands.
pub(crate) struct Reader {
    /// Returns whether it found something in the bytes.
    pub read: fn(&[u8]) -> bool,
    /// Returns bytes in which it does.
    pub seed: fn() -> Vec<u8>,
}

/// Reads the input with the chosen reader; returns whether that found something.
pub(crate) fn is_read(readers: &[Reader], bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    readers.get(usize::from(*which) % readers.len().max(1)).is_some_and(|reader| (reader.read)(rest))
}

/// The seeds of all readers, each behind the byte that chooses it.
pub(crate) fn seeds(readers: &[Reader]) -> Vec<Vec<u8>> {
    (0_u8..).zip(readers).map(|(which, reader)| [&[which][..], &(reader.seed)()].concat()).collect()
}

/// Gives a reader of text the bytes as the program reads files that are no UTF-8.
pub(crate) fn of_text(read: impl FnOnce(&str) -> bool, bytes: &[u8]) -> bool {
    read(&String::from_utf8_lossy(bytes))
}
