//! Formats the state of an emulator as text: pipes, packet accounting, accuracy.

use std::fmt::Write;

use serde_json::Value;
use sojourn_emulate::Pipe;
use sojourn_emulate::config::{Action, Match, Rule, to_words};

use crate::numbers::{grouped, span};

/// Returns the text of the ready event.
pub fn ready(ready: &Value) -> String {
    let text = |key: &str| ready[key].as_str().unwrap_or_default();
    let engine = |port: usize| ready["engine"][port].as_str().unwrap_or_default();
    let mut told = format!("bridging {} ({}) and {} ({})", text("left"), engine(0), text("right"), engine(1));
    let fifo = if ready["fifo"] == true { ", SCHED_FIFO" } else { "" };
    let _ = writeln!(told, "; {}{fifo}; Ctrl-C ends it", waiting(text("wait")));
    for pipe in ready["pipes"].as_array().into_iter().flatten() {
        let words = pipe["words"].as_str().filter(|words| !words.is_empty()).unwrap_or("(idle)");
        let _ = writeln!(told, "  {}: {words}", pipe["name"].as_str().unwrap_or_default());
    }
    for said in ready["said"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(told, "  note: {said}");
    }
    if let Some(path) = ready["control"].as_str() {
        let _ = writeln!(told, "  `sojourn emulate show` and `set` ask it at {path}");
    }
    told
}

fn waiting(wait: &str) -> &str {
    match wait {
        "spin" => "it never sleeps",
        "sleep-then-spin" => "it sleeps until shortly before each departure",
        other => other,
    }
}

/// Returns a pipe's configuration string.
pub fn words(pipe: &Value) -> String {
    match serde_json::from_value::<Pipe>(pipe.clone()).map(|pipe| to_words(&pipe)) {
        Ok(words) if words.is_empty() => "(idle)".to_owned(),
        Ok(words) => words,
        Err(_) => String::new(),
    }
}

/// Returns what makes the departures doubtful, one sentence each.
pub fn marks(report: &Value) -> Vec<String> {
    let budget = report["budget_ns"].as_i64().unwrap_or_default();
    let late = pipes(report).filter_map(|pipe| {
        let (late, count) = (number(&pipe["accuracy"]["late"]), number(&pipe["accuracy"]["count"]));
        (late > 0).then(|| {
            let name = pipe["name"].as_str().unwrap_or_default();
            let share = share(late, count);
            format!(
                "{name}: {} of {} packets ({share}) left later than the budget of {}",
                grouped(late),
                grouped(count),
                span(budget)
            )
        })
    });
    let ports = report["ports"].as_array().into_iter().flatten().filter_map(|port| {
        let (drops, refused) = (number(&port["local_drops"]), number(&port["refused"]));
        let name = port["name"].as_str().unwrap_or_default();
        (drops > 0 || refused > 0).then(|| {
            format!(
                "{name}: {} frames were lost on the way in, and {} found no room on the way out",
                grouped(drops),
                grouped(refused)
            )
        })
    });
    let skipped = number(&report["log"]["skipped"]);
    let log = (skipped > 0).then(|| format!("log: {} packets are missing in it", grouped(skipped)));
    let stopped = report["log"]["stopped"].as_str().map(|why| {
        let unwritten = grouped(number(&report["log"]["unwritten"]));
        format!("log: it has ended, {unwritten} packets are not in it: {why}")
    });
    let said = report["said"].as_array().into_iter().flatten().filter_map(|said| said.as_str().map(str::to_owned));
    late.chain(ports).chain(log).chain(stopped).chain(said).collect()
}

