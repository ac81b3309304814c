//! The tables of streams: what left, what arrived, what each run of a flow amounted to, and the clocks between.

use super::{Field, Kind, MONOTONIC_RAW, TAI, Table};

/// One row for each frame that a sender sent.
pub const SENDS: Table = Table {
    name: "sends",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "Its flow."),
        Field::count("seq", "Its number in the flow, from 0."),
        Field::time("intended_ns", TAI, "plan", "When the schedule wanted it to leave."),
        Field::time("send_call_ns", TAI, "user", "When the program called to send it."),
        Field::time(
            "scheduled_ns",
            TAI,
            "kernel",
            "When it entered the queueing discipline, where that was asked for.",
        )
        .or_null(),
        Field::time("departure_ns", TAI, "departure_source", "When it left, by the best stamp there is."),
        Field::new(
            "departure_source",
            Kind::Utf8Dictionary,
            "Who took departure_ns: hardware, kernel, user, simulated.",
        ),
    ],
};

/// One row for each frame of a stream that arrived, duplicates and damaged ones too.
pub const ARRIVALS: Table = Table {
    name: "arrivals",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "Its flow, as it carries it."),
        Field::new("port", Kind::Int32, "The receiver's port that it came in by."),
        Field::new("node", Kind::Int32, "Who answered with it; 0: it is no answer."),
        Field::count("seq", "Its number in the flow, as it carries it."),
        Field::time(
            "intended_ns",
            TAI,
            "plan",
            "When the schedule wanted it to leave, as it carries it: on the sender's clock.",
        ),
        Field::time(
            "sent_ns",
            TAI,
            "user",
            "The time that the sender wrote into the frame, on its clock: some 0.4 µs before `send_call_ns` of the table sends.",
        ),
        Field::time(
            "arrival_ns",
            TAI,
            "arrival_source",
            "When it arrived, by the best stamp: on the receiver's clock.",
        ),
        Field::new("arrival_source", Kind::Utf8Dictionary, "Who took arrival_ns: hardware, kernel, user, simulated."),
        Field::time("receive_call_ns", TAI, "user", "When the program had it in hand."),
        Field::new("duplicate", Kind::Bool, "Whether a frame of its number had come before."),
        Field::new("reordered", Kind::Bool, "Whether a frame of a higher number had come before (RFC 4737)."),
        Field::new("late", Kind::Bool, "Whether it took longer than the limit of its block."),
        Field::new("corrupted", Kind::Bool, "Whether its header or its user data was damaged."),
    ],
};

/// One row for each flow of a block, at each of its ends and ports.
pub const STREAMS: Table = Table {
    name: "streams",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "Its number."),
        Field::new("device", Kind::Utf8, "The device under test, by its name in the plan."),
        Field::new("round", Kind::Int32, "The round of the cell."),
        Field::new("visit", Kind::Int32, "0 on the way there, 1 on the mirrored way back."),
        Field::new("cell", Kind::Int32, "The cell of the plan's matrix."),
        Field::new("purpose", Kind::Utf8, "What it is for: measure, qualify, search, warm-up, load."),
        Field::new("role", Kind::Utf8, "Which end this row is of: send, receive, answer."),
        Field::new("flow", Kind::Int32, "The flow."),
        Field::new("port", Kind::Int32, "The port of this end."),
        Field::new("via", Kind::Utf8, "The backend: packet, udp, xdp, live, sim."),
        Field::new("engine", Kind::Utf8, "How it works here, as the kernel granted it."),
        Field::new("schedule", Kind::Utf8, "regular, poisson, burst:N, ramp:A-B, flood, replay; empty at a receiver."),
        Field::bytes("frame_bytes", "Ethernet frame, with FCS."),
        Field::bytes("payload_bytes", "User data: the stream's header and what follows."),
        Field::real("rate_pps", "pps", "The mean rate that was asked for; 0: as fast as it goes."),
        Field::real("intended_pps", "pps", "The rate of the departures that were scheduled."),
        Field::real("achieved_pps", "pps", "The rate of what was sent, or at a receiver of what arrived first."),
        Field::real(
            "anderson_darling",
            "1",
            "A² of what was really sent against exponential gaps, where they should be.",
        )
        .or_null(),
        Field::real("anderson_darling_p", "1", "How likely such an A² is where gaps are exponential.").or_null(),
        Field::time("started_ns", TAI, "user", "When it began."),
        Field::time("ended_ns", TAI, "user", "When it ended."),
        Field::time("started_raw_ns", MONOTONIC_RAW, "user", "When it began, on the clock that is never stepped."),
        Field::time("ended_raw_ns", MONOTONIC_RAW, "user", "When it ended, on the clock that is never stepped."),
        Field::time("first_ns", TAI, "kernel", "When its first frame left or arrived, by the best stamp.").or_null(),
        Field::time("last_ns", TAI, "kernel", "When its last frame left or arrived, by the best stamp.").or_null(),
        Field::count("asked", "Sender: frames asked for: sent + refused + unsent."),
        Field::count("sent", "Frames sent: at a receiver, as it was told: first + corrupted + own_drops + lost."),
        Field::count("refused", "Sender: frames that our own queue or socket refused."),
        Field::count("unsent", "Sender: frames that it had not come to when it was ended."),
        Field::count("first", "Receiver: frames of the stream that arrived for the first time, undamaged."),
        Field::count("duplicated", "Receiver: frames that had arrived before."),
        Field::count("reordered", "Receiver: first arrivals that a later frame overtook (RFC 4737)."),
        Field::count("late", "Receiver: first arrivals that took longer than the limit."),
        Field::count("corrupted", "Receiver: damaged frames."),
        Field::count("foreign", "Receiver: frames that belong to no flow of this block."),
        Field::count("own_drops", "Receiver: frames that our own socket, ring or queue dropped."),
        Field::count("lost", "Receiver: frames that were sent and are accounted for nowhere else."),
        Field::new("cpu", Kind::Int32, "The CPU that the program is pinned to.").or_null(),
        Field::span("cpu_time_ns", "Processor time that the program took for the whole block."),
        Field::new("fifo", Kind::Bool, "Whether the program runs under SCHED_FIFO."),
        Field::new("wait", Kind::Utf8, "How the program waits: spin, sleep-then-spin, sleep, simulated."),
        Field::count("clock_id", "Which clock this end's times are on: equal numbers, one clock."),
    ],
};

