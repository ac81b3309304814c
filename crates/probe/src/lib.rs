//! Request and reply: ICMP echo, request-response, ping-pong, STAMP.
//!
//! [`Engine`] is pure and makes all decisions; [`run`] carries a [`Request`] out over a port. This crate does not open
//! ports, write records or know devices under test.

mod codec;
mod departures;
mod driver;
mod engine;
mod far;
mod judge;
mod request;
pub mod respond;
mod statistics;
mod to;

pub use codec::{Answer, Codec, Far};
pub use departures::Departures;
pub use driver::{Host, run};
pub use engine::{Engine, Step};
pub use far::{DirectionalLoss, FarEnd};
pub use judge::{Found, LATE_SHARE, judge, late_limit, late_sentence};
pub use request::{Head, Kind, LONGEST, MOST_PROBES, Request, RequestError, Schedule, Shape, Stamp, Timestamps};
pub use statistics::Summary;
pub use to::{Carries, DEFAULT_UDP_PORT, Ethernet, Icmp, Peer, Simulated, To, Udp};