/// Returns the whole report; with the previous report `before`, also what has happened since.
pub fn table(report: &Value, config: &Value, before: Option<&Value>) -> String {
    let mut told = String::new();
    for port in report["ports"].as_array().into_iter().flatten() {
        let text = |key: &str| port[key].as_str().unwrap_or_default();
        let count = |key: &str| grouped(number(&port[key]));
        let _ = writeln!(told, "{}: {} in, {} out; {}", text("name"), count("received"), count("sent"), text("engine"));
    }
    let unmatched = sum([&report["unmatched"]["forward"], &report["unmatched"]["backward"]]);
    if unmatched > 0 {
        let _ = writeln!(told, "bridged unchanged: {}", grouped(unmatched));
    }
    if number(&report["lost_by_rules"]) > 0 {
        let _ = writeln!(told, "lost by rules: {}", grouped(number(&report["lost_by_rules"])));
    }
    for (place, pipe) in pipes(report).enumerate() {
        let configured = config["pipes"].get(place);
        told.push('\n');
        pipe_lines(&mut told, pipe, configured);
        throughput_lines(&mut told, (report, before), place, configured);
    }
    rule_lines(&mut told, report, config);
    machine(&mut told, report);
    for mark in marks(report) {
        let _ = writeln!(told, "! {mark}");
    }
    told
}

/// Returns the pipes only, without values that depend on the machine.
pub fn pipes_alone(report: &Value, config: &Value) -> String {
    let mut told = String::new();
    for (place, pipe) in pipes(report).enumerate() {
        told.push('\n');
        pipe_lines(&mut told, pipe, config["pipes"].get(place));
    }
    told
}

/// Returns the rules, unless each only directs all packets of one direction into its pipe.
pub fn told_rules(rules: &[Rule]) -> &[Rule] {
    let is_plain = |rule: &Rule| match (&rule.action, rule.on.direction) {
        (Action::Pipe { pipe, class: None }, Some(direction)) => {
            pipe == direction.name() && rule.on == (Match { direction: Some(direction), ..Match::default() })
        }
        _ => false,
    };
    if rules.iter().all(is_plain) { &[] } else { rules }
}

/// Appends each rule with the number of packets that it matched.
fn rule_lines(told: &mut String, report: &Value, config: &Value) {
    let rules: Vec<Rule> = serde_json::from_value(config["rules"].clone()).unwrap_or_default();
    let counters = report["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, rule) in told_rules(&rules).iter().enumerate() {
        let counter = counters.iter().find(|counter| counter["number"] == rule.number);
        let packets = counter.map_or(0, |counter| number(&counter["packets"]));
        let _ = writeln!(told, "{}rule {rule}: {} packets", if place == 0 { "\n" } else { "" }, grouped(packets));
    }
}

fn pipe_lines(told: &mut String, pipe: &Value, configured: Option<&Value>) {
    let count = |key: &str| grouped(number(&pipe[key]));
    let name = pipe["name"].as_str().unwrap_or_default();
    let _ = writeln!(told, "{name}: {}", configured.map(words).unwrap_or_default());
    let _ = writeln!(told, "  packets   {} received, {} sent, {} held", count("arrived"), count("sent"), count("held"));
    let lost: Vec<_> = pipe["lost"].as_object().into_iter().flatten().filter(|(_, lost)| number(lost) > 0).collect();
    if !lost.is_empty() {
        let total = sum(lost.iter().map(|(_, lost)| *lost));
        let causes: Vec<_> = lost.iter().map(|(cause, lost)| format!("{} {cause}", grouped(number(lost)))).collect();
        let share = share(total, sum([&pipe["arrived"], &pipe["duplicated"]]));
        let _ = writeln!(told, "  lost      {} ({share}): {}", grouped(total), causes.join(", "));
    }
    let kinds = ["duplicated", "corrupted", "reordered", "marked", "clipped"];
    let met: Vec<_> =
        kinds.iter().filter(|kind| number(&pipe[**kind]) > 0).map(|kind| format!("{} {kind}", count(kind))).collect();
    if !met.is_empty() {
        let _ = writeln!(told, "  besides   {}", met.join(", "));
    }
    if number(&pipe["most_slots"]) > 0 {
        let bytes = grouped(number(&pipe["most_bytes"]));
        let _ = writeln!(told, "  queue     peak {} packets, {bytes} bytes", count("most_slots"));
    }
    waits(told, "  ", &pipe["queueing_delay"]);
    accuracy(told, &pipe["accuracy"]);
}

