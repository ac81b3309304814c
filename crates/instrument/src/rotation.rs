//! Rotation of files that are written for days, for captures and logs alike.

use sojourn_time::Nanos;

use crate::failure::WrongRequest;

const LEAST_BYTES: u64 = 1 << 16;
const LEAST_SPAN: Nanos = Nanos::seconds(1);

/// The limits at which a new file begins; either one suffices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The size limit of a file.
    pub bytes: Option<u64>,
    /// The age limit of a file.
    pub span: Option<Nanos>,
}

impl Rotation {
    /// Whether rotation is requested.
    pub fn is_asked(self) -> bool {
        self != Self::default()
    }

    /// Whether a file of this size and age is due for rotation.
    pub fn is_due(self, bytes: u64, age: Nanos) -> bool {
        self.bytes.is_some_and(|most| bytes >= most) || self.span.is_some_and(|most| age >= most)
    }

    /// Returns what is wrong with the limits.
    pub fn problem(self) -> Option<String> {
        if self.bytes.is_some_and(|bytes| bytes < LEAST_BYTES) {
            return Some("--rotate-size: expected 64 KiB or more".to_owned());
        }
        let is_short = self.span.is_some_and(|span| span < LEAST_SPAN);
        is_short.then(|| "--rotate-time: expected 1 s or more".to_owned())
    }

    /// Checks that files rotate where the removal of the oldest is requested.
    ///
    /// # Errors
    /// If there is only one file.
    pub fn check_oldest(self, is_removed: bool) -> Result<(), WrongRequest> {
        if !is_removed || self.is_asked() {
            return Ok(());
        }
        let problem = "--remove-oldest: nothing is older than another without --rotate-size or --rotate-time";
        Err(WrongRequest(problem.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_rotated_by_size_or_age() {
        let by = |bytes, span| Rotation { bytes, span };
        let (mib, hour) = (Some(1 << 20), Some(Nanos::seconds(3_600)));
        let due =
            |rotation: Rotation| [(1 << 20) - 1, 1 << 20].map(|bytes| rotation.is_due(bytes, Nanos::seconds(3_599)));
        assert_eq!(
            (due(by(mib, hour)), due(by(None, hour)), due(by(None, None))),
            ([false, true], [false; 2], [false; 2])
        );
        assert!(by(None, hour).is_due(0, Nanos::seconds(3_600)) && !by(mib, None).is_due(0, Nanos::seconds(9_999)));
        assert!(by(Some(1 << 15), None).problem().is_some() && by(None, Some(Nanos::millis(999))).problem().is_some());
        assert_eq!(by(mib, hour).problem(), None);
        assert!(by(None, None).check_oldest(true).is_err() && by(mib, None).check_oldest(true).is_ok());
    }
}
