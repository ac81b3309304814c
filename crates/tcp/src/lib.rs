//! A plain application over TCP: it sends or receives, and reads TCP_INFO meanwhile. The log of TCP's state is compared with it.
//!
//! Needs no rights and asks for no scheduling priority. Does not write records, and does not print.

mod info;
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
pub use receive::Listening;
pub use request::{Listen, Receive, Send, Settings, Sockets};
pub use schedule::{Call, Pacing, PacingError};
pub use send::send;
pub use socket::Facts;

/// Why a connection was not made or accepted.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// The request is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The peer does not answer.
    #[error("connect to {to}: no answer for {seconds} s")]
    NoAnswer {
        /// The peer.
        to: SocketAddr,
        /// How long it was waited for.
        seconds: i64,
    },
    /// The kernel refused something.
    #[error("{operation}: {source}")]
    System {
        /// Operation and object.
        operation: String,
        /// Its reason.
        source: io::Error,
    },
    /// A connection's thread panicked.
    #[error("the thread of a connection panicked")]
    Panicked,
}

/// Returns what makes an error of a reason.
fn failed<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> TcpError {
    move |source| TcpError::System { operation: operation.into(), source: source.into() }
}