/// Appends the queueing delay, if any packet was queued.
fn waits(told: &mut String, indent: &str, waits: &Value) {
    if number(&waits["count"]) > 0 {
        let at = |key: &str| span(waits[key].as_i64().unwrap_or_default());
        let mean = span(waits["mean_ns"].as_f64().unwrap_or_default() as i64);
        let (p50, p99, most) = (at("p50_ns"), at("p99_ns"), at("max_ns"));
        let _ = writeln!(told, "{indent}queueing delay  mean {mean}, p50 {p50}, p99 {p99}, max {most}");
    }
}

/// Appends the throughput of a pipe: since the start, since its last change, and since the previous report.
fn throughput_lines(
    told: &mut String,
    (report, before): (&Value, Option<&Value>),
    place: usize,
    configured: Option<&Value>,
) {
    let Some(pipe) = pipes(report).nth(place) else { return };
    let Some(now) = report["now_ns"].as_i64() else { return };
    let carried = |value: &Value| (number(&value["sent"]), number(&value["sent_bytes"]));
    let whole = carried(pipe);
    let change = pipe["since_change"].as_object().map(|_| &pipe["since_change"]);
    let link =
        configured.filter(|pipe| pipe["link"]["trace"].is_null() && pipe["link"]["cell"].is_null()).and_then(|pipe| {
            Some((pipe["link"]["rate_bps"].as_u64()?, pipe["link"]["overhead_bytes"].as_i64().unwrap_or_default()))
        });
    let rate = |span_ns: i64, (packets, bytes): (u64, u64), link: Option<(u64, i64)>| {
        let seconds = span_ns.max(1) as f64 / 1e9;
        let mut text = bits_per_second(bytes as f64 * 8.0 / seconds);
        if let Some((rate_bps, overhead)) = link {
            let on_link = (bytes as f64 + packets as f64 * overhead as f64) * 8.0;
            let _ = write!(text, ", utilisation {:.1} %", 100.0 * on_link / seconds / rate_bps as f64);
        }
        text
    };
    let since_start = now.saturating_sub(report["start_ns"].as_i64().unwrap_or(now));
    // The link had another rate for part of that time.
    let whole_link = if change.is_some() { None } else { link };
    let _ = writeln!(
        told,
        "  throughput      {} since the start, {} ago",
        rate(since_start, whole, whole_link),
        span(since_start)
    );
    if let Some(last) = before.and_then(|report| Some((report["now_ns"].as_i64()?, pipes(report).nth(place)?))) {
        let (packets, bytes) = carried(last.1);
        let moved = (whole.0.saturating_sub(packets), whole.1.saturating_sub(bytes));
        let since = now.saturating_sub(last.0);
        let _ = writeln!(told, "                  {} in the last {}", rate(since, moved, link), span(since));
    }
    if let Some(change) = change {
        let since = now.saturating_sub(change["at_ns"].as_i64().unwrap_or(now));
        let (arrived, lost) = (number(&change["arrived"]), number(&change["lost"]));
        let _ = writeln!(told, "  since the last change, {} ago:", span(since));
        let _ = writeln!(
            told,
            "    {} received, {} sent, {} lost ({}); {}",
            grouped(arrived),
            grouped(number(&change["sent"])),
            grouped(lost),
            share(lost, arrived),
            rate(since, carried(change), link),
        );
        waits(told, "    ", &change["queueing_delay"]);
    }
}

fn bits_per_second(bps: f64) -> String {
    match bps {
        1e9.. => format!("{:.3} Gbit/s", bps / 1e9),
        1e6.. => format!("{:.3} Mbit/s", bps / 1e6),
        1e3.. => format!("{:.3} kbit/s", bps / 1e3),
        _ => format!("{bps:.0} bit/s"),
    }
}

