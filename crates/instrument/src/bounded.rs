//! Reads files that a user names, whole or line by line, up to a maximum size.
//!
//! Does not interpret their contents.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// The maximum size of a file that is read whole.
pub const MOST_BYTES: u64 = 64 << 20;

/// Reads a file whole.
///
/// # Errors
/// `FileTooLarge` if the file has more than [`MOST_BYTES`], even where it is endless; otherwise the error of the read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_large(format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Returns the lines of a file, without their ends. An item is `FileTooLarge` if its line has more than
/// `most_line_bytes`, or if all lines to its end have more than `most_bytes`; otherwise the error of the read.
pub fn lines(from: impl Read, most_line_bytes: u64, most_bytes: u64) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let (mut from, mut left) = (BufReader::new(from), most_bytes);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match from.by_ref().take(most_line_bytes + 1).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
        let bytes = line.len() as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() as u64 > most_line_bytes {
            return Some(Err(too_large(format!("it has a line of more than {} MiB", most_line_bytes >> 20))));
        }
        match left.checked_sub(bytes) {
            Some(fewer) => {
                left = fewer;
                Some(Ok(line))
            }
            None => Some(Err(too_large(format!("its lines have more than {} MiB", most_bytes >> 20)))),
        }
    })
}

fn too_large(problem: String) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, problem)
}

/// Creates a sparse file one byte longer than the maximum.
#[cfg(test)]
pub fn too_long(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("sojourn-{name}-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(MOST_BYTES + 1)).expect("makes");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines up to the first error, and the error.
    fn read(from: impl Read, most_bytes: u64) -> (Vec<Vec<u8>>, Option<String>) {
        let mut whole = Vec::new();
        for line in lines(from, MOST_BYTES, most_bytes) {
            match line {
                Ok(line) => whole.push(line),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
                    return (whole, Some(error.to_string()));
                }
            }
        }
        (whole, None)
    }

    #[test]
    fn lines_are_without_their_ends() {
        for text in [&b""[..], b"\n", b"a", b"a\n", b"a\n\nb", b"\n\xFF\n"] {
            let with_ends = text.split_inclusive(|byte| *byte == b'\n');
            let expected = with_ends.map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()).collect();
            assert_eq!(read(text, u64::MAX), (expected, None));
        }
    }

    #[test]
    fn line_without_an_end_and_too_many_lines_are_refused() {
        let (whole, problem) = read(io::repeat(b'x'), u64::MAX);
        assert_eq!((whole.len(), problem.as_deref()), (0, Some("it has a line of more than 64 MiB")));
        let longest = || io::repeat(b'x').take(MOST_BYTES);
        let (whole, problem) = read(longest().chain(&b"\nab"[..]), u64::MAX);
        assert_eq!((whole.len(), whole[0].len() as u64, problem), (2, MOST_BYTES, None));
        assert_eq!(read(&b"ab\ncd\n"[..], 6).1, None);
        let (whole, problem) = read(&b"ab\ncd\n"[..], 5);
        assert_eq!((whole, problem.as_deref()), (vec![b"ab".to_vec()], Some("its lines have more than 0 MiB")));
    }
}
