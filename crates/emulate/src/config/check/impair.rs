//! Checks losses, corruption and duplication for contradictions.

use super::{Refused, ensure, probability, span};
use crate::config::{Corruption, Impairments, Loss};

pub(super) fn stage(impairments: &Impairments, place: &str) -> Refused {
    parts(impairments).map_err(|problem| format!("{place}{problem}"))
}

fn parts(impairments: &Impairments) -> Refused {
    impairments.loss.iter().try_for_each(loss)?;
    match impairments.corruption {
        Some(Corruption::OneBit(share)) => probability(share, "corrupt")?,
        Some(Corruption::BitErrorRate(rate)) => probability(rate, "ber")?,
        None => {}
    }
    impairments.duplication.map_or(Ok(()), |share| probability(share, "duplicate"))
}

fn loss(loss: &Loss) -> Refused {
    match loss {
        Loss::Independent { probability: p } => probability(*p, "loss"),
        Loss::GilbertElliott { p, r, h, k } => {
            all_probabilities(&[("p", *p), ("r", *r), ("h", *h), ("k", *k)], "of loss ge")?;
            ensure(*p > 0.0 || *r > 0.0, || {
                "loss ge: with p and r both 0 it never leaves the state it starts in; give either".to_owned()
            })
        }
        Loss::Dwell { good, bad } => {
            span(*good, "loss dwell (the good state)")?;
            span(*bad, "loss dwell (the bad state)")
        }
        Loss::FourState { p13, p31, p23, p32, p14 } => {
            all_probabilities(
                &[("p13", *p13), ("p31", *p31), ("p23", *p23), ("p32", *p32), ("p14", *p14)],
                "of loss state",
            )?;
            row(*p13, *p14, "p13 + p14")?;
            row(*p31, *p32, "p31 + p32")
        }
        Loss::Every { every, first } => {
            ensure(*every > 0 && *first > 0, || "loss every 0 has no meaning; packets are counted from 1".to_owned())
        }
        Loss::Pattern { lost, file } | Loss::TimePattern { lost, file } => {
            ensure(!lost.is_empty(), || format!("the pattern of {file} is empty; write 0 and 1 into it"))
        }
        Loss::Syn { count } => ensure(*count > 0, || "loss syn 0 loses nothing; leave it out".to_owned()),
        Loss::Segment { index, .. } => {
            ensure(*index > 0, || "loss segment 0 has no meaning; segments are counted from 1".to_owned())
        }
    }
}

fn all_probabilities(values: &[(&str, f64)], of: &str) -> Refused {
    values.iter().try_for_each(|(name, value)| probability(*value, &format!("{name} {of}")))
}

/// Refuses a state whose exit probabilities add up to more than 1.
fn row(a: f64, b: f64, name: &str) -> Refused {
    // A value computed as 1 − p may differ by a rounding error.
    ensure(a + b <= 1.0 + 1e-12, || {
        format!("loss state: {name} is {}; what leaves a state cannot be more than 1, make them smaller", a + b)
    })
}
