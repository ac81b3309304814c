//! What a log of TCP's state is held against: the kernel's TCP_INFO as an application read it, and a capture's packets.

use super::{Field, Kind, TAI, Table};

/// How many columns stand before those of TCP_INFO.
pub const BEFORE_INFO: usize = 17;

/// How many columns are TCP_INFO's.
pub const INFO: usize = TCP_READINGS.fields.len() - BEFORE_INFO;

/// One row for each reading of a socket's TCP_INFO.
///
/// A column that has the name of one in tcp_samples means the same; what this kernel does not tell is null.
pub const TCP_READINGS: Table = Table {
    name: "tcp_readings",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("connection", Kind::Int32, "Its connection: from 0 in each block."),
        Field::new("role", Kind::Utf8Dictionary, "What its end does: send, receive."),
        Field::new(
            "why",
            Kind::Utf8Dictionary,
            "begin (connected), send (before data is handed over), time (it was due), end (before it is closed).",
        ),
        Field::count("number", "Its number on the connection, from 0."),
        Field::count("socket_cookie", "The kernel's name of the socket, until the next boot."),
        Field::count("netns_cookie", "The kernel's name of its network namespace.").or_null(),
        Field::new("local_address", Kind::Utf8, "Our address."),
        Field::new("local_port", Kind::Int32, "Our port."),
        Field::new("remote_address", Kind::Utf8, "The peer's address."),
        Field::new("remote_port", Kind::Int32, "The peer's port."),
        Field::time("intended_ns", TAI, "plan", "When it was due; where nothing was, when it began."),
        Field::time("read_before_ns", TAI, "user", "Before the kernel was asked."),
        Field::time("read_after_ns", TAI, "user", "After it had answered."),
        Field::time("sent_ns", TAI, "user", "When the data after it had been handed over.").or_null(),
        Field::bytes("handed_bytes", "How much the kernel took of that data.").or_null(),
        Field::bytes("info_bytes", "How long this kernel's TCP_INFO is."),
        // What follows is in the order of the kernel's structure.
        info("state", "1", "Of the connection: 1 ESTABLISHED, 2 SYN_SENT, … (include/net/tcp_states.h)."),
        info("ca_state", "1", "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss."),
        info("retransmits", "1", "Timeouts in a row without an answer."),
        info("probes_out", "1", "Window or keep-alive probes without an answer."),
        info("backoff", "1", "Doublings of the timeout."),
        info("options", "1", "Bits: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 data in SYN."),
        info("snd_wscale", "1", "Shift of the peer's windows."),
        info("rcv_wscale", "1", "Shift of our windows."),
        info("app_limited", "1", "Whether the delivery rate's sample was limited by the application: 0, 1."),
        info("fastopen_client_fail", "1", "Why fast open failed; 0: unspecified."),
        info("rto_us", "us", "Retransmission timeout, to a jiffy."),
        info("ato_us", "us", "Delay of acknowledgements, to a jiffy."),
        info("mss_bytes", "bytes", "Maximum segment size as sent now."),
        info("rcv_mss_bytes", "bytes", "Maximum segment size as received, as it is estimated."),
        info("packets_out", "segments", "Sent and not acknowledged."),
        info("sacked_out", "segments", "Of them: SACKed, or duplicate acknowledgements."),
        info("lost_out", "segments", "Of them: taken for lost."),
        info("retrans_out", "segments", "Of them: sent again."),
        info("fackets", "segments", "No longer kept by kernels: 0."),
        info("last_data_sent_ms", "ms", "Since data was last sent, to a jiffy."),
        info("last_ack_sent_ms", "ms", "Since an acknowledgement was last sent: not kept by kernels."),
        info("last_data_received_ms", "ms", "Since data was last received, to a jiffy."),
        info("last_ack_received_ms", "ms", "Since an acknowledgement was last received, to a jiffy."),
        info("pmtu_bytes", "bytes", "Maximum transmission unit of the path."),
        info("rcv_ssthresh_bytes", "bytes", "Limit of the window that we offer."),
        info("srtt_us", "us", "Smoothed RTT, its fraction cut off."),
        info("mdev_us", "us", "Mean deviation of RTT, its fraction cut off (the kernel calls it rttvar here)."),
        info("snd_ssthresh", "segments", "Slow-start threshold; 2147483647: infinite."),
        info("snd_cwnd", "segments", "Congestion window."),
        info("advmss_bytes", "bytes", "Maximum segment size that we advertise."),
        info("reordering", "segments", "Reordering that is reckoned with."),
        info("rcv_rtt_us", "us", "RTT as the receiver reckons it, its fraction cut off."),
        info("rcv_space_bytes", "bytes", "Receive buffer as auto-tuning reckons it."),
        info("total_retrans", "segments", "Sent again, ever."),
        info("pacing_rate_bps", "bit/s", "Pacing rate; -1: none."),
        info("max_pacing_rate_bps", "bit/s", "Limit of the pacing rate; -1: none."),
        info("acked_bytes", "bytes", "User data acknowledged, ever."),
        info("received_bytes", "bytes", "User data received, ever."),
        info("segs_out", "segments", "Sent, ever."),
        info("segs_in", "segments", "Received, ever."),
        info("not_sent_bytes", "bytes", "User data handed over and not sent."),
        info("rtt_min_us", "us", "Minimum RTT of the kernel's window."),
        info("data_segs_in", "segments", "Received with data, ever."),
        info("data_segs_out", "segments", "Sent with data, ever."),
        info("delivery_rate_bps", "bit/s", "Delivery rate of the last sample, its fraction of a byte cut off."),
        info("busy_us", "us", "Time with data to send, ever, to a jiffy, and up to now."),
        info("receiver_limited_us", "us", "Of it: limited by the peer's window."),
        info("buffer_limited_us", "us", "Of it: limited by the send buffer."),
        info("delivered", "segments", "Delivered, ever."),
        info("delivered_ce", "segments", "Of them: with a congestion mark."),
        info("sent_bytes", "bytes", "User data sent, again too, ever."),
        info("retransmitted_bytes", "bytes", "User data sent again, ever."),
        info("dsack_dups", "segments", "Duplicates that DSACK reported."),
        info("reord_seen", "1", "How often reordering was seen."),
        info("rcv_ooopack", "segments", "Received out of order, ever."),
        info("snd_wnd_bytes", "bytes", "Window that the peer offers, scaled."),
        info(
            "rcv_wnd_bytes",
            "bytes",
            "Window that was last offered to the peer; what has come since is not taken off.",
        ),
        info("rehash", "1", "How often another path was chosen for want of progress."),
        info("total_rto", "1", "Retransmission timeouts, ever."),
        info("total_rto_recoveries", "1", "Of them: followed by a recovery that ended."),
        info("total_rto_time_ms", "ms", "Time in recoveries from them, ever."),
        info("received_ce", "segments", "Received with a congestion mark (AccECN)."),
        info("delivered_e1_bytes", "bytes", "Delivered as ECT(1) (AccECN)."),
        info("delivered_e0_bytes", "bytes", "Delivered as ECT(0) (AccECN)."),
        info("delivered_ce_bytes", "bytes", "Delivered with a congestion mark (AccECN)."),
        info("received_e1_bytes", "bytes", "Received as ECT(1) (AccECN)."),
        info("received_e0_bytes", "bytes", "Received as ECT(0) (AccECN)."),
        info("received_ce_bytes", "bytes", "Received with a congestion mark (AccECN)."),
        info("accecn_fail_mode", "1", "How AccECN failed, as bits; 0: it did not."),
        info("accecn_opt_seen", "1", "Whether options of AccECN were seen: 0 not yet, 1 none, 2 yes."),
    ],
};

/// One row for each TCP packet that an independent capture saw at a host's port.
pub const TCP_CAPTURES: Table = Table {
    name: "tcp_captures",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "The block during which it was seen."),
        Field::time("captured_ns", TAI, "kernel", "When the capture saw it."),
        Field::new("direction", Kind::Utf8, "Seen from that host: in, out."),
        Field::new("local_port", Kind::Int32, "Its own port."),
        Field::new("remote_port", Kind::Int32, "The peer's."),
        Field::count("seq", "TCP sequence number."),
        Field::count("ack", "TCP acknowledgement number."),
        Field::new("tcp_flags", Kind::Int32, "The header's twelve bits; FIN is the lowest."),
        Field::new("window", Kind::Int32, "The header's window, not scaled."),
        Field::bytes("packet_bytes", "IP packet, all its segments together."),
        Field::bytes("payload_bytes", "User data in it."),
    ],
};

/// A column of TCP_INFO: null where the kernel's is shorter.
const fn info(name: &'static str, unit: &'static str, doc: &'static str) -> Field {
    Field { unit, ..Field::new(name, Kind::Int64, doc) }.or_null()
}
