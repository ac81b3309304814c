//! Maps errors to exit statuses and to one-sentence messages.

use std::io;
use std::path::{Path, PathBuf};

use sojourn_capture::filter::FilterError;
use sojourn_port::PortError;
use sojourn_port::sim::LineError;
use sojourn_probe::RequestError;
use sojourn_record::RecordError;
use sojourn_tcp::TcpError;
use sojourn_tcplog::spool::SpoolError;
use sojourn_wire::size::SizeError;

/// Exit status: the request is wrong.
pub const WRONG_REQUEST: u8 = 2;
/// Exit status: this machine cannot carry out the request.
pub const MACHINE_CANNOT: u8 = 3;
/// Exit status: the measurement ran, but must not be trusted.
pub const NOT_TRUSTED: u8 = 4;

/// An error that makes a measurement untrustworthy, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTrusted(pub String);

/// An invalid request, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongRequest(pub String);

/// A requested path that cannot exist: it is missing, or of the wrong kind (file or folder).
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
struct WrongPath {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Returns the error of a file or folder that the request names: a wrong request if no such path can exist, otherwise a
/// refusal by this machine.
pub fn of_path(operation: &'static str, path: &Path, source: io::Error) -> anyhow::Error {
    if cannot_be(&source) {
        return WrongPath { operation, path: path.to_owned(), source }.into();
    }
    anyhow::Error::from(source).context(format!("{operation} {}", path.display()))
}

/// Whether the error means that the path does not exist or cannot exist.
fn cannot_be(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidFilename | InvalidInput)
}

/// Returns the error of a command without `--part`: where records exist already, only another folder helps.
pub fn exists(error: RecordError) -> anyhow::Error {
    let RecordError::Exists(path) = error else { return error.into() };
    WrongRequest(format!("create {}: it exists already; records are written once: give another folder", path.display()))
        .into()
}

/// The command that ran beside an instrument failed, and the instrument did not. The exit status is the command's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command ended with status {0}")]
pub struct CommandFailed(pub u8);

/// Returns the exit status for an error. An unknown error counts as one of the machine.
pub fn status(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(CommandFailed(status)) = cause.downcast_ref() {
            return *status;
        }
        let is_wrong = cause.is::<WrongRequest>()
            || cause.is::<RequestError>()
            || cause.is::<LineError>()
            || cause.is::<SizeError>()
            || cause.is::<serde_json::Error>()
            || cause.is::<sojourn_emulate::ConfigError>()
            || matches!(cause.downcast_ref(), Some(FilterError::Wrong { .. }))
            || matches!(cause.downcast_ref(), Some(PortError::Wrong { .. }))
            || matches!(cause.downcast_ref(), Some(TcpError::Wrong(_)))
            || matches!(cause.downcast_ref(), Some(RecordError::Exists(_)))
            || is_wrong_path(cause);
        if is_wrong {
            return WRONG_REQUEST;
        }
        let is_cut = matches!(cause.downcast_ref(), Some(RecordError::Full(_) | RecordError::Broken));
        let is_unanswered = matches!(cause.downcast_ref(), Some(PortError::Refused(_)));
        let is_taken = matches!(cause.downcast_ref(), Some(PortError::TakenAway { .. }));
        if is_cut || is_unanswered || is_taken || cause.is::<NotTrusted>() {
            return NOT_TRUSTED;
        }
    }
    MACHINE_CANNOT
}

/// Whether creating or opening a file or folder failed because no such path can exist.
fn is_wrong_path(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref() {
        Some(RecordError::File { operation: "create" | "open", source, .. }) => return cannot_be(source),
        Some(_) => return false,
        None => {}
    }
    match cause.downcast_ref() {
        Some(SpoolError::File { operation: "create" | "open", source, .. }) => cannot_be(source),
        _ => cause.is::<WrongPath>(),
    }
}

/// Returns the message for the user.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors include their cause in their own message.
        if !told.ends_with(&cause) {
            told = if told.is_empty() { cause } else { format!("{told}: {cause}") };
        }
    }
    let told = told.replace('\n', " ");
    // The error number does not help with a mistyped path.
    match told.rsplit_once(" (os error ") {
        Some((said, number)) if number.ends_with(')') && error.chain().any(is_wrong_path) => said.to_owned(),
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_printed_once() {
        let source = std::io::Error::other("no such thing");
        let path = std::path::PathBuf::from("/proc/nothing");
        let error = anyhow::Error::new(RecordError::File { operation: "create", path, source });
        assert_eq!(sentence(&error), "create /proc/nothing: no such thing");
        assert_eq!(sentence(&error.context("log")), "log: create /proc/nothing: no such thing");
    }

    #[test]
    fn impossible_path_is_a_wrong_request_and_a_refused_system_call_a_machine_error() {
        let system = |number| io::Error::from_raw_os_error(number);
        let path = Path::new("/proc/nothing");
        let record = |operation, number| {
            anyhow::Error::from(RecordError::File { operation, path: path.to_owned(), source: system(number) })
        };
        let spool = SpoolError::File { operation: "create", path: path.to_owned(), source: system(2) };
        // ENOENT, ENOTDIR, EISDIR and ENAMETOOLONG
        for number in [2, 20, 21, 36] {
            for error in [of_path("open", path, system(number)), record("create", number)] {
                assert_eq!(status(&error.context("log")), WRONG_REQUEST, "{number}");
            }
        }
        assert_eq!(status(&spool.into()), WRONG_REQUEST);
        // EIO, EACCES, ENOSPC and EROFS
        for number in [5, 13, 28, 30] {
            assert_eq!(status(&of_path("open", path, system(number))), MACHINE_CANNOT, "{number}");
        }
        assert_eq!(status(&record("create", 30)), MACHINE_CANNOT);
        assert_eq!(status(&record("sync", 2)), MACHINE_CANNOT, "that it is gone is nobody's request");
        assert_eq!(sentence(&of_path("open", path, system(2))), "open /proc/nothing: No such file or directory");
        assert!(sentence(&of_path("open", path, system(13))).ends_with("(os error 13)"));
    }

    #[test]
    fn error_of_a_command_without_parts_does_not_mention_parts() {
        let error = exists(RecordError::Exists("/here/taps-a-000.arrow".into()));
        let told = sentence(&error);
        assert_eq!(status(&error), WRONG_REQUEST);
        assert!(
            told.starts_with("create /here/taps-a-000.arrow: it exists already") && !told.contains("--part"),
            "{told}"
        );
        assert_eq!(status(&exists(RecordError::Full("/here".into()))), NOT_TRUSTED);
    }
}
