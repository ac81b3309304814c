//! Counts of packets and frames, each in exactly one place.

use std::ops::Add;

use serde::{Deserialize, Serialize};
use sojourn_wire::stream::Kind;

/// The requested packets by outcome: `asked = sent + refused + unsent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Packets to be sent.
    pub asked: u64,
    /// Accepted by the kernel.
    pub sent: u64,
    /// Refused by our own kernel, because its queue was full.
    pub refused: u64,
    /// Not tried: the stream was stopped, or its time was over.
    pub unsent: u64,
}

/// The sent packets by outcome: `sent = first + corrupted + local_drops + lost`; and the received frames:
/// `first + duplicated + corrupted + unexpected`, each once. `reordered` and `late` are parts of `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Packets that arrived undamaged.
    pub first: u64,
    /// Frames that repeat a packet that had arrived.
    pub duplicated: u64,
    /// Packets that arrived after one with a higher number (RFC 4737, type-P-reordered).
    pub reordered: u64,
    /// Packets with a delay above the limit.
    pub late: u64,
    /// Packets that arrived damaged.
    pub corrupted: u64,
    /// Frames that do not belong to this stream. They are counted with the first flow of their port.
    pub unexpected: Unexpected,
    /// Packets that reached this machine but were dropped by our own socket. A socket does not report whose they were:
    /// if several flows miss packets, the drops are distributed in proportion.
    pub local_drops: u64,
    /// Packets lost on the path.
    pub lost: u64,
    /// The minimum number by which arrivals, or their sequence numbers, exceed what the sender reported: 0 unless one
    /// of them is wrong. The packets are also in the other counts.
    pub excess: u64,
}

/// Unexpected frames, by their apparent kind. Their content is not trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unexpected {
    /// Frames that are not of a stream, and damaged ones with another key.
    pub foreign: u64,
    /// Packets and answers with another key or flow.
    pub packets: u64,
    /// Time exchanges with another key or flow, and messages meant for the other end.
    pub exchanges: u64,
    /// Ends with another key or flow, and impossible ones.
    pub ends: u64,
    /// Greetings for a flow that has another sender, for flows that are not counted, and from peers that are not allowed.
    pub greetings: u64,
    /// UDP payloads to a broadcast address, or to a group that was not joined: of any kind.
    pub to_group: u64,
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
            to_group: self.to_group + other.to_group,
        }
    }
}

impl Unexpected {
    /// Counts a frame of this kind; `None`: not a frame of a stream.
    pub const fn note(&mut self, kind: Option<Kind>) {
        *match kind {
            None => &mut self.foreign,
            Some(Kind::Data | Kind::Answer | Kind::Live) => &mut self.packets,
            Some(Kind::SyncRequest | Kind::SyncReply | Kind::SyncFollowUp) => &mut self.exchanges,
            Some(Kind::End | Kind::EndAck) => &mut self.ends,
            Some(Kind::Greeting | Kind::GreetingReply) => &mut self.greetings,
        } += 1;
    }

    /// Returns their sum.
    pub const fn total(&self) -> u64 {
        self.foreign + self.packets + self.exchanges + self.ends + self.greetings + self.to_group
    }
}

impl Received {
    /// Returns the number of frames received.
    pub const fn frames(&self) -> u64 {
        self.first + self.duplicated + self.corrupted + self.unexpected.total()
    }

    /// Returns the number of sent packets that are accounted for.
    pub const fn packets(&self) -> u64 {
        self.first + self.corrupted + self.local_drops + self.lost
    }
}
