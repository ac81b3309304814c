//! The tables, one line for each column: the only declaration of names, types, units, clocks and sources.

use sojourn_time::Source;

pub mod packets;
pub mod probes;
pub mod python;
pub mod streams;
pub mod taps;
pub mod tcp;
pub mod tcp_readings;

/// The names of timestamp sources, in their order.
pub(crate) const SOURCES: [&str; Source::ALL.len()] =
    [Source::Hardware.name(), Source::Kernel.name(), Source::User.name(), Source::Simulated.name(), Source::Bpf.name()];

#[cfg(test)]
mod tests;
