//! What a STAMP session-reflector says of itself: how good its clock is, how far away it is, and what its own numbers say of losses.

use sojourn_time::Nanos;
use sojourn_wire::stamp::Format;

use crate::codec::Far;

/// What all replies of a block say of the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// The most that its clock may be wrong.
    pub error: Nanos,
    /// Whether it said in every reply that its clock is synchronised to UTC by something outside.
    pub is_synchronised: bool,
    /// Whether it wrote any of its times in PTP's format, which is TAI.
    pub is_ptp: bool,
    /// The least and the greatest TTL or hop limit that probes had there.
    pub ttl: (u8, u8),
    /// The reply with the reflector's highest number: the sender's number of it, and the reflector's.
    last: (u32, u32),
    /// Whether the reflector's numbers were ever others than the sender's: then it counts for itself.
    counts: bool,
}

/// In which direction probes were lost. Only a reflector that counts for itself tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionalLoss {
    /// Probes that did not reach the reflector.
    pub there: u64,
    /// Answers that did not come back.
    pub back: u64,
    /// Probes after the last that was answered: nobody knows.
    pub unknown: u64,
}

impl Default for FarEnd {
    fn default() -> Self {
        Self {
            error: Nanos::ZERO,
            is_synchronised: true,
            is_ptp: false,
            ttl: (u8::MAX, 0),
            last: (0, 0),
            counts: false,
        }
    }
}

impl FarEnd {
    /// Takes what the first reply to a probe says.
    pub fn take(&mut self, seq: u32, said: Far) {
        self.error = self.error.max(said.error.error());
        self.is_synchronised &= said.error.is_synchronised();
        self.is_ptp |= said.error.format() == Format::Ptp;
        self.ttl = (self.ttl.0.min(said.ttl), self.ttl.1.max(said.ttl));
        if (said.seq, seq) > (self.last.1, self.last.0) {
            self.last = (seq, said.seq);
        }
        self.counts |= said.seq != seq;
    }

    /// Returns where probes were lost, of which so many were sent and `answered` says which got an answer; `None` where the reflector
    /// numbers as the sender does: then it keeps no state, or lost nothing there. A reflector that is known to count says so by
    /// `is_stateful`.
    pub fn loss(&self, sent: u64, answered: impl Fn(u32) -> bool, is_stateful: bool) -> Option<DirectionalLoss> {
        if !self.counts && !is_stateful {
            return None;
        }
        let (seq, number) = self.last;
        let (asked, reached) = (u64::from(seq) + 1, u64::from(number) + 1);
        let came_back = (0..=seq).filter(|seq| answered(*seq)).count() as u64;
        // A path that duplicates probes lets the reflector count more than were sent.
        let there = asked.saturating_sub(reached);
        Some(DirectionalLoss { there, back: (asked - there).saturating_sub(came_back), unknown: sent - asked })
    }
}

#[cfg(test)]
mod tests;
