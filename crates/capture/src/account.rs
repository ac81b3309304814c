//! Checks that every frame is in exactly one count of a tap, and compares these with the interface's counters. Pure.

use serde::Serialize;
use sojourn_port::kernel::Counters;

use crate::{Counts, Directions, Totals};

/// The counts of one tap and its interface, from attaching to detaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Frames that were seen.
    pub seen: u64,
    /// Frames that its filter accepted.
    pub accepted: u64,
    /// Accepted frames that were dropped because the ring was full.
    pub dropped: u64,
    /// How often the ring became full.
    pub full: u64,
    /// Accepted frames that passed in a direction not requested.
    pub skipped: u64,
    /// Accepted frames that were not processed, because the requested number had been seen.
    pub unread: u64,
    /// Frames that the interface counted meanwhile in the requested directions. `None` where its counters decreased.
    pub interface: Option<u64>,
    /// The interface's count minus the frames that the tap accepted, without those that it skipped. `None` with a
    /// filter, and where `interface` is.
    pub difference: Option<i64>,
    /// Whether each accepted frame is in exactly one count.
    pub conserved: bool,
}

impl Account {
    /// Calculates the account. `counted`: the interface's counters before and after. `is_filtered`: the tap has a
    /// filter. `is_ended_by_count`: it ended when it had seen the requested number.
    pub fn of(
        counts: &Counts,
        totals: Totals,
        (before, after): (Option<Counters>, Option<Counters>),
        directions: Directions,
        [is_filtered, is_ended_by_count]: [bool; 2],
    ) -> Self {
        let seen = counts.seen();
        let left = totals.accepted.checked_sub(seen + totals.dropped + totals.skipped);
        let passed = before.zip(after).and_then(|(before, after)| after.passed_since(&before));
        let interface = passed.map(|[received, sent]| match directions {
            Directions::In => received,
            Directions::Out => sent,
            Directions::Both => received + sent,
        });
        let accepted = totals.accepted.saturating_sub(totals.skipped).cast_signed();
        let difference = interface.filter(|_| !is_filtered).map(|counted| counted.cast_signed() - accepted);
        Self {
            seen,
            accepted: totals.accepted,
            dropped: totals.dropped,
            full: totals.full,
            skipped: totals.skipped,
            unread: left.unwrap_or(0),
            interface,
            difference,
            conserved: left == Some(0) || (is_ended_by_count && left.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counters(received: u64, sent: u64) -> Option<Counters> {
        Some(Counters { received, sent, ..Counters::default() })
    }

    proptest! {
        #[test]
        fn each_frame_is_counted_exactly_once(
            frames_in in 0..1_000_u64, frames_out in 0..1_000_u64, dropped in 0..100_u64, skipped in 0..100_u64,
            unread in 0..100_u64, elsewhere in 0..100_u64, is_ended: bool,
        ) {
            let counts = Counts { frames_in, frames_out, ..Counts::default() };
            let seen = frames_in + frames_out;
            let totals = Totals { accepted: seen + dropped + skipped + unread, dropped, skipped, full: 0 };
            let interface = (counters(5, 7), counters(5 + seen + dropped + unread, 7 + elsewhere));
            let account = Account::of(&counts, totals, interface, Directions::Both, [false, is_ended]);
            prop_assert_eq!(account.seen + account.dropped + account.skipped + account.unread, account.accepted);
            prop_assert_eq!(account.conserved, unread == 0 || is_ended);
            prop_assert_eq!(account.difference, Some(elsewhere.cast_signed()));
            prop_assert_eq!(Account::of(&counts, totals, interface, Directions::Both, [true, is_ended]).difference, None);
        }
    }

    #[test]
    fn interface_counts_are_unknown_when_its_counters_decrease() {
        let counts = Counts { frames_in: 3, ..Counts::default() };
        let totals = Totals { accepted: 3, ..Totals::default() };
        for after in [counters(4, 9), counters(9, 6)] {
            let account = Account::of(&counts, totals, (counters(5, 7), after), Directions::Both, [false, false]);
            assert_eq!((account.interface, account.difference, account.conserved), (None, None, true));
        }
    }

    #[test]
    fn accounting_fails_when_a_tap_saw_more_frames_than_the_kernel_accepted() {
        let counts = Counts { frames_in: 3, ..Counts::default() };
        let totals = Totals { accepted: 2, ..Totals::default() };
        let account = Account::of(&counts, totals, (None, None), Directions::Both, [false, true]);
        assert!(!account.conserved && account.interface.is_none());
    }
}