/// Appends the quantiles of the emulation error.
fn accuracy(told: &mut String, accuracy: &Value) {
    let count = number(&accuracy["count"]);
    if count == 0 {
        return;
    }
    let at = |key: &str| span(accuracy[key].as_i64().unwrap_or_default());
    let _ = writeln!(
        told,
        "  accuracy  p50 {}, p99 {}, p99.9 {}, {} to {}; {} late ({})",
        at("p50_ns"),
        at("p99_ns"),
        at("p999_ns"),
        at("min_ns"),
        at("max_ns"),
        grouped(number(&accuracy["late"])),
        share(number(&accuracy["late"]), count),
    );
}

fn machine(told: &mut String, report: &Value) {
    let memory = &report["memory"];
    let calibration = &report["calibration"];
    let cost = calibration["cost_ns"].as_i64().unwrap_or_default();
    let guard = calibration["guard_ns"].as_i64().unwrap_or_default();
    let _ = writeln!(
        told,
        "\nmemory of frames: {} bytes now, peak {}, limit {}; a departure takes {}; it wakes {} before a departure; {}",
        grouped(number(&memory["held_bytes"])),
        grouped(number(&memory["most_bytes"])),
        grouped(number(&memory["limit_bytes"])),
        span(cost),
        span(guard),
        waiting(calibration["wait"].as_str().unwrap_or_default()),
    );
    let compensated = &report["compensated"];
    let path_delay = compensated["path_delay_ns"].as_i64().unwrap_or_default();
    let source = match compensated["frames"].as_u64() {
        Some(frames) => format!("measured at the start with {} frames", grouped(frames)),
        None => "as given".to_owned(),
    };
    if path_delay > 0 || compensated["frames"].is_u64() {
        let _ = writeln!(told, "path delay compensation: packets leave {} earlier, {source}", span(path_delay));
    }
}

