//! Formats the results of a single run: text for a person, JSON for a program.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
pub use sojourn_probe::Found;
use sojourn_probe::{Request, Summary, judge};
use sojourn_record::{Finding, Probe};
use sojourn_time::{Nanos, Source};
use sojourn_wire::{Carrier, icmp};

use super::departures::Departed;
use super::directions::{Delays, Directions};
use super::measure::Measured;
use crate::numbers;
use crate::place::Place;
use crate::serve;

/// Returns the findings about the measurement, and about the instrument itself.
pub fn findings(request: &Request, measured: &Measured) -> Vec<Found> {
    let mut found = judge(&measured.block, &measured.probes, request.shape.no_tx_timestamps);
    found.extend(Departed::of(measured).and_then(|departed| departed.found()));
    found.extend(Directions::of(request, measured).and_then(|directions| directions.found()));
    if cfg!(debug_assertions) && measured.block.via != "sim" {
        let sentence = "this instrument was built without optimisation".to_owned();
        found.push(Found { finding: Finding::DebugBuild, sentence });
    }
    found
}

/// The four time quantities of the probes, without warm-up probes.
struct Figures {
    rtt: Option<Summary>,
    rtt_intended: Option<Summary>,
    rtt_user: Option<Summary>,
    pacing_error: Option<Summary>,
}

impl Figures {
    fn of(measured: &Measured) -> Self {
        let over = |time: fn(&Probe) -> Option<Nanos>| {
            Summary::of(measured.probes.iter().filter(|probe| !probe.is_warmup).filter_map(time))
        };
        Self {
            rtt: over(Probe::rtt),
            rtt_intended: over(Probe::rtt_intended),
            rtt_user: over(Probe::rtt_user),
            pacing_error: over(|probe| Some(probe.pacing_error())),
        }
    }
}

/// Returns the summary as JSON. Keys include their units.
pub fn json(request: &Request, measured: &Measured, found: &[Found], place: &Place) -> Value {
    let Measured { block, probes, .. } = measured;
    let figures = Figures::of(measured);
    let counts = block.counts;
    let mut told = place.json();
    let own = json!({
        "wait": block.wait,
        "cpu": block.cpu,
        "fifo": block.fifo,
        "instrument": { "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE },
        "target": request.to,
        "kind": block.kind,
        "schedule": block.schedule,
        "interval_ns": block.interval,
        "timeout_ns": block.timeout,
        "count": block.count,
        "warmup": block.warmup,
        "seed": block.seed,
        "request_payload_bytes": block.request_payload_bytes,
        "response_payload_bytes": block.response_payload_bytes,
        "request_frame_bytes": block.request_frame_bytes,
        "response_frame_bytes": block.response_frame_bytes,
        "clock": if request.to.is_simulated() { "simulated" } else { "TAI" },
        "started_ns": block.started,
        "ended_ns": block.ended,
        "elapsed_ns": block.ended_raw - block.started_raw,
        "sent": counts.sent,
        "received": counts.received,
        "lost": counts.lost,
        "loss_ratio_ci95": numbers::loss_interval(counts.lost, loss_runs(probes), counts.sent),
        "late": counts.late,
        "duplicated": counts.duplicated,
        "reordered": counts.reordered,
        "unexpected": counts.unexpected,
        "local_drops": counts.local_drops,
        "rtt": figures.rtt,
        "rtt_intended": figures.rtt_intended,
        "rtt_user": figures.rtt_user,
        "pacing_error": figures.pacing_error,
        "departure_sources": sources(probes.iter().map(|probe| probe.departure.source)),
        "arrival_sources": sources(arrival_sources(probes)),
        "findings": found.iter().map(finding).collect::<Vec<_>>(),
    });
    serve::add(&mut told, own);
    if let Some(departed) = Departed::of(measured) {
        serve::add(&mut told, json!({ "anderson_darling": departed.json() }));
    }
    if let Some(directions) = Directions::of(request, measured) {
        serve::add(&mut told, directions.json());
    }
    told
}

fn finding(found: &Found) -> Value {
    json!({ "name": found.finding.name(), "severity": found.finding.severity(), "sentence": found.sentence })
}

/// Returns the summary as text.
pub fn text(request: &Request, measured: &Measured, found: &[Found]) -> String {
    let counts = measured.block.counts;
    let mut text = head(request, measured);
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = text.write_fmt(args);
        text.push('\n');
    };
    let lost = numbers::loss(counts.lost, loss_runs(&measured.probes), counts.sent);
    line(format_args!("{} sent, {} received, {lost}", counts.sent, counts.received));
    let others = [
        (counts.late, "late"),
        (counts.duplicated, "duplicated"),
        (counts.reordered, "reordered"),
        (counts.unexpected, "unexpected"),
        (counts.local_drops, "dropped by this machine"),
    ];
    let others: Vec<_> = others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !others.is_empty() {
        line(format_args!("{}", others.join(", ")));
    }
    let directions = Directions::of(request, measured);
    if let Some(directions) = &directions {
        line(format_args!("{}", directions.text()));
    }
    line(format_args!("\n{}", table(&Figures::of(measured), directions.and_then(|directions| directions.delays))));
    let departures = names(sources(measured.probes.iter().map(|probe| probe.departure.source)));
    let arrivals = names(sources(arrival_sources(&measured.probes)));
    line(format_args!("timestamps: departures {departures}, arrivals {arrivals}; waiting: {}", measured.block.wait));
    if let Some(departed) = Departed::of(measured) {
        line(format_args!("{}", departed.text()));
    }
    for found in found {
        let severity = format!("{:?}", found.finding.severity()).to_lowercase();
        line(format_args!("{severity}: {} ({})", found.sentence, found.finding.name()));
    }
    text
}

