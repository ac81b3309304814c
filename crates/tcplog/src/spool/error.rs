//! Errors of writing or reading a spool.

use std::io;
use std::path::{Path, PathBuf};

use sojourn_record::is_full;

use crate::numbers::MOST_FLOWS;

/// Why a spool cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The folder has a spool already.
    #[error("create {}: a log is there already; `sojourn tcplog recover` makes records of it", .0.display())]
    Exists(PathBuf),
    /// The disk is full.
    #[error("write {}: the disk is full; what was logged before stays readable", .0.display())]
    Full(PathBuf),
    /// The size limit is reached.
    #[error("write {}: it has the size that it may have", .0.display())]
    Limit(PathBuf),
    /// There are as many flows as records can number.
    #[error(
        "write {}: it has {MOST_FLOWS} flows, and its records cannot number more; begin another log",
        .0.display()
    )]
    Flows(PathBuf),
    /// It is being written or converted.
    #[error("read {}: the log goes on, or records are being made of it", .0.display())]
    Busy(PathBuf),
    /// There is no spool, or it was converted already.
    #[error("read {}: no log is there of which records are still to be made", .0.display())]
    Nothing(PathBuf),
    /// The file was removed or replaced.
    #[error("write {}: the log was removed or replaced while it was written", .0.display())]
    Gone(PathBuf),
    /// The file is not a spool, or has another version.
    #[error("read {}: {problem}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another failure of the file system.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// Its object.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Convert an error of the file system; a full disk has a variant of its own.
pub(super) fn failure(operation: &'static str, path: &Path, source: io::Error) -> SpoolError {
    let path = path.to_owned();
    if is_full(&source) { SpoolError::Full(path) } else { SpoolError::File { operation, path, source } }
}
