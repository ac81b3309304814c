//! Builds the results of matching as JSON, from which the text is formatted.

use serde_json::{Value, json};
use sojourn_matcher::sample::{Delay, percentile, slope};
use sojourn_matcher::{Counts, Way};
use sojourn_wire::digest::Key;

use super::arguments::Match;
use super::clocks::Clocks;
use super::input::Input;
use super::pair::{KEPT, Pair};

/// The reported percentiles, and the minimum number of delays for each.
const TOLD: [(&str, f64, usize); 6] = [
    ("p1", 0.01, 100),
    ("p50", 0.5, 1),
    ("p90", 0.9, 10),
    ("p99", 0.99, 100),
    ("p99_9", 0.999, 1_000),
    ("p99_99", 0.9999, 10_000),
];

/// Octets of a frame on the wire that captures omit: FCS, preamble and start delimiter.
const AROUND_FRAME: u32 = 12;
const LEAST_FRAME: u32 = 60;

/// Returns all results.
pub fn of(asked: &Match, key: Key, inputs: &[Input], pairs: &[Pair]) -> Value {
    let pair = |(place, pair): (usize, &Pair)| of_pair(asked, pair, &inputs[place], &inputs[place + 1]);
    json!({
        "event": "matched",
        "key": key.name(),
        "window_ns": asked.window.0,
        "subtracted_serialisation_bps": asked.subtract_serialisation,
        "taps": inputs.iter().map(of_tap).collect::<Vec<_>>(),
        "pairs": pairs.iter().enumerate().map(pair).collect::<Vec<_>>(),
    })
}

fn of_tap(input: &Input) -> Value {
    let (told, skipped) = (input.told, input.skipped());
    json!({
        "name": input.name,
        "interface": input.about.as_ref().map(|about| &about.interface),
        "host": input.about.as_ref().map(|about| &about.host),
        "packets": told.keyed + told.without_key + told.too_short,
        "with_digest": told.keyed,
        "without_key": told.without_key,
        "too_short": told.too_short,
        "truncated": told.truncated,
        "fragments": told.fragments,
        "super_packets": told.super_packets,
        "of_other_interfaces": told.of_other_interfaces,
        "stepped_back": told.stepped_back,
        "dropped_by_capture": input.dropped(),
        "skipped": {
            "untimed": skipped.untimed, "of_other_links": skipped.of_other_links, "malformed": skipped.malformed,
        },
        "resolution_ns": input.resolution,
        "ended_early": input.problem(),
    })
}

fn of_pair(asked: &Match, pair: &Pair, first: &Input, second: &Input) -> Value {
    let clocks = pair.clocks();
    let ways = [(Way::Forward, "forward"), (Way::Backward, "backward")];
    let of = |(way, name): (Way, &str)| {
        let counts = pair.counts(way);
        (counts.seen_first + counts.seen_second > 0).then(|| of_way(asked, pair, way, name, &clocks))
    };
    json!({
        "first": first.name,
        "second": second.name,
        "direction_rule": pair.rule(),
        "direction_assumed": pair.assumed(),
        "aligned_by_ns": pair.is_alignment_known().then(|| pair.alignment()),
        "clocks": of_clocks(&clocks),
        "directions": ways.into_iter().filter_map(of).collect::<Vec<_>>(),
    })
}

fn of_clocks(clocks: &Clocks) -> Value {
    match clocks {
        Clocks::One => json!({ "relation": "one" }),
        Clocks::Unknown => json!({ "relation": "unknown" }),
        Clocks::Two(estimate) => {
            let worst = |of: fn(&sojourn_clock::Line) -> f64| estimate.lines.iter().map(of).fold(0.0, f64::max);
            json!({
                "relation": "estimated",
                "offset_ns": estimate.lines.first().map(|line| line.offset_ns),
                "skew_ppb": estimate.lines.first().map(|line| line.skew_ppb),
                "maximum_error_ns": worst(|line| line.bound_ns),
                "error95_ns": worst(|line| line.error95_ns),
                "exchanges": estimate.exchanges,
                "lines": estimate.lines.len(),
                "steps": estimate.steps.len(),
                "findings": estimate.findings,
            })
        }
    }
}

