//! Formats the outcomes so far, one line each second. Pure.

use serde_json::{Value, json};
use sojourn_matcher::Way;
use sojourn_matcher::sample::percentile;

use super::super::input::Input;
use super::super::pair::Pair;
use crate::numbers::{grouped, span};

const WAYS: [(Way, &str); 2] = [(Way::Forward, "forward"), (Way::Backward, "backward")];
const PERCENTILES: [(&str, f64); 2] = [("p50_ns", 0.5), ("p99_ns", 0.99)];

/// Returns JSON: the counts of packets whose window is over, and the percentiles of their delays.
pub fn json(elapsed_ns: i64, inputs: &[Input], pairs: &[Pair], dropped: &[u64]) -> Value {
    let tap = |(input, dropped): (&Input, &u64)| {
        let packets = input.told.keyed + input.told.without_key;
        json!({ "name": input.name, "packets": packets, "dropped_by_capture": dropped })
    };
    let directions = pairs.iter().enumerate().flat_map(|(place, pair)| {
        let seen = WAYS.into_iter().filter(|(way, _)| pair.counts(*way).seen_first + pair.counts(*way).seen_second > 0);
        seen.map(move |(way, name)| of_way(pair, way, name, [&inputs[place].name, &inputs[place + 1].name]))
    });
    json!({
        "event": "matching",
        "elapsed_ns": elapsed_ns,
        "taps": inputs.iter().zip(dropped).map(tap).collect::<Vec<_>>(),
        "directions": directions.collect::<Vec<_>>(),
    })
}

fn of_way(pair: &Pair, way: Way, name: &str, [first, second]: [&String; 2]) -> Value {
    let counts = pair.counts(way);
    let (from, to) = if way == Way::Forward { (first, second) } else { (second, first) };
    let mut told = json!({
        "direction": name, "from": from, "to": to, "matched": counts.matched, "lost": counts.lost,
        "reordered": counts.reordered, "ambiguous": counts.ambiguous, "unexpected": counts.unexpected,
    });
    let mut delays: Vec<i64> = pair.told(way).sample.kept().iter().map(|kept| kept.delay).collect();
    delays.sort_unstable();
    for (name, quantile) in PERCENTILES {
        told[name] = percentile(&delays, quantile).map_or(Value::Null, |found| found.value.into());
    }
    told
}

/// Returns the line as text.
pub fn text(told: &Value) -> String {
    let number = |of: &Value, name: &str| grouped(of[name].as_u64().unwrap_or(0));
    let elements = |name: &str| told[name].as_array().map_or(&[][..], Vec::as_slice);
    let way = |way: &Value| {
        let name = |which: &str| way[which].as_str().unwrap_or_default();
        let counts = ["matched", "lost", "reordered", "ambiguous"]
            .map(|what| format!("{} {what}", number(way, what)))
            .join(", ");
        let delay = match (way["p50_ns"].as_i64(), way["p99_ns"].as_i64()) {
            (Some(median), Some(p99)) => format!(", delay p50 {}, p99 {}", span(median), span(p99)),
            _ => String::new(),
        };
        format!("{} → {}: {counts}{delay}", name("from"), name("to"))
    };
    let mut parts: Vec<String> = elements("directions").iter().map(way).collect();
    if parts.is_empty() {
        let tap =
            |tap: &Value| format!("{} packets at {}", number(tap, "packets"), tap["name"].as_str().unwrap_or_default());
        parts.push(format!("{}; none matched yet", elements("taps").iter().map(tap).collect::<Vec<_>>().join(", ")));
    }
    let dropped: u64 = elements("taps").iter().filter_map(|tap| tap["dropped_by_capture"].as_u64()).sum();
    if dropped > 0 {
        parts.push(format!("dropped by the taps: {}", grouped(dropped)));
    }
    let seconds = told["elapsed_ns"].as_i64().unwrap_or(0) / 1_000_000_000;
    format!("{seconds} s: {}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_packet_dispositions_and_tap_drops() {
        let mut told = json!({
            "elapsed_ns": 3_000_000_123_i64,
            "taps": [{ "name": "eth1", "packets": 12_000, "dropped_by_capture": 0 },
                     { "name": "eth2", "packets": 11_998, "dropped_by_capture": 0 }],
            "directions": [],
        });
        assert_eq!(text(&told), "3 s: 12,000 packets at eth1, 11,998 packets at eth2; none matched yet");
        told["directions"] = json!([{
            "from": "eth1", "to": "eth2", "matched": 11_990, "lost": 2, "reordered": 1, "ambiguous": 0, "p50_ns": 1_730,
            "p99_ns": 20_500,
        }]);
        let counts = "eth1 → eth2: 11,990 matched, 2 lost, 1 reordered, 0 ambiguous";
        assert_eq!(text(&told), format!("3 s: {counts}, delay p50 1.73 µs, p99 20.5 µs"));
        told["taps"][1]["dropped_by_capture"] = 7.into();
        assert_eq!(text(&told), format!("3 s: {counts}, delay p50 1.73 µs, p99 20.5 µs; dropped by the taps: 7"));
    }
}
