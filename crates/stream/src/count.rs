//! What became of packets and frames, each in exactly one place.

use serde::{Deserialize, Serialize};

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
    pub unexpected: u64,
    /// Packets that reached this machine, and our own socket had no room. A socket does not say whose they were: where
    /// several flows miss some, they are shared out in proportion.
    pub local_drops: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
}

impl Received {
    /// Returns how many frames arrived.
    pub const fn frames(&self) -> u64 {
        self.first + self.duplicated + self.corrupted + self.unexpected
    }

    /// Returns how many sent packets are accounted for.
    pub const fn packets(&self) -> u64 {
        self.first + self.corrupted + self.local_drops + self.lost
    }
}
