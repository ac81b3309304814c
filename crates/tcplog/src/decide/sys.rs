//! Calls of the pure functions in `bpf/decide.c`.

#![expect(unsafe_code, reason = "they are C, so that the programs in the kernel can run them too")]

use super::Watched;
use crate::layout::PORTS;

unsafe extern "C" {
    safe fn sojourn_is_multiple(first: u64, count: u32, ppl: u32) -> u32;
    safe fn sojourn_flow_is_chosen(cookie: u64, n: u32) -> u32;
    safe fn sojourn_is_early(now: u64, last: u64, interval: u64) -> u32;
    safe fn sojourn_is_full(position: u64, read: u64, slots: u32) -> u32;
    fn sojourn_ports_match(ports: *const u16, count: u32, local: u16, remote: u16) -> u32;
    fn sojourn_digest(watched: *const Watched, changes: u64) -> u64;
}

pub fn is_multiple(first: u64, count: u32, ppl: u32) -> bool {
    sojourn_is_multiple(first, count, ppl) != 0
}

pub fn flow_is_chosen(cookie: u64, n: u32) -> bool {
    sojourn_flow_is_chosen(cookie, n) != 0
}

pub fn is_early(now: u64, last: u64, interval: u64) -> bool {
    sojourn_is_early(now, last, interval) != 0
}

pub fn is_full(position: u64, read: u64, slots: u32) -> bool {
    sojourn_is_full(position, read, slots) != 0
}

pub fn ports_match(ports: &[u16; PORTS], count: u32, local: u16, remote: u16) -> bool {
    // SAFETY: the function reads at most `PORTS` numbers, and the array has that many.
    unsafe { sojourn_ports_match(ports.as_ptr(), count, local, remote) != 0 }
}

pub fn digest(watched: &Watched, changes: u64) -> u64 {
    // SAFETY: the structure has C's layout, is valid during the call, and is only read.
    unsafe { sojourn_digest(watched, changes) }
}
