//! Properties of a STAMP session-reflector, from its replies: clock error, distance in hops, and loss by direction.

use sojourn_time::Nanos;
use sojourn_wire::stamp::Format;

use crate::codec::Far;

/// The properties of the reflector, from all replies of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// The maximum error of its clock.
    pub error: Nanos,
    /// Whether every reply stated that its clock is synchronised to UTC by an external source.
    pub is_synchronised: bool,
    /// Whether any of its timestamps was in PTP format, which is TAI.
    pub is_ptp: bool,
    /// The minimum and maximum TTL or hop limit of probes at the reflector.
    pub ttl: (u8, u8),
    /// The reply with the reflector's highest sequence number: the sender's number, and the reflector's.
    last: (u32, u32),
    /// Whether the reflector's numbers ever differed from the sender's: then it is stateful.
    counts: bool,
}

/// Loss by direction. Only a stateful reflector reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionalLoss {
    /// Probes lost before the reflector.
    pub there: u64,
    /// Replies lost on the way back.
    pub back: u64,
    /// Probes after the last answered one, lost in an unknown direction.
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
    /// Processes the first reply to a probe.
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

    /// Returns the loss by direction of `sent` probes; `answered` says whether a probe got a reply. `None` where the
    /// reflector's numbers equal the sender's: then it is stateless, or no probe was lost before it. `is_stateful`
    /// declares a reflector that is known to be stateful.
    pub fn loss(&self, sent: u64, answered: impl Fn(u32) -> bool, is_stateful: bool) -> Option<DirectionalLoss> {
        if !self.counts && !is_stateful {
            return None;
        }
        let (seq, number) = self.last;
        let (asked, reached) = (u64::from(seq) + 1, u64::from(number) + 1);
        let came_back = (0..=seq).filter(|seq| answered(*seq)).count() as u64;
        // Where the path duplicates probes, the reflector counts more than were sent.
        let there = asked.saturating_sub(reached);
        Some(DirectionalLoss { there, back: (asked - there).saturating_sub(came_back), unknown: sent - asked })
    }
}

#[cfg(test)]
mod tests;
