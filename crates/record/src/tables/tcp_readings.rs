//! The TCP_INFO readings of an application's sockets, with which the log of TCP's state is compared.

use std::net::SocketAddr;
use std::sync::Arc;

use sojourn_time::Time;

use crate::schema::TAI;
use crate::table::{group, table};

/// The names that `role` may have.
pub const ROLES: [&str; 2] = ["send", "receive"];
/// The names that `why` may have.
pub const REASONS: [&str; 4] = ["begin", "send", "time", "end"];

table! {
    /// One row for each reading of a socket's TCP_INFO.
    /// A column that has the name of one in tcp_samples means the same; what this kernel does not tell is null.
    /// `handed`: when the data after it had been handed over, and how much of it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    (named) "tcp_readings": Reading in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        socket: Arc<Socket> => connection: Int32("1")
            "Its connection: from 0 in each block." = |row, _| row.socket.connection;
        => role: Name of ROLES ("1") "What its end does: send, receive." = |row, _| row.socket.role;
        why: &'static str => why: Name of REASONS ("1")
            "begin (connected), send (before data is handed over), time (it was due), end (before it is closed).";
        number: u64 => number: Int64("1") "Its number on the connection, from 0.";
        => socket_cookie: Bits64("1")
            "The kernel's name of the socket, until the next boot." = |row, _| row.socket.cookie;
        => netns_cookie: Bits64("1") or null "The kernel's name of its network namespace." = |row, _| row.socket.netns;
        => local_address: Utf8("1") "Our address." = |row, _| row.socket.local.ip();
        => local_port: Int32("1") "Our port." = |row, _| row.socket.local.port();
        => remote_address: Utf8("1") "The peer's address." = |row, _| row.socket.remote.ip();
        => remote_port: Int32("1") "The peer's port." = |row, _| row.socket.remote.port();
        intended: Time => intended_ns: Int64("ns", TAI, "plan") "When it was due; where nothing was, when it began.";
        before: Time => read_before_ns: Int64("ns", TAI, "user") "Before the kernel was asked.";
        after: Time => read_after_ns: Int64("ns", TAI, "user") "After it had answered.";
        handed: Option<(Time, usize)> => sent_ns: Int64("ns", TAI, "user") or null
            "When the data after it had been handed over." = |row, _| row.handed.map(|handed| handed.0);
        => handed_bytes: Int32("bytes") or null
            "How much the kernel took of that data." = |row, _| row.handed.map(|handed| handed.1);
        info_bytes: usize => info_bytes: Int32("bytes") "How long this kernel's TCP_INFO is.";
    } info: Info;
}

