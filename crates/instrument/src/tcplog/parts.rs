//! When a log goes on in another file, and when the oldest of them are removed.

use serde_json::{Value, json};
use sojourn_tcplog::spool::{LEAST_LIMIT, Spool, SpoolError};
use sojourn_time::Time;

use super::arguments::PartArguments;
use crate::failure::WrongRequest;
use crate::rotation::Rotation;

/// A part is at most this share of what all of them may take, so that there is always one to remove.
const SHARE: u64 = 4;

/// What is asked of the parts of a log, and when the present one began.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    rotation: Rotation,
    /// Beyond which the oldest are removed.
    most: Option<u64>,
    began: Time,
}

impl Parts {
    /// What is asked from a moment on; `None`: the log is one file.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn of(asked: &PartArguments, now: Time) -> anyhow::Result<Option<Self>> {
        let rotation = Rotation { bytes: asked.rotate_size, span: asked.rotate_time };
        rotation.problem().map_or(Ok(()), |problem| Err(WrongRequest(problem)))?;
        rotation.check_oldest(asked.remove_oldest)?;
        if asked.budget.is_some_and(|bytes| bytes < LEAST_LIMIT) {
            return Err(WrongRequest(format!("--budget: expected at least {} KiB", LEAST_LIMIT >> 10)).into());
        }
        let most = asked.budget.filter(|_| asked.remove_oldest);
        let share = most.map(|most| most / SHARE);
        let bytes = rotation.bytes.into_iter().chain(share).min();
        Ok(rotation.is_asked().then_some(Self { rotation: Rotation { bytes, ..rotation }, most, began: now }))
    }

    /// Whether the log is to go on in another part; from then on that is the present one.
    pub fn is_due(&mut self, spool: &Spool, now: Time) -> bool {
        // A clock that was set back begins anew.
        self.began = self.began.min(now);
        let is_due = !spool.is_broken() && self.rotation.is_due(spool.length(), now - self.began);
        if is_due {
            self.began = now;
        }
        is_due
    }

    /// Removes the oldest where all together are too large.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub fn remove_oldest(&self, spool: &mut Spool) -> Result<(), SpoolError> {
        while self.most.is_some_and(|most| spool.total() > most) && spool.remove_oldest()? {}
        Ok(())
    }
}

/// What a header says of it.
pub fn told(asked: &PartArguments) -> Value {
    json!({
        "rotate_size": asked.rotate_size,
        "rotate_time_ns": asked.rotate_time.map(|span| span.0),
        "budget": asked.budget,
        "remove_oldest": asked.remove_oldest,
    })
}
