//! Warnings of a running driver, one sentence each: each is reported once, and the last ones are kept.

use std::collections::VecDeque;

use sojourn_time::{Nanos, Time};

/// Warnings kept for status reports.
const MOST_KEPT: usize = 16;
/// Limit of reported warnings per minute: a flapping carrier must not fill the disk.
const MOST_REPORTED: usize = 60;
const MINUTE: Nanos = Nanos::seconds(60);

/// The last warnings, and those not yet reported.
#[derive(Debug)]
pub(super) struct Warnings {
    last: VecDeque<String>,
    unreported: Vec<String>,
    /// Start of the current minute, its number of warnings, and how many of them are not reported.
    since: Time,
    count: usize,
    left_out: usize,
}

impl Warnings {
    pub(super) fn new(now: Time) -> Self {
        Self { last: VecDeque::new(), unreported: Vec::new(), since: now, count: 0, left_out: 0 }
    }

    /// Adds a warning.
    pub(super) fn add(&mut self, sentence: String, now: Time) {
        self.turn(now);
        if self.last.len() == MOST_KEPT {
            self.last.pop_front();
        }
        if self.count < MOST_REPORTED {
            self.unreported.push(sentence.clone());
        } else {
            self.left_out += 1;
        }
        self.count += 1;
        self.last.push_back(sentence);
    }

    /// Takes the warnings to be reported.
    pub(super) fn take(&mut self, now: Time) -> Vec<String> {
        self.turn(now);
        std::mem::take(&mut self.unreported)
    }

    /// Returns the last warnings.
    pub(super) fn last(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }

    /// Begins another minute if one is over. Unreported warnings beyond the limit are then dropped; `last` still has the newest.
    fn turn(&mut self, now: Time) {
        if now - self.since < MINUTE {
            return;
        }
        self.unreported.truncate(MOST_REPORTED);
        if self.left_out > 0 {
            self.unreported
                .push(format!("{} more sentences came up within a minute: `show` has the last", self.left_out));
        }
        (self.since, self.count, self.left_out) = (now, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_warnings_are_kept_and_each_is_reported_once() {
        let mut warnings = Warnings::new(Time(0));
        for number in 0..40 {
            warnings.add(number.to_string(), Time(number));
        }
        let numbers = |range: std::ops::Range<i64>| range.map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!((warnings.last(), warnings.take(Time(41))), (numbers(24..40), numbers(0..40)));
        assert_eq!(warnings.take(Time(42)), [""; 0]);
        warnings.add("later".to_owned(), Time(43));
        assert_eq!(warnings.take(Time(44)), ["later"]);
    }

    #[test]
    fn warnings_per_minute_are_limited_and_the_number_of_others_is_reported() {
        let mut warnings = Warnings::new(Time(0));
        (0..100).for_each(|number| warnings.add(number.to_string(), Time(number)));
        assert_eq!((warnings.take(Time(100)).len(), warnings.last().pop()), (MOST_REPORTED, Some("99".to_owned())));
        warnings.add("in the same minute".to_owned(), Time(101));
        assert_eq!(warnings.take(Time(102)), [""; 0]);
        let next = Time(0) + MINUTE;
        assert_eq!(warnings.take(next), ["41 more sentences came up within a minute: `show` has the last"]);
        warnings.add("in the next".to_owned(), next + Nanos(1));
        assert_eq!(warnings.take(next + Nanos(2)), ["in the next"]);
        // Nothing takes the warnings: the number that waits is bounded.
        for minute in 2..100 {
            (0..100).for_each(|number| warnings.add(number.to_string(), Time(0) + Nanos(minute * MINUTE.0 + number)));
        }
        assert!(warnings.take(Time(0) + Nanos(101 * MINUTE.0)).len() <= 2 * MOST_REPORTED + 2);
    }
}
