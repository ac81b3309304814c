//! Rotates a log into parts, and removes the oldest ones.

use serde_json::{Value, json};
use sojourn_tcplog::spool::{LEAST_LIMIT, Spool, SpoolError};
use sojourn_time::Time;

use super::arguments::PartArguments;
use crate::failure::WrongRequest;
use crate::rotation::Rotation;

/// A part takes at most this fraction of the budget, so that there is always one to remove.
const SHARE: u64 = 4;

/// The requested rotation of a log, and the start time of the current part.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    rotation: Rotation,
    /// The size beyond which the oldest parts are removed.
    most: Option<u64>,
    began: Time,
}

impl Parts {
    /// Returns the rotation from a time on; `None`: the log is one file.
    ///
    /// # Errors
    /// If the request is invalid.
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

    /// Whether a new part is due; if so, it becomes the current one. What a part repeats about earlier flows makes no
    /// new part due: a part must contain at least as much new data, and a log without new records stays in one part.
    pub fn is_due(&mut self, spool: &Spool, now: Time) -> bool {
        // If the clock was set back, the part's age restarts.
        self.began = self.began.min(now);
        let is_due = !spool.is_broken()
            && spool.fresh() > 0
            && spool.fresh() >= spool.repeated()
            && self.rotation.is_due(spool.fresh(), now - self.began);
        if is_due {
            self.began = now;
        }
        is_due
    }

    /// Removes the oldest parts while the total size exceeds the budget.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn remove_oldest(&self, spool: &mut Spool) -> Result<(), SpoolError> {
        while self.most.is_some_and(|most| spool.total() > most) && spool.remove_oldest()? {}
        Ok(())
    }
}

/// Returns the rotation for the header.
pub fn told(asked: &PartArguments) -> Value {
    json!({
        "rotate_size": asked.rotate_size,
        "rotate_time_ns": asked.rotate_time.map(|span| span.0),
        "budget": asked.budget,
        "remove_oldest": asked.remove_oldest,
    })
}

#[cfg(test)]
mod tests {
    use sojourn_tcplog::Raw;
    use sojourn_tcplog::layout::Flow;
    use sojourn_time::Nanos;

    use super::*;

    /// A part of 64 KiB with 500 open flows begins with some 300 KiB that repeat what is known about them.
    #[test]
    fn repeated_flow_state_at_the_start_of_a_part_does_not_trigger_rotation() {
        let folder = std::env::temp_dir().join(format!("sojourn-parts-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut spool = Spool::create(&folder, "{}").unwrap();
        let asked = PartArguments {
            rotate_size: Some(1 << 16),
            rotate_time: Some(Nanos::seconds(1)),
            budget: None,
            remove_oldest: false,
        };
        let mut now = Time(1_000);
        let mut parts = Parts::of(&asked, now).unwrap().unwrap();
        let flow: Flow = Raw::take(&mut &[0; Flow::BYTES][..]);
        spool.begin_part(&[], &mut |say| (0..500).for_each(|slot| say(slot, &flow))).unwrap();
        let repeated = spool.repeated();
        assert!(repeated > 1 << 18);
        for _ in 0..100 {
            now = now + Nanos::seconds(10);
            assert!(!parts.is_due(&spool, now), "nothing is new");
        }
        // By time and by size, a new part is due once there is as much new data.
        while spool.fresh() < repeated {
            assert!(!parts.is_due(&spool, now), "{} of {repeated}", spool.fresh());
            spool.note(&"new".repeat(1_000));
            spool.flush().unwrap();
        }
        assert!(parts.is_due(&spool, now));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
