//! The files that a spool consists of: their names and order, and who holds them.
//!
//! Each begins as a spool does, and can be read without those before it: so the oldest can be removed while the log goes on. Who
//! writes a log, or makes records of it, holds a lock on the last. Reads and writes no frames.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sojourn_record::private;

use super::{RESERVE_NAME, SpoolError, failure};

/// What the first of several files is called when records were made of them: from then on none of them is a log.
const SPENT: &str = "spool-spent";

/// Makes a file that is locked; returns its device and inode, too.
pub(super) fn create(path: &Path) -> Result<(File, (u64, u64)), SpoolError> {
    let file = private::create_file(path).map_err(|source| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            SpoolError::Exists(path.to_owned())
        } else {
            failure("create", path, source)
        }
    })?;
    // Where a file system has no locks it goes without.
    let _ = file.try_lock();
    let about = file.metadata().map_err(|source| failure("create", path, source))?;
    Ok((file, (about.dev(), about.ino())))
}

/// Returns the name of a file by its number.
pub(super) fn name_of(number: u32) -> String {
    format!("spool-{number:03}.tcplog")
}

/// Returns the number of a file by its name, also of one that was set aside.
pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("spool-")?.split_once('.')?.0.parse().ok()?;
    (name == name_of(number) || name == unread_name(number)).then_some(number)
}

fn is_set_aside(path: &Path) -> bool {
    number_of(path).is_some_and(|number| path.ends_with(unread_name(number)))
}

/// Returns the files of a folder's spool, in the order in which they were written. Those of which records were made are none: one that
/// was set aside is a part of a log only while others are there, for who made records may have been killed in between.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let found = all(folder);
    if is_spent(folder) || found.iter().all(|path| is_set_aside(path)) { Vec::new() } else { found }
}

/// Whether records were made of what is left of a spool.
pub(super) fn is_spent(folder: &Path) -> bool {
    folder.join(SPENT).exists()
}

fn all(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| Some((number_of(&entry.path())?, entry.path()))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Holds a spool for whoever makes records of it, until what this returns is dropped; with its files.
///
/// # Errors
/// When there is none, or somebody else holds it.
pub(crate) fn hold(folder: &Path) -> Result<(Held, Vec<PathBuf>), SpoolError> {
    let found = files(folder);
    let Some(last) = found.last() else { return Err(SpoolError::Nothing(folder.to_owned())) };
    let file = File::open(last).map_err(|source| failure("open", last, source))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(SpoolError::Busy(last.clone())),
        // Who writes it may have gone on to another file just now.
        _ if files(folder) != found => Err(SpoolError::Busy(last.clone())),
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

/// What is done to remove a spool. Whoever does it may be killed after any step: what is left then is the whole log or none, never a
/// log that lacks a part.
#[derive(Debug)]
pub(crate) enum Step {
    /// One file is another from now on. Needs no room on the disk.
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Step {
    pub(crate) fn take(&self) -> Result<(), SpoolError> {
        match self {
            // Power may be lost: what is done next must not be on the disk before this.
            Self::Rename(from, to) => fs::rename(from, to)
                .and_then(|()| File::open(to.parent().unwrap_or(Path::new(".")))?.sync_all())
                .map_err(|source| failure("rename", from, source)),
            Self::Remove(path) => remove(path),
        }
    }
}

/// Returns the steps that are left to remove a folder's spool.
pub(crate) fn steps(folder: &Path) -> Vec<Step> {
    let (mut found, spent) = (all(folder), folder.join(SPENT));
    found.retain(|path| !is_set_aside(path));
    let mut steps = Vec::new();
    // A single file is there or not.
    if found.len() > 1 && !is_spent(folder) {
        steps.push(Step::Rename(found.remove(0), spent.clone()));
    }
    steps.extend(found.into_iter().chain([folder.join(RESERVE_NAME), spent]).map(Step::Remove));
    steps
}

/// Removes a folder's spool: its records are made. Where it is killed at that, what is left is no log: it is removed the next time.
pub fn discard(folder: &Path) {
    // Where one cannot be taken, what follows would make a log of what is left.
    let _ = steps(folder).iter().try_for_each(Step::take);
}

/// What a file is called that could not be read, once records are made of the others.
pub(crate) fn unread_name(number: u32) -> String {
    format!("spool-{number:03}.unread")
}

/// Keeps files that could not be read: what they have is nowhere else.
pub(crate) fn set_aside(unread: &[PathBuf]) -> Result<(), SpoolError> {
    unread.iter().try_for_each(|path| {
        let number = number_of(path).unwrap_or_default();
        Step::Rename(path.clone(), path.with_file_name(unread_name(number))).take()
    })
}

/// Removes a file, which may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), SpoolError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failure("remove", path, source)),
        _ => Ok(()),
    }
}
