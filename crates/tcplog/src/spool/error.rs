//! Why a spool cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

/// Why a spool cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// There is one already.
    #[error("create {}: a log is there already; `sojourn tcplog recover` makes records of it", .0.display())]
    Exists(PathBuf),
    /// The disk is full.
    #[error("write {}: the disk is full; what was logged before stays readable", .0.display())]
    Full(PathBuf),
    /// It is as long as it may be.
    #[error("write {}: it has the size that it may have", .0.display())]
    Limit(PathBuf),
    /// Somebody writes it, or makes records of it.
    #[error("read {}: the log goes on, or records are being made of it", .0.display())]
    Busy(PathBuf),
    /// There is none, or records were made of it.
    #[error("read {}: no log is there of which records are still to be made", .0.display())]
    Nothing(PathBuf),
    /// Somebody removed or replaced the file.
    #[error("write {}: the log was removed or replaced while it was written", .0.display())]
    Gone(PathBuf),
    /// It is none, or of another version.
    #[error("read {}: {problem}", path.display())]
    Foreign {
        /// What.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another failure of the file system.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Says what the file system refused: a disk that is full is told apart.
pub(super) fn failure(operation: &'static str, path: &Path, source: io::Error) -> SpoolError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            SpoolError::Full(path)
        }
        _ => SpoolError::File { operation, path, source },
    }
}
