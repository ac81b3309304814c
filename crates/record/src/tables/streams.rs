//! Streams: frames sent and received, the results of each flow, and the clock exchanges between the hosts.

use std::borrow::Cow;

use sojourn_time::{Nanos, Source, Stamp, Time};

use super::SOURCES;
use crate::schema::{MONOTONIC_RAW, TAI};
use crate::table::{Text, group, table};

table! {
    /// One row for each frame that a sender sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "sends": Send in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        flow: u16 => flow: Int32("1") "Its flow.";
        seq: u64 => seq: Int64("1") "Its number in the flow, from 0.";
        intended: Time => intended_ns: Int64("ns", TAI, "plan") "When the schedule wanted it to leave.";
        send_call: Time => send_call_ns: Int64("ns", TAI, "user") "When the program called to send it.";
        scheduled: Option<Time> => scheduled_ns: Int64("ns", TAI, "kernel") or null
            "When it entered the queueing discipline, where that was asked for.";
        departure: Stamp => departure_ns: Int64("ns", TAI, "departure_source")
            "When it left, by the best stamp there is." = |row, _| row.departure.at;
        => departure_source: Name of SOURCES ("1")
            "Who took departure_ns: hardware, kernel, user, simulated." = |row, _| row.departure.source;
    }
}

table! {
    /// One row for each frame of a stream that arrived, duplicates and damaged ones too.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "arrivals": Arrival in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        flow: u16 => flow: Int32("1") "Its flow, as it carries it.";
        port: u16 => port: Int32("1") "The receiver's port that it came in by.";
        node: u8 => node: Int32("1") "Who answered with it; 0: it is no answer.";
        seq: u64 => seq: Int64("1") "Its number in the flow, as it carries it.";
        intended: Time => intended_ns: Int64("ns", TAI, "plan")
            "When the schedule wanted it to leave, as it carries it: on the sender's clock.";
        sent: Time => sent_ns: Int64("ns", TAI, "user")
            "The time that the sender wrote into the frame, on its clock: shortly before `send_call_ns` of the table sends, for a frame is finished before it is handed to the kernel.";
        arrival: Stamp => arrival_ns: Int64("ns", TAI, "arrival_source")
            "When it arrived, by the best stamp: on the receiver's clock." = |row, _| row.arrival.at;
        => arrival_source: Name of SOURCES ("1")
            "Who took arrival_ns: hardware, kernel, user, simulated." = |row, _| row.arrival.source;
        receive_call: Time => receive_call_ns: Int64("ns", TAI, "user") "When the program had it in hand.";
        is_duplicate: bool => duplicate: Bool("1") "Whether a frame of its number had come before.";
        is_reordered: bool => reordered: Bool("1") "Whether a frame of a higher number had come before (RFC 4737).";
        is_late: bool => late: Bool("1") "Whether it took longer than the limit of its block.";
        is_corrupted: bool => corrupted: Bool("1") "Whether its header or its user data was damaged.";
    }
}

