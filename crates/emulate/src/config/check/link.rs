//! Checks a link for contradictions.

use sojourn_time::Nanos;

use super::{Refused, ensure, not_too_long, probability, span};
use crate::config::units::{rate_text, time_text};
use crate::config::{Link, Outage, Profile, Trace, TracePoint};

/// The maximum rate, in bit/s.
const FASTEST: u64 = 100_000_000_000;
/// The range of overheads, in bytes: the smallest frame must keep a byte; the upper end is more than any real framing adds.
const OVERHEADS: std::ops::RangeInclusive<i32> = -59..=65_535;
/// The largest burst: 2^40 bytes, so that credit in bits fits the integers.
const LARGEST_BURST: u64 = 1 << 40;

pub(super) fn link(link: &Link) -> Refused {
    if let Some(bps) = link.rate_bps {
        rate(bps, "rate")?;
    }
    overheads(link)?;
    if let Some(profile) = &link.profile {
        profile_of(profile)?;
    }
    if let Some(trace) = &link.trace {
        trace_of(trace)?;
        ensure(!matches!(trace, Trace::Opportunities { .. }) || link.rate_bps.is_none(), || {
            "a mahimahi trace says itself when packets leave; leave the rate out".to_owned()
        })?;
    }
    link.outages.iter().try_for_each(outage)
}

fn rate(bps: u64, what: &str) -> Refused {
    ensure(bps > 0, || format!("{what} is 0: nothing would ever leave; give a rate, \"rate none\", or an outage"))?;
    ensure(bps <= FASTEST, || format!("{what} is {}; the fastest is {}", rate_text(bps), rate_text(FASTEST)))
}

fn overheads(link: &Link) -> Refused {
    ensure(OVERHEADS.contains(&link.overhead_bytes), || {
        format!(
            "overhead is {} bytes; it must be from {} to {}",
            link.overhead_bytes,
            OVERHEADS.start(),
            OVERHEADS.end()
        )
    })?;
    let is_rated = link.largest_rate().is_some();
    ensure(is_rated || link.overhead_bytes == 0, || {
        "an overhead takes no time without a rate; give a rate or leave it out".to_owned()
    })?;
    if let Some(cell) = link.cell {
        ensure(cell.bytes > 0, || "a cell of 0 bytes carries nothing; give its bytes, 48 for ATM".to_owned())?;
        ensure(cell.overhead_bytes <= 65_535, || "a cell's overhead is above 65535 bytes; give fewer".to_owned())?;
        ensure(is_rated, || "cells take no time without a rate; give a rate or leave them out".to_owned())?;
    }
    ensure(is_rated || link.burst_bytes == 0, || {
        "a burst needs a rate that it may exceed; give a rate or leave it out".to_owned()
    })?;
    ensure(link.burst_bytes <= LARGEST_BURST, || "the burst is above 1024GB; give less".to_owned())
}

fn profile_of(profile: &Profile) -> Refused {
    probability(profile.loss_level, "loss-level of the profile")?;
    ensure(!profile.samples.is_empty(), || "the profile has no samples; give it points".to_owned())?;
    ensure(profile.samples.is_sorted() && profile.samples.first().is_some_and(|first| *first >= Nanos::ZERO), || {
        "the profile's times do not rise from 0 on; correct the file".to_owned()
    })?;
    profile.samples.last().map_or(Ok(()), |last| not_too_long(*last, "a time of the profile"))
}

fn trace_of(trace: &Trace) -> Refused {
    match trace {
        Trace::Opportunities { at, period, file } => {
            ensure(!at.is_empty(), || format!("trace {file} has no opportunity; nothing would ever leave"))?;
            ensure(at.is_sorted(), || format!("trace {file} goes backwards; its times must rise"))?;
            ensure(at.first().is_some_and(|first| *first >= Nanos::ZERO), || format!("trace {file} starts before 0"))?;
            ensure(at.last().is_some_and(|last| last <= period) && *period > Nanos::ZERO, || {
                format!("trace {file}: a round of it must last as long as its last time, and above 0")
            })
        }
        Trace::Points { points, period, file } => {
            ensure(points.first().is_some_and(|first| first.at == Nanos::ZERO), || {
                format!("trace {file} must start at 0")
            })?;
            ensure(points.is_sorted_by(|a, b| a.at < b.at), || {
                format!("trace {file} goes backwards; its times must rise")
            })?;
            let last = points.last().map_or(Nanos::ZERO, |last| last.at);
            ensure(period.is_none_or(|period| period > last), || {
                format!("trace {file}: repeat must be later than its last time")
            })?;
            points.iter().try_for_each(|point| point_of(point, file))
        }
    }
}

fn point_of(point: &TracePoint, file: &str) -> Refused {
    let what = |name: &str| format!("{name} of trace {file} at {}", time_text(point.at));
    if let Some(bps) = point.rate_bps.filter(|bps| *bps > 0) {
        rate(bps, &what("rate"))?;
    }
    if let Some(delay) = point.delay {
        ensure(delay >= Nanos::ZERO, || format!("{} is below 0", what("delay")))?;
        not_too_long(delay, &what("delay"))?;
    }
    point.loss.map_or(Ok(()), |loss| probability(loss, &what("loss")))
}

fn outage(outage: &Outage) -> Refused {
    ensure(outage.at >= Nanos::ZERO, || {
        "an outage begins before the start; its first time counts from the emulator's start".to_owned()
    })?;
    span(outage.lasts, "how long an outage lasts")?;
    let Some(every) = outage.every else { return Ok(()) };
    ensure(every > outage.lasts, || {
        format!("an outage of {} every {} never ends; let it last less", time_text(outage.lasts), time_text(every))
    })
}
