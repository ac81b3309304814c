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

    /// Whether the log is to go on in another part; from then on that is the present one. What a part says again of what was before
    /// it makes no other due: it has at least as much that is new, and a log to which nothing comes stays in one.
    pub fn is_due(&mut self, spool: &Spool, now: Time) -> bool {
        // A clock that was set back begins anew.
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

#[cfg(test)]
mod tests {
    use sojourn_tcplog::Raw;
    use sojourn_tcplog::layout::Flow;
    use sojourn_time::Nanos;

    use super::*;

    /// A part of 64 KiB with 500 open flows begins with some 300 KiB that say again what is known of them.
    #[test]
    fn what_a_part_repeats_makes_no_other_due() {
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
        // By time and by size it is when there is as much that is new.
        while spool.fresh() < repeated {
            assert!(!parts.is_due(&spool, now), "{} of {repeated}", spool.fresh());
            spool.note(&"new".repeat(1_000));
            spool.flush().unwrap();
        }
        assert!(parts.is_due(&spool, now));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
