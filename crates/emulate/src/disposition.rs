//! What became of each packet: what the engine knows of it while it holds it, and what it says of it in the end.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::config::Direction;
use crate::select::Key;

/// How many bytes of a frame's beginning a disposition keeps: what rules, masks and targeted losses look at.
pub const HEAD: usize = 128;

/// What became of one packet. A copy has a disposition of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// Counts arrivals and copies in the order in which they came to be, from 0.
    pub number: u64,
    /// The packet that it is a copy of.
    pub copy_of: Option<u64>,
    /// Which way.
    pub direction: Direction,
    /// The pipe that it was in last, by its place in the configuration; `None`: it was in none.
    pub pipe: Option<u16>,
    /// The flow within a pipe with a mask; 0 where there is none, all ones for the pipe that the flows too many share.
    pub flow: u64,
    /// Bytes of its frame, without FCS.
    pub bytes: u32,
    /// The beginning of its frame, as it arrived.
    pub head: [u8; HEAD],
    /// How many bytes of `head` there are.
    pub head_len: u8,
    /// When it arrived, by its timestamp.
    pub arrived: Time,
    /// Who took that timestamp.
    pub source: Source,
    /// When it entered its first pipe: later than `arrived` only where the pipe had already gone further.
    pub entered: Time,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it was to stay in delay lines.
    pub drawn: Option<Nanos>,
    /// When it left the last link that takes time.
    pub link_left: Option<Time>,
    /// When it was to leave.
    pub intended: Option<Time>,
    /// When it left.
    pub departed: Option<Time>,
    /// Whether its congestion mark was set.
    pub is_marked: bool,
    /// How many of its bits were flipped.
    pub flipped: u32,
    /// Whether it was chosen to overtake.
    pub is_reordered: bool,
    /// Packets in the last queue before it.
    pub queue_slots: u32,
    /// Their bytes.
    pub queue_bytes: u64,
    /// The sub-queue of that queue that it waited in: its class by its place, its flow or bucket; 0 where there is one for all.
    pub sub_queue: u64,
}

impl Disposition {
    /// Returns the beginning of its frame.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len).min(HEAD)]
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No rule sent it into a pipe: bridged as it came.
    Unmatched,
    /// It left through a pipe.
    Sent,
    /// It did not.
    Lost(Cause),
}

impl Outcome {
    /// Returns the name that records carry: unmatched, sent, lost.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::Sent => "sent",
            Self::Lost(_) => "lost",
        }
    }

    /// Returns why it was lost.
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Lost(cause) => Some(cause),
            Self::Unmatched | Self::Sent => None,
        }
    }
}

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A loss before the queue: it used no bandwidth.
    Before,
    /// The queue had no room.
    Full,
    /// Active queue management.
    Managed,
    /// A loss behind the link.
    After,
    /// The link's profile: it took its time and was lost.
    Profile,
    /// A rule.
    Rule,
    /// The emulator's memory was full.
    Memory,
    /// The port could not take it.
    Port,
    /// The emulator ended while it waited.
    Ended,
}

impl Cause {
    /// All of them, in the order of [`Cause::index`].
    pub const ALL: [Self; 9] = [
        Self::Before,
        Self::Full,
        Self::Managed,
        Self::After,
        Self::Profile,
        Self::Rule,
        Self::Memory,
        Self::Port,
        Self::Ended,
    ];

    /// Returns the name that records and people use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Full => "full",
            Self::Managed => "managed",
            Self::After => "after",
            Self::Profile => "profile",
            Self::Rule => "rule",
            Self::Memory => "memory",
            Self::Port => "port",
            Self::Ended => "ended",
        }
    }

    /// Returns its place in [`Cause::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Finds the cause of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

/// A packet that has just arrived, and is in no pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub number: u64,
    pub direction: Direction,
    /// Bytes of its frame, without FCS.
    pub bytes: u32,
    /// How many of these are known: of a frame that a capture had cut not all.
    pub known: u32,
    pub key: Key,
    pub stamp: Stamp,
    /// When it came in: later than its timestamp only where what it meets had already gone further.
    pub entered: Time,
}

impl Arrival {
    /// Says what became of it, of what it knows alone.
    pub fn disposition(&self, frame: &[u8], outcome: Outcome) -> Disposition {
        let mut head = [0; HEAD];
        let kept = frame.len().min(HEAD);
        head[..kept].copy_from_slice(&frame[..kept]);
        Disposition {
            number: self.number,
            copy_of: None,
            direction: self.direction,
            pipe: None,
            flow: 0,
            bytes: self.bytes,
            head,
            head_len: kept as u8,
            arrived: self.stamp.at,
            source: self.stamp.source,
            entered: self.entered,
            outcome,
            drawn: None,
            link_left: None,
            intended: None,
            departed: None,
            is_marked: false,
            flipped: 0,
            is_reordered: false,
            queue_slots: 0,
            queue_bytes: 0,
            sub_queue: 0,
        }
    }
}

/// What the engine knows of a packet while it is in a pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub arrival: Arrival,
    pub copy_of: Option<u64>,
    /// How many copies were made of it.
    pub copies: u8,
    /// The pipe, by its place in the configuration.
    pub pipe: u16,
    /// Its class in that pipe.
    pub class: u16,
    pub flow: u64,
    pub drawn: Option<Nanos>,
    pub link_left: Option<Time>,
    pub intended: Option<Time>,
    pub is_marked: bool,
    pub is_reordered: bool,
    pub flipped: u32,
    pub queue_slots: u32,
    pub queue_bytes: u64,
    pub sub_queue: u64,
}

impl Packet {
    /// A packet that a rule sends into a pipe and a class of it.
    pub fn new(arrival: Arrival, pipe: u16, class: u16) -> Self {
        Self {
            arrival,
            copy_of: None,
            copies: 0,
            pipe,
            class,
            flow: 0,
            drawn: None,
            link_left: None,
            intended: None,
            is_marked: false,
            is_reordered: false,
            flipped: 0,
            queue_slots: 0,
            queue_bytes: 0,
            sub_queue: 0,
        }
    }

    /// What stands in a slot that holds no packet.
    pub fn nobody() -> Self {
        let stamp = Stamp { at: Time(0), source: Source::Simulated };
        let direction = Direction::Forward;
        let arrival =
            Arrival { number: 0, direction, bytes: 0, known: 0, key: Key::default(), stamp, entered: stamp.at };
        Self::new(arrival, 0, 0)
    }

    /// Says what became of it; `frame`: its beginning, as it arrived.
    pub fn disposition(&self, frame: &[u8], outcome: Outcome, departed: Option<Time>) -> Disposition {
        Disposition {
            copy_of: self.copy_of,
            pipe: Some(self.pipe),
            flow: self.flow,
            drawn: self.drawn,
            link_left: self.link_left,
            intended: self.intended,
            departed,
            is_marked: self.is_marked,
            flipped: self.flipped,
            is_reordered: self.is_reordered,
            queue_slots: self.queue_slots,
            queue_bytes: self.queue_bytes,
            sub_queue: self.sub_queue,
            ..self.arrival.disposition(frame, outcome)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_by_their_place_and_their_name() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!((cause.index(), Cause::named(cause.name())), (place, Some(cause)));
        }
    }
}
