//! The session table of a responder: how many packets of each session arrived, and which. Limited in size, per peer and
//! in total; a session in use is never evicted.

use std::collections::HashMap;
use std::hash::Hash;

use sojourn_time::{Nanos, Time};

use sojourn_port::guard::Refusal;

/// The most sessions in the table.
pub const MOST_SESSIONS: usize = 4_096;
/// The most sessions of one peer: a peer that cannot forge addresses cannot fill the table.
pub const MOST_OF_A_PEER: usize = MOST_SESSIONS / 16;
/// The idle time after which a session may be evicted when the table is full.
const IDLE: Nanos = Nanos::seconds(60);
/// The same for a session of one packet.
const IDLE_AFTER_ONE: Nanos = Nanos::seconds(1);
const PURGE_EVERY: Nanos = Nanos::seconds(1);
/// The largest difference between a sender's clock and ours at which its times are used.
const NEAR: Nanos = Nanos::seconds(60);

/// The reordering window: how far behind the highest number a packet may be, in words of 64.
const WINDOW_WORDS: usize = 16;
const WINDOW: u32 = WINDOW_WORDS as u32 * 64;

/// Sessions by their identifier.
#[derive(Clone, Debug)]
pub struct Sessions<K> {
    known: HashMap<K, Session>,
    of_peer: HashMap<u128, usize>,
    next_purge: Time,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    peer: u128,
    used: Time,
    /// The number of packets so far, which is the number of the next.
    came: u32,
    highest: u32,
    /// The sender's time in the first packet, and the latest one.
    begun: Option<Time>,
    newest: Option<Time>,
    /// Whether an earlier session had the same identifier.
    is_anew: bool,
    /// Bit n of all words: whether the number n below the highest was received.
    seen: [u64; WINDOW_WORDS],
}

/// The data of a packet that its session needs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The sender's sequence number.
    pub seq: u32,
    /// The sender's departure timestamp, where the packet has one.
    pub stamp: Option<Time>,
    /// When it was received.
    pub now: Time,
    /// Its sender: the sessions of a peer are limited.
    pub peer: u128,
}

impl Place {
    /// Whether the sender's clock is close to ours.
    fn is_near(&self) -> bool {
        self.stamp.is_some_and(|stamp| stamp.0.abs_diff(self.now.0) < NEAR.0.unsigned_abs())
    }
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), of_peer: HashMap::new(), next_purge: Time(i64::MIN) }
    }
}

impl<K: Eq + Hash> Sessions<K> {
    /// Records a packet, and returns the number of earlier ones in its session. Sequence numbers that restart at a
    /// later time of the sender restart the session. With `once`, each number is accepted once.
    ///
    /// # Errors
    /// When the number was accepted before, or is older than the window; when there are too many sessions.
    pub fn take(&mut self, session: K, place: Place, once: bool) -> Result<u32, Refusal> {
        if let Some(known) = self.known.get_mut(&session) {
            return known.take(place, once);
        }
        if !self.has_room(place.peer) {
            self.purge(place.now);
            if !self.has_room(place.peer) {
                return Err(Refusal::Sessions);
            }
        }
        *self.of_peer.entry(place.peer).or_default() += 1;
        self.known.insert(session, Session::begin(place));
        Ok(0)
    }

    fn has_room(&self, peer: u128) -> bool {
        let of_peer = self.of_peer.get(&peer).copied().unwrap_or_default();
        self.known.len() < MOST_SESSIONS && of_peer < MOST_OF_A_PEER
    }

    /// Evicts idle sessions, at most once per second.
    fn purge(&mut self, now: Time) {
        // A clock that was set back must not postpone the purge.
        if now < self.next_purge && self.next_purge <= now + PURGE_EVERY {
            return;
        }
        self.next_purge = now + PURGE_EVERY;
        self.known.retain(|_, session| session.is_used(now));
        self.of_peer.clear();
        for session in self.known.values() {
            *self.of_peer.entry(session.peer).or_default() += 1;
        }
    }
}

impl Session {
    fn begin(Place { seq, stamp, now, peer }: Place) -> Self {
        let mut seen = [0; WINDOW_WORDS];
        seen[0] = 1;
        Self { peer, used: now, came: 1, highest: seq, begun: stamp, newest: stamp, is_anew: false, seen }
    }

