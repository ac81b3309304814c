//! The files of a spool: their names, order and locks.
//!
//! Each file has a full header and can be read without the earlier ones, so the oldest can be removed while the log
//! continues. The writer of a log, or its converter, locks the last file. This module reads and writes no frames.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sojourn_record::private;

use super::{RESERVE_NAME, SpoolError, failure};

/// The first of several files gets this name after the conversion; from then on the files are no log.
const SPENT: &str = "spool-spent";

/// Create a locked file; also return its device and inode.
pub(super) fn create(path: &Path) -> Result<(File, (u64, u64)), SpoolError> {
    let file = private::create_file(path).map_err(|source| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            SpoolError::Exists(path.to_owned())
        } else {
            failure("create", path, source)
        }
    })?;
    // On a file system without locks it remains unlocked.
    let _ = file.try_lock();
    let about = file.metadata().map_err(|source| failure("create", path, source))?;
    Ok((file, (about.dev(), about.ino())))
}

/// Return the name of a file with this number.
pub(super) fn name_of(number: u32) -> String {
    format!("spool-{number:03}.tcplog")
}

/// Return the number in a file's name, also of a file that was set aside.
pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("spool-")?.split_once('.')?.0.parse().ok()?;
    (name == name_of(number) || name == unread_name(number)).then_some(number)
}

fn is_set_aside(path: &Path) -> bool {
    number_of(path).is_some_and(|number| path.ends_with(unread_name(number)))
}

/// Return the files of a folder's spool, in the order of writing; none after its conversion. A file that was set aside
/// is part of a log only while others exist, because a conversion may have been killed in between.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let found = all(folder);
    if is_spent(folder) || found.iter().all(|path| is_set_aside(path)) { Vec::new() } else { found }
}

/// Whether the remaining files of a spool have been converted already.
pub(super) fn is_spent(folder: &Path) -> bool {
    folder.join(SPENT).exists()
}

fn all(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| Some((number_of(&entry.path())?, entry.path()))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Lock a spool for conversion, until the returned lock is dropped; also return its files.
///
/// # Errors
/// When there is no spool, or it is locked.
pub(crate) fn hold(folder: &Path) -> Result<(Held, Vec<PathBuf>), SpoolError> {
    let found = files(folder);
    let Some(last) = found.last() else { return Err(SpoolError::Nothing(folder.to_owned())) };
    let file = File::open(last).map_err(|source| failure("open", last, source))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(SpoolError::Busy(last.clone())),
        // Its writer may have begun another file in the meantime.
        _ if files(folder) != found => Err(SpoolError::Busy(last.clone())),
        _ => Ok((Held(file), found)),
    }
}

/// The lock of a spool that is being converted.
#[derive(Debug)]
pub(crate) struct Held(File);

// Unlocked explicitly: a child process that is being started may hold the descriptor too for a moment.
impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Return whether a folder's spool is being written or converted.
#[must_use]
pub fn is_held(folder: &Path) -> bool {
    matches!(hold(folder), Err(SpoolError::Busy(_)))
}

/// A step of removing a spool. If the removal is killed after any step, either the whole log remains or none, never a
/// log without one of its parts.
#[derive(Debug)]
pub(crate) enum Step {
    /// Rename a file. Needs no disk space.
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Step {
    pub(crate) fn take(&self) -> Result<(), SpoolError> {
        match self {
            // In case of a power failure, the rename must reach the disk before the next step.
            Self::Rename(from, to) => fs::rename(from, to)
                .and_then(|()| File::open(to.parent().unwrap_or(Path::new(".")))?.sync_all())
                .map_err(|source| failure("rename", from, source)),
            Self::Remove(path) => remove(path),
        }
    }
}

/// Return the remaining steps of removing a folder's spool.
pub(crate) fn steps(folder: &Path) -> Vec<Step> {
    let (mut found, spent) = (all(folder), folder.join(SPENT));
    found.retain(|path| !is_set_aside(path));
    let mut steps = Vec::new();
    // A single file is removed atomically.
    if found.len() > 1 && !is_spent(folder) {
        steps.push(Step::Rename(found.remove(0), spent.clone()));
    }
    steps.extend(found.into_iter().chain([folder.join(RESERVE_NAME), spent]).map(Step::Remove));
    steps
}

/// Remove a folder's spool after its conversion. If this is interrupted, the rest is no log, and is removed the next
/// time.
pub fn discard(folder: &Path) {
    // After a failed step, the next ones would make the rest look like a log.
    let _ = steps(folder).iter().try_for_each(Step::take);
}

/// The name of an unreadable file after the conversion of the others.
pub(crate) fn unread_name(number: u32) -> String {
    format!("spool-{number:03}.unread")
}

/// Keep unreadable files under other names, as the only copy of their content.
pub(crate) fn set_aside(unread: &[PathBuf]) -> Result<(), SpoolError> {
    unread.iter().try_for_each(|path| {
        let number = number_of(path).unwrap_or_default();
        Step::Rename(path.clone(), path.with_file_name(unread_name(number))).take()
    })
}

/// Remove a file; succeeds if it does not exist.
pub(super) fn remove(path: &Path) -> Result<(), SpoolError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failure("remove", path, source)),
        _ => Ok(()),
    }
}
