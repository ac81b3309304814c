//! The tables of TCP's own state: a sample a row, the flows, the account of what was not logged, and its gaps.

use super::{Field, Kind, TAI, Table};

/// One row for each sample of a TCP control block.
///
/// What a kernel lacks is null in every row; so are the columns of a packet where a sample belongs to none.
pub const TCP_SAMPLES: Table = Table {
    name: "tcp_samples",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to; 0 where none was begun."),
        Field::new("flow", Kind::Int32, "Its flow: a row of tcp_flows."),
        Field::new("cpu", Kind::Int32, "The CPU that took it."),
        Field::count("number", "Its number on that CPU, from 0; one that is missing had no room: a row of tcp_gaps."),
        Field::time("time_ns", TAI, "kernel", "When it was taken."),
        Field::new(
            "point",
            Kind::Utf8Dictionary,
            "in, out: before TCP; rtt, retransmit, state, recovery, reset-out, reset-in, destroy: after.",
        ),
        Field::new(
            "before",
            Kind::Int32,
            "At state and recovery: what it was; `state` or `ca_state` is what it will be.",
        )
        .or_null(),
        // The packet.
        Field::count("packet", "The packet's number in its direction of the flow, from 0.").or_null(),
        Field::count("seq", "TCP sequence number.").or_null(),
        Field::count("ack", "TCP acknowledgement number.").or_null(),
        Field::new("tcp_flags", Kind::Int32, "The header's twelve bits; FIN is the lowest.").or_null(),
        Field::new("window", Kind::Int32, "The header's window, not scaled.").or_null(),
        Field::bytes("packet_bytes", "IP packet, all its segments together.").or_null(),
        Field::bytes("payload_bytes", "User data in it.").or_null(),
        Field::new("segments", Kind::Int32, "Segments that the kernel made or will make of it (GSO).").or_null(),
        Field::new("ip_id", Kind::Int32, "Identification of IPv4.").or_null(),
        Field::new("tos", Kind::Int32, "Traffic class: DSCP << 2 | ECN.").or_null(),
        // The state that SIFTR logged.
        state("state", Kind::Int32, "1", "Of the connection: 1 ESTABLISHED, 2 SYN_SENT, … (include/net/tcp_states.h)."),
        state("snd_cwnd", Kind::Int32, "segments", "Congestion window."),
        state("snd_ssthresh", Kind::Int32, "segments", "Slow-start threshold; 2147483647: infinite."),
        state("mss_bytes", Kind::Int32, "bytes", "Maximum segment size as sent now (mss_cache)."),
        state("snd_wnd_bytes", Kind::Int64, "bytes", "Window that the peer offers, scaled."),
        state("rcv_wnd_bytes", Kind::Int64, "bytes", "Window offered to the peer, what has come since taken off."),
        state("snd_wscale", Kind::Int32, "1", "Shift of the peer's windows."),
        state("rcv_wscale", Kind::Int32, "1", "Shift of our windows."),
        state("srtt_us", Kind::Float64, "us", "Smoothed RTT."),
        state("rto_us", Kind::Int64, "us", "Retransmission timeout, to a jiffy."),
        state("sndbuf_bytes", Kind::Int64, "bytes", "Size of the send buffer, with the kernel's overhead."),
        state("snd_queued_bytes", Kind::Int64, "bytes", "User data in it: write_seq - snd_una."),
        state("rcvbuf_bytes", Kind::Int64, "bytes", "Size of the receive buffer, with the kernel's overhead."),
        state("rcv_queued_bytes", Kind::Int64, "bytes", "User data in order in it: rcv_nxt - copied_seq."),
        state(
            "in_flight_bytes",
            Kind::Int64,
            "bytes",
            "snd_nxt - snd_una; SACKed data counted, the packet itself not yet.",
        ),
        state("flags", Kind::Int32, "1", "A bit for each flag, in the order of tcp_flag_names of the header."),
        // Sequence numbers.
        state("snd_una", Kind::Int64, "1", "Oldest sequence number without acknowledgement."),
        state("snd_nxt", Kind::Int64, "1", "Next sequence number to send."),
        state("rcv_nxt", Kind::Int64, "1", "Next sequence number expected."),
        // Congestion control and recovery.
        state("ca_state", Kind::Int32, "1", "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss."),
        state(
            "snd_cwnd_cnt",
            Kind::Int32,
            "segments",
            "Acknowledged towards the next growth of the congestion window.",
        ),
        state("prior_cwnd", Kind::Int32, "segments", "Congestion window before the last reduction."),
        state("pacing_rate_bps", Kind::Int64, "bit/s", "Pacing rate; -1: none."),
        state("packets_out", Kind::Int32, "segments", "Sent and not acknowledged."),
        state("sacked_out", Kind::Int32, "segments", "Of them: SACKed, or duplicate acknowledgements."),
        state("lost_out", Kind::Int32, "segments", "Of them: taken for lost."),
        state("retrans_out", Kind::Int32, "segments", "Of them: sent again."),
        state("total_retrans", Kind::Int64, "segments", "Sent again, ever."),
        state("lost", Kind::Int64, "segments", "Taken for lost, ever."),
        state("delivered", Kind::Int64, "segments", "Delivered, ever."),
        state("delivered_ce", Kind::Int64, "segments", "Of them: with a congestion mark."),
        state("received_ce", Kind::Int64, "segments", "Received with a congestion mark (AccECN)."),
        state(
            "delivery_rate_bps",
            Kind::Float64,
            "bit/s",
            "Delivery rate of the last sample: rate_delivered x MSS / interval.",
        ),
        state("reordering", Kind::Int32, "segments", "Reordering that is reckoned with."),
        state("reord_seen", Kind::Int64, "1", "How often reordering was seen."),
        state("dsack_dups", Kind::Int64, "segments", "Duplicates that DSACK reported."),
        state("total_rto", Kind::Int32, "1", "Retransmission timeouts, ever."),
        state("backoff", Kind::Int32, "1", "Doublings of the timeout."),
        state("retransmits", Kind::Int32, "1", "Timeouts in a row without an answer."),
        state("probes_out", Kind::Int32, "1", "Window or keep-alive probes without an answer."),
        // Round trips.
        state("rtt_last_us", Kind::Int64, "us", "The last RTT sample itself (rack.rtt_us)."),
        state("rtt_min_us", Kind::Int64, "us", "Minimum RTT of the kernel's window."),
        state("rttvar_us", Kind::Float64, "us", "Variance of RTT, as the timeout uses it."),
        state("mdev_us", Kind::Float64, "us", "Mean deviation of RTT."),
        state("rcv_rtt_us", Kind::Float64, "us", "RTT as the receiver reckons it."),
        // What limits the sender.
        state("limited_by", Kind::Utf8Dictionary, "1", "What does now: idle, busy (the path), receiver, buffer."),
        state("busy_us", Kind::Int64, "us", "Time with data to send, ever, to a jiffy."),
        state("receiver_limited_us", Kind::Int64, "us", "Of it: limited by the peer's window."),
        state("buffer_limited_us", Kind::Int64, "us", "Of it: limited by the send buffer."),
        // Buffers and the receiver.
        state("snd_memory_bytes", Kind::Int64, "bytes", "Memory of what is queued to send (wmem_queued)."),
        state("rcv_memory_bytes", Kind::Int64, "bytes", "Memory of what has been received (rmem_alloc)."),
        state("rcv_ssthresh_bytes", Kind::Int64, "bytes", "Limit of the window that we offer."),
        state("rcv_space_bytes", Kind::Int64, "bytes", "Receive buffer as auto-tuning reckons it."),
        state("rcv_ooopack", Kind::Int64, "segments", "Received out of order, ever."),
        state("num_sacks", Kind::Int32, "1", "SACK blocks that we report: holes in what came."),
        state("advmss_bytes", Kind::Int32, "bytes", "Maximum segment size that we advertise."),
        // Counters.
        state("sent_bytes", Kind::Int64, "bytes", "User data sent, again too, ever."),
        state("acked_bytes", Kind::Int64, "bytes", "User data acknowledged, ever."),
        state("received_bytes", Kind::Int64, "bytes", "User data received, ever."),
        state("retransmitted_bytes", Kind::Int64, "bytes", "User data sent again, ever."),
        state("segs_in", Kind::Int64, "segments", "Received, ever."),
        state("segs_out", Kind::Int64, "segments", "Sent, ever."),
        state("data_segs_in", Kind::Int64, "segments", "Received with data, ever."),
        state("data_segs_out", Kind::Int64, "segments", "Sent with data, ever."),
    ],
};

