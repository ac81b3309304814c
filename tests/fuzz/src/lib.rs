//! What reads foreign bytes: each target takes any bytes, and neither panics, nor overflows, nor asks for more memory than the
//! bytes can justify.
//!
//! Where a format has a checksum, the target writes the right one over the bytes first: a search would never find it. `cargo
//! test` runs every seed, every file of the corpus and some thousand mutations; `scripts/fuzz.sh` searches by coverage.

mod asked;
mod captured;
mod emulated;
mod files;
mod frames;
mod logs;
mod matched;
mod mutate;
mod ours;
mod requests;
mod words;

pub use emulated::{is_engine, is_log};
pub use matched::is_slice;
pub use mutate::mutated;

/// One reader of foreign bytes.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Reads the bytes, whatever they are.
    pub read: fn(&[u8]),
    /// Whole ones, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub fn targets() -> Vec<Target> {
    let every = [
        asked::TARGETS,
        captured::TARGETS,
        emulated::TARGETS,
        files::TARGETS,
        frames::TARGETS,
        logs::TARGETS,
        matched::TARGETS,
        ours::TARGETS,
        requests::TARGETS,
        words::TARGETS,
    ];
    every.into_iter().flatten().map(copy).collect()
}

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

fn copy(target: &Target) -> Target {
    Target { ..*target }
}