fn of_way(asked: &Match, pair: &Pair, way: Way, name: &str, clocks: &Clocks) -> Value {
    let (counts, told) = (pair.counts(way), pair.told(way));
    let mut found = json!({
        "direction": name,
        "counts": of_counts(&counts),
        "had_window": counts.had_window(),
        "loss_runs": told.loss_runs,
        "lost_fragments": told.lost_fragments,
        "lost_super_packets": told.lost_super,
        "pending_fragments": told.pending_fragments,
        "pending_super_packets": told.pending_super,
        "unexpected_fragments": told.unexpected_fragments,
        "unexpected_super_packets": told.unexpected_super,
        "mixed_timestamps": told.mixed_timestamps,
    });
    let kept = told.sample.kept();
    if kept.is_empty() {
        return found;
    }
    let value = |delay: &Delay| clocks.correct(way, delay).0.saturating_sub(serialisation(asked, delay.length));
    let mut all: Vec<i64> = kept.iter().map(value).collect();
    if matches!(clocks, Clocks::Unknown) {
        let least = all.iter().copied().min().unwrap_or(0);
        all.iter_mut().for_each(|value| *value = value.saturating_sub(least));
    }
    found["delay"] = of_delays(all.clone());
    found["delay"]["of"] = if matches!(clocks, Clocks::Unknown) { json!("above the least") } else { json!("all") };
    found["delay"]["sampled"] = json!(told.sample.count() > KEPT as u64);
    if let (Clocks::One, None, Some((least, greatest))) = (clocks, asked.subtract_serialisation, told.sample.range()) {
        (found["delay"]["min_ns"], found["delay"]["max_ns"]) = (json!(least), json!(greatest));
    }
    let sure: Vec<i64> =
        kept.iter().zip(&all).filter(|(kept, _)| !kept.is_ambiguous).map(|(_, value)| *value).collect();
    if counts.ambiguous > 0 && !sure.is_empty() {
        found["delay_unambiguous"] = of_delays(sure);
    }
    let by_length: Vec<(u32, i64)> = kept.iter().zip(&all).map(|(kept, value)| (kept.length, *value)).collect();
    found["slope"] = slope(&by_length).map_or(Value::Null, |slope| {
        json!({
            "ns_per_octet": slope.ns_per_octet, "low": slope.low, "high": slope.high, "packets": slope.packets,
        })
    });
    found
}

/// Returns the serialisation time of a frame on the link that is subtracted. ns.
fn serialisation(asked: &Match, length: u32) -> i64 {
    asked.subtract_serialisation.map_or(0, |rate| {
        let bits = i128::from(length.max(LEAST_FRAME) + AROUND_FRAME) * 8;
        i64::try_from(bits * 1_000_000_000 / i128::from(rate)).unwrap_or(i64::MAX)
    })
}

fn of_delays(mut values: Vec<i64>) -> Value {
    values.sort_unstable();
    let n = values.len();
    let mean = values.iter().map(|value| *value as f64).sum::<f64>() / n as f64;
    let mut found = json!({
        "n": n, "min_ns": values.first(), "mean_ns": mean, "max_ns": values.last(),
        "negative": values.partition_point(|value| *value < 0),
    });
    for (name, quantile, least) in TOLD {
        if let Some(told) = percentile(&values, quantile).filter(|_| n >= least) {
            found[format!("{name}_ns")] = json!({ "value": told.value, "low": told.low, "high": told.high });
        }
    }
    found
}

/// Returns the counters of a direction.
pub fn of_counts(counts: &Counts) -> Value {
    json!({
        "seen_first": counts.seen_first,
        "seen_second": counts.seen_second,
        "matched": counts.matched,
        "matched_early": counts.matched_early,
        "matched_at_end": counts.matched_at_end,
        "ambiguous": counts.ambiguous,
        "reordered": counts.reordered,
        "reordering_extent_max": counts.reordering_extent_max,
        "lost": counts.lost,
        "lost_at_end": counts.lost_at_end,
        "evicted": counts.evicted,
        "pending": counts.pending,
        "duplicated": counts.duplicated,
        "judged_early": counts.judged_early,
        "unexpected": counts.unexpected,
        "unexpected_at_start": counts.unexpected_at_start,
    })
}
