//! The tables of what the log of TCP's state costs: slices of traffic with and without it, and its programs' own time.
//! The orchestrator writes them: it alone knows when it switched what.

use super::{Field, Kind, TAI, Table};

/// One row for each slice of traffic, with the log or without it; two with the same pair belong together.
pub const TCP_SLICES: Table = Table {
    name: "tcp_slices",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "Its number: one that is measured again replaces the row before."),
        Field::new("pair", Kind::Int32, "The pair that it belongs to; -1 for one under the statistics of programs."),
        Field::new("session", Kind::Int32, "The iperf3 that made its traffic, or of a pair with one each, the pair."),
        Field::new("repetition", Kind::Int32, "The repetition of the cell."),
        Field::new("cell", Kind::Int32, "The cell of the plan; -1 for one under the statistics of programs."),
        Field::new("visit", Kind::Int32, "Its place in the pair: 0 or 1."),
        Field::new("path", Kind::Utf8, "gso: packets as large as the kernel makes them; mtu: of one segment each."),
        Field::new("flows", Kind::Int32, "Connections at once."),
        Field::new("where", Kind::Utf8, "Whose packets the setting is for: sender, receiver, both."),
        Field::new("setting", Kind::Utf8, "The pair's setting: on, disabled, empty, sham; off where it is a control."),
        Field::new("mode", Kind::Utf8, "What was in force: the setting, or off."),
        Field::new("packets_per_log", Kind::Int32, "Of the pair's setting, where it is on.").or_null(),
        Field::new(
            "statistics",
            Kind::Bool,
            "Whether the kernel took the time of programs meanwhile, which takes time.",
        ),
        Field::time("started_ns", TAI, "user", "When the counters were read first."),
        Field::time("ended_ns", TAI, "user", "When they were read again."),
        Field {
            unit: "bytes",
            ..Field::new("received_bytes", Kind::Int64, "Frames that the receiver's interface got.")
        },
        Field::count("frames", "How many."),
        Field::count("retransmitted", "Segments sent again, by the sender's host (RetransSegs)."),
        Field::real("in_force_s", "s", "Time that the setting was in force: what the log counted is of it.").or_null(),
        Field::count("packets_in", "Packets that the log saw come, all ends together.").or_null(),
        Field::count("packets_out", "Packets that it saw go.").or_null(),
        Field::count("segments_in", "Segments in them.").or_null(),
        Field::count("segments_out", "Segments in them.").or_null(),
        Field::count("logged", "Packets that have a record.").or_null(),
        Field::count("decimated", "Packets left out by packets per log.").or_null(),
        Field::count("skipped", "Packets that should have a record and have none.").or_null(),
        Field::count("skipped_full", "Of them: the ring was full.").or_null(),
        Field::count("skipped_broken", "Of them: not written.").or_null(),
        Field::count("skipped_no_socket", "Of them: no socket of theirs was found.").or_null(),
        Field::count("skipped_no_state", "Of them: their socket has no such state (yet).").or_null(),
        Field::count("skipped_control", "Of them: the kernel's own socket sent them.").or_null(),
        Field::count("skipped_unparsed", "Of them: their headers could not be read.").or_null(),
        Field::count("skipped_no_room", "Of them: no room for another flow.").or_null(),
        Field::count("skipped_late", "Of them: their socket was closed.").or_null(),
        Field::real("cpu_busy_s", "s", "Time that all processors were busy."),
        Field::real("cpu_sender_s", "s", "Processor time of the sending host's cgroup.").or_null(),
        Field::real("cpu_receiver_s", "s", "Processor time of the receiving host's cgroup.").or_null(),
        Field::real("logger_cpu_s", "s", "Processor time of the logging processes.").or_null(),
    ],
};

/// One row for each program in the kernel and slice under the kernel's own statistics of programs.
pub const TCP_COSTS: Table = Table {
    name: "tcp_costs",
    is_named: false,
    fields: &[
        Field::new("block", Kind::Int32, "The slice."),
        Field::new("host", Kind::Utf8, "Whose packets it dealt with: a, b."),
        Field::new("program", Kind::Utf8, "Its name."),
        Field::new("direction", Kind::Utf8, "in, out; of a program that packets do not run, none.").or_null(),
        Field::count("runs", "How often it ran."),
        Field {
            unit: "ns",
            ..Field::new("cpu_time_ns", Kind::Int64, "How long altogether, with the clock's own cost.")
        },
    ],
};

/// Both.
pub const TCP_SLICE_TABLES: [Table; 2] = [TCP_SLICES, TCP_COSTS];
