//! Checks a delay line for contradictions.

use sojourn_time::Nanos;

use super::{Refused, ensure, not_too_long, positive, probability, span};
use crate::config::units::time_text;
use crate::config::{Distribution, Pipe, PortDelay, Reorder};

pub(super) fn delay(pipe: &Pipe) -> Refused {
    let delay = &pipe.delay;
    ensure(delay.constant >= Nanos::ZERO, || format!("delay is {}; it cannot be below 0", time_text(delay.constant)))?;
    not_too_long(pipe.largest_delay(), "delay")?;
    of_ports(&delay.of_ports)?;
    if let Some(jitter) = &delay.jitter {
        distribution(jitter)?;
    }
    if let Some(half_life) = delay.half_life {
        ensure(delay.jitter.is_some(), || {
            "half-life without jitter: nothing is drawn that it could hold on to; give a jitter".to_owned()
        })?;
        span(half_life, "half-life")?;
    }
    let has_delay = pipe.largest_delay() > Nanos::ZERO || delay.jitter.is_some();
    delay.reorder.as_ref().map_or(Ok(()), |it| reorder(it, has_delay))
}

fn of_ports(several: &[PortDelay]) -> Refused {
    for (place, own) in several.iter().enumerate() {
        let PortDelay { first, last, constant } = *own;
        ensure(first <= last, || {
            format!("port-delay {first}-{last}: the ports go backwards; write the smaller first")
        })?;
        ensure(constant >= Nanos::ZERO, || format!("port-delay is {}; it cannot be below 0", time_text(constant)))?;
        let twice = several[..place].iter().find(|other| first <= other.last && other.first <= last);
        ensure(twice.is_none(), || {
            format!("port-delay: port {} has two delays; give it one", first.max(twice.map_or(0, |other| other.first)))
        })?;
    }
    Ok(())
}

fn reorder(reorder: &Reorder, has_delay: bool) -> Refused {
    probability(reorder.probability, "reorder")?;
    ensure(has_delay, || {
        "reorder without delay: a chosen packet can only overtake what is delayed; give a delay".to_owned()
    })?;
    reorder.by.map_or(Ok(()), |by| span(by, "reorder by"))
}

fn distribution(distribution: &Distribution) -> Refused {
    match distribution {
        Distribution::Uniform { spread } => span(*spread, "jitter (half of its width)"),
        Distribution::Normal { sd } => span(*sd, "jitter (a standard deviation)"),
        Distribution::Exponential { mean } => span(*mean, "jitter (a mean)"),
        Distribution::Pareto { scale, shape } => {
            span(*scale, "the scale of the jitter")?;
            ensure(shape.is_finite() && *shape > 1.0, || {
                format!("distribution lomax: with a shape of {shape} there is no mean; give more than 1")
            })
        }
        Distribution::Gamma { shape, scale } => {
            span(*scale, "the scale of the jitter")?;
            positive(*shape, "the shape of distribution gamma")
        }
        Distribution::Empirical { points, file } => {
            let rises = points.windows(2).all(|pair| matches!(pair, [a, b] if a.0 <= b.0 && a.1 <= b.1));
            let reaches =
                matches!((points.first(), points.last()), (Some(first), Some(last)) if first.0 == 0.0 && last.0 == 1.0);
            ensure(rises && reaches && points.len() > 1, || {
                format!(
                    "the distribution of {file} does not rise from probability 0 to 1 in both columns; correct the file"
                )
            })?;
            ensure(points.iter().all(|point| (-super::LONGEST..=super::LONGEST).contains(&point.1)), || {
                format!("a delay of {file} is above a week; correct the file")
            })
        }
        Distribution::Table { sd, values, file } => {
            span(*sd, "jitter (a standard deviation)")?;
            ensure(!values.is_empty() && values.is_sorted(), || {
                format!("the table of {file} has no values in rising order; correct the file")
            })
        }
    }
}
