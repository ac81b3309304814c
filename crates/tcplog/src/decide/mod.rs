//! The decisions about a packet: `bpf/decide.h`, which the programs in the kernel include, compiled for user space.

mod sys;

use crate::layout::PORTS;

/// The number of fields that can be watched for changes.
pub const WATCHED: usize = 11;

/// The values of the watched fields, in the order of the bits of [`change`](crate::layout::change).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Watched {
    /// Their values.
    pub fields: [u64; WATCHED],
}

/// Return whether a multiple of `ppl` lies in `first..first + count`: the packets, or segments, of one skb.
pub fn is_multiple(first: u64, count: u32, ppl: u32) -> bool {
    sys::is_multiple(first, count, ppl)
}

/// Return whether the hash of a socket's cookie selects its flow as one in `n`.
pub fn flow_is_chosen(cookie: u64, n: u32) -> bool {
    sys::flow_is_chosen(cookie, n)
}

/// Return whether a sample at `now` comes sooner than `interval` after the one at `last`; `last` 0: there was none.
pub fn is_early(now: u64, last: u64, interval: u64) -> bool {
    sys::is_early(now, last, interval)
}

/// Return whether a ring of `slots` slots has no room for the record at `position`; all before `read` have been read.
pub fn is_full(position: u64, read: u64, slots: u32) -> bool {
    sys::is_full(position, read, slots)
}

/// Return whether one of the first [`PORTS`] ports is the local or the remote one; true where there are no ports.
pub fn ports_match(ports: &[u16], local: u16, remote: u16) -> bool {
    let mut all = [0; PORTS];
    for (to, from) in all.iter_mut().zip(ports) {
        *to = *from;
    }
    sys::ports_match(&all, u32::try_from(ports.len().min(PORTS)).unwrap_or(0), local, remote)
}

/// Return a digest of the fields selected by the bits of [`change`](crate::layout::change); never 0.
pub fn digest(watched: &Watched, changes: u64) -> u64 {
    sys::digest(watched, changes)
}