fn pipes(report: &Value) -> impl Iterator<Item = &Value> {
    report["pipes"].as_array().into_iter().flatten()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Adds counters, which an emulator of another version or a damaged answer may have of any size.
fn sum<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    values.into_iter().map(number).fold(0, u64::saturating_add)
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "none".to_owned() } else { format!("{:.3} %", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn emulator_report_is_formatted_for_people() {
        let pipe = Pipe { name: "forward".to_owned(), ..Pipe::default() };
        let pipe = sojourn_emulate::config::pipe_from_words("delay 20ms loss 1%", &pipe).unwrap();
        let config = json!({ "pipes": [pipe] });
        let accuracy = json!({
            "count": 9_900, "late": 3, "p50_ns": 120, "p99_ns": 12_000, "p999_ns": 40_000, "min_ns": -300, "max_ns": 1_200_000,
        });
        let report = json!({
            "budget_ns": 100_000,
            "pipes": [{
                "name": "forward", "arrived": 10_000, "sent": 9_900, "held": 12, "duplicated": 0, "accuracy": accuracy,
                "lost": { "before": 88, "full": 0 },
            }],
            "unmatched": { "forward": 0, "backward": 7 },
            "memory": { "held_bytes": 720, "most_bytes": 30_000, "limit_bytes": 268_435_456 },
            "ports": [{ "name": "eth1", "engine": "AF_PACKET", "received": 10_000, "sent": 7, "local_drops": 0, "refused": 0 }],
            "calibration": { "cost_ns": 5_210, "guard_ns": 100_000, "wait": "sleep-then-spin" },
        });
        let expected = "eth1: 10,000 in, 7 out; AF_PACKET
bridged unchanged: 7

forward: loss 1% delay 20ms
  packets   10,000 received, 9,900 sent, 12 held
  lost      88 (0.880 %): 88 before
  accuracy  p50 120 ns, p99 12.0 µs, p99.9 40.0 µs, -300 ns to 1.20 ms; 3 late (0.030 %)

memory of frames: 720 bytes now, peak 30,000, limit 268,435,456; a departure takes 5.21 µs; it wakes 100 µs before a departure; it sleeps until \
                        shortly before each departure
! forward: 3 of 9,900 packets (0.030 %) left later than the budget of 100 µs
";
        assert_eq!(table(&report, &config, None), expected);
    }

    #[test]
    fn rate_and_loss_are_checked_over_the_time_since_the_last_change() {
        let pipe = Pipe { name: "forward".to_owned(), ..Pipe::default() };
        let pipe = sojourn_emulate::config::pipe_from_words("rate 20Mbit/s overhead 24 loss 0.1%", &pipe).unwrap();
        let report = |now_ns: i64, sent: u64| {
            json!({
                "start_ns": 0, "now_ns": now_ns,
                "pipes": [{
                    "name": "forward", "arrived": 10_000, "sent": sent, "sent_bytes": sent * 1_226, "held": 0,
                    "lost": { "before": 228 },
                    "queueing_delay": { "count": 9, "mean_ns": 5.2e6, "p50_ns": 4_000_000, "p99_ns": 9_000_000, "max_ns": 12_000_000 },
                    "since_change": {
                        "at_ns": 5_000_000_000_i64, "arrived": 4_000, "sent": 3_996, "sent_bytes": 3_996 * 1_226, "lost": 4,
                        "queueing_delay": { "count": 3_996, "mean_ns": 2.5e6, "p50_ns": 2_000_000, "p99_ns": 4_000_000, "max_ns": 5_000_000 },
                    },
                }],
            })
        };
        let told =
            table(&report(10_000_000_000, 9_772), &json!({ "pipes": [pipe] }), Some(&report(9_000_000_000, 8_172)));
        let expected = "  lost      228 (2.280 %): 228 before
  queueing delay  mean 5.20 ms, p50 4.00 ms, p99 9.00 ms, max 12.0 ms
  throughput      9.584 Mbit/s since the start, 10.0 s ago
                  15.693 Mbit/s, utilisation 80.0 % in the last 1.00 s
  since the last change, 5.00 s ago:
    4,000 received, 3,996 sent, 4 lost (0.100 %); 7.839 Mbit/s, utilisation 40.0 %
    queueing delay  mean 2.50 ms, p50 2.00 ms, p99 4.00 ms, max 5.00 ms
";
        assert!(told.contains(expected), "{told}");
    }

    /// Each of these ended the program with an overflow.
    #[test]
    fn report_with_counters_and_times_of_any_size_is_shown() {
        let most = u64::MAX;
        let report = json!({
            "start_ns": i64::MIN, "now_ns": i64::MAX, "unmatched": { "forward": most, "backward": most },
            "ports": [{ "name": "eth1", "local_drops": most, "refused": most }],
            "pipes": [{
                "name": "forward", "arrived": most, "duplicated": most, "lost": { "before": most, "full": most },
                "since_change": { "at_ns": i64::MIN },
            }],
        });
        let told = table(&report, &json!({}), Some(&json!({ "now_ns": i64::MIN, "pipes": [{}] })));
        assert!(told.contains("bridged unchanged: 18,446,744,073,709,551,615\n"), "{told}");
    }

    #[test]
    fn rules_are_shown_with_their_counters_except_trivial_ones() {
        let rule = |pipe: &str, dscp| Rule {
            number: 100,
            on: Match { direction: Some(sojourn_emulate::Direction::Forward), dscp, ..Match::default() },
            action: Action::Pipe { pipe: pipe.to_owned(), class: None },
        };
        assert!(told_rules(&[rule("forward", None)]).is_empty());
        let report = json!({ "rules": [{ "number": 100, "packets": 1_234, "bytes": 1 }] });
        let mut told = String::new();
        rule_lines(&mut told, &report, &json!({ "rules": [rule("shared", Some(10))] }));
        assert_eq!(told, "\nrule 100 pipe shared: forward dscp 10: 1,234 packets\n");
    }
}