table! {
    /// One row for each flow of a block, at each of its ends and ports.
    #[derive(Clone, Debug, PartialEq)]
    (named) "streams": Stream in u32;
    {
        => block: Int32("1") "Its number." = |_, block| *block;
        device: String => device: Utf8("1") "The device under test, by its name in the plan.";
        round: i32 => round: Int32("1") "The round of the cell.";
        visit: i32 => visit: Int32("1") "0 on the way there, 1 on the mirrored way back.";
        cell: i32 => cell: Int32("1") "The cell of the plan's matrix.";
        purpose: String => purpose: Utf8("1") "What it is for: measure, qualify, search, warm-up, load, clock.";
        role: Role => role: Utf8("1") "Which end this row is of: send, receive, answer.";
        flow: u16 => flow: Int32("1") "The flow.";
        port: u16 => port: Int32("1") "The port of this end.";
        via: &'static str => via: Utf8("1") "The backend: packet, udp, tcp, xdp, live, sim.";
        engine: String => engine: Utf8("1") "How it works here, as the kernel granted it.";
        schedule: String => schedule: Utf8("1")
            "regular, poisson, burst:N, ramp:A-B, flood, replay; empty at a receiver.";
        frame_bytes: usize => frame_bytes: Int32("bytes") "Ethernet frame, with FCS.";
        payload_bytes: usize => payload_bytes: Int32("bytes") "User data: the stream's header and what follows.";
        rate_pps: f64 => rate_pps: Float64("pps") "The mean rate that was asked for; 0: as fast as it goes.";
        intended_pps: f64 => intended_pps: Float64("pps") "The rate of the departures that were scheduled.";
        achieved_pps: f64 => achieved_pps: Float64("pps")
            "The rate of what was sent, or at a receiver of what arrived first.";
        anderson_darling: Option<(f64, f64)> => anderson_darling: Float64("1") or null
            "A² of what was really sent against exponential gaps, where they should be."
            = |row, _| row.anderson_darling.map(|found| found.0);
        => anderson_darling_p: Float64("1") or null
            "How likely such an A² is where gaps are exponential." = |row, _| row.anderson_darling.map(|found| found.1);
        started: Time => started_ns: Int64("ns", TAI, "user") "When it began.";
        ended: Time => ended_ns: Int64("ns", TAI, "user") "When it ended.";
        started_raw: Time => started_raw_ns: Int64("ns", MONOTONIC_RAW, "user")
            "When it began, on the clock that is never stepped.";
        ended_raw: Time => ended_raw_ns: Int64("ns", MONOTONIC_RAW, "user")
            "When it ended, on the clock that is never stepped.";
        first: Option<Time> => first_ns: Int64("ns", TAI, "kernel") or null
            "When its first frame left or arrived, by the best stamp.";
        last: Option<Time> => last_ns: Int64("ns", TAI, "kernel") or null
            "When its last frame left or arrived, by the best stamp.";
    } counts: StreamCounts;
    {
        cpu: Option<u32> => cpu: Int32("1") or null "The CPU that the program is pinned to.";
        cpu_time: Nanos => cpu_time_ns: Int64("ns") "Processor time that the program took for the whole block.";
        fifo: bool => fifo: Bool("1") "Whether the program runs under SCHED_FIFO.";
        wait: &'static str => wait: Utf8("1") "How the program waits: spin, sleep-then-spin, sleep, simulated.";
        clock_id: u64 => clock_id: Bits64("1") "Which clock this end's times are on: equal numbers, one clock.";
    }
}

group! {
    /// What became of the frames of a flow. At its sender `asked = sent + refused + unsent`; at its receiver
    /// `sent = first + corrupted + local_drops + lost`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    StreamCounts;
    {
        asked: u64 => asked: Int64("1") "Sender: frames asked for: sent + refused + unsent.";
        sent: u64 => sent: Int64("1")
            "Frames sent: at a receiver, as the sender reported: first + corrupted + local_drops + lost.";
        refused: u64 => refused: Int64("1") "Sender: frames that our own queue or socket refused.";
        unsent: u64 => unsent: Int64("1") "Sender: frames that it had not come to when it was ended.";
        first: u64 => first: Int64("1") "Receiver: frames of the stream that arrived for the first time, undamaged.";
        duplicated: u64 => duplicated: Int64("1") "Receiver: frames that had arrived before.";
        reordered: u64 => reordered: Int64("1") "Receiver: first arrivals that a later frame overtook (RFC 4737).";
        late: u64 => late: Int64("1") "Receiver: first arrivals that took longer than the limit.";
        corrupted: u64 => corrupted: Int64("1") "Receiver: damaged frames.";
        unexpected: u64 => unexpected: Int64("1") was "foreign"
            "Receiver: frames that belong to no flow of this block; sender: replies with another session key.";
        unexpected_packets: u64 => unexpected_packets: Int64("1") since 2
            "Of the unexpected ones: packets and answers with another session key or of another flow.";
        unexpected_exchanges: u64 => unexpected_exchanges: Int64("1") since 2
            "Of the unexpected ones: exchanges of times with another session key or of another flow.";
        unexpected_ends: u64 => unexpected_ends: Int64("1") since 2
            "Of the unexpected ones: ends of streams with another session key or of another flow, and impossible ones.";
        unexpected_greetings: u64 => unexpected_greetings: Int64("1") since 2
            "Of the unexpected ones: greetings of a second sender to a flow, to a flow that is not received, or of senders that are not allowed.";
        local_drops: u64 => local_drops: Int64("1") was "own_drops" "Receiver: frames that our own socket, ring or queue dropped.";
        lost: u64 => lost: Int64("1") "Receiver: frames that were sent and are accounted for nowhere else.";
        excess: u64 => excess: Int64("1") since 2
            "Receiver: by how many at least the frames that arrived, or their numbers, are more than the sender says that it sent.";
    }
}

