//! Where samples come from: the kernel, or a simulated TCP with a known truth. One suite of tests holds both.

use std::net::IpAddr;

use crate::layout::{Flow, Options, Totals};

/// The first bits of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// With the bits behind `length` clear.
    pub address: IpAddr,
    /// How many bits count: 32 at most for IPv4, 128 for IPv6.
    pub length: u8,
}

/// How many prefixes of one family of addresses can be asked for at once.
pub const PREFIXES: u32 = 1024;

/// Something that takes samples and counts packets.
pub trait Source {
    /// Hands on every record that waits, CPU by CPU, in the order of each CPU's ring: the CPU and the event's bytes, which
    /// start with a `kind`. Returns how many there were.
    ///
    /// # Errors
    /// When the rings cannot be read.
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError>;

    /// Changes what is asked, all of it at once; counts nothing twice and loses nothing. `generation` is the source's own;
    /// flows must have an address in one of `prefixes`, where there are any.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError>;

    /// Has each flow judged by the filters anew at its next packet: for what can change without a notification, as a
    /// socket's congestion control can. A source in which nothing changes has nothing to do.
    fn reevaluate(&mut self) {}

    /// Shows every flow in use, with its slot: ended ones too, until they are released.
    fn flows(&self, show: &mut dyn FnMut(u32, &Flow));

    /// Shows the flows that have ended and have not been released. Asked often, of tables with room for many.
    fn ended_flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.flows(&mut |slot, flow| {
            if flow.ended_ns != 0 {
                show(slot, flow);
            }
        });
    }

    /// Gives the slot of an ended flow back; what it counted, to its last packet, is the caller's from now on. `None`: there was
    /// no flow.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError>;

    /// What was counted so far, a CPU an entry.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn totals(&self) -> Result<Vec<Totals>, SourceError>;
}

/// Why a source does not give.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system refused.
    #[error("{operation} {object}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What the system said.
        source: std::io::Error,
    },
}
