//! What became of packets and frames, each in exactly one place.

use std::ops::Add;

use serde::{Deserialize, Serialize};
use sojourn_wire::stream::Kind;

/// What became of the packets that were asked for: `asked = sent + refused + unsent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// How many were to leave.
    pub asked: u64,
    /// Handed to the kernel, which took them.
    pub sent: u64,
    /// Refused by our own kernel: its queue was full.
    pub refused: u64,
    /// Not tried: the stream was stopped, or its time was over.
    pub unsent: u64,
}

/// What became of the packets that were sent: `sent = first + corrupted + local_drops + lost`; and of the frames that
/// arrived: `first + duplicated + corrupted + unexpected`, each once. `reordered` and `late` are some of `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Packets that arrived whole.
    pub first: u64,
    /// Frames that repeat a packet that had arrived.
    pub duplicated: u64,
    /// Packets that a later one had overtaken (RFC 4737, type-P-reordered).
    pub reordered: u64,
    /// Packets that took longer than asked for.
    pub late: u64,
    /// Packets that arrived damaged.
    pub corrupted: u64,
    /// Frames that are none of this stream's. They are counted with the first flow of their port.
    pub unexpected: Unexpected,
    /// Packets that reached this machine, and our own socket had no room. A socket does not say whose they were: where
    /// several flows miss some, they are shared out in proportion.
    pub local_drops: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// By how many at least the packets that arrived, or their numbers, are more than the sender says that it sent: 0 unless one
    /// of the two is wrong. They are in the other counts.
    pub excess: u64,
}

/// Frames that are none of the streams', by what they seem to be. What they say is not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unexpected {
    /// No frames of a stream, or damaged ones of another key.
    pub foreign: u64,
    /// Packets and answers of another key or flow.
    pub packets: u64,
    /// Exchanges of times of another key or flow, and such as the other end receives.
    pub exchanges: u64,
    /// Ends of another key or flow, and such as cannot be.
    pub ends: u64,
    /// Greetings of a second sender to a flow that another one has, to flows that are not counted, and of senders that are not
    /// allowed.
    pub greetings: u64,
}

impl Add for Unexpected {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            foreign: self.foreign + other.foreign,
            packets: self.packets + other.packets,
            exchanges: self.exchanges + other.exchanges,
            ends: self.ends + other.ends,
            greetings: self.greetings + other.greetings,
        }
    }
}

impl Unexpected {
    /// Counts a frame of this kind; `None`: one that is no stream's.
    pub const fn note(&mut self, kind: Option<Kind>) {
        *match kind {
            None => &mut self.foreign,
            Some(Kind::Data | Kind::Answer | Kind::Live) => &mut self.packets,
            Some(Kind::SyncRequest | Kind::SyncReply | Kind::SyncFollowUp) => &mut self.exchanges,
            Some(Kind::End | Kind::EndAck) => &mut self.ends,
            Some(Kind::Greeting | Kind::GreetingReply) => &mut self.greetings,
        } += 1;
    }

    /// Returns all of them.
    pub const fn total(&self) -> u64 {
        self.foreign + self.packets + self.exchanges + self.ends + self.greetings
    }
}

impl Received {
    /// Returns how many frames arrived.
    pub const fn frames(&self) -> u64 {
        self.first + self.duplicated + self.corrupted + self.unexpected.total()
    }

    /// Returns how many sent packets are accounted for.
    pub const fn packets(&self) -> u64 {
        self.first + self.corrupted + self.local_drops + self.lost
    }
}
