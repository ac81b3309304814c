//! The disposition of each packet: what the engine knows of a packet while it holds it, and what it records in the end.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::config::Direction;
use crate::select::Key;

/// Bytes of a frame's beginning that a disposition keeps: all that rules, masks and targeted losses read.
pub const HEAD: usize = 128;

/// The disposition of one packet. A copy has its own disposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// Sequence number over arrivals and copies in the order of their creation, from 0.
    pub number: u64,
    /// The packet that it is a copy of.
    pub copy_of: Option<u64>,
    /// The direction.
    pub direction: Direction,
    /// Its pipe, as an index into the configuration; `None`: it entered none.
    pub pipe: Option<u16>,
    /// Its flow within a pipe with a mask; 0: no mask; `u64::MAX`: the pipe shared by flows beyond the limit.
    pub flow: u64,
    /// Frame length in bytes, without FCS.
    pub bytes: u32,
    /// The beginning of the frame, as it arrived.
    pub head: [u8; HEAD],
    /// Valid bytes of `head`.
    pub head_len: u8,
    /// RX timestamp.
    pub arrived: Time,
    /// The source of the RX timestamp.
    pub source: Source,
    /// When it entered its pipe: later than `arrived` only if the pipe's time had already passed that.
    pub entered: Time,
    /// The outcome.
    pub outcome: Outcome,
    /// The intended time in the delay line.
    pub drawn: Option<Nanos>,
    /// When it left the link; `None`: it did not, or the link takes no time.
    pub link_left: Option<Time>,
    /// The intended departure.
    pub intended: Option<Time>,
    /// The actual departure.
    pub departed: Option<Time>,
    /// Whether its ECN field was set to CE.
    pub is_marked: bool,
    /// Number of flipped bits.
    pub flipped: u32,
    /// Whether it was selected for reordering.
    pub is_reordered: bool,
    /// Packets in the queue when it arrived there.
    pub queue_slots: u32,
    /// Bytes in the queue when it arrived there.
    pub queue_bytes: u64,
    /// The sub-queue that it waited in: the index of its class, its flow or its bucket; 0 for a queue without sub-queues.
    pub sub_queue: u64,
}

impl Disposition {
    /// Returns the beginning of the frame.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len).min(HEAD)]
    }
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No rule sent it into a pipe: bridged unchanged.
    Unmatched,
    /// Sent through a pipe.
    Sent,
    /// Lost.
    Lost(Cause),
}

impl Outcome {
    /// Returns the name that records use: unmatched, sent, lost.
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
    /// Loss impairment before the queue: it used no bandwidth.
    Before,
    /// The queue was full.
    Full,
    /// Dropped by active queue management.
    Managed,
    /// Loss impairment after the link.
    After,
    /// Loss by the link's profile: the packet used its time on the link.
    Profile,
    /// Dropped by a rule.
    Rule,
    /// The emulator's memory limit.
    Memory,
    /// The port refused it.
    Port,
    /// The emulator ended while it waited.
    Ended,
}

impl Cause {
    /// All causes, in the order of [`Cause::index`].
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

    /// Returns the name that records and reports use.
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

    /// Returns its position in [`Cause::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the cause of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

/// A packet that has arrived and is in no pipe yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub number: u64,
    pub direction: Direction,
    /// Frame length in bytes, without FCS.
    pub bytes: u32,
    /// Known bytes of the frame: fewer than `bytes` if a capture truncated it.
    pub known: u32,
    pub key: Key,
    pub stamp: Stamp,
    /// When it entered: later than its timestamp only if the pipe's time had already passed that.
    pub entered: Time,
}

impl Arrival {
    /// Makes the disposition of a packet that entered no pipe.
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
    /// The number of copies made of it.
    pub copies: u8,
    /// Its pipe, as an index into the configuration.
    pub pipe: u16,
    /// Its class in the pipe's queue.
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
    /// Makes a packet that a rule sends into a class of a pipe.
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

    /// Makes the placeholder for an empty slot.
    pub fn nobody() -> Self {
        let stamp = Stamp { at: Time(0), source: Source::Simulated };
        let direction = Direction::Forward;
        let arrival =
            Arrival { number: 0, direction, bytes: 0, known: 0, key: Key::default(), stamp, entered: stamp.at };
        Self::new(arrival, 0, 0)
    }

    /// Makes its disposition; `frame`: the beginning of the frame as it arrived.
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
    fn causes_are_found_by_index_and_by_name() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!((cause.index(), Cause::named(cause.name())), (place, Some(cause)));
        }
    }
}
