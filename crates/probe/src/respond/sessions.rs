//! What a far end remembers of sessions: how many packets of each came, and which. Bounded; nothing is forgotten while it is used.

use std::collections::HashMap;
use std::hash::Hash;

use sojourn_time::{Nanos, Time};

use super::guard::Refusal;

/// The most sessions that are remembered.
pub const MOST_SESSIONS: usize = 4_096;
/// After which an unused session makes room for a new one, where there is none left.
const IDLE: Nanos = Nanos::seconds(60);
const PURGE_EVERY: Nanos = Nanos::seconds(1);

/// How far behind the highest number a packet may come: in words of 64.
const WINDOW_WORDS: usize = 16;
const WINDOW: u32 = WINDOW_WORDS as u32 * 64;

/// Sessions by what tells them apart.
#[derive(Clone, Debug)]
pub struct Sessions<K> {
    known: HashMap<K, Session>,
    next_purge: Time,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    used: Time,
    /// How many came, and so the number of the next.
    came: u32,
    highest: u32,
    /// The sender's times in the first packet and in that with the highest number.
    begun: u64,
    newest: u64,
    /// Bit n of all: whether the number n below the highest came.
    seen: [u64; WINDOW_WORDS],
}

/// A packet's place in its session.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number that its sender gave it.
    pub seq: u32,
    /// When it left, by the sender's own clock in any unit that goes up; 0 where it does not say.
    pub stamp: u64,
    /// When it came.
    pub now: Time,
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), next_purge: Time(i64::MIN) }
    }
}

impl<K: Eq + Hash> Sessions<K> {
    /// Notes a packet, and returns how many came before it in its session. Numbers that begin again at a later time of the sender's
    /// begin the session anew. With `once`, a number is taken once.
    ///
    /// # Errors
    /// When the number was taken before, or is so old that nobody knows; when there are too many sessions.
    pub fn take(&mut self, session: K, place: Place, once: bool) -> Result<u32, Refusal> {
        if let Some(known) = self.known.get_mut(&session) {
            return known.take(place, once);
        }
        self.make_room(place.now)?;
        self.known.insert(session, Session::begin(place));
        Ok(0)
    }

    fn make_room(&mut self, now: Time) -> Result<(), Refusal> {
        if self.known.len() < MOST_SESSIONS {
            return Ok(());
        }
        // A clock that was set back must not put the purge off.
        if now >= self.next_purge || now + PURGE_EVERY < self.next_purge {
            self.next_purge = now + PURGE_EVERY;
            self.known.retain(|_, session| now < session.used + IDLE && session.used <= now);
        }
        if self.known.len() < MOST_SESSIONS { Ok(()) } else { Err(Refusal::Sessions) }
    }
}

impl Session {
    fn begin(Place { seq, stamp, now }: Place) -> Self {
        let mut seen = [0; WINDOW_WORDS];
        seen[0] = 1;
        Self { used: now, came: 1, highest: seq, begun: stamp, newest: stamp, seen }
    }

    fn take(&mut self, place: Place, once: bool) -> Result<u32, Refusal> {
        let Place { seq, stamp, now } = place;
        let begins_anew = seq < self.highest && self.highest - seq >= WINDOW.min(self.highest) && stamp > self.newest;
        if begins_anew {
            *self = Self::begin(place);
            return Ok(0);
        }
        // Of an earlier session with the same name, whose numbers this one has not had yet.
        let is_old = stamp < self.begun || (seq > self.highest && stamp < self.newest);
        if once && (is_old || !self.note(seq)) {
            return Err(Refusal::Replayed);
        }
        if !once {
            self.note(seq);
        }
        if seq == self.highest {
            self.newest = stamp;
        }
        self.used = now;
        let before = self.came;
        self.came = self.came.wrapping_add(1);
        Ok(before)
    }

    /// Marks a number; returns whether it was new.
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
        Place { seq, stamp: at_ms as u64, now: Time(at_ms * 1_000_000) }
    }

    #[test]
    fn packets_are_numbered_as_they_come() {
        let mut sessions = Sessions::default();
        let numbers: Vec<_> = [0, 1, 3, 2, 7].map(|seq| sessions.take(1, place(seq, i64::from(seq)), true)).to_vec();
        assert_eq!(numbers, (0..5).map(Ok).collect::<Vec<_>>());
        assert_eq!(sessions.take(2, place(0, 9), true), Ok(0), "another session");
    }

    #[test]
    fn a_sender_that_begins_anew_is_told_from_a_replay() {
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
    fn sessions_that_are_used_are_kept_and_others_make_room() {
        let mut sessions = Sessions::default();
        for session in 0..MOST_SESSIONS {
            assert_eq!(sessions.take(session, place(0, 0), true), Ok(0));
        }
        assert_eq!(sessions.take(usize::MAX, place(0, 1_000), true), Err(Refusal::Sessions));
        assert_eq!(sessions.take(7, place(1, 59_000), true), Ok(1));
        assert_eq!(sessions.take(usize::MAX, place(0, 61_000), true), Ok(0));
        assert_eq!(sessions.take(7, place(2, 61_000), true), Ok(2));
        assert_eq!(sessions.known.len(), 2);
    }

    proptest! {
        /// A number is taken once, whatever the order; one within the window is never refused the first time.
        #[test]
        fn a_number_is_taken_once(steps in prop::collection::vec((0..3_000_u32, any::<bool>()), 1..400)) {
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
