//! The answering side: what a probe's request gets back.
//!
//! [`Responder`] is pure: a request and times in, a reply out, to those whom [`Guard`] admits. [`serve`] is its loop over [`sojourn_port::Listener`]s. Neither
//! answers ICMP echo: there the peer's kernel does.

mod driver;
mod engine;
mod reflector;
mod sessions;

pub use driver::{Endpoint, Serve, serve};
pub use engine::{Asked, Pretence, Reply, Responder};
pub use reflector::{ClockState, Numbering, Reflector};
pub use sojourn_port::guard::{Case, Guard, Policy, Refusal};
