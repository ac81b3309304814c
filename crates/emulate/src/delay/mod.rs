//! The delay line: how long, and in which order.

mod distribution;
mod gamma;
pub(crate) mod line;
mod normal;
mod sampler;

pub use sampler::{Drawn, Sampler};
