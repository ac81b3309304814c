//! TCP's own state: one sample per row, the flows, the packet accounting, and the gaps.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use sojourn_time::Time;

use crate::schema::TAI;
use crate::table::{Filling, Number, Rows, Texts, Value, group, kind, table};

/// The names that `point` may have.
pub const POINTS: [&str; 9] =
    ["in", "out", "rtt", "retransmit", "state", "recovery", "reset-out", "reset-in", "destroy"];
/// The names that `limited_by` may have.
pub const LIMITS: [&str; 4] = ["idle", "busy", "receiver", "buffer"];
/// The names that `direction` may have.
pub const WAYS: [&str; 2] = ["in", "out"];
/// The names that `disposition` may have; the first is the sum of the others.
pub const DISPOSITIONS: [&str; 15] = [
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

table! {
    /// One row for each sample of a TCP control block.
    ///
    /// What a kernel lacks is null in every row; so are the columns of a packet
    /// where a sample belongs to none.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    (named) "tcp_samples": Sample in ();
    {
        block: i32 => block: Int32("1") "The block it belongs to; 0 where none was begun.";
        flow: i32 => flow: Int32("1") "Its flow: a row of tcp_flows.";
        cpu: u32 => cpu: Int32("1") "The CPU that took it.";
        number: u64 => number: Int64("1")
            "Its number on that CPU, from 0; one that is missing had no room: a row of tcp_gaps.";
        time: Time => time_ns: Int64("ns", TAI, "kernel") "When it was taken.";
        point: u8 => point: Name of POINTS ("1")
            "in, out: before TCP; rtt, retransmit, state, recovery, reset-out, reset-in, destroy: after.";
        before: Option<u8> => before: Int32("1") or null
            "At state and recovery: what it was; `state` or `ca_state` is what it will be.";
    } packet: Option<SampledPacket>;
    {} state: State;
}

group! {
    /// The packet that a sample belongs to.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    SampledPacket;
    {
        number: u64 => packet: Int64("1") "The packet's number in its direction of the flow, from 0.";
        seq: u32 => seq: Int64("1") "TCP sequence number.";
        ack: u32 => ack: Int64("1") "TCP acknowledgement number.";
        tcp_flags: u16 => tcp_flags: Int32("1") "The header's twelve bits; FIN is the lowest.";
        window: u16 => window: Int32("1") "The header's window, not scaled.";
        packet_bytes: u32 => packet_bytes: Int32("bytes") "IP packet, all its segments together.";
        payload_bytes: u32 => payload_bytes: Int32("bytes") "User data in it.";
        segments: u16 => segments: Int32("1") "Segments that the kernel made or will make of it (GSO).";
        ip_id: u16 => ip_id: Int32("1") "Identification of IPv4.";
        tos: u8 => tos: Int32("1") "Traffic class: DSCP << 2 | ECN.";
    }
}

/// Hands the control block's columns to another macro: a column is a field of the kernel's programs of the same name, or
/// made
/// `from` some others; `as`: by a function of that name in `crates/tcplog`. What the kernel lacks is null in every row.
#[macro_export]
macro_rules! tcp_state {
    ($to:ident) => {
        $to! {
            /// The control block. `None` where it has no value yet; what the kernel lacks is recorded once for all rows.
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            (nullable) State;
            {
                state: u8 => state: Int32("1")
                    "Of the connection: 1 ESTABLISHED, 2 SYN_SENT, … (include/net/tcp_states.h).";
                snd_cwnd: u32 => snd_cwnd: Int64("segments") "Congestion window.";
                snd_ssthresh: u32 => snd_ssthresh: Int64("segments") "Slow-start threshold; 2147483647: infinite.";
                mss_bytes: u32 => mss_bytes: Int64("bytes")
                    "Maximum segment size as sent now (mss_cache)." from mss_cache;
                snd_wnd_bytes: u32 => snd_wnd_bytes: Int64("bytes") "Window that the peer offers, scaled." from snd_wnd;
                rcv_wnd_bytes: u32 => rcv_wnd_bytes: Int64("bytes")
                    "Window offered to the peer, less what has been received since." from rcv_wnd;
                snd_wscale: u8 => snd_wscale: Int32("1") "Shift of the peer's windows.";
                rcv_wscale: u8 => rcv_wscale: Int32("1") "Shift of our windows.";
                srtt_us: Option<f64> => srtt_us: Float64("us") or null "Smoothed RTT." from srtt_us8 as srtt;
                rto_us: i64 => rto_us: Int64("us") "Retransmission timeout, to a jiffy." from rto_jiffies as rto;
                sndbuf_bytes: u32 => sndbuf_bytes: Int64("bytes")
                    "Size of the send buffer, with the kernel's overhead." from sndbuf;
                snd_queued_bytes: u32 => snd_queued_bytes: Int64("bytes")
                    "User data in it: write_seq - snd_una." from write_seq, snd_una, state as snd_queued;
                rcvbuf_bytes: u32 => rcvbuf_bytes: Int64("bytes")
                    "Size of the receive buffer, with the kernel's overhead." from rcvbuf;
                rcv_queued_bytes: u32 => rcv_queued_bytes: Int64("bytes")
                    "User data in order in it: rcv_nxt - copied_seq." from rcv_nxt, copied_seq, state as rcv_queued;
                in_flight_bytes: u32 => in_flight_bytes: Int64("bytes")
                    "snd_nxt - snd_una; SACKed data counted, the packet itself not yet."
                    from snd_nxt, snd_una as in_flight;
                flags: u32 => flags: Bits32("1") "A bit for each flag, in the order of tcp_flag_names of the header.";
                snd_una: u32 => snd_una: Int64("1") "Oldest sequence number without acknowledgement.";
                snd_nxt: u32 => snd_nxt: Int64("1") "Next sequence number to send.";
                rcv_nxt: u32 => rcv_nxt: Int64("1") "Next sequence number expected.";
                ca_state: u8 => ca_state: Int32("1") "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.";
                snd_cwnd_cnt: u32 => snd_cwnd_cnt: Int64("segments")
                    "Acknowledged towards the next growth of the congestion window.";
                prior_cwnd: u32 => prior_cwnd: Int64("segments") "Congestion window before the last reduction.";
                pacing_rate_bps: i64 => pacing_rate_bps: Int64("bit/s")
                    "Pacing rate; -1: none." from pacing_rate as pacing_rate;
                packets_out: u32 => packets_out: Int64("segments") "Sent and not acknowledged.";
                sacked_out: u32 => sacked_out: Int64("segments") "Of them: SACKed, or duplicate acknowledgements.";
                lost_out: u32 => lost_out: Int64("segments") "Of them: taken for lost.";
                retrans_out: u32 => retrans_out: Int64("segments") "Of them: retransmitted.";
                total_retrans: u32 => total_retrans: Int64("segments") "Retransmitted, ever.";
                lost: u32 => lost: Int64("segments") "Taken for lost, ever.";
                delivered: u32 => delivered: Int64("segments") "Delivered, ever.";
                delivered_ce: u32 => delivered_ce: Int64("segments") "Of them: with a congestion mark.";
                received_ce: u32 => received_ce: Int64("segments") "Received with a congestion mark (AccECN).";
                delivery_rate_bps: Option<f64> => delivery_rate_bps: Float64("bit/s") or null
                    "Delivery rate of the last sample: rate_delivered x MSS / interval."
                    from rate_delivered, rate_interval_us, mss_cache as delivery_rate;
                reordering: u32 => reordering: Int64("segments") "Reordering that TCP expects.";
                reord_seen: u32 => reord_seen: Int64("1") "How often reordering was seen.";
                dsack_dups: u32 => dsack_dups: Int64("segments") "Duplicates that DSACK reported.";
                total_rto: u16 => total_rto: Int32("1") "Retransmission timeouts, ever.";
                backoff: u8 => backoff: Int32("1") "Doublings of the timeout.";
                retransmits: u8 => retransmits: Int32("1") "Timeouts in a row without an answer.";
                probes_out: u8 => probes_out: Int32("1") "Window or keep-alive probes without an answer.";
                rtt_last_us: Option<u32> => rtt_last_us: Int64("us") or null
                    "The last RTT sample itself (rack.rtt_us)." from rtt_last_us as rtt_last;
                rtt_min_us: Option<u32> => rtt_min_us: Int64("us") or null
                    "Minimum RTT of the kernel's window." from rtt_min_us as rtt_min;
                rttvar_us: Option<f64> => rttvar_us: Float64("us") or null
                    "Variance of RTT, as the timeout uses it." from rttvar_us4, srtt_us8 as rttvar;
                mdev_us: Option<f64> => mdev_us: Float64("us") or null
                    "Mean deviation of RTT." from mdev_us4, srtt_us8 as mdev;
                rcv_rtt_us: Option<f64> => rcv_rtt_us: Float64("us") or null
                    "RTT as the receiver estimates it." from rcv_rtt_us8 as rcv_rtt;
                limited_by: Option<u8> => limited_by: Name of LIMITS ("1") or null
                    "What limits the sender now: idle (no data), busy (neither receiver nor buffer), receiver, buffer."
                    from chrono as limited_by;
                busy_us: i64 => busy_us: Int64("us")
                    "Time with data to send, ever, to a jiffy."
                    from chrono_busy_jiffies, chrono_rwnd_jiffies, chrono_sndbuf_jiffies as busy;
                receiver_limited_us: i64 => receiver_limited_us: Int64("us")
                    "Of it: limited by the peer's window." from chrono_rwnd_jiffies as receiver_limited;
                buffer_limited_us: i64 => buffer_limited_us: Int64("us")
                    "Of it: limited by the send buffer." from chrono_sndbuf_jiffies as buffer_limited;
                snd_memory_bytes: u32 => snd_memory_bytes: Int64("bytes")
                    "Memory of what is queued to send (wmem_queued)." from wmem_queued;
                rcv_memory_bytes: u32 => rcv_memory_bytes: Int64("bytes")
                    "Memory of what has been received (rmem_alloc)." from rmem_alloc;
                rcv_ssthresh_bytes: u32 => rcv_ssthresh_bytes: Int64("bytes")
                    "Limit of the window that we offer." from rcv_ssthresh;
                rcv_space_bytes: u32 => rcv_space_bytes: Int64("bytes")
                    "Receive buffer as auto-tuning estimates it." from rcv_space;
                rcv_ooopack: u32 => rcv_ooopack: Int64("segments") "Received out of order, ever.";
                num_sacks: u8 => num_sacks: Int32("1") "SACK blocks that we report: holes in the received data.";
                advmss_bytes: u16 => advmss_bytes: Int32("bytes") "Maximum segment size that we advertise." from advmss;
                sent_bytes: u64 => sent_bytes: Bits64("bytes")
                    "User data sent, retransmissions included, ever." from bytes_sent;
                acked_bytes: u64 => acked_bytes: Bits64("bytes") "User data acknowledged, ever." from bytes_acked;
                received_bytes: u64 => received_bytes: Bits64("bytes") "User data received, ever." from bytes_received;
                retransmitted_bytes: u64 => retransmitted_bytes: Bits64("bytes")
                    "User data retransmitted, ever." from bytes_retrans;
                segs_in: u32 => segs_in: Int64("segments") "Received, ever.";
                segs_out: u32 => segs_out: Int64("segments") "Sent, ever.";
                data_segs_in: u32 => data_segs_in: Int64("segments") "Received with data, ever.";
                data_segs_out: u32 => data_segs_out: Int64("segments") "Sent with data, ever.";
            }
        }
    };
}

tcp_state!(group);

table! {
    /// One row for each field of a congestion control's private state at a sample.
    #[derive(Clone, Debug, PartialEq, Eq)]
    (named) "tcp_private": Private in ();
    {
        block: i32 => block: Int32("1") "The block it belongs to.";
        flow: i32 => flow: Int32("1") "Its flow.";
        cpu: u32 => cpu: Int32("1") "The CPU that took it.";
        number: u64 => number: Int64("1") "The number of the sample that it belongs to.";
        time: Time => time_ns: Int64("ns", TAI, "kernel") "When it was taken.";
        algorithm: Arc<str> => algorithm: Utf8("1") "The congestion control's name.";
        field: Arc<str> => field: Utf8("1") "The field's name in the kernel's structure; bytes where it is not known.";
        value: i64 => value: Int64("1") "Its value, in the kernel's own unit.";
    }
}

/// A private state: a row of [`Private`] for each field.
#[derive(Clone, Copy, Debug)]
pub struct PrivateFields<'a> {
    /// The block that it belongs to.
    pub block: i32,
    /// Its flow.
    pub flow: i32,
    /// The CPU that took it.
    pub cpu: u32,
    /// The number of the sample that it belongs to.
    pub number: u64,
    /// When it was taken.
    pub time: Time,
    /// The names of its fields.
    pub names: &'a FieldNames,
    /// Their values, as many.
    pub values: &'a [i64],
}

