//! The responder: builds the replies to probes.
//!
//! [`Responder`] is pure: a request and times in, a reply out, for the peers that [`Guard`] admits. [`serve`] runs it
//! over [`sojourn_port::Listener`]s. Neither answers ICMP echo: there the peer's kernel does.

mod driver;
mod engine;
mod reflector;
mod sessions;
mod tags;

pub use driver::{Endpoint, Serve, serve};
pub use engine::{Asked, Pretence, Reply, Responder};
pub use reflector::{ClockState, Numbering, Reflector};
pub use sojourn_port::guard::{Case, Guard, Policy, Refusal};
