//! From an error to an exit status and one sentence.

use sojourn_capture::filter::FilterError;
use sojourn_port::PortError;
use sojourn_port::sim::LineError;
use sojourn_probe::RequestError;
use sojourn_record::RecordError;
use sojourn_tcp::TcpError;
use sojourn_wire::size::SizeError;

/// The request is wrong.
pub const WRONG_REQUEST: u8 = 2;
/// This machine cannot.
pub const MACHINE_CANNOT: u8 = 3;
/// It ran but must not be trusted.
pub const NOT_TRUSTED: u8 = 4;

/// A measurement that must not be trusted, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTrusted(pub String);

/// A request that makes no sense, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongRequest(pub String);

/// The error of a command that has no `--part`: of what is written there already, only another folder helps.
pub fn exists(error: RecordError) -> anyhow::Error {
    let RecordError::Exists(path) = error else { return error.into() };
    WrongRequest(format!("create {}: it exists already; records are written once: give another folder", path.display()))
        .into()
}

/// The command that ran beside an instrument failed; the instrument did not. Its status is the command's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command ended with status {0}")]
pub struct CommandFailed(pub u8);

/// Returns the exit status that an error means. What is not known better is the machine's fault.
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
            || matches!(cause.downcast_ref(), Some(RecordError::Exists(_)));
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

/// Returns the sentence that a person gets.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors tell their cause themselves.
        if !told.ends_with(&cause) {
            told = if told.is_empty() { cause } else { format!("{told}: {cause}") };
        }
    }
    told.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let source = std::io::Error::other("no such thing");
        let path = std::path::PathBuf::from("/proc/nothing");
        let error = anyhow::Error::new(RecordError::File { operation: "create", path, source });
        assert_eq!(sentence(&error), "create /proc/nothing: no such thing");
        assert_eq!(sentence(&error.context("log")), "log: create /proc/nothing: no such thing");
    }

    #[test]
    fn who_has_no_parts_is_told_of_none() {
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
