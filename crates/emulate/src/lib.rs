//! The emulating bridge's engine: select → impair → queue → link → impair → delay line → out, in virtual time.
//!
//! Pure: frames and times in, frames and times out. It reads no clock and does no I/O, so the same engine runs over two ports
//! ([`driver`]), over a capture file, and again over its own log, where it must give the same dispositions ([`replay`]). All
//! randomness comes from one seed, one stream for each impairment, pipe and flow ([`random`]).
//!
//! What becomes of a packet depends on the order and the times of arrivals alone, never on when the engine was called: what
//! it computes are *intended* departures. By how much the real ones miss them is counted while it runs ([`accuracy`]).

pub mod accuracy;
pub mod config;
pub mod delay;
pub mod disposition;
pub mod driver;
pub mod engine;
pub mod impair;
pub mod kernel;
mod link;
mod pipe;
pub mod queue;
pub mod random;
pub mod replay;
pub mod select;
mod shared;
pub mod standing;
mod store;

pub use accuracy::Report;
pub use config::check::ConfigError;
pub use config::{Config, Direction, Pipe};
pub use disposition::{Cause, Disposition, Outcome};
pub use engine::{Arrived, Departure, Engine};
