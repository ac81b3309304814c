//! Stages and their decisions on many packets, for tests of distributions.

#![allow(dead_code)]

use sojourn_emulate::config::{Impairments, Loss};
use sojourn_emulate::impair::{Met, Stage};
use sojourn_emulate::random::Origin;
use sojourn_emulate::select::Key;
use sojourn_time::Time;

/// The default interval between packets: a millisecond.
pub const STEP: i64 = 1_000_000;

pub fn impairments(loss: &[Loss]) -> Impairments {
    Impairments { loss: loss.to_vec(), ..Impairments::default() }
}

pub fn stage(impairments: &Impairments, seed: u64) -> Stage {
    Stage::new(impairments, Origin { seed, pipe: "forward", flow: 0 }, "before")
}

pub fn meet(stage: &mut Stage, number: usize, loss: Option<f64>) -> Met {
    stage.meet(&Key::default(), Time(number as i64 * STEP), loss)
}

/// Returns which of `packets` packets a list of losses loses.
pub fn lose(loss: &[Loss], packets: usize, seed: u64) -> Vec<bool> {
    let mut stage = stage(&impairments(loss), seed);
    (0..packets).map(|number| meet(&mut stage, number, None).is_lost).collect()
}
