//! Reads whole files that a user names, up to a maximum size.
//!
//! Does not interpret their contents.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The maximum size of a file.
pub const MOST_BYTES: u64 = 64 << 20;

/// Reads a file whole.
///
/// # Errors
/// `FileTooLarge` if the file has more than [`MOST_BYTES`], even where it is endless; otherwise the error of the read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Creates a sparse file one byte longer than the maximum.
#[cfg(test)]
pub fn too_long(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("sojourn-{name}-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(MOST_BYTES + 1)).expect("makes");
    path
}
