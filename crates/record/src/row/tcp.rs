//! Rows of a log of TCP's state. [`crate::schema::TCP_SAMPLES`] and its sisters tell what each field means.

use std::sync::Arc;

use sojourn_time::Time;

/// The names that `point` may have.
pub const POINTS: [&str; 9] =
    ["in", "out", "rtt", "retransmit", "state", "recovery", "reset-out", "reset-in", "destroy"];
/// The names that `limited_by` may have.
pub const LIMITS: [&str; 4] = ["idle", "busy", "receiver", "buffer"];
/// The names that `direction` may have.
pub const WAYS: [&str; 2] = ["in", "out"];
/// The names that `fate` may have; the first is the sum of the others.
pub const FATES: [&str; 15] = [
    "seen",
    "logged",
    "decimated",
    "unchanged",
    "early",
    "filtered",
    "forgotten",
    "full",
    "broken",
    "no-socket",
    "no-state",
    "control",
    "unparsed",
    "no-room",
    "late",
];

/// One sample of a TCP control block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Sample {
    pub block: i32,
    pub flow: i32,
    pub cpu: u32,
    pub number: u64,
    pub time: Time,
    /// Its place among [`POINTS`].
    pub point: u8,
    pub before: Option<u8>,
    /// `None`: the sample belongs to no packet.
    pub packet: Option<SampledPacket>,
    pub state: State,
}

/// The packet that a sample belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct SampledPacket {
    pub number: u64,
    pub seq: u32,
    pub ack: u32,
    pub tcp_flags: u16,
    pub window: u16,
    pub packet_bytes: u32,
    pub payload_bytes: u32,
    pub segments: u16,
    pub ip_id: u16,
    pub tos: u8,
}

/// The control block. `None` where it has no value yet; what the kernel lacks is told once for all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct State {
    pub state: u8,
    pub snd_cwnd: u32,
    pub snd_ssthresh: u32,
    pub mss_bytes: u32,
    pub snd_wnd_bytes: u32,
    pub rcv_wnd_bytes: u32,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub srtt_us: Option<f64>,
    pub rto_us: i64,
    pub sndbuf_bytes: u32,
    pub snd_queued_bytes: u32,
    pub rcvbuf_bytes: u32,
    pub rcv_queued_bytes: u32,
    pub in_flight_bytes: u32,
    pub flags: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    pub ca_state: u8,
    pub snd_cwnd_cnt: u32,
    pub prior_cwnd: u32,
    /// -1: none.
    pub pacing_rate_bps: i64,
    pub packets_out: u32,
    pub sacked_out: u32,
    pub lost_out: u32,
    pub retrans_out: u32,
    pub total_retrans: u32,
    pub lost: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub received_ce: u32,
    pub delivery_rate_bps: Option<f64>,
    pub reordering: u32,
    pub reord_seen: u32,
    pub dsack_dups: u32,
    pub total_rto: u16,
    pub backoff: u8,
    pub retransmits: u8,
    pub probes_out: u8,
    pub rtt_last_us: Option<u32>,
    pub rtt_min_us: Option<u32>,
    pub rttvar_us: Option<f64>,
    pub mdev_us: Option<f64>,
    pub rcv_rtt_us: Option<f64>,
    /// Its place among [`LIMITS`].
    pub limited_by: u8,
    pub busy_us: i64,
    pub receiver_limited_us: i64,
    pub buffer_limited_us: i64,
    pub snd_memory_bytes: u32,
    pub rcv_memory_bytes: u32,
    pub rcv_ssthresh_bytes: u32,
    pub rcv_space_bytes: u32,
    pub rcv_ooopack: u32,
    pub num_sacks: u8,
    pub advmss_bytes: u16,
    pub sent_bytes: u64,
    pub acked_bytes: u64,
    pub received_bytes: u64,
    pub retransmitted_bytes: u64,
    pub segs_in: u32,
    pub segs_out: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
}

/// One field of a congestion control's private state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Private {
    pub block: i32,
    pub flow: i32,
    pub cpu: u32,
    pub number: u64,
    pub time: Time,
    /// Shared: there are few.
    pub algorithm: Arc<str>,
    pub field: Arc<str>,
    pub value: i64,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Flow {
    pub block: i32,
    pub flow: i32,
    pub socket_cookie: u64,
    pub netns_cookie: u64,
    pub cgroup: Option<u64>,
    pub process: Option<u32>,
    pub command: Option<String>,
    pub local_address: String,
    pub local_port: u16,
    pub remote_address: String,
    pub remote_port: u16,
    pub algorithm: String,
    pub first: Time,
    pub last: Time,
    pub ended: Option<Time>,
    pub is_wanted: bool,
}

/// How many packets met a fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Account {
    pub block: i32,
    /// `None`: of all packets of TCP.
    pub flow: Option<i32>,
    /// Its place among [`WAYS`].
    pub way: u8,
    /// Its place among [`FATES`].
    pub fate: u8,
    pub packets: u64,
    pub segments: u64,
}

/// Records of a CPU that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Gap {
    pub block: i32,
    pub cpu: u32,
    pub number: u64,
    pub missing: u64,
    pub after: Option<Time>,
    pub before: Option<Time>,
}

impl Sample {
    /// Returns the values by the names of their columns, those that are missing left out.
    pub fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        crate::arrow::tcp::Json::of(self).object
    }
}
