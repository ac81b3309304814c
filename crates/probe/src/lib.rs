//! Ask and answer: ICMP echo, request-response, ping-pong.

mod to;

pub use to::{Carries, DEFAULT_UDP_PORT, To};
