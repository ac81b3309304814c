//! `probe`: sends requests to a peer and measures round-trip times.

mod departures;
mod directions;
pub mod measure;
mod render;
pub mod request;
mod run;

pub use run::{run, single};
