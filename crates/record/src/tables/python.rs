//! Tables that the orchestrator writes: independent captures, and slices of traffic with and without a log of TCP's
//! state. Only the orchestrator knows when it switched the log.

use crate::schema::TAI;
use crate::table::written_by_python;

written_by_python! {
    /// One row for each frame that an independent capture saw.
    CAPTURES = "captures";
    {
        => block: Int32("1") "The block during which it was seen.";
        => arrival_ns: Int64("ns", TAI, "kernel") "When the capture saw it.";
        => frame_bytes: Int32("bytes") "Ethernet frame, with FCS.";
        => icmp_id: Int32("1") "ICMP identifier.";
        => icmp_seq: Int32("1") "ICMP sequence number.";
    }
}

written_by_python! {
    /// One row for each slice of traffic, with the log or without it; two with the same pair belong together.
    TCP_SLICES = "tcp_slices";
    {
        => block: Int32("1") "Its number: one that is measured again replaces the row before.";
        => pair: Int32("1") "The pair that it belongs to; -1 for one under the statistics of programs.";
        => transfer: Int32("1") was "session"
            "The iperf3 run that made its traffic; where each slice has its own, the number of the pair.";
        => repetition: Int32("1") "The repetition of the cell.";
        => cell: Int32("1") "The cell of the plan; -1 for one under the statistics of programs.";
        => visit: Int32("1") "Its place in the pair: 0 or 1.";
        => path: Utf8("1") "gso: packets as large as the kernel makes them; mtu: of one segment each.";
        => flows: Int32("1") "Connections at once.";
        => where: Utf8("1") "Whose packets the setting is for: sender, receiver, both.";
        => setting: Utf8("1") with "sham" as "placebo"
            "The pair's setting: on, disabled, empty, placebo; off where it is a control.";
        => mode: Utf8("1") with "sham" as "placebo" "What was in force: the setting, or off.";
        => packets_per_log: Int32("1") or null "Of the pair's setting, where it is on.";
        => statistics: Bool("1") "Whether the kernel took the time of programs meanwhile, which takes time.";
        => started_ns: Int64("ns", TAI, "user") "When the counters were read first.";
        => ended_ns: Int64("ns", TAI, "user") "When they were read again.";
        => received_bytes: Int64("bytes") "Frames that the receiver's interface got.";
        => frames: Int64("1") "How many.";
        => retransmitted: Int64("1") "Segments retransmitted by the sender's host (RetransSegs).";
        => timeouts: Int64("1") or null since 3
            "Retransmission timers that expired on the sender's host (TCPTimeouts): each sets a window to one segment.";
        => in_force_s: Float64("s") or null "Time that the setting was in force: what the log counted is of it.";
        => packets_in: Int64("1") or null "Packets that the log saw come, all ends together.";
        => packets_out: Int64("1") or null "Packets that it saw go.";
        => segments_in: Int64("1") or null "Segments in them.";
        => segments_out: Int64("1") or null "Segments in them.";
        => logged: Int64("1") or null "Packets that have a record.";
        => decimated: Int64("1") or null "Packets left out by sampling 1 in N.";
        => skipped: Int64("1") or null "Packets that should have a record and have none.";
        => skipped_full: Int64("1") or null "Of them: the ring was full.";
        => skipped_broken: Int64("1") or null "Of them: not written.";
        => skipped_no_socket: Int64("1") or null "Of them: no socket of theirs was found.";
        => skipped_no_state: Int64("1") or null "Of them: their socket has no such state (yet).";
        => skipped_control: Int64("1") or null "Of them: the kernel's own socket sent them.";
        => skipped_unparsed: Int64("1") or null "Of them: their headers could not be read.";
        => skipped_no_room: Int64("1") or null "Of them: no room for another flow.";
        => skipped_late: Int64("1") or null "Of them: their socket was closed.";
        => cpu_busy_s: Float64("s") "Time that all processors were busy.";
        => cpu_sender_s: Float64("s") or null "Processor time of the sending host's cgroup.";
        => cpu_receiver_s: Float64("s") or null "Processor time of the receiving host's cgroup.";
        => logger_cpu_s: Float64("s") or null "Processor time of the logging processes.";
    }
}

written_by_python! {
    /// One row for each program in the kernel and slice under the kernel's own statistics of programs.
    TCP_COSTS = "tcp_costs";
    {
        => block: Int32("1") "The slice.";
        => host: Utf8("1") "Whose packets it dealt with: a, b.";
        => program: Utf8("1") "Its name.";
        => direction: Utf8("1") or null "in, out; of a program that packets do not run, none.";
        => runs: Int64("1") "How often it ran.";
        => cpu_time_ns: Int64("ns") "How long altogether, with the clock's own cost.";
    }
}

written_by_python! {
    /// One row for each TCP packet that an independent capture saw at a host's port.
    TCP_CAPTURES = "tcp_captures";
    {
        => block: Int32("1") "The block during which it was seen.";
        => captured_ns: Int64("ns", TAI, "kernel") "When the capture saw it.";
        => direction: Utf8("1") "Seen from that host: in, out.";
        => local_port: Int32("1") "Its own port.";
        => remote_port: Int32("1") "The peer's.";
        => seq: Int64("1") "TCP sequence number.";
        => ack: Int64("1") "TCP acknowledgement number.";
        => tcp_flags: Int32("1") "The header's twelve bits; FIN is the lowest.";
        => window: Int32("1") "The header's window, not scaled.";
        => packet_bytes: Int32("bytes") "IP packet, all its segments together.";
        => payload_bytes: Int32("bytes") "User data in it.";
    }
}
