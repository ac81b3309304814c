//! Probes and their blocks.

use sojourn_time::{Nanos, Source, Stamp, Time};

use super::SOURCES;
use crate::schema::{MONOTONIC_RAW, TAI};
use crate::table::{group, table};

table! {
    /// One row for each probe.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    "probes": Probe in u32;
    {
        => block: Int32("1") "The block it belongs to." = |_, block| *block;
        seq: u32 => seq: Int32("1") "Its number in the block, from 0.";
        is_warmup: bool => warmup: Bool("1") "Whether it only warmed the path up.";
        intended: Time => intended_ns: Int64("ns", TAI, "plan") "When the schedule wanted it to leave.";
        send_call: Time => send_call_ns: Int64("ns", TAI, "user") "When the program called to send it.";
        departure: Stamp => departure_ns: Int64("ns", TAI, "departure_source")
            "When it left, by the best stamp there is." = |row, _| row.departure.at;
        => departure_source: Name of SOURCES ("1")
            "Who took departure_ns: hardware, kernel, user, simulated." = |row, _| row.departure.source;
    } reply: Option<Reply>;
    {
        replies: u32 => replies: Int32("1") "How many replies came; 0: lost.";
        is_late: bool => late: Bool("1") "Whether the first reply came after the timeout.";
        is_reordered: bool => reordered: Bool("1") "Whether a later probe's reply came first (RFC 4737).";
    }
}

group! {
    /// The first reply to a probe. `responder`: its own times, where the responder is ours.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Reply;
    {
        arrival: Stamp => arrival_ns: Int64("ns", TAI, "arrival_source")
            "When its first reply arrived, by the best stamp." = |row, _| row.arrival.at;
        => arrival_source: Name of SOURCES ("1") "Who took arrival_ns." = |row, _| row.arrival.source;
        receive_call: Time => receive_call_ns: Int64("ns", TAI, "user") "When the program had the first reply in hand.";
        responder: Option<(Time, Time)> => responder_arrival_ns: Int64("ns", TAI, "responder") or null
            "When the request reached the responder, by the best stamp that it has: it does not say which."
            = |row, _| row.responder.map(|times| times.0);
        => responder_departure_ns: Int64("ns", TAI, "user") or null
            "When the responder was about to reply." = |row, _| row.responder.map(|times| times.1);
    }
}

table! {
    /// One row for each block of probes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    "blocks": Block in ();
    {
        block: u32 => block: Int32("1") "Its number.";
        device: String => device: Utf8("1") "The device under test, by its name in the plan.";
        round: i32 => round: Int32("1") "The round of the cell.";
        visit: i32 => visit: Int32("1") "0 on the way there, 1 on the mirrored way back.";
        cell: i32 => cell: Int32("1") "The cell of the plan's matrix.";
        via: &'static str => via: Utf8("1") "The backend: icmp, udp, packet, sim.";
        kind: &'static str => kind: Utf8("1") "icmp, request-response or ping-pong.";
        schedule: &'static str => schedule: Utf8("1") "regular, poisson or closed-loop.";
        interval: Nanos => interval_ns: Int64("ns") "The (mean) interval between intended departures.";
        count: u32 => count: Int32("1") "How many probes were asked for, warm-up included.";
        warmup: u32 => warmup: Int32("1") "How many of them, the first, warm the path up.";
        seed: u64 => seed: Bits64("1") "The seed of the schedule.";
        request_payload_bytes: usize => request_payload_bytes: Int32("bytes") "User data of a request.";
        response_payload_bytes: usize => response_payload_bytes: Int32("bytes") "User data of a reply.";
        request_frame_bytes: usize => request_frame_bytes: Int32("bytes") "Ethernet frame of a request, with FCS.";
        response_frame_bytes: usize => response_frame_bytes: Int32("bytes") "Ethernet frame of a reply, with FCS.";
        timeout: Nanos => timeout_ns: Int64("ns") "After which a reply is late.";
        started: Time => started_ns: Int64("ns", TAI, "user") "When the block began.";
        ended: Time => ended_ns: Int64("ns", TAI, "user") "When the block ended.";
        started_raw: Time => started_raw_ns: Int64("ns", MONOTONIC_RAW, "user")
            "When the block began, on the clock that is never stepped.";
        ended_raw: Time => ended_raw_ns: Int64("ns", MONOTONIC_RAW, "user")
            "When the block ended, on the clock that is never stepped.";
        clock_error: Nanos => clock_error_ns: Int64("ns") "By how much at most the two clocks' readings are apart.";
    } counts: Counts;
    {
        responder_kernel: bool => responder_kernel: Bool("1") "Whether the peer's kernel answers.";
        wait: &'static str => wait: Utf8("1") "How the prober waits: spin, sleep-then-spin, sleep, simulated.";
        cpu: Option<u32> => cpu: Int32("1") or null "The CPU that the prober is pinned to.";
        fifo: bool => fifo: Bool("1") "Whether the prober runs under SCHED_FIFO.";
        dscp: Option<u8> => dscp: Int32("1") or null since 4
            "The differentiated services code point of the requests.";
    }
}

group! {
    /// What became of the probes of a block: `sent = received + lost`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Counts;
    {
        sent: u64 => sent: Int64("1") "Probes sent: received + lost.";
        received: u64 => received: Int64("1") "Probes answered, late ones included.";
        lost: u64 => lost: Int64("1") "Probes never answered.";
        late: u64 => late: Int64("1") "Probes answered after the timeout.";
        duplicated: u64 => duplicated: Int64("1") "Replies beyond the first of each probe.";
        reordered: u64 => reordered: Int64("1") "First replies that a later probe's reply overtook (RFC 4737).";
        unexpected: u64 => unexpected: Int64("1") was "foreign"
            "Frames that were no reply to a probe of this block, damaged ones included.";
        local_drops: u64 => local_drops: Int64("1") was "own_drops" "Frames that our own socket, ring or queue dropped.";
    }
}

impl Probe {
    /// Returns a probe that has just left, stamped by the program.
    pub fn new(seq: u32, is_warmup: bool, intended: Time, send_call: Time) -> Self {
        let departure = Stamp { at: send_call, source: Source::User };
        Self {
            seq,
            is_warmup,
            intended,
            send_call,
            departure,
            reply: None,
            replies: 0,
            is_late: false,
            is_reordered: false,
        }
    }

    /// Returns the time from the actual departure to the reply.
    pub fn rtt(&self) -> Option<Nanos> {
        Some(self.reply?.arrival.at - self.departure.at)
    }

    /// Returns the time from the intended departure to the reply.
    pub fn rtt_intended(&self) -> Option<Nanos> {
        Some(self.reply?.arrival.at - self.intended)
    }

    /// Returns the time that the program saw, from call to call.
    pub fn rtt_user(&self) -> Option<Nanos> {
        Some(self.reply?.receive_call - self.send_call)
    }

    /// Returns by how much it left later than intended.
    pub fn pacing_error(&self) -> Nanos {
        self.departure.at - self.intended
    }
}
