//! The source of samples: the kernel, or a simulated TCP whose state is known. One test suite covers both.

use std::net::IpAddr;

use crate::layout::{Flow, Options, Totals};

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// With the bits after `length` cleared.
    pub address: IpAddr,
    /// The prefix length: at most 32 for IPv4, 128 for IPv6.
    pub length: u8,
}

/// The maximum number of prefixes of each address family.
pub const PREFIXES: u32 = 1024;

/// A source of samples and packet counters.
pub trait Source {
    /// Pass on every waiting record, CPU by CPU, in the order of each CPU's ring: the CPU, and the record's bytes,
    /// which start with a `kind`. Return the number of records.
    ///
    /// # Errors
    /// When the rings cannot be read.
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError>;

    /// Change all options at once; no packet is counted twice or lost. `generation` is set by the source. If there are
    /// `prefixes`, a flow must have an address in one of them.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError>;

    /// Make each flow pass the filters again at its next packet: for properties that change without a notification,
    /// such as a socket's congestion control. A source without such properties does nothing.
    fn reevaluate(&mut self) {}

    /// Call `show` for every flow in use, with its slot; ended flows are included until they are released.
    fn flows(&self, show: &mut dyn FnMut(u32, &Flow));

    /// Call `show` for flows that have ended and are not released yet. It is called often, on large tables.
    fn ended_flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.flows(&mut |slot, flow| {
            if flow.ended_ns != 0 {
                show(slot, flow);
            }
        });
    }

    /// Free the slot of an ended flow and return its final counters, which the caller must keep. `None`: the slot had
    /// no flow.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError>;

    /// Return the counters of each CPU.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn totals(&self) -> Result<Vec<Totals>, SourceError>;
}

/// Why a source failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Its object.
        object: String,
        /// The system's error.
        source: std::io::Error,
    },
}
