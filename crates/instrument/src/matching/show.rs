//! Prints the summary, as text or JSON.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;
use sojourn_emulate::config::units;

use super::arguments::Match;
use crate::numbers::{grouped, loss, span};
use crate::printed::printed;

/// Prints the results.
///
/// # Errors
/// If standard output cannot be written.
pub fn tell(asked: &Match, told: &Value) -> anyhow::Result<()> {
    let mut output = printed();
    if asked.json {
        writeln!(output, "{told}")?;
    } else {
        write!(output, "{}", text(asked, told))?;
    }
    Ok(())
}

fn text(asked: &Match, told: &Value) -> String {
    let mut lines = Lines(String::new());
    let key = told["key"].as_str().unwrap_or_default();
    lines.add(&format!("matched by the key {key}, within {}", span(asked.window.0)));
    for tap in elements(&told["taps"]) {
        of_tap(&mut lines, tap);
    }
    for pair in elements(&told["pairs"]) {
        of_pair(&mut lines, asked, pair);
    }
    lines.0
}

/// The lines of a text.
struct Lines(String);

impl Lines {
    fn add(&mut self, line: &str) {
        let _ = writeln!(self.0, "{line}");
    }

    /// Adds a line if a number is not 0.
    fn note(&mut self, number: u64, line: &str) {
        if number > 0 {
            self.add(&format!("  note: {} {line}", grouped(number)));
        }
    }
}

fn of_tap(lines: &mut Lines, tap: &Value) {
    let number = |name: &str| tap[name].as_u64().unwrap_or(0);
    lines.add(&format!("{}: {} packets", tap["name"].as_str().unwrap_or_default(), grouped(number("packets"))));
    lines.note(number("without_key"), "of them cannot carry the key, and are matched with nothing");
    lines.note(number("too_short"), "of them were kept too short to be compared");
    lines.note(number("of_other_interfaces"), "more are of other interfaces");
    lines.note(number("dropped_by_capture"), "more the capture says that it dropped: they look lost, or unexpected");
    let skipped = |name: &str| tap["skipped"][name].as_u64().unwrap_or(0);
    if tap["dropped_by_capture"].is_null() && !tap["interface"].is_null() {
        lines.add(
            "  note: how many packets the tap dropped is not known: its file of tap_counts is missing or has no row",
        );
    }
    lines.note(skipped("untimed"), "more have no time: they were saved as simple packet blocks");
    lines.note(skipped("of_other_links"), "more are of a link whose frames are not known");
    lines.note(
        skipped("malformed"),
        "more have blocks that contradict themselves, or times more than 146 years away from 1970",
    );
    lines.note(number("stepped_back"), "of them are stamped earlier than the packet before them");
    let resolution = number("resolution_ns");
    if resolution > 1 {
        lines.add(&format!("  note: its timestamps are to {}; delays are no finer", span(resolution.cast_signed())));
    }
    if let Some(problem) = tap["ended_early"].as_str() {
        lines.add(&format!("  note: it ends too early ({problem}); what was before is matched"));
    }
}

fn of_pair(lines: &mut Lines, asked: &Match, pair: &Value) {
    let name = |which: &str| pair[which].as_str().unwrap_or_default();
    for way in elements(&pair["directions"]) {
        let is_forward = way["direction"] == "forward";
        let (from, to) = if is_forward { ("first", "second") } else { ("second", "first") };
        lines.add("");
        lines.add(&format!("{} → {} ({})", name(from), name(to), name("direction_rule")));
        of_counts(lines, way);
        of_delays(lines, asked, way);
    }
    lines.note(
        pair["direction_assumed"].as_u64().unwrap_or(0),
        "packets, of both taps, are taken to go forward because nothing says which way they go: where they go backward they look lost \
         and unexpected; give --direction, or capture with `sojourn capture`, which records it",
    );
    lines.add("");
    of_clocks(lines, &pair["clocks"], pair["aligned_by_ns"].as_i64());
}

fn of_counts(lines: &mut Lines, way: &Value) {
    let count = |name: &str| way["counts"][name].as_u64().unwrap_or(0);
    let counted = |name: &str| grouped(count(name));
    let evicted = if count("evicted") > 0 { format!(" + {} evicted", counted("evicted")) } else { String::new() };
    lines.add(&format!(
        "  seen first   {} = {} matched + {} lost{evicted} + {} pending at the end",
        counted("seen_first"),
        counted("matched"),
        counted("lost"),
        counted("pending")
    ));
    lines.add(&format!(
        "  seen second  {} = {} matched + {} duplicated + {} unexpected",
        counted("seen_second"),
        counted("matched"),
        counted("duplicated"),
        counted("unexpected")
    ));
    let told = |name: &str| way[name].as_u64().unwrap_or(0);
    let whole = told("had_window");
    if whole > 0 {
        let lost = loss(count("lost"), told("loss_runs"), whole);
        lines.add(&format!("  loss         {lost} of {} whose window was over", grouped(whole)));
    }
    let extent = count("reordering_extent_max");
    lines.add(&match count("reordered") {
        0 => "  reordering   none".to_owned(),
        some => format!("  reordering   {} reordered, extent {extent} at most (RFC 4737)", grouped(some)),
    });
    lines.note(
        count("ambiguous"),
        "of the matches are ambiguous: their tap saw another packet with the same digest within the window",
    );
    lines.note(
        count("evicted"),
        "packets were evicted before their window was over: give --memory more, or a shorter --window",
    );
    lines.note(
        count("matched_early"),
        "of the matches were evicted before their window was over, so copies of them look unexpected: give --memory more, or a shorter --window",
    );
    lines.note(
        count("judged_early"),
        "packets of the other tap were judged before the first tap's clock could catch up: give --memory more, or a shorter --window",
    );
    lines.note(
        count("lost_at_end"),
        "of the lost ones were seen after the other tap's last packet: it may have ended earlier",
    );
    lines.note(
        count("unexpected_at_start"),
        "of the unexpected ones came as the first tap began: they may have entered before",
    );
    of_pieces(lines, way);
}