/// One row for each bin of a histogram that is not empty.
pub const HISTOGRAMS: Table = Table {
    name: "histograms",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("flow", Kind::Int32, "The flow."),
        Field::new("port", Kind::Int32, "The port."),
        Field::new("role", Kind::Utf8, "Which end counted: send, receive, answer."),
        Field::new(
            "quantity",
            Kind::Utf8,
            "delay, inter_arrival, ipdv, loss_run, gap_run, departure_error, inter_departure.",
        ),
        Field::new("unit", Kind::Utf8, "The unit of low and high: ns, or packets for runs."),
        Field::count("low", "The least value of the bin."),
        Field::count("high", "The greatest value of the bin."),
        Field::count("count", "How many there were."),
    ],
};

/// One row for each exchange of times with a peer.
pub const EXCHANGES: Table = Table {
    name: "exchanges",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("peer", Kind::Utf8, "Whose clock was asked for."),
        Field::count(
            "clock_id",
            "Which clock the peer has: the number that `streams` tells of its end, 0 where unknown.",
        ),
        Field::new("phase", Kind::Utf8, "Whether before, during or after the measurement."),
        Field::count("number", "Its number in the block."),
        Field::time("t1_ns", TAI, "local_source", "When the request left: on our clock."),
        Field::time("t2_ns", TAI, "remote_source", "When the request arrived: on the peer's clock."),
        Field::time("t3_ns", TAI, "user", "When the peer called to reply: on the peer's clock."),
        Field::time("t4_ns", TAI, "local_source", "When the reply arrived: on our clock."),
        Field::new("local_source", Kind::Utf8Dictionary, "Who took t1_ns and t4_ns, the lesser of both."),
        Field::new("remote_source", Kind::Utf8Dictionary, "Who took t2_ns."),
    ],
};

/// One row for each segment in which a straight line tells the peer's clock from ours.
pub const CLOCK_LINES: Table = Table {
    name: "clock_lines",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to."),
        Field::new("peer", Kind::Utf8, "Whose clock it is about."),
        Field::count("clock_id", "Which clock it is: the number that `streams` tells of its end, 0 where unknown."),
        Field::new("shared", Kind::Bool, "Whether both ends have one clock: then all is zero."),
        Field::time("from_ns", TAI, "peer", "From when it holds: on the peer's clock."),
        Field::time("to_ns", TAI, "peer", "Until when it holds: on the peer's clock."),
        Field::time("reference_ns", TAI, "peer", "Where offset_ns is said: on the peer's clock."),
        Field::real("offset_ns", "ns", "The peer's clock less ours, at the reference: ours = peer's - offset."),
        Field::real("skew_ppb", "ppb", "By how much the offset grows, in ns per second."),
        Field::real("bound_ns", "ns", "The hard bound of a converted time's error along the line: it always holds."),
        Field::real("error95_ns", "ns", "The error that 95 % stay below where the least delays are alike both ways."),
        Field::real(
            "skew_bound_ppb",
            "ppb",
            "By how much the true skew can differ at its ends: how the bound grows beyond.",
        ),
        Field::real("skew95_ppb", "ppb", "The part of error95_ns that grows with the distance from the reference."),
        Field::count("exchanges", "How many exchanges it rests on."),
    ],
};

/// The tables of streams, in the order in which they are written.
pub const STREAM_TABLES: [Table; 6] = [SENDS, ARRIVALS, STREAMS, HISTOGRAMS, EXCHANGES, CLOCK_LINES];