    /// Whether to keep it although the table is full. After the clock was set back, a session of the future is not kept.
    fn is_used(&self, now: Time) -> bool {
        let idle = if self.came == 1 { IDLE_AFTER_ONE } else { IDLE };
        self.used <= now && now < self.used + idle
    }

    fn take(&mut self, place: Place, once: bool) -> Result<u32, Refusal> {
        let Place { seq, stamp, now, .. } = place;
        // Within a session, later packets have higher numbers. If the sender's clock is far from ours, a restart is
        // only assumed where the number went far back.
        let is_far_back = seq < self.highest && self.highest - seq >= WINDOW.min(self.highest);
        if seq <= self.highest && stamp > self.newest && (is_far_back || place.is_near()) {
            *self = Self { peer: self.peer, is_anew: true, ..Self::begin(place) };
            return Ok(0);
        }
        // A packet of an earlier session with the same identifier, whose numbers are new to this one. Exception: a
        // sender whose clock was set to ours meanwhile.
        let is_old = stamp < self.begun && (self.is_anew || !place.is_near());
        if once && (is_old || !self.note(seq)) {
            return Err(Refusal::Replayed);
        }
        if !once {
            self.note(seq);
        }
        // Never decreased, even if the sender's clock is set back: earlier packets stay old.
        self.newest = self.newest.max(stamp);
        self.used = now;
        let before = self.came;
        self.came = self.came.wrapping_add(1);
        Ok(before)
    }