table! {
    /// One row for each bin of a histogram that is not empty.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "histograms": Bin in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        flow: u16 => flow: Int32("1") "The flow.";
        port: u16 => port: Int32("1") "The port.";
        role: Role => role: Utf8("1") "Which end counted: send, receive, answer.";
        quantity: &'static str => quantity: Utf8("1") with "departure_error" as "pacing_error"
            "delay, inter_arrival, ipdv, loss_run, gap_run, pacing_error, inter_departure.";
        unit: &'static str => unit: Utf8("1") "The unit of low and high: ns, or packets for runs.";
        low: i64 => low: Int64("1") "The least value of the bin.";
        high: i64 => high: Int64("1") "The greatest value of the bin.";
        count: u64 => count: Int64("1") "How many there were.";
    }
}

table! {
    /// One row for each exchange of times with a peer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    (named) "exchanges": Exchange in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        peer: String => peer: Utf8("1") "Whose clock was asked for.";
        clock_id: u64 => clock_id: Bits64("1")
            "Which clock the peer has: the number that `streams` tells of its end, 0 where unknown.";
        phase: &'static str => phase: Utf8("1") "Whether before, during or after the measurement.";
        number: u64 => number: Int64("1") "Its number in the block.";
        t1: Time => t1_ns: Int64("ns", TAI, "local_source") "When the request left: on our clock.";
        t2: Time => t2_ns: Int64("ns", TAI, "remote_source") "When the request arrived: on the peer's clock.";
        t3: Time => t3_ns: Int64("ns", TAI, "remote_source") "When the reply left, stamped like t1_ns: on the peer's clock.";
        t4: Time => t4_ns: Int64("ns", TAI, "local_source") "When the reply arrived: on our clock.";
        local_source: Source => local_source: Name of SOURCES ("1") "Who took t1_ns and t4_ns, the lesser of both.";
        remote_source: Source => remote_source: Name of SOURCES ("1") "Who took t2_ns and t3_ns, the lesser of both.";
    }
}

table! {
    /// One row for each segment in which a straight line gives the peer's clock as a function of ours.
    #[derive(Clone, Debug, PartialEq)]
    (named) "clock_lines": ClockLine in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        peer: String => peer: Utf8("1") "Whose clock it is about.";
        clock_id: u64 => clock_id: Bits64("1")
            "Which clock it is: the number that `streams` tells of its end, 0 where unknown.";
        is_shared: bool => shared: Bool("1") "Whether both ends have one clock: then all is zero.";
        from: Time => from_ns: Int64("ns", TAI, "peer") "From when it holds: on the peer's clock.";
        to: Time => to_ns: Int64("ns", TAI, "peer") "Until when it holds: on the peer's clock.";
        reference: Time => reference_ns: Int64("ns", TAI, "peer") "Where offset_ns is said: on the peer's clock.";
        offset_ns: f64 => offset_ns: Float64("ns")
            "The peer's clock less ours, at the reference: ours = peer's - offset.";
        skew_ppb: f64 => skew_ppb: Float64("ppb") "By how much the offset grows, in ns per second.";
        bound_ns: f64 => bound_ns: Float64("ns")
            "The maximum error of a converted time along the line.";
        error95_ns: f64 => error95_ns: Float64("ns")
            "The error that 95 % stay below where the least delays there and back differ by a fifth of the round trip at most.";
        skew_bound_ppb: f64 => skew_bound_ppb: Float64("ppb")
            "By how much the true skew can differ at its ends: how the bound grows beyond.";
        skew95_ppb: f64 => skew95_ppb: Float64("ppb")
            "The part of error95_ns that grows with the distance from the reference.";
        exchanges: u64 => exchanges: Int64("1") "How many exchanges it rests on.";
    }
}

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was sent here.
    Send,
    /// It arrived here.
    Receive,
    /// Answers to it arrived here.
    Answer,
}

impl Role {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Answer => "answer",
        }
    }
}

impl Text for Role {
    fn text(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(self.name()))
    }
}

/// All rows of a block at one end.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is a table of the schema")]
pub struct StreamBlock {
    pub block: u32,
    pub sends: Vec<Send>,
    pub arrivals: Vec<Arrival>,
    pub streams: Vec<Stream>,
    pub histograms: Vec<Bin>,
    pub exchanges: Vec<Exchange>,
    pub clock_lines: Vec<ClockLine>,
}