/// The names of an algorithm and of the fields of its private state.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldNames {
    algorithm: Texts,
    fields: Texts,
}

impl FieldNames {
    /// Join the name of an algorithm with those of its fields.
    pub fn new(algorithm: &str, fields: &[String]) -> Self {
        Self { algorithm: fields.iter().map(|_| algorithm).collect(), fields: fields.iter().collect() }
    }
}

impl PrivateFields<'_> {
    /// Append some of its rows to the columns of [`Private`]. The values equal those of rows, without the cost of
    /// building rows.
    pub(crate) fn fill(&self, range: Range<usize>, to: &mut Filling<'_>) {
        let rows = range.len();
        repeat::<kind::Int32, _>(self.block, rows, to);
        repeat::<kind::Int32, _>(self.flow, rows, to);
        repeat::<kind::Int32, _>(self.cpu, rows, to);
        repeat::<kind::Int64, _>(self.number, rows, to);
        repeat::<kind::Int64, _>(self.time, rows, to);
        to.texts(&self.names.algorithm, range.clone());
        to.texts(&self.names.fields, range.clone());
        to.numbers::<kind::Int64>(self.values[range].iter().map(|value| value.cell(&[])));
    }
}

/// Append one value `rows` times to the next column.
fn repeat<K: Number, V: Value<K>>(value: V, rows: usize, to: &mut Filling<'_>) {
    to.numbers::<K>(repeat_n(value.cell(&[]), rows));
}

