//! The table of an emulator's log.

use super::{Field, Kind, TAI, Table};

/// One row for each packet that came to an emulator, and for each copy that it made, in the order of their ends.
pub const PACKETS: Table = Table {
    name: "packets",
    is_named: true,
    fields: &[
        Field::new("block", Kind::Int32, "The block it belongs to; 0 where none was begun."),
        Field::count("number", "Its number in the order of arrival, copies counted where they were made, from 0."),
        Field::count("copy_of", "The number of the packet that it is a copy of.").or_null(),
        Field::new("direction", Kind::Utf8Dictionary, "Which way through the bridge: forward, backward."),
        Field::new("pipe", Kind::Utf8, "The pipe that it went through; empty: bridged untouched, or lost by a rule."),
        Field::count("flow", "Which of the pipe's dynamic ones; 0: the pipe has no mask."),
        Field::bytes("frame_bytes", "Ethernet frame, with FCS."),
        Field::new("head", Kind::Binary, "The frame's first bytes: what a replay needs of it.").or_null(),
        Field::time("arrival_ns", TAI, "arrival_source", "When it arrived, by the best stamp."),
        Field::new("arrival_source", Kind::Utf8Dictionary, "Who took arrival_ns: hardware, kernel, user, simulated."),
        Field::time(
            "entered_ns",
            TAI,
            "user",
            "From when on it counts: as arrived, or the pipe's clock if that is later.",
        ),
        Field::new("fate", Kind::Utf8Dictionary, "What became of it: untouched, sent, lost."),
        Field::new(
            "cause",
            Kind::Utf8Dictionary,
            "What lost it: before, full, managed, after, profile, rule, memory, port, ended; empty: it was not.",
        ),
        Field::span("drawn_ns", "The delay that was drawn for it.").or_null(),
        Field::time("link_left_ns", TAI, "plan", "When its last bit left the link.").or_null(),
        Field::time("intended_ns", TAI, "plan", "When it was to leave the bridge.").or_null(),
        Field::time("departure_ns", TAI, "user", "When the kernel was called to take it.").or_null(),
        Field::new("marked", Kind::Bool, "Whether it was marked (ECN) on its way."),
        Field::new("flipped", Kind::Int32, "How many of its bits were flipped."),
        Field::new("reordered", Kind::Bool, "Whether it was chosen to overtake."),
        Field::new("queue_slots", Kind::Int32, "Packets that it found in its queue."),
        Field { kind: Kind::Int64, ..Field::bytes("queue_bytes", "Frames without FCS that it found in its queue.") },
        Field::count(
            "lane",
            "What it waited in: its class by its place, its flow or its bucket, hashed; 0: one queue for all.",
        ),
    ],
};