/// Explains why packets that arrived stay unmatched: fragments and offloads make one packet at one tap several at the other.
fn of_pieces(lines: &mut Lines, way: &Value) {
    let told = |name: &str| way[name].as_u64().unwrap_or(0);
    let of_both = |what: &str| ["lost", "pending", "unexpected"].iter().map(|one| told(&format!("{one}_{what}"))).sum();
    let count = |name: &str| way["counts"][name].as_u64().unwrap_or(0);
    if count("lost") + count("pending") + count("evicted") > 0 && count("unexpected") > 0 {
        lines.note(
            of_both("fragments"),
            "fragments were seen by one tap only, and so were other packets by the other tap: packets may have been cut, cut differently, or put \
             together between the taps",
        );
    }
    lines.note(
        of_both("super_packets"),
        "unmatched packets are longer than the MTU: the kernel held several as one (GRO, GSO); switch that off with ethtool -K, or give --mtu",
    );
}

fn of_delays(lines: &mut Lines, asked: &Match, way: &Value) {
    let delay = &way["delay"];
    if delay.is_null() {
        return;
    }
    let is_above = delay["of"] == "above the least";
    let title = if is_above { "  delay above the least" } else { "  delay" };
    let without = asked.subtract_serialisation.map_or(String::new(), |rate| {
        format!(", without serialisation at {} (frame, FCS, preamble)", units::rate_text(rate))
    });
    lines.add(&format!("{title}{without}, with 95 % intervals of order statistics"));
    percentiles(lines, delay);
    if delay["sampled"] == true {
        let n = delay["n"].as_u64().unwrap_or(0);
        lines.add(&format!("    of {} packets drawn at random", grouped(n)));
    }
    if !way["delay_unambiguous"].is_null() {
        lines.add("  the same of the matches that are not ambiguous");
        percentiles(lines, &way["delay_unambiguous"]);
    }
    let negative = delay["negative"].as_u64().unwrap_or(0);
    lines.note(
        negative,
        "delays are negative: the clocks differ by more than is known, or the stamps are not of one place",
    );
    lines.note(
        way["mixed_timestamps"].as_u64().unwrap_or(0),
        "of the delays are between timestamps of different sources, taken at different places of the stack: they contain what lies between; \
         capture both with the same --tap and --source",
    );
    let slope = &way["slope"];
    if let (Some(value), Some(low), Some(high)) =
        (slope["ns_per_octet"].as_f64(), slope["low"].as_f64(), slope["high"].as_f64())
    {
        lines.add(&format!("  against size  {value:.3} ns for each octet (95 % CI {low:.3} to {high:.3}, Theil–Sen)"));
    }
}

fn percentiles(lines: &mut Lines, delay: &Value) {
    let plain = |name: &str| span(delay[name].as_i64().unwrap_or(0));
    let mean = delay["mean_ns"].as_f64().unwrap_or(0.0).round() as i64;
    lines.add(&format!("    min {}, mean {}, max {}", plain("min_ns"), span(mean), plain("max_ns")));
    for (name, title) in
        [("p1", "p1"), ("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99_9", "p99.9"), ("p99_99", "p99.99")]
    {
        let told = &delay[format!("{name}_ns")];
        let Some(value) = told["value"].as_i64() else { continue };
        let end = |name: &str, missing: &str| told[name].as_i64().map_or(missing.to_owned(), span);
        lines.add(&format!("    {title:<7} {} ({} to {})", span(value), end("low", "…"), end("high", "…")));
    }
}

fn of_clocks(lines: &mut Lines, clocks: &Value, aligned_by: Option<i64>) {
    let number = |name: &str| clocks[name].as_f64().unwrap_or(0.0);
    match clocks["relation"].as_str() {
        Some("one") => lines.add("clocks: one for both taps"),
        Some("estimated") => {
            lines.add(&format!(
                "clocks: the second tap's is ahead by {}, and gains {:.1} ppb; maximum error of every delay {}, 95 % within {} where the least delays both ways differ by a fifth of the round trip at most",
                span(number("offset_ns").round() as i64),
                number("skew_ppb"),
                span(number("maximum_error_ns").ceil() as i64),
                span(number("error95_ns").ceil() as i64)
            ));
            for found in elements(&clocks["findings"]) {
                lines.add(&format!("  note: {}", found["sentence"].as_str().unwrap_or_default()));
            }
        }
        _ => lines.add(
            "clocks: unknown, for packets went one way only: every delay has the same unknown part, and what the clocks drift; \
             give --same-clock if both taps stamp by one clock",
        ),
    }
    match aligned_by {
        Some(0) => {}
        Some(by) => lines.add(&format!("  times of the second tap were moved by {} to find its packets", span(-by))),
        None => lines.add(
            "  note: the beginnings of the captures have no packets in common, so the clocks were taken as they are: if they differ by \
             more than the window, nothing matches",
        ),
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
