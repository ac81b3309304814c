//! The files that a spool consists of: their names and order, what was written before each, and who holds them.
//!
//! Each begins as a spool does, and can be read without those before it: so the oldest can be removed while the log goes on. Who
//! writes a log, or makes records of it, holds a lock on the last. Reads and writes no frames.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::{NAME, RESERVE_NAME, SpoolError, failure};
use crate::account::{Tally, add_both};

/// Says that records were made of the files beside it, which are being removed.
const SPENT: &str = "spool-spent";

/// What was written of a log up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples of packets, in and out.
    pub packets: [Tally; 2],
    /// Samples of no packet.
    pub events: u64,
    /// Private states.
    pub privates: u64,
    /// Records that gaps say are missing.
    pub missing: u64,
    /// Packets that the flight recorder forgot, as the last words on their flows say.
    pub forgotten: [Tally; 2],
    /// Last words on flows.
    pub gone: u64,
}

/// A file that is written no more.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// What was written up to its end.
    pub(super) until: Written,
}

impl Written {
    /// Numbers that make it, in a row.
    pub(super) const NUMBERS: usize = 12;

    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let tallies = [self.packets, self.forgotten].concat();
        let mut rest = [self.events, self.privates, self.missing, self.gone].into_iter();
        let mut numbers = tallies.iter().flat_map(|tally| [tally.packets, tally.segments]).chain(&mut rest);
        std::array::from_fn(|_| numbers.next().unwrap_or_default())
    }

    pub(super) fn of(numbers: [u64; Self::NUMBERS]) -> Self {
        let tally = |at: usize| Tally { packets: numbers[at], segments: numbers[at + 1] };
        let [.., events, privates, missing, gone] = numbers;
        Self { packets: [tally(0), tally(2)], forgotten: [tally(4), tally(6)], events, privates, missing, gone }
    }

    /// Adds a sample of a packet.
    pub(super) fn add_packet(&mut self, direction: usize, segments: u64) {
        let mut one = [Tally::default(); 2];
        one[direction.min(1)] = Tally { packets: 1, segments };
        add_both(&mut self.packets, one);
    }
}

/// Returns the name of a file by its number.
pub(super) fn name_of(number: u32) -> String {
    format!("spool-{number:03}.tcplog")
}

/// Returns the files of a folder's spool, in the order in which they were written. Those of which records were made are none.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    if folder.join(SPENT).exists() { Vec::new() } else { all(folder) }
}

fn all(folder: &Path) -> Vec<PathBuf> {
    let number = |name: &str| name.strip_prefix("spool-")?.strip_suffix(".tcplog")?.parse::<u32>().ok();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Holds a spool for whoever makes records of it, until what this returns is dropped; with its files.
///
/// # Errors
/// When there is none, or somebody else holds it.
pub(crate) fn hold(folder: &Path) -> Result<(Held, Vec<PathBuf>), SpoolError> {
    let found = files(folder);
    let last = found.last().cloned().unwrap_or_else(|| folder.join(NAME));
    let file = File::open(&last).map_err(|source| failure("open", &last, source))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(SpoolError::Busy(last)),
        // Who writes it may have gone on to another file just now.
        _ if files(folder) != found => Err(SpoolError::Busy(last)),
        _ => Ok((Held(file), found)),
    }
}

/// A spool that nobody else makes records of.
#[derive(Debug)]
pub(crate) struct Held(File);

// Closing it is not enough: a program that is just being started has it too, for a moment.
impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Whether somebody writes a folder's spool, or makes records of it.
#[must_use]
pub fn is_held(folder: &Path) -> bool {
    matches!(hold(folder), Err(SpoolError::Busy(_)))
}

/// Removes a folder's spool: its records are made. Where it is killed at that, what is left is no log: it is removed the next time.
pub fn discard(folder: &Path) {
    let (found, spent) = (all(folder), folder.join(SPENT));
    if found.len() > 1 {
        let _ = sojourn_record::private::create_file(&spent);
    }
    found.iter().for_each(|path| drop(fs::remove_file(path)));
    let _ = fs::remove_file(folder.join(RESERVE_NAME));
    let _ = fs::remove_file(spent);
}

/// Removes a file, which may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), SpoolError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failure("remove", path, source)),
        _ => Ok(()),
    }
}
