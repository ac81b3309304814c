//! The log of an emulator.

use sojourn_time::{Nanos, Stamp, Time};

use super::SOURCES;
use crate::schema::TAI;
use crate::table::{Octets, table};

/// How much of a frame a row can hold.
pub const HEAD_BYTES: usize = 128;
/// The names that `direction` may have.
pub const DIRECTIONS: [&str; 2] = ["forward", "backward"];
/// The names that `disposition` may have.
pub const DISPOSITIONS: [&str; 3] = ["unmatched", "sent", "lost"];
/// The names that `cause` may have; the first: it is not lost.
pub const CAUSES: [&str; 10] = ["", "before", "full", "managed", "after", "profile", "rule", "memory", "port", "ended"];

table! {
    /// One row for each packet that came to an emulator, and for each copy that it made, in the order of their ends.
    /// `pipe`: its place among the log's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "packets": Packet in [String];
    {
        block: i32 => block: Int32("1") "The block it belongs to; 0 where none was begun.";
        number: u64 => number: Int64("1")
            "Its number in the order of arrival, copies counted where they were made, from 0.";
        copy_of: Option<u64> => copy_of: Int64("1") or null "The number of the packet that it is a copy of.";
        direction: &'static str => direction: Name of DIRECTIONS ("1")
            "Which way through the bridge: forward, backward.";
        pipe: Option<u16> => pipe: Utf8("1")
            "The pipe that it went through; empty: no rule sent it through one, or a rule dropped it."
            = |row, pipes| name_of(row.pipe, pipes);
        flow: u64 => flow: Bits64("1") "Which of the pipe's dynamic ones; 0: the pipe has no mask.";
        frame_bytes: u32 => frame_bytes: Int32("bytes") "Ethernet frame, with FCS.";
        head: Head => head: Binary("1") or null "The frame's first bytes: what a replay needs of it.";
        arrival: Stamp => arrival_ns: Int64("ns", TAI, "arrival_source")
            "When it arrived, by the best stamp." = |row, _| row.arrival.at;
        => arrival_source: Name of SOURCES ("1")
            "Who took arrival_ns: hardware, kernel, user, simulated." = |row, _| row.arrival.source;
        entered: Time => entered_ns: Int64("ns", TAI, "user")
            "From when on it counts: as arrived, or the pipe's clock if that is later.";
        disposition: &'static str => disposition: Name of DISPOSITIONS ("1") was "fate" with "untouched" as "unmatched"
            "What became of it: unmatched (bridged unchanged, for no rule matched or one that passes matched), sent, lost.";
        cause: &'static str => cause: Name of CAUSES ("1")
            "What lost it: before, full, managed, after, profile, rule, memory, port, ended; empty: it was not.";
        drawn: Option<Nanos> => drawn_ns: Int64("ns") or null "The delay that was drawn for it.";
        link_left: Option<Time> => link_left_ns: Int64("ns", TAI, "plan") or null "When its last bit left the link.";
        intended: Option<Time> => intended_ns: Int64("ns", TAI, "plan") or null "When it was to leave the bridge.";
        departure: Option<Time> => departure_ns: Int64("ns", TAI, "user") or null
            "When the kernel was called to take it.";
        is_marked: bool => marked: Bool("1") "Whether it was marked (ECN) on its way.";
        flipped: u32 => flipped: Int32("1") "How many of its bits were flipped.";
        is_reordered: bool => reordered: Bool("1") "Whether it was chosen to overtake.";
        queue_slots: u32 => queue_slots: Int32("1") "Packets that it found in its queue.";
        queue_bytes: u64 => queue_bytes: Int64("bytes") "Frames without FCS that it found in its queue.";
        class: u64 => class: Bits64("1") was "lane"
            "The scheduler's class that it waited in: the place of a configured class, or the hash of a flow or a bucket; 0: one queue for all.";
    }
}

fn name_of(pipe: Option<u16>, pipes: &[String]) -> &str {
    pipe.and_then(|pipe| pipes.get(usize::from(pipe))).map_or("", String::as_str)
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The bytes, zeros behind them.
    pub bytes: [u8; HEAD_BYTES],
    /// How many there are.
    pub length: u8,
}

impl Head {
    /// Returns the bytes, as far as there is room for them.
    pub fn of(bytes: &[u8]) -> Self {
        let length = bytes.len().min(HEAD_BYTES);
        let mut head = [0; HEAD_BYTES];
        head[..length].copy_from_slice(&bytes[..length]);
        Self { bytes: head, length: length as u8 }
    }

    /// Returns them.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(HEAD_BYTES)]
    }
}

impl Octets for Head {
    fn octets(&self) -> Option<&[u8]> {
        (self.length > 0).then(|| self.as_slice())
    }
}