table! {
    /// One row for each flow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    (named) "tcp_flows": Flow in ();
    {
        block: i32 => block: Int32("1") "The block it belongs to.";
        flow: i32 => flow: Int32("1") "Its number in this log, from 1.";
        socket_cookie: u64 => socket_cookie: Bits64("1") "The kernel's name of the socket, until the next boot.";
        netns_cookie: u64 => netns_cookie: Bits64("1")
            "The kernel's name of its network namespace, until the next boot.";
        cgroup: Option<u64> => cgroup: Bits64("1") or null "The cgroup that it was made in, by its number.";
        process: Option<u32> => process: Int32("1") or null "The process that made the socket, or the listener's.";
        command: Option<String> => command: Utf8("1") or null "That process's name.";
        local_address: String => local_address: Utf8("1") "Our address.";
        local_port: u16 => local_port: Int32("1") "Our port.";
        remote_address: String => remote_address: Utf8("1") "The peer's address.";
        remote_port: u16 => remote_port: Int32("1") "The peer's port.";
        algorithm: String => algorithm: Utf8("1") "The congestion control at the end.";
        first: Time => first_ns: Int64("ns", TAI, "kernel") "Its first packet.";
        last: Time => last_ns: Int64("ns", TAI, "kernel") "Its last packet.";
        ended: Option<Time> => ended_ns: Int64("ns", TAI, "kernel") or null "When its socket went away.";
        is_wanted: bool => wanted: Bool("1") "Whether the filters let it through, at the end.";
    }
}

