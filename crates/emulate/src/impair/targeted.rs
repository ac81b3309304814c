//! Targeted losses of TCP segments: the first SYNs of a flow, the k-th segment with data and its retransmissions.

use std::collections::HashMap;

use crate::select::Key;

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Number of flows that are certainly remembered; at most twice as many are. An evicted flow counts as new when it returns.
const FLOWS: usize = 4096;

/// Loses the first SYNs of each flow.
#[derive(Debug)]
pub(super) struct FirstSyns {
    count: u32,
    flows: Recent<u32>,
}

impl FirstSyns {
    pub(super) fn new(count: u32) -> Self {
        Self { count, flows: Recent::default() }
    }

    pub(super) fn meets(&mut self, key: &Key) -> bool {
        if !is_tcp(key) || key.tcp_flags & (SYN | ACK) != SYN {
            return false;
        }
        let seen = self.flows.of(key.flow(), || 0);
        let is_lost = *seen < self.count;
        *seen = seen.saturating_add(1);
        is_lost
    }
}

/// Loses one segment with data of each flow, counted by new sequence numbers, and its next retransmissions.
#[derive(Debug)]
pub(super) struct OneSegment {
    index: u64,
    retransmissions: u32,
    flows: Recent<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Sequence number of the first byte of data.
    start: u32,
    /// Highest sequence number seen, plus one.
    next: u32,
    /// Segments that carried new data.
    count: u64,
    target: Option<Target>,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    start: u32,
    end: u32,
    left: u32,
}

impl OneSegment {
    pub(super) fn new(index: u64, retransmissions: u32) -> Self {
        Self { index, retransmissions, flows: Recent::default() }
    }

    pub(super) fn meets(&mut self, key: &Key) -> bool {
        if !is_tcp(key) {
            return false;
        }
        let is_syn = key.tcp_flags & SYN != 0;
        if !is_syn && key.tcp_data == 0 {
            return false;
        }
        let start = key.tcp_seq.wrapping_add(u32::from(is_syn));
        let fresh = Flow { start, next: start, count: 0, target: None };
        let flow = self.flows.of(key.flow(), || fresh);
        // A SYN with another sequence number opens another connection between the same ports.
        if is_syn && flow.start != start {
            *flow = fresh;
        }
        key.tcp_data > 0 && flow.meets(start, key.tcp_data, self.index, self.retransmissions)
    }
}

impl Flow {
    fn meets(&mut self, start: u32, bytes: u32, index: u64, retransmissions: u32) -> bool {
        let end = start.wrapping_add(bytes);
        let is_again = self.target.as_mut().is_some_and(|target| target.is_hit(start, end));
        if !is_after(end, self.next) {
            return is_again;
        }
        self.next = end;
        self.count += 1;
        if self.count == index {
            self.target = Some(Target { start, end, left: retransmissions });
        }
        is_again || self.count == index
    }
}

impl Target {
    /// Returns whether a segment overlaps the target while its retransmissions are to be lost.
    fn is_hit(&mut self, start: u32, end: u32) -> bool {
        let is_hit = self.left > 0 && is_after(end, self.start) && is_after(self.end, start);
        self.left -= u32::from(is_hit);
        is_hit
    }
}

/// Returns whether `a` is after `b` in sequence space (RFC 9293 §3.4): within half of it, so across the wrap.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

fn is_tcp(key: &Key) -> bool {
    key.protocol == TCP && key.transport_at != 0
}

/// State of recently seen flows, in bounded memory: when the younger half is full, the older half is evicted. Evictions
/// depend only on the packets, so a replay evicts the same flows.
#[derive(Debug)]
struct Recent<V> {
    younger: HashMap<u64, V>,
    older: HashMap<u64, V>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { younger: HashMap::new(), older: HashMap::new() }
    }
}

impl<V> Recent<V> {
    fn of(&mut self, flow: u64, fresh: impl FnOnce() -> V) -> &mut V {
        if self.younger.len() >= FLOWS && !self.younger.contains_key(&flow) {
            std::mem::swap(&mut self.younger, &mut self.older);
            // Taken out before its half is evicted.
            let kept = self.younger.remove(&flow).or_else(|| self.older.remove(&flow));
            self.younger.clear();
            return self.younger.entry(flow).or_insert_with(|| kept.unwrap_or_else(fresh));
        }
        let older = &mut self.older;
        self.younger.entry(flow).or_insert_with(|| older.remove(&flow).unwrap_or_else(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_seen_flows_are_remembered_in_bounded_memory() {
        let mut flows = Recent::default();
        for flow in 0..100_000_u64 {
            assert_eq!(*flows.of(flow, || flow), flow);
            // A flow that is always active is never evicted.
            assert_eq!(*flows.of(7_000_000, || 42), 42, "flow {flow}");
            // Since then as many new flows, and as many lookups like this one.
            let recent = flow.saturating_sub(FLOWS as u64 / 2 - 2);
            assert_eq!(*flows.of(recent, || u64::MAX), recent);
            assert!(flows.younger.len() + flows.older.len() <= 2 * FLOWS);
        }
    }

    #[test]
    fn sequence_numbers_are_ordered_across_the_wrap() {
        assert!(is_after(1, 0) && !is_after(0, 1) && !is_after(5, 5));
        assert!(is_after(10, u32::MAX - 10) && !is_after(u32::MAX - 10, 10));
    }
}
