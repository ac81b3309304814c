//! The structures of `bpf/layout.h`, which documents each field.
//!
//! A test compares both by the type information in the compiled object.

use crate::decode::layout;

/// The size of a congestion control's private state (ICSK_CA_PRIV_SIZE).
pub const PRIVATE_BYTES: usize = 104;

/// The size of names, including the final zero.
pub const NAME_BYTES: usize = 16;

/// The maximum number of ports in the options.
pub const PORTS: usize = 16;

/// The size of `struct slot`: the commit word and the record, rounded up to cache lines.
pub(crate) const SLOT_BYTES: usize = (8 + size_of::<Sample>()).next_multiple_of(64);

/// Return the number of slots in a ring of at most `bytes` bytes: a power of 2, at least 1.
#[must_use]
pub fn slots(bytes: usize) -> u32 {
    let most = u32::try_from(bytes / SLOT_BYTES).unwrap_or(u32::MAX).max(1);
    1 << most.ilog2()
}

/// Where a sample was taken.
#[expect(missing_docs, reason = "said once, in the header")]
pub mod point {
    pub const IN: u8 = 0;
    pub const OUT: u8 = 1;
    pub const RTT: u8 = 2;
    pub const RETRANSMIT: u8 = 3;
    pub const STATE: u8 = 4;
    pub const RECOVERY: u8 = 5;
    pub const RESET_OUT: u8 = 6;
    pub const RESET_IN: u8 = 7;
    pub const DESTROY: u8 = 8;
}

/// The kind of an event in a ring: its first byte.
#[expect(missing_docs, reason = "said once, in the header")]
pub mod kind {
    pub const SAMPLE: u8 = 1;
    pub const PRIVATE: u8 = 2;
}

/// The disposition of a packet that was seen.
#[expect(missing_docs, reason = "said once, in the header")]
pub mod disposition {
    pub const LOGGED: usize = 0;
    pub const DECIMATED: usize = 1;
    pub const UNCHANGED: usize = 2;
    pub const EARLY: usize = 3;
    pub const FILTERED: usize = 4;
    pub const FULL: usize = 5;
    pub const UNPARSED: usize = 6;
    pub const NO_SOCKET: usize = 7;
    pub const NO_STATE: usize = 8;
    pub const CONTROL: usize = 9;
    pub const NO_ROOM: usize = 10;
    pub const LATE: usize = 11;
    pub const ALL: usize = 12;
    pub const OF_FLOW: usize = 7;
}

// `State`: the control block at one moment, generated from `bpf/fields.h`.
include!(concat!(env!("OUT_DIR"), "/state.rs"));

/// Bits of [`State::flags`].
#[expect(missing_docs, reason = "said once, in the header")]
pub mod flag {
    pub const TIMESTAMPS: u32 = 1 << 0;
    pub const SACK: u32 = 1 << 1;
    pub const WINDOW_SCALING: u32 = 1 << 2;
    pub const DSACK: u32 = 1 << 3;
    pub const ECN: u32 = 1 << 4;
}

layout! {
    /// One sample.
    pub struct Sample {
        kind: u8,
        point: u8,
        detail: u16,
        slot: u32,
        number: u64,
        time_ns: u64,
        cookie: u64,
        packet: u64,
        seq: u32,
        ack: u32,
        tcp_flags: u16,
        window: u16,
        packet_bytes: u32,
        payload_bytes: u32,
        segments: u16,
        ip_id: u16,
        tos: u8,
        reserved: [u8; 7],
        state: State,
    }
}

layout! {
    /// The private state of the congestion control, as bytes.
    pub struct PrivateState {
        kind: u8,
        reserved: [u8; 3],
        slot: u32,
        number: u64,
        time_ns: u64,
        cookie: u64,
        sample: u64,
        algorithm: [u8; NAME_BYTES],
        bytes: [u8; PRIVATE_BYTES],
    }
}

layout! {
    /// The counters of one direction of a flow.
    pub struct Counts {
        seen: u64,
        segments: u64,
        ticks: u64,
        jiffies: u64,
        last_ns: u64,
        dispositions: [u64; disposition::OF_FLOW],
        segments_of_dispositions: [u64; disposition::OF_FLOW],
        reserved: [u64; 5],
    }
}

layout! {
    /// One flow of the table that user space maps.
    pub struct Flow {
        cookie: u64,
        generation: u64,
        verdict: u64,
        logged_ns: u64,
        changes: u64,
        first_ns: u64,
        ended_ns: u64,
        netns: u64,
        directions: [Counts; 2],
        cgroup: u64,
        process: u32,
        family: u16,
        local_port: u16,
        remote_port: u16,
        reserved: [u16; 3],
        local: [u8; 16],
        remote: [u8; 16],
        command: [u8; NAME_BYTES],
        algorithm: [u8; NAME_BYTES],
        padding: [u64; 5],
    }
}

impl Flow {
    /// Return how many packets of the flow were seen, in and out.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.directions.iter().map(|counts| counts.seen).sum()
    }

    /// Return the time of its last packet in either direction; before any, the time at which it was created.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        self.directions.iter().fold(self.first_ns, |last, counts| last.max(counts.last_ns))
    }
}

layout! {
    /// The counters of one CPU.
    pub struct Totals {
        seen: [u64; 2],
        segments: [u64; 2],
        dispositions: [[u64; disposition::ALL]; 2],
        segments_of_dispositions: [[u64; disposition::ALL]; 2],
        events: u64,
        events_full: u64,
        privates: u64,
        privates_full: u64,
        number: u64,
        position: u64,
    }
}

layout! {
    /// The options of the programs.
    pub struct Options {
        generation: u64,
        enabled: u32,
        ppl: u32,
        by_segment: u32,
        points: u32,
        min_interval_ns: u64,
        changes: u64,
        private_every: u32,
        one_in_flows: u32,
        netns: u64,
        cgroup: u64,
        cgroup_level: u32,
        process: u32,
        ports: u32,
        prefixes: u32,
        port: [u16; PORTS],
        algorithm: [u8; NAME_BYTES],
        burn: u32,
        reserved: u32,
        offset_ns: u64,
    }
}

/// Bits of [`Options::changes`].
#[expect(missing_docs, reason = "said once, in the header")]
pub mod change {
    pub const CWND: u64 = 1 << 0;
    pub const SSTHRESH: u64 = 1 << 1;
    pub const CA_STATE: u64 = 1 << 2;
    pub const STATE: u64 = 1 << 3;
    pub const RTT: u64 = 1 << 4;
    pub const RTO: u64 = 1 << 5;
    pub const SND_WND: u64 = 1 << 6;
    pub const RCV_WND: u64 = 1 << 7;
    pub const RETRANS: u64 = 1 << 8;
    pub const MSS: u64 = 1 << 9;
    pub const PACING: u64 = 1 << 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_size_is_a_power_of_two_that_fits_the_memory() {
        assert_eq!([0, 1, SLOT_BYTES, 3 * SLOT_BYTES, 4 * SLOT_BYTES].map(slots), [1, 1, 1, 2, 4]);
        assert_eq!(slots(64 << 20), 1 << 17);
    }
}