table! {
    /// One row for each direction and disposition, of each flow and of all together: seen is the sum of the others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "tcp_account": Account in ();
    {
        block: i32 => block: Int32("1") "The block it belongs to.";
        flow: Option<i32> => flow: Int32("1") or null "The flow; none: all packets of TCP, also those without a flow.";
        way: u8 => direction: Name of WAYS ("1") "in, out.";
        disposition: u8 => disposition: Name of DISPOSITIONS ("1") was "fate"
            "seen: all; logged, decimated, unchanged, early, filtered, forgotten; skipped: the others.";
        packets: u64 => packets: Int64("1") "Packets with this disposition.";
        segments: u64 => segments: Int64("1") "Segments in them.";
    }
}

table! {
    /// One row for each row of records without a gap that ends in one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "tcp_gaps": Gap in ();
    {
        block: i32 => block: Int32("1") "The block it belongs to.";
        cpu: u32 => cpu: Int32("1") "The CPU whose ring had no room.";
        number: u64 => number: Int64("1") "The first record that is missing.";
        missing: u64 => missing: Int64("1")
            "How many in a row are; 0: nobody knows, for the programs were taken away.";
        after: Option<Time> => after_ns: Int64("ns", TAI, "kernel") or null "The last record before them.";
        before: Option<Time> => before_ns: Int64("ns", TAI, "kernel") or null "The first record behind them.";
    }
}

impl Sample {
    /// Returns the values by the names of their columns, those that are missing left out.
    pub fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut rows = Rows::new(&std::collections::HashSet::new());
        // A value that does not fit its column stays 0: it is only displayed.
        let _ = rows.push(std::slice::from_ref(self), &());
        rows.json(0)
    }
}
