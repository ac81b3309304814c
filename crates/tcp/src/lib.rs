//! A plain TCP application: it sends or receives data, and reads TCP_INFO meanwhile. The log of TCP's state is compared
//! with its readings.
//!
//! It needs no privileges and sets no scheduling priority. This crate writes no records and prints nothing.

pub mod info;
mod observed;
mod receive;
mod request;
mod schedule;
mod send;
mod socket;
mod sys;
mod wait;

use std::io;
use std::net::SocketAddr;

pub use observed::Outcome;
pub use receive::{Listener, Listening};
pub use request::{Listen, Receive, Send, Settings, Sockets};
pub use schedule::{Call, Pacing, PacingError};
pub use send::{Connected, send};
pub use socket::Facts;

/// Why a connection was not made or accepted.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// The request is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The peer did not answer.
    #[error("connect to {to}: no answer for {seconds} s")]
    NoAnswer {
        /// The peer.
        to: SocketAddr,
        /// The timeout.
        seconds: i64,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// The operation and its object.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// A connection's thread panicked.
    #[error("the thread of a connection panicked")]
    Panicked,
}

impl TcpError {
    /// Return whether a connection was none any more.
    fn is_not_connected(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotConnected)
    }
}

/// Return a function that wraps an error with its operation.
fn failed<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> TcpError {
    move |source| TcpError::System { operation: operation.into(), source: source.into() }
}
