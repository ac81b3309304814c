//! What is decided about a packet: the very lines of `bpf/decide.h` that the programs in the kernel run, compiled for this
//! machine.

mod sys;

use crate::layout::PORTS;

/// How many fields' changes can be asked for.
pub const WATCHED: usize = 11;

/// What the watched fields are, in the order of the bits of [`change`](crate::layout::change).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Watched {
    /// Their values.
    pub fields: [u64; WATCHED],
}

/// Returns whether a multiple of `ppl` lies in `first..first + count`: the packets, or segments, of one skb.
pub fn is_multiple(first: u64, count: u32, ppl: u32) -> bool {
    sys::is_multiple(first, count, ppl)
}

/// Returns whether the flow of a socket is one of the 1 in `n`.
pub fn flow_is_chosen(cookie: u64, n: u32) -> bool {
    sys::flow_is_chosen(cookie, n)
}

/// Returns whether a sample at `now` comes sooner than `interval` after the one at `last`; 0: there was none.
pub fn is_early(now: u64, last: u64, interval: u64) -> bool {
    sys::is_early(now, last, interval)
}

/// Returns whether a ring of so many slots has none for the record at `position`, of which all before `read` has been read.
pub fn is_full(position: u64, read: u64, slots: u32) -> bool {
    sys::is_full(position, read, slots)
}

/// Returns whether one of the ports, of which the first [`PORTS`] count, is either end's; no ports: all are.
pub fn ports_match(ports: &[u16], local: u16, remote: u16) -> bool {
    let mut all = [0; PORTS];
    for (to, from) in all.iter_mut().zip(ports) {
        *to = *from;
    }
    sys::ports_match(&all, u32::try_from(ports.len().min(PORTS)).unwrap_or(0), local, remote)
}

/// Returns what the fields chosen by the bits of [`change`](crate::layout::change) say, as one number that is never 0.
pub fn digest(watched: &Watched, changes: u64) -> u64 {
    sys::digest(watched, changes)
}
