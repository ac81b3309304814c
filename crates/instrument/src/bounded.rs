//! Files that somebody names and that are read whole: so many bytes and no more, whatever is there.
//!
//! What stands in them is their readers' matter.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// As much as is read of a file.
pub const MOST_BYTES: u64 = 64 << 20;

/// Reads a file whole.
///
/// # Errors
/// `FileTooLarge` for one of more than [`MOST_BYTES`], also where it never ends; else when it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Makes a file of one byte more than is read, which takes no room on the disk.
#[cfg(test)]
pub fn too_long(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("sojourn-{name}-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(MOST_BYTES + 1)).expect("makes");
    path
}
