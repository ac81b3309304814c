//! Parses files of other tools: delay profiles, distribution tables, traces, patterns.
//!
//! Their content is untrusted: it is parsed, or refused with the wrong line.

pub mod distribution;
pub mod pattern;
pub mod profile;
pub mod trace;

use std::io::Read;
use std::path::{Path, PathBuf};

/// The environment variable that names installed packages of such files: `NAME=FOLDER:NAME=FOLDER`.
const PACKAGES: &str = "SOJOURN_PROFILES";

/// The maximum file size, in bytes.
const MOST: u64 = 64 << 20;

/// Returns the path of a file: relative to `folder`, or, for a name like `wlan/11g.profile`, in the package `wlan`.
pub(super) fn find(folder: &Path, name: &str) -> PathBuf {
    let beside = folder.join(name);
    if beside.exists() {
        return beside;
    }
    std::env::var(PACKAGES).ok().and_then(|packages| packaged(&packages, name)).unwrap_or(beside)
}

fn packaged(packages: &str, name: &str) -> Option<PathBuf> {
    let (package, file) = name.split_once('/')?;
    let named =
        |one: &str| one.split_once('=').filter(|(name, _)| *name == package).map(|(_, folder)| folder.to_owned());
    packages.split(':').find_map(named).map(|folder| Path::new(&folder).join(file))
}

/// Reads and parses a file; a refusal names the file.
fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
    parse(&text(path)?).map_err(|why| format!("{}: {why}", path.display()))
}

/// Reads a whole file, up to a limit.
pub(super) fn text(path: &Path) -> Result<String, String> {
    let place = path.display();
    let file = std::fs::File::open(path).map_err(|why| format!("{place} cannot be read: {why}"))?;
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|why| format!("{place} cannot be read: {why}"))?;
    if bytes.len() as u64 > MOST {
        return Err(format!("{place} is larger than {} MB", MOST >> 20));
    }
    String::from_utf8(bytes).map_err(|_| format!("{place} is not text"))
}

/// Returns the lines with content, with their numbers from 1: trimmed, without comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let content = |line: &'_ str| -> usize { line.find('#').unwrap_or(line.len()) };
    text.lines()
        .enumerate()
        .map(move |(at, line)| (at + 1, line[..content(line)].trim()))
        .filter(|(_, line)| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_above_the_maximum_size_is_refused() {
        let path = std::env::temp_dir().join(format!("sojourn-files-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MOST).unwrap();
        assert_eq!(text(&path).unwrap().len() as u64, MOST);
        file.set_len(MOST + 1).unwrap();
        assert_eq!(text(&path).unwrap_err(), format!("{} is larger than 64 MB", path.display()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn local_file_takes_precedence_over_a_packaged_file() {
        let packages = "wlan=/usr/lib/wlan:lte=/opt/lte";
        assert_eq!(packaged(packages, "lte/cell/edge.csv"), Some(PathBuf::from("/opt/lte/cell/edge.csv")));
        for unknown in ["lte", "umts/edge.csv", "/lte/edge.csv", ""] {
            assert_eq!(packaged(packages, unknown), None, "{unknown}");
        }
        assert_eq!(packaged("", "lte/edge.csv"), None);
        assert_eq!(find(Path::new("/proc"), "self/stat"), PathBuf::from("/proc/self/stat"));
    }
}
