//! `probe`: asks a peer and times its answers.

mod departures;
mod directions;
pub mod measure;
mod render;
pub mod request;
mod run;

pub use run::{run, single};
