//! The delay line: distributions of the delay, and the order of departures.

mod distribution;
mod gamma;
pub(crate) mod line;
mod normal;
mod sampler;

pub use sampler::{Drawn, Sampler};
