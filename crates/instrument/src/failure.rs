//! From an error to an exit status and one sentence.

use sojourn_port::PortError;
use sojourn_port::sim::LineError;
use sojourn_probe::RequestError;
use sojourn_record::RecordError;
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

/// Returns the exit status that an error means. What is not known better is the machine's fault.
pub fn status(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        let is_wrong = cause.is::<WrongRequest>()
            || cause.is::<RequestError>()
            || cause.is::<LineError>()
            || cause.is::<SizeError>()
            || cause.is::<serde_json::Error>()
            || matches!(cause.downcast_ref(), Some(PortError::Wrong { .. }))
            || matches!(cause.downcast_ref(), Some(RecordError::Exists(_)));
        if is_wrong {
            return WRONG_REQUEST;
        }
        let is_cut = matches!(cause.downcast_ref(), Some(RecordError::Full(_) | RecordError::Broken));
        let is_unanswered = matches!(cause.downcast_ref(), Some(PortError::Refused(_)));
        if is_cut || is_unanswered || cause.is::<NotTrusted>() {
            return NOT_TRUSTED;
        }
    }
    MACHINE_CANNOT
}

/// Returns the sentence that a person gets.
pub fn sentence(error: &anyhow::Error) -> String {
    // `{:#}` joins the chain with colons; an error of ours is one line already.
    format!("{error:#}").replace('\n', " ")
}
