//! Rows of what an application read of its sockets. [`crate::schema::TCP_READINGS`] tells what each field means.

use std::net::SocketAddr;
use std::sync::Arc;

use sojourn_time::Time;

use crate::schema;

/// How many values TCP_INFO has.
pub const INFO: usize = schema::READINGS_INFO;
/// The names that `role` may have.
pub const ROLES: [&str; 2] = ["send", "receive"];
/// The names that `why` may have.
pub const REASONS: [&str; 4] = ["begin", "send", "time", "end"];

/// One reading of TCP_INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Reading {
    pub socket: Arc<Socket>,
    /// One of [`REASONS`].
    pub why: &'static str,
    pub number: u64,
    pub intended: Time,
    pub before: Time,
    pub after: Time,
    /// When the data after it had been handed over, and how much of it.
    pub handed: Option<(Time, usize)>,
    pub info_bytes: usize,
    /// In the order of the schema's columns.
    pub info: [Option<i64>; INFO],
}

/// Whose readings they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Socket {
    pub connection: u32,
    /// One of [`ROLES`].
    pub role: &'static str,
    pub cookie: u64,
    pub netns: Option<u64>,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Returns the names of the columns of TCP_INFO, in their order.
pub fn info_names() -> impl Iterator<Item = &'static str> {
    schema::TCP_READINGS.fields[schema::READINGS_BEFORE_INFO..].iter().map(|field| field.name)
}
