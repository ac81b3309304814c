//! The engine of the emulating bridge, in virtual time: select → impair → queue → link → impair → delay line → departure.
//!
//! The engine is pure: its input and output are frames and times. It reads no clock and does no I/O, so the same engine
//! runs over two ports ([`driver`]), over a capture file, and over its own log, where it must give the same
//! dispositions ([`replay`]). One seed determines all randomness: each impairment of each pipe and flow has its own
//! stream ([`random`]).
//!
//! The disposition of a packet depends only on the order and the times of arrivals, never on when the engine was
//! called. The engine computes *intended* departures; the error of actual departures is measured while it runs
//! ([`accuracy`]).

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
