//! The packets of taps, and their matches between two taps.

use sojourn_time::{Nanos, Source, Stamp, Time};

use super::SOURCES;
use super::packets::DIRECTIONS;
use crate::schema::TAI;
use crate::table::table;

/// The names that `direction` of a tap may have.
pub const TAP_DIRECTIONS: [&str; 2] = ["in", "out"];
/// The names that `outcome` may have.
pub const OUTCOMES: [&str; 5] = ["lost", "evicted", "pending", "duplicated", "unexpected"];

table! {
    /// One row for each packet that a tap saw, in the order in which it saw them. What the tap is stands in the file's metadata
    /// (`TapAbout`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "taps": Tapped in ();
    {
        at: Stamp => time_ns: Int64("ns", TAI, "time_source") "When it passed, by the best stamp." = |row, _| row.at.at;
        => time_source: Name of SOURCES ("1")
            "Who took time_ns: hardware, kernel, user, simulated, bpf." = |row, _| row.at.source;
        digest: Option<u64> => digest: Bits64("1") or null
            "XXH3-64 of what the file's key leaves unchanged; null: the frame cannot carry such a key.";
        length_bytes: u32 => length_bytes: Int32("bytes") "Length on the wire, without FCS.";
        direction: Option<&'static str> => direction: Name of TAP_DIRECTIONS ("1") or null
            "Which way through the interface: in, out; null where nobody said.";
        is_fragment: bool => fragment: Bool("1") "Whether it is an IP fragment.";
        is_super_packet: bool => super_packet: Bool("1")
            "Whether it is longer than the interface's MTU allows: several segments that the kernel holds as one (GRO, GSO).";
        is_truncated: bool => truncated: Bool("1") "Whether its digest is of its first octets only.";
    }
}

table! {
    /// One row for a tap when it is closed: what it counted.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    (named) "tap_counts": TapCounts in ();
    {
        tap: String => tap: Utf8("1") "The tap.";
        opened: Time => opened_ns: Int64("ns", TAI, "user") "When it was opened.";
        closed: Time => closed_ns: Int64("ns", TAI, "user") "When it was closed.";
        seen: u64 => seen: Int64("1") "Packets that passed its filter: recorded + dropped.";
        recorded: u64 => recorded: Int64("1") "Packets that are rows of taps.";
        dropped: u64 => dropped: Int64("1") "Packets that the tap lost: its ring was full, or the disk too slow.";
        without_key: u64 => without_key: Int64("1") "Of the recorded ones: packets that cannot carry the key.";
    }
}

table! {
    /// One row for each packet that was matched between two taps, in the order in which the first of them saw them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "crossings": Crossing in ();
    {
        pair: u32 => pair: Int32("1") "Which two neighbouring taps, from 0.";
        direction: &'static str => direction: Name of DIRECTIONS ("1")
            "forward: from the pair's first tap to its second; backward: the other way.";
        number: u64 => number: Int64("1") "Its number among those that entered in this direction, from 0.";
        first: Time => first_ns: Int64("ns", TAI, "first_source") "When the tap that it came to first saw it.";
        first_source: Option<Source> => first_source: Name of SOURCES ("1") or null
            "Who took first_ns; null: the capture does not say.";
        second_source: Option<Source> => second_source: Name of SOURCES ("1") or null
            "Who took the time at the other tap; null: the capture does not say.";
        delay: Nanos => delay_ns: Int64("ns")
            "The time at the other tap less that at the first, each as stamped: of two clocks, with the difference between them.";
        length_bytes: u32 => length_bytes: Int32("bytes") "Length on the wire at the first tap, without FCS.";
        is_ambiguous: bool => ambiguous: Bool("1")
            "Whether the first tap saw another packet with the same digest within the window: then only their order distinguishes them.";
        reordering_extent: Option<u32> => reordering_extent: Int32("1") or null
            "How many packets that it should have preceded arrived before it, counted from the earliest of them (RFC 4737, 4.2.2); null: it was not reordered.";
    }
}

table! {
    /// One row for each packet that two taps do not share.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    (named) "unmatched": Unmatched in ();
    {
        pair: u32 => pair: Int32("1") "Which two neighbouring taps, from 0.";
        direction: &'static str => direction: Name of DIRECTIONS ("1")
            "forward: from the pair's first tap to its second; backward: the other way.";
        time: Time => time_ns: Int64("ns", TAI, "time_source") "When the tap that saw it did.";
        time_source: Option<Source> => time_source: Name of SOURCES ("1") or null
            "Who took time_ns; null: the capture does not say.";
        length_bytes: u32 => length_bytes: Int32("bytes") "Length on the wire, without FCS.";
        digest: u64 => digest: Bits64("1") "Its digest.";
        outcome: &'static str => outcome: Name of OUTCOMES ("1")
            "Seen by the first tap of its direction alone: lost, evicted (forgotten for want of memory), pending (its window was open at the end). By the second alone: duplicated, unexpected.";
    }
}
