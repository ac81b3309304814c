//! What the programs in the kernel say, as `bpf/layout.h` lays it down, where each field is explained.
//!
//! A test holds the two together by the type information in the compiled object.

/// How long the private state of a congestion control is (ICSK_CA_PRIV_SIZE).
pub const PRIVATE_BYTES: usize = 104;

/// How long names may be, the final zero included.
pub const NAME_BYTES: usize = 16;

/// How many ports can be asked for.
pub const PORTS: usize = 16;

/// `struct slot`: what says that the record is whole, and the record, on whole cache lines.
pub(crate) const SLOT_BYTES: usize = (8 + size_of::<Sample>()).next_multiple_of(64);

/// Returns how many slots a ring of at most so many bytes has: a power of 2, at least one.
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

/// What an event in a ring is; its first byte.
#[expect(missing_docs, reason = "said once, in the header")]
pub mod kind {
    pub const SAMPLE: u8 = 1;
    pub const PRIVATE: u8 = 2;
}

/// What becomes of a packet that was seen.
#[expect(missing_docs, reason = "said once, in the header")]
pub mod fate {
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

/// The control block at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct State {
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_retrans: u64,
    pub pacing_rate: u64,
    pub flags: u32,
    pub snd_cwnd: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd_cnt: u32,
    pub prior_cwnd: u32,
    pub mss_cache: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rcv_ssthresh: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub write_seq: u32,
    pub rcv_nxt: u32,
    pub copied_seq: u32,
    pub sndbuf: u32,
    pub wmem_queued: u32,
    pub rcvbuf: u32,
    pub rmem_alloc: u32,
    pub packets_out: u32,
    pub sacked_out: u32,
    pub lost_out: u32,
    pub retrans_out: u32,
    pub total_retrans: u32,
    pub lost: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub received_ce: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub srtt_us8: u32,
    pub mdev_us4: u32,
    pub rttvar_us4: u32,
    pub rtt_min_us: u32,
    pub rtt_last_us: u32,
    pub rcv_rtt_us8: u32,
    pub rcv_space: u32,
    pub rto_jiffies: u32,
    pub chrono_start_jiffies: u32,
    pub chrono_jiffies: [u32; 3],
    pub segs_in: u32,
    pub segs_out: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub reordering: u32,
    pub reord_seen: u32,
    pub dsack_dups: u32,
    pub rcv_ooopack: u32,
    pub advmss: u16,
    pub total_rto: u16,
    pub state: u8,
    pub ca_state: u8,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub backoff: u8,
    pub retransmits: u8,
    pub probes_out: u8,
    pub num_sacks: u8,
    pub chrono: u8,
    pub reserved: [u8; 7],
}

/// Bits of [`State::flags`].
#[expect(missing_docs, reason = "said once, in the header")]
pub mod flag {
    pub const TIMESTAMPS: u32 = 1 << 0;
    pub const SACK: u32 = 1 << 1;
    pub const WINDOW_SCALING: u32 = 1 << 2;
    pub const DSACK: u32 = 1 << 3;
    pub const ECN: u32 = 1 << 4;
    pub const ECN_QUEUE_CWR: u32 = 1 << 5;
    pub const ECN_DEMAND_CWR: u32 = 1 << 6;
    pub const ECN_SEEN: u32 = 1 << 7;
    pub const NAGLE_OFF: u32 = 1 << 8;
    pub const CORK: u32 = 1 << 9;
    pub const CWND_LIMITED: u32 = 1 << 10;
    pub const APP_LIMITED: u32 = 1 << 11;
    pub const FRTO: u32 = 1 << 12;
    pub const OUT_OF_ORDER: u32 = 1 << 13;
    pub const UNDO: u32 = 1 << 14;
    pub const TLP: u32 = 1 << 15;
    pub const IN_USE: u32 = 1 << 16;
    pub const SYN_DATA: u32 = 1 << 17;
    pub const FASTOPEN: u32 = 1 << 18;
    pub const REPAIR: u32 = 1 << 19;
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct Sample {
    pub kind: u8,
    pub point: u8,
    pub detail: u16,
    pub slot: u32,
    pub number: u64,
    pub time_ns: u64,
    pub cookie: u64,
    pub packet: u64,
    pub seq: u32,
    pub ack: u32,
    pub tcp_flags: u16,
    pub window: u16,
    pub packet_bytes: u32,
    pub payload_bytes: u32,
    pub segments: u16,
    pub ip_id: u16,
    pub tos: u8,
    pub reserved: [u8; 7],
    pub state: State,
}

/// The private state of the congestion control, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct PrivateState {
    pub kind: u8,
    pub reserved: [u8; 3],
    pub slot: u32,
    pub number: u64,
    pub time_ns: u64,
    pub cookie: u64,
    pub sample: u64,
    pub algorithm: [u8; NAME_BYTES],
    pub bytes: [u8; PRIVATE_BYTES],
}

/// How many packets and segments met each fate, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct Counts {
    pub seen: u64,
    pub segments: u64,
    pub ticks: u64,
    pub jiffies: u64,
    pub last_ns: u64,
    pub fates: [u64; fate::OF_FLOW],
    pub segments_of_fates: [u64; fate::OF_FLOW],
    pub reserved: [u64; 5],
}

/// One flow, in the table that user space maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct Flow {
    pub cookie: u64,
    pub generation: u64,
    pub verdict: u64,
    pub logged_ns: u64,
    pub changes: u64,
    pub first_ns: u64,
    pub ended_ns: u64,
    pub netns: u64,
    pub directions: [Counts; 2],
    pub cgroup: u64,
    pub process: u32,
    pub family: u16,
    pub local_port: u16,
    pub remote_port: u16,
    pub reserved: [u16; 3],
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub command: [u8; NAME_BYTES],
    pub algorithm: [u8; NAME_BYTES],
    pub padding: [u64; 5],
}

impl Flow {
    /// How many packets were seen of it, in and out.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.directions.iter().map(|counts| counts.seen).sum()
    }

    /// When its last packet was, whichever way; at first, when it was made.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        self.directions.iter().fold(self.first_ns, |last, counts| last.max(counts.last_ns))
    }
}

/// How many packets met each fate on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct Totals {
    pub seen: [u64; 2],
    pub segments: [u64; 2],
    pub fates: [[u64; fate::ALL]; 2],
    pub segments_of_fates: [[u64; fate::ALL]; 2],
    pub events: u64,
    pub events_full: u64,
    pub privates: u64,
    pub privates_full: u64,
    pub number: u64,
    pub position: u64,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "said once, in the header")]
pub struct Options {
    pub generation: u64,
    pub enabled: u32,
    pub ppl: u32,
    pub by_segment: u32,
    pub points: u32,
    pub min_interval_ns: u64,
    pub changes: u64,
    pub private_every: u32,
    pub one_in_flows: u32,
    pub netns: u64,
    pub cgroup: u64,
    pub cgroup_level: u32,
    pub process: u32,
    pub ports: u32,
    pub prefixes: u32,
    pub port: [u16; PORTS],
    pub algorithm: [u8; NAME_BYTES],
    pub burn: u32,
    pub reserved: u32,
    pub offset_ns: u64,
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
    fn a_ring_has_as_many_slots_as_it_holds_and_a_power_of_two() {
        assert_eq!([0, 1, SLOT_BYTES, 3 * SLOT_BYTES, 4 * SLOT_BYTES].map(slots), [1, 1, 1, 2, 4]);
        assert_eq!(slots(64 << 20), 1 << 17);
    }
}