    /// Marks a number as received; returns whether it was new.
    fn note(&mut self, seq: u32) -> bool {
        if seq > self.highest {
            self.shift(seq - self.highest);
            self.highest = seq;
        }
        let behind = self.highest - seq;
        if behind >= WINDOW {
            return false;
        }
        let (word, bit) = ((behind / 64) as usize, 1_u64 << (behind % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn shift(&mut self, by: u32) {
        if by >= WINDOW {
            self.seen = [0; WINDOW_WORDS];
            return;
        }
        let (words, bits) = ((by / 64) as usize, by % 64);
        let old = self.seen;
        for (at, word) in self.seen.iter_mut().enumerate() {
            let from = |back: usize| at.checked_sub(words + back).map_or(0, |from| old[from]);
            *word = if bits == 0 { from(0) } else { from(0) << bits | from(1) >> (64 - bits) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn place(seq: u32, at_ms: i64) -> Place {
        let now = Time(at_ms * 1_000_000);
        Place { seq, stamp: Some(now), now, peer: 1 }
    }

    /// The place of a packet whose sender's clock is ahead by `by`.
    fn ahead(place: Place, by: Nanos) -> Place {
        Place { stamp: place.stamp.map(|stamp| stamp + by), ..place }
    }

    #[test]
    fn packets_are_numbered_in_arrival_order() {
        let mut sessions = Sessions::default();
        let numbers: Vec<_> = [0, 1, 3, 2, 7].map(|seq| sessions.take(1, place(seq, i64::from(seq)), true)).to_vec();
        assert_eq!(numbers, (0..5).map(Ok).collect::<Vec<_>>());
        assert_eq!(sessions.take(2, place(0, 9), true), Ok(0), "another session");
    }

    #[test]
    fn restarted_sender_is_distinguished_from_a_replay() {
        let mut sessions = Sessions::default();
        for seq in 0..2_000 {
            assert_eq!(sessions.take(1, place(seq, i64::from(seq)), true), Ok(seq));
        }
        assert_eq!(sessions.take(1, place(0, 0), true), Err(Refusal::Replayed));
        assert_eq!(sessions.take(1, place(1_999, 1_999), true), Err(Refusal::Replayed));
        assert_eq!(sessions.take(1, place(1_999, 1_999), false), Ok(2_000), "where a path may duplicate");
        assert_eq!(sessions.take(1, place(0, 5_000), true), Ok(0));
        assert_eq!(sessions.take(1, place(1, 5_001), true), Ok(1));
        assert_eq!(sessions.take(1, place(1_500, 1_500), true), Err(Refusal::Replayed), "of the session before");
    }

    #[test]
    fn active_sessions_are_kept_and_idle_ones_replaced() {
        let mut sessions = Sessions::default();
        for session in 0..MOST_SESSIONS {
            let of = |place| Place { peer: (session / MOST_OF_A_PEER) as u128, ..place };
            assert_eq!(sessions.take(session, of(place(0, 0)), true), Ok(0));
            assert_eq!(sessions.take(session, of(place(1, 0)), true), Ok(1));
        }
        let stranger = |at| Place { peer: u128::MAX, ..place(0, at) };
        assert_eq!(sessions.take(usize::MAX, stranger(1_000), true), Err(Refusal::Sessions));
        assert_eq!(sessions.take(7, place(2, 59_000), true), Ok(2));
        assert_eq!(sessions.take(usize::MAX, stranger(61_000), true), Ok(0));
        assert_eq!(sessions.take(7, place(3, 61_000), true), Ok(3));
        assert_eq!((sessions.known.len(), sessions.of_peer.len()), (2, 2));
    }

    #[test]
    fn one_peer_cannot_exhaust_all_sessions() {
        let mut sessions = Sessions::default();
        let begun =
            (0..2 * MOST_SESSIONS).filter(|session| sessions.take(*session, place(0, 0), false).is_ok()).count();
        assert_eq!(begun, MOST_OF_A_PEER);
        assert_eq!(sessions.take(usize::MAX, Place { peer: 2, ..place(0, 0) }, false), Ok(0), "another peer");
        assert_eq!(
            sessions.take(usize::MAX - 1, place(0, 1_001), false),
            Ok(0),
            "one packet keeps a place for a second"
        );
    }

    #[test]
    fn sender_whose_clock_was_set_is_not_a_replay() {
        // Its clock was ahead, by more or less than the session's age, and is corrected.
        for ahead_by in [Nanos::millis(200), Nanos::seconds(3_600)] {
            let mut sessions = Sessions::default();
            for seq in 0..500 {
                assert_eq!(sessions.take(1, ahead(place(seq, i64::from(seq)), ahead_by), true), Ok(seq));
            }
            for seq in 500..1_000 {
                assert_eq!(sessions.take(1, place(seq, i64::from(seq)), true), Ok(seq), "{ahead_by:?}");
            }
            for seq in [0, 499, 500, 999] {
                let by = if seq < 500 { ahead_by } else { Nanos::ZERO };
                let again = ahead(Place { now: Time(2_000_000_000), ..place(seq, i64::from(seq)) }, by);
                assert_eq!(sessions.take(1, again, true), Err(Refusal::Replayed), "{seq} {ahead_by:?}");
            }
        }
    }

    #[test]
    fn sender_restarted_after_a_few_packets_is_not_a_replay() {
        for first in [0, 1, 7] {
            let mut sessions = Sessions::default();
            for seq in 0..=5 {
                assert_eq!(sessions.take(1, place(seq, i64::from(seq)), true), Ok(seq));
            }
            assert_eq!(sessions.take(1, place(first.min(5), 5_000), true), Ok(0), "{first}");
            assert_eq!(sessions.take(1, place(9, 9), true), Err(Refusal::Replayed), "of the session before");
        }
    }

    proptest! {
        /// A number is accepted once, in any order; one within the window is never refused the first time.
        #[test]
        fn sequence_number_is_accepted_once(steps in prop::collection::vec((0..3_000_u32, any::<bool>()), 1..400)) {
            let mut sessions = Sessions::default();
            let (mut taken, mut highest) = (HashSet::new(), 0);
            for (step, up) in steps {
                let seq = if up { highest + step % 200 } else { highest.saturating_sub(step) };
                let took = sessions.take((), place(seq, 1), true);
                let is_first = taken.is_empty();
                if taken.contains(&seq) {
                    prop_assert_eq!(took, Err(Refusal::Replayed));
                } else if is_first || seq > highest || highest - seq < WINDOW {
                    prop_assert_eq!(took, Ok(taken.len() as u32));
                }
                if took.is_ok() {
                    taken.insert(seq);
                    highest = if is_first { seq } else { highest.max(seq) };
                }
            }
        }
    }
}
