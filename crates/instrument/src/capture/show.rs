//! Formats the results of a capture, as JSON and as text.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use sojourn_time::Source;

use super::session::{Ended, TapEnded};
use crate::numbers::{grouped, span};

/// Returns the results as JSON.
pub fn json(ended: &Ended) -> Value {
    json!({
        "capture": 1,
        "instrument": { "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE },
        "why": ended.why.name(),
        "started_ns": ended.took.started.tai,
        "ended_ns": ended.took.ended.tai,
        "processor_time_ns": ended.took.processor,
        "files": ended.files,
        "removed": ended.removed,
        "taps": ended.taps.iter().map(tap_json).collect::<Vec<_>>(),
        "findings": ended.findings().json(),
    })
}

fn tap_json(tap: &TapEnded) -> Value {
    let counts = &tap.counts;
    let sources = sources(tap).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
    json!({
        "name": tap.wanted.name,
        "interface": tap.wanted.interface,
        "frames_in": counts.frames_in,
        "frames_out": counts.frames_out,
        "octets_in": counts.octets_in,
        "octets_out": counts.octets_out,
        "fragments": counts.fragments,
        "super_frames": counts.super_frames,
        "cut": counts.cut,
        "without_key": counts.without_key,
        "sources": sources.collect::<serde_json::Map<_, _>>(),
        "first_ns": counts.first,
        "last_ns": counts.last,
        "account": tap.account,
        "ring_bytes": tap.ring_bytes,
        "options": tap.wanted.options.told(),
    })
}

/// Returns the results as text.
pub fn text(ended: &Ended, folder: &Path) -> String {
    let mut text = taps_text(ended);
    let took = ended.took.ended.tai - ended.took.started.tai;
    let _ = writeln!(text, "{} of capture in {}", span(took.0), folder.display());
    if ended.removed > 0 {
        let _ = writeln!(text, "{} of the oldest files were removed, as was asked", grouped(ended.removed));
    }
    text + &ended.findings().text()
}

/// Returns the counters of each tap as text.
pub fn taps_text(ended: &Ended) -> String {
    ended.taps.iter().map(tap_text).collect()
}

fn tap_text(tap: &TapEnded) -> String {
    let (counts, account) = (&tap.counts, &tap.account);
    let mut parts = vec![
        format!("{} in", grouped(counts.frames_in)),
        format!("{} out", grouped(counts.frames_out)),
        format!("{} dropped by this capture", grouped(account.dropped)),
    ];
    let others = [
        (counts.fragments, "fragments"),
        (counts.super_frames, "stand for several on the wire (GRO, GSO)"),
        (counts.without_key, "cannot carry the key"),
        (account.unread, "left in the ring"),
    ];
    parts.extend(others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", grouped(*n))));
    let stamped = sources(tap).iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    let stamped = if stamped.is_empty() { tap.source.name() } else { &stamped };
    let mut text = format!("{}: frames: {}; timestamps: {stamped}\n", tap.wanted.interface, parts.join(", "));
    if let Some(line) = conservation(tap) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// Compares the tap's counters with those of the interface.
fn conservation(tap: &TapEnded) -> Option<String> {
    let (before, after) = tap.counters?;
    let Some([received, sent]) = after.passed_since(&before) else {
        return Some("the interface's counters went back meanwhile: what it counted is not known".to_owned());
    };
    let counted = format!("the interface counted {} in, {} out", grouped(received), grouped(sent));
    Some(match tap.account.difference {
        Some(0) => format!("{counted}: each was seen or dropped"),
        Some(more @ 1..) => format!("{counted}: {} more than passed the tap", grouped(more.unsigned_abs())),
        Some(fewer) => format!("{counted}: {} fewer than passed the tap", grouped(fewer.unsigned_abs())),
        None => format!("{counted}; the filter let {} through", grouped(tap.account.accepted)),
    })
}

fn sources(tap: &TapEnded) -> Vec<(&'static str, u64)> {
    let all = Source::ALL;
    all.iter().map(|source| (source.name(), tap.counts.stamped_by(*source))).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use sojourn_capture::{Account, Counts, Directions, Totals};
    use sojourn_port::kernel::Counters;

    use super::super::arguments::TapOptions;
    use super::super::session::Wanted;
    use super::*;

    /// A tap that saw three frames, while its interface's counters went from 10 and 10 to these values.
    fn tap(received: u64, sent: u64) -> TapEnded {
        let counts = Counts { frames_in: 2, frames_out: 1, ..Counts::default() };
        let [before, after] =
            [(10, 10), (received, sent)].map(|(received, sent)| Counters { received, sent, ..Counters::default() });
        let totals = Totals { accepted: 3, ..Totals::default() };
        let counters = (Some(before), Some(after));
        TapEnded {
            wanted: Wanted { name: "a".to_owned(), interface: "eth1".to_owned(), options: TapOptions::default() },
            counts,
            account: Account::of(&counts, totals, counters, Directions::Both, [false, false]),
            counters: Some((before, after)),
            source: Source::Kernel,
            ring_bytes: 1 << 20,
        }
    }

    #[test]
    fn decreased_interface_counters_are_reported() {
        assert!(tap_text(&tap(12, 11)).ends_with("the interface counted 2 in, 1 out: each was seen or dropped\n"));
        for (received, sent) in [(2, 11), (12, 1)] {
            let tap = tap(received, sent);
            let text = tap_text(&tap);
            assert!(text.ends_with("counters went back meanwhile: what it counted is not known\n"), "{text}");
            assert_eq!(tap_json(&tap)["account"]["interface"], Value::Null);
        }
    }

    #[test]
    fn filter_is_not_shown_for_an_anonymised_capture() {
        let mut tap = tap(12, 11);
        tap.wanted.options.filter = "host 192.0.2.7".to_owned();
        assert_eq!(tap_json(&tap)["options"]["filter"], "host 192.0.2.7");
        tap.wanted.options.anonymise = Some("key".into());
        assert!(!tap_json(&tap).to_string().contains("192.0.2.7"));
    }
}