fn head(request: &Request, measured: &Measured) -> String {
    let block = &measured.block;
    let size = match request.carrier() {
        Carrier::Icmp4 | Carrier::Icmp6 => format!("{} ICMP bytes", block.request_payload_bytes + icmp::HEADER_BYTES),
        _ if block.request_payload_bytes == block.response_payload_bytes => {
            format!("{} payload bytes", block.request_payload_bytes)
        }
        _ => format!("{} payload bytes there, {} back", block.request_payload_bytes, block.response_payload_bytes),
    };
    let interval = match block.schedule {
        "poisson" => format!("{} on average", span(block.interval)),
        "closed-loop" => format!("{} or when answered", span(block.interval)),
        _ => span(block.interval),
    };
    format!("{} to {} ({}): {size}, {} schedule, {interval}\n", block.kind, request.to, block.via, block.schedule)
}

/// Formats one row per quantity and one column per statistic that the sample size allows, in µs.
fn table(figures: &Figures, delays: Option<Delays>) -> String {
    type Column = (&'static str, fn(&Summary) -> Option<f64>);
    const COLUMNS: [Column; 9] = [
        ("min", |s| Some(s.min_ns as f64)),
        ("mean", |s| Some(s.mean_ns)),
        ("p50", |s| Some(s.p50_ns as f64)),
        ("p90", |s| (s.n >= 10).then_some(s.p90_ns as f64)),
        ("p99", |s| (s.n >= 100).then_some(s.p99_ns as f64)),
        ("p99.9", |s| s.p99_9_ns.map(|ns| ns as f64)),
        ("p99.99", |s| s.p99_99_ns.map(|ns| ns as f64)),
        ("max", |s| Some(s.max_ns as f64)),
        ("sd", |s| (s.n > 1).then_some(s.sd_ns)),
    ];
    let rows = [
        ("rtt", figures.rtt),
        ("rtt from intended", figures.rtt_intended),
        ("rtt in user space", figures.rtt_user),
        ("delay there", delays.as_ref().map(|delays| delays.there)),
        ("delay back", delays.as_ref().map(|delays| delays.back)),
        ("pacing error", figures.pacing_error),
    ];
    let rows: Vec<(&str, Summary)> = rows.into_iter().filter_map(|(name, row)| Some((name, row?))).collect();
    let shown: Vec<Column> =
        COLUMNS.into_iter().filter(|(_, of)| rows.iter().any(|(_, row)| of(row).is_some())).collect();
    let mut text = format!("{:17}", "µs");
    for (name, _) in &shown {
        let _ = write!(text, " {name:>11}");
    }
    for (name, row) in &rows {
        let _ = write!(text, "\n{name:17}");
        for (_, of) in &shown {
            let cell = of(row).map_or_else(|| "–".to_owned(), |ns| format!("{:.3}", ns / 1e3));
            let _ = write!(text, " {cell:>11}");
        }
    }
    text
}

/// Counts the runs of consecutive probes without a reply.
fn loss_runs(probes: &[Probe]) -> u64 {
    let lost: Vec<bool> = probes.iter().map(|probe| probe.reply.is_none()).collect();
    let begins = |at: usize| lost[at] && !(at > 0 && lost[at - 1]);
    (0..lost.len()).filter(|at| begins(*at)).count() as u64
}

fn arrival_sources(probes: &[Probe]) -> impl Iterator<Item = Source> {
    probes.iter().filter_map(|probe| probe.reply.map(|reply| reply.arrival.source))
}

/// Counts the timestamps by source.
fn sources(of: impl Iterator<Item = Source>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for source in of {
        *counts.entry(source.name()).or_insert(0) += 1;
    }
    counts
}

fn names(sources: BTreeMap<&'static str, u64>) -> String {
    if sources.is_empty() {
        return "none".to_owned();
    }
    sources.into_keys().collect::<Vec<_>>().join(" and ")
}

/// Formats a time span in the largest unit that leaves it at 1 or above.
fn span(span: Nanos) -> String {
    let ns = span.0 as f64;
    let (scale, unit) = match ns {
        _ if ns >= 1e9 => (1e9, "s"),
        _ if ns >= 1e6 => (1e6, "ms"),
        _ if ns >= 1e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("every {} {unit}", ns / scale)
}

#[cfg(test)]
mod tests;