/// One row for each field of a congestion control's private state at a sample.
pub const TCP_PRIVATE: Table = Table {
    name: "tcp_private",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "Its flow."),
        Field::new("cpu", Kind::Int32, "The CPU that took it."),
        Field::count("number", "The number of the sample that it belongs to."),
        Field::time("time_ns", TAI, "kernel", "When it was taken."),
        Field::new("algorithm", Kind::Utf8, "The congestion control's name."),
        Field::new("field", Kind::Utf8, "The field's name in the kernel's structure; bytes where it is not known."),
        Field::count("value", "Its value, in the kernel's own unit."),
    ],
};

/// One row for each flow.
pub const TCP_FLOWS: Table = Table {
    name: "tcp_flows",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "Its number in this log, from 1."),
        Field::count("socket_cookie", "The kernel's name of the socket, until the next boot."),
        Field::count("netns_cookie", "The kernel's name of its network namespace, until the next boot."),
        Field::count("cgroup", "The cgroup that it was made in, by its number.").or_null(),
        Field::new("process", Kind::Int32, "The process that made the socket, or the listener's.").or_null(),
        Field::new("command", Kind::Utf8, "That process's name.").or_null(),
        Field::new("local_address", Kind::Utf8, "Our address."),
        Field::new("local_port", Kind::Int32, "Our port."),
        Field::new("remote_address", Kind::Utf8, "The peer's address."),
        Field::new("remote_port", Kind::Int32, "The peer's port."),
        Field::new("algorithm", Kind::Utf8, "The congestion control at the end."),
        Field::time("first_ns", TAI, "kernel", "Its first packet."),
        Field::time("last_ns", TAI, "kernel", "Its last packet."),
        Field::time("ended_ns", TAI, "kernel", "When its socket went away.").or_null(),
        Field::new("wanted", Kind::Bool, "Whether the filters let it through, at the end."),
    ],
};

