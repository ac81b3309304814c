//! The answering side: what a probe's request gets back.
//!
//! [`Responder`] is pure: a request and times in, a reply out. [`serve`] is its loop over [`sojourn_port::Listener`]s. Neither
//! answers ICMP echo: there the peer's kernel does.

mod driver;
mod engine;

pub use driver::{Endpoint, Serve, serve};
pub use engine::{Answered, Pretence, Responder};