group! {
    /// TCP_INFO, in the order of the kernel's structure; `None` where the kernel's is shorter.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Info;
    {
        state: Option<i64> => state: Int64("1") or null
            "Of the connection: 1 ESTABLISHED, 2 SYN_SENT, … (include/net/tcp_states.h).";
        ca_state: Option<i64> => ca_state: Int64("1") or null "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.";
        retransmits: Option<i64> => retransmits: Int64("1") or null "Timeouts in a row without an answer.";
        probes_out: Option<i64> => probes_out: Int64("1") or null "Window or keep-alive probes without an answer.";
        backoff: Option<i64> => backoff: Int64("1") or null "Doublings of the timeout.";
        options: Option<i64> => options: Int64("1") or null
            "Bits: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 data in SYN.";
        snd_wscale: Option<i64> => snd_wscale: Int64("1") or null "Shift of the peer's windows.";
        rcv_wscale: Option<i64> => rcv_wscale: Int64("1") or null "Shift of our windows.";
        app_limited: Option<i64> => app_limited: Int64("1") or null
            "Whether the delivery rate's sample was limited by the application: 0, 1.";
        fastopen_client_fail: Option<i64> => fastopen_client_fail: Int64("1") or null
            "Why fast open failed; 0: unspecified.";
        rto_us: Option<i64> => rto_us: Int64("us") or null "Retransmission timeout, to a jiffy.";
        ato_us: Option<i64> => ato_us: Int64("us") or null "Delay of acknowledgements, to a jiffy.";
        mss_bytes: Option<i64> => mss_bytes: Int64("bytes") or null "Maximum segment size as sent now.";
        rcv_mss_bytes: Option<i64> => rcv_mss_bytes: Int64("bytes") or null
            "Maximum segment size as received, as it is estimated.";
        packets_out: Option<i64> => packets_out: Int64("segments") or null "Sent and not acknowledged.";
        sacked_out: Option<i64> => sacked_out: Int64("segments") or null
            "Of them: SACKed, or duplicate acknowledgements.";
        lost_out: Option<i64> => lost_out: Int64("segments") or null "Of them: taken for lost.";
        retrans_out: Option<i64> => retrans_out: Int64("segments") or null "Of them: retransmitted.";
        fackets: Option<i64> => fackets: Int64("segments") or null "No longer kept by kernels: 0.";
        last_data_sent_ms: Option<i64> => last_data_sent_ms: Int64("ms") or null
            "Since data was last sent, to a jiffy.";
        last_ack_sent_ms: Option<i64> => last_ack_sent_ms: Int64("ms") or null
            "Since an acknowledgement was last sent: not kept by kernels.";
        last_data_received_ms: Option<i64> => last_data_received_ms: Int64("ms") or null
            "Since data was last received, to a jiffy.";
        last_ack_received_ms: Option<i64> => last_ack_received_ms: Int64("ms") or null
            "Since an acknowledgement was last received, to a jiffy.";
        pmtu_bytes: Option<i64> => pmtu_bytes: Int64("bytes") or null "Maximum transmission unit of the path.";
        rcv_ssthresh_bytes: Option<i64> => rcv_ssthresh_bytes: Int64("bytes") or null
            "Limit of the window that we offer.";
        srtt_us: Option<i64> => srtt_us: Int64("us") or null "Smoothed RTT, its fraction cut off.";
        mdev_us: Option<i64> => mdev_us: Int64("us") or null
            "Mean deviation of RTT, its fraction cut off (the kernel calls it rttvar here).";
        snd_ssthresh: Option<i64> => snd_ssthresh: Int64("segments") or null
            "Slow-start threshold; 2147483647: infinite.";
        snd_cwnd: Option<i64> => snd_cwnd: Int64("segments") or null "Congestion window.";
        advmss_bytes: Option<i64> => advmss_bytes: Int64("bytes") or null "Maximum segment size that we advertise.";
        reordering: Option<i64> => reordering: Int64("segments") or null "Reordering that TCP expects.";
        rcv_rtt_us: Option<i64> => rcv_rtt_us: Int64("us") or null
            "RTT as the receiver estimates it, without its fraction.";
        rcv_space_bytes: Option<i64> => rcv_space_bytes: Int64("bytes") or null
            "Receive buffer as auto-tuning estimates it.";
        total_retrans: Option<i64> => total_retrans: Int64("segments") or null "Retransmitted, ever.";
        pacing_rate_bps: Option<i64> => pacing_rate_bps: Int64("bit/s") or null "Pacing rate; -1: none.";
        max_pacing_rate_bps: Option<i64> => max_pacing_rate_bps: Int64("bit/s") or null
            "Limit of the pacing rate; -1: none.";
        acked_bytes: Option<i64> => acked_bytes: Int64("bytes") or null "User data acknowledged, ever.";
        received_bytes: Option<i64> => received_bytes: Int64("bytes") or null "User data received, ever.";
        segs_out: Option<i64> => segs_out: Int64("segments") or null "Sent, ever.";
        segs_in: Option<i64> => segs_in: Int64("segments") or null "Received, ever.";
        not_sent_bytes: Option<i64> => not_sent_bytes: Int64("bytes") or null "User data handed over and not sent.";
        rtt_min_us: Option<i64> => rtt_min_us: Int64("us") or null "Minimum RTT of the kernel's window.";
        data_segs_in: Option<i64> => data_segs_in: Int64("segments") or null "Received with data, ever.";
        data_segs_out: Option<i64> => data_segs_out: Int64("segments") or null "Sent with data, ever.";
        delivery_rate_bps: Option<i64> => delivery_rate_bps: Int64("bit/s") or null
            "Delivery rate of the last sample, its fraction of a byte cut off.";
        busy_us: Option<i64> => busy_us: Int64("us") or null "Time with data to send, ever, to a jiffy, and up to now.";
        receiver_limited_us: Option<i64> => receiver_limited_us: Int64("us") or null
            "Of it: limited by the peer's window.";
        buffer_limited_us: Option<i64> => buffer_limited_us: Int64("us") or null "Of it: limited by the send buffer.";
        delivered: Option<i64> => delivered: Int64("segments") or null "Delivered, ever.";
        delivered_ce: Option<i64> => delivered_ce: Int64("segments") or null "Of them: with a congestion mark.";
        sent_bytes: Option<i64> => sent_bytes: Int64("bytes") or null "User data sent, retransmissions included, ever.";
        retransmitted_bytes: Option<i64> => retransmitted_bytes: Int64("bytes") or null
            "User data retransmitted, ever.";
        dsack_dups: Option<i64> => dsack_dups: Int64("segments") or null "Duplicates that DSACK reported.";
        reord_seen: Option<i64> => reord_seen: Int64("1") or null "How often reordering was seen.";
        rcv_ooopack: Option<i64> => rcv_ooopack: Int64("segments") or null "Received out of order, ever.";
        snd_wnd_bytes: Option<i64> => snd_wnd_bytes: Int64("bytes") or null "Window that the peer offers, scaled.";
        rcv_wnd_bytes: Option<i64> => rcv_wnd_bytes: Int64("bytes") or null
            "Window that was last offered to the peer; what has come since is not taken off.";
        rehash: Option<i64> => rehash: Int64("1") or null "How often another path was chosen for want of progress.";
        total_rto: Option<i64> => total_rto: Int64("1") or null "Retransmission timeouts, ever.";
        total_rto_recoveries: Option<i64> => total_rto_recoveries: Int64("1") or null
            "Of them: followed by a recovery that ended.";
        total_rto_time_ms: Option<i64> => total_rto_time_ms: Int64("ms") or null "Time in recoveries from them, ever.";
        received_ce: Option<i64> => received_ce: Int64("segments") or null "Received with a congestion mark (AccECN).";
        delivered_e1_bytes: Option<i64> => delivered_e1_bytes: Int64("bytes") or null "Delivered as ECT(1) (AccECN).";
        delivered_e0_bytes: Option<i64> => delivered_e0_bytes: Int64("bytes") or null "Delivered as ECT(0) (AccECN).";
        delivered_ce_bytes: Option<i64> => delivered_ce_bytes: Int64("bytes") or null
            "Delivered with a congestion mark (AccECN).";
        received_e1_bytes: Option<i64> => received_e1_bytes: Int64("bytes") or null "Received as ECT(1) (AccECN).";
        received_e0_bytes: Option<i64> => received_e0_bytes: Int64("bytes") or null "Received as ECT(0) (AccECN).";
        received_ce_bytes: Option<i64> => received_ce_bytes: Int64("bytes") or null
            "Received with a congestion mark (AccECN).";
        accecn_fail_mode: Option<i64> => accecn_fail_mode: Int64("1") or null
            "How AccECN failed, as bits; 0: it did not.";
        accecn_opt_seen: Option<i64> => accecn_opt_seen: Int64("1") or null
            "Whether options of AccECN were seen: 0 not yet, 1 none, 2 yes.";
    }
}

/// Whose readings they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Socket {
    pub connection: u32,
    /// One of [`ROLES`].
    pub role: &'static str,
    pub cookie: u64,
    pub netns: Option<u64>,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}