/// One row for each direction and fate, of each flow and of all together: seen is the sum of the others.
pub const TCP_ACCOUNT: Table = Table {
    name: "tcp_account",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "The flow; none: all packets of TCP, also those without a flow.").or_null(),
        Field::new("direction", Kind::Utf8Dictionary, "in, out."),
        Field::new(
            "fate",
            Kind::Utf8Dictionary,
            "seen: all; logged, decimated, unchanged, early, filtered, forgotten; skipped: the others.",
        ),
        Field::count("packets", "How many met it."),
        Field::count("segments", "Segments in them."),
    ],
};

/// One row for each row of records without a gap that ends in one.
pub const TCP_GAPS: Table = Table {
    name: "tcp_gaps",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("cpu", Kind::Int32, "The CPU whose ring had no room."),
        Field::count("number", "The first record that is missing."),
        Field::count("missing", "How many in a row are."),
        Field::time("after_ns", TAI, "kernel", "The last record before them.").or_null(),
        Field::time("before_ns", TAI, "kernel", "The first record behind them.").or_null(),
    ],
};

/// All of them.
pub const TCP_TABLES: [Table; 5] = [TCP_SAMPLES, TCP_PRIVATE, TCP_FLOWS, TCP_ACCOUNT, TCP_GAPS];

/// A column of the control block: null where the kernel has no such field.
const fn state(name: &'static str, kind: Kind, unit: &'static str, doc: &'static str) -> Field {
    Field { unit, ..Field::new(name, kind, doc) }.or_null()
}
