//! Fuzz targets for every reader of untrusted bytes: each accepts any bytes, and neither panics nor overflows nor
//! allocates more memory than the bytes justify.
//!
//! Where a format has a checksum, the target corrects it first, since a search would never find it. `cargo test` runs
//! every seed, every file of the corpus and some thousand mutations; `scripts/fuzz.sh` searches by coverage.

mod asked;
mod captured;
mod chosen;
mod emulated;
mod files;
mod frames;
mod kernel;
mod logs;
mod matched;
mod mutate;
mod ours;
mod replies;
mod requests;
mod responders;
mod tools;
mod words;

pub use emulated::{is_engine, is_log};
pub use files::is_tap_counts;
pub use kernel::{is_answer, is_in_ring};
pub use matched::is_slice;
pub use mutate::mutated;
pub use replies::{is_heard, is_reply};
pub use responders::{is_probe_answered, is_stamp_answered};
pub use tools::is_told;

/// A reader of untrusted bytes.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Reads any bytes.
    pub read: fn(&[u8]),
    /// Returns valid inputs to start from.
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
        kernel::TARGETS,
        logs::TARGETS,
        matched::TARGETS,
        ours::TARGETS,
        replies::TARGETS,
        requests::TARGETS,
        responders::TARGETS,
        tools::TARGETS,
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
