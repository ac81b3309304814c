//! Finds what makes the results of one block doubtful, from its records alone.

use sojourn_record::{Block, Finding, Probe};
use sojourn_time::{Nanos, Source};

/// A finding, with its values in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The finding.
    pub finding: Finding,
    /// The sentence with the observed values.
    pub sentence: String,
}

/// Returns the findings about a block and its probes. With `by_calls`, departures are the times of the calls by
/// request: together with kernel RX timestamps they are not reported as mixed sources.
pub fn judge(block: &Block, probes: &[Probe], by_calls: bool) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |finding, sentence: Option<String>| {
        found.extend(sentence.map(|sentence| Found { finding, sentence }));
    };
    let counts = block.counts;
    let of_sent = |n: u64, what: &str| (n > 0).then(|| format!("{n} of {} probes {what}", counts.sent));
    add(Finding::ClockStepped, clock_step(block));
    add(Finding::SenderLate, sender_late(block, probes));
    add(
        Finding::LocalDrops,
        (counts.local_drops > 0).then(|| format!("our own machine dropped {}", counts.local_drops)),
    );
    add(Finding::MixedTimestamps, mixed_timestamps(probes, by_calls));
    add(Finding::UserTimestamps, user_timestamps(probes));
    add(Finding::Loss, of_sent(counts.lost, "stayed without an answer"));
    add(Finding::LateReplies, of_sent(counts.late, "were answered after the timeout"));
    add(Finding::Reordering, of_sent(counts.reordered, "were answered after a later one"));
    add(Finding::Duplication, (counts.duplicated > 0).then(|| format!("{} extra replies", counts.duplicated)));
    found
}

/// Compares the clock with the raw one. The limit allows for slewing, 500 ppm at most in the kernel, and for reading
/// errors.
fn clock_step(block: &Block) -> Option<String> {
    let elapsed = block.ended_raw - block.started_raw;
    let step = (block.ended - block.started) - elapsed;
    let limit = Nanos(elapsed.0 / 1_000) + block.clock_error + block.clock_error + Nanos::micros(10);
    (step.0.abs() > limit.0).then(|| format!("the clock moved by {:.3} ms against the raw one", step.0 as f64 / 1e6))
}

/// The largest share of late departures at which the schedule is still considered kept.
pub const LATE_SHARE: f64 = 0.05;

/// Returns the largest lateness of a departure that still counts as punctual: a tenth of the interval, which changes no
/// mean rate by more, and at least 10 µs, since a timer's wake-up and the kernel's own work take that long on any host.
pub fn late_limit(interval: Nanos) -> Nanos {
    Nanos(interval.0 / 10).max(Nanos::micros(10))
}

/// Returns the sentence of `sender_late`.
pub fn late_sentence(what: &str, share: f64, limit: Nanos) -> String {
    format!(
        "{:.1} % of the {what} left more than {:.1} µs (a tenth of the interval, 10 µs at least) after their intended \
         departure; more than {:.0} % must not",
        share * 100.0,
        limit.0 as f64 / 1e3,
        LATE_SHARE * 100.0,
    )
}

/// A closed loop has no schedule, so it is never late.
fn sender_late(block: &Block, probes: &[Probe]) -> Option<String> {
    if block.schedule == crate::Schedule::ClosedLoop.name() {
        return None;
    }
    let limit = late_limit(block.interval);
    let measured = || probes.iter().filter(|probe| !probe.is_warmup);
    let late = measured().filter(|probe| probe.pacing_error() > limit).count();
    let share = late as f64 / measured().count().max(1) as f64;
    (share > LATE_SHARE).then(|| late_sentence("probes", share, limit))
}

fn mixed_timestamps(probes: &[Probe], by_calls: bool) -> Option<String> {
    let departures = probes.iter().filter(|_| !by_calls).map(|probe| probe.departure.source);
    let arrivals = probes.iter().filter_map(|probe| probe.reply.map(|reply| reply.arrival.source));
    let mut all = departures.chain(arrivals);
    let first = all.next()?;
    let other = all.find(|source| *source != first)?;
    Some(format!("some are taken by {}, some by {}", first.name(), other.name()))
}

fn user_timestamps(probes: &[Probe]) -> Option<String> {
    let is_user = |probe: &&Probe| {
        probe.departure.source == Source::User || probe.reply.is_some_and(|reply| reply.arrival.source == Source::User)
    };
    let n = probes.iter().filter(is_user).count();
    (n > 0).then(|| format!("{n} of {} probes were stamped by the program, not the kernel", probes.len()))
}

#[cfg(test)]
mod tests {
    use sojourn_record::Reply;
    use sojourn_time::{Stamp, Time};

    use super::*;

    fn arrived(source: Source) -> Probe {
        let arrival = Stamp { at: Time(9), source };
        let reply = Some(Reply { arrival, receive_call: Time(10), responder: None });
        Probe { reply, ..Probe::new(0, false, Time(0), Time(1)) }
    }

    #[test]
    fn mixed_timestamp_sources_are_a_finding_unless_requested() {
        let probes = [arrived(Source::Kernel), arrived(Source::Kernel)];
        assert_eq!(mixed_timestamps(&probes, false).as_deref(), Some("some are taken by user, some by kernel"));
        assert_eq!(mixed_timestamps(&probes, true), None);
        let arrivals = [arrived(Source::Kernel), arrived(Source::User)];
        assert_eq!(mixed_timestamps(&arrivals, true).as_deref(), Some("some are taken by kernel, some by user"));
        assert!(user_timestamps(&probes).is_some(), "the source stays disclosed");
    }

    /// Departures for which the analysis of studies (tests/unit/test_sender_late.py) and `stream send` must agree.
    const CASES: &str = include_str!("../../../tests/sender_late.json");

    #[test]
    fn late_departures_are_judged_as_in_a_study() {
        let told: serde_json::Value = serde_json::from_str(CASES).unwrap();
        for case in told["cases"].as_array().unwrap() {
            let block = Block { interval: Nanos(case["interval_ns"].as_i64().unwrap()), ..block() };
            let mut probes = Vec::new();
            for group in case["departures"].as_array().unwrap() {
                let (count, late) = (group[0].as_u64().unwrap(), group[1].as_i64().unwrap());
                let at = Stamp { at: Time(1_000_000_000 + late), source: Source::Kernel };
                let probe = Probe { departure: at, ..Probe::new(0, false, Time(1_000_000_000), Time(0)) };
                probes.extend((0..count).map(|_| probe));
            }
            let found = judge(&block, &probes, false).iter().any(|found| found.finding == Finding::SenderLate);
            assert_eq!(found, case["is_late"].as_bool().unwrap(), "{}", case["name"]);
        }
    }

    fn block() -> Block {
        Block {
            block: 1,
            device: String::new(),
            round: 0,
            visit: 0,
            cell: 0,
            via: "icmp",
            kind: "icmp",
            schedule: crate::Schedule::Regular.name(),
            interval: Nanos::ZERO,
            count: 0,
            warmup: 0,
            seed: 0,
            request_payload_bytes: 0,
            response_payload_bytes: 0,
            request_frame_bytes: 0,
            response_frame_bytes: 0,
            timeout: Nanos::ZERO,
            started: Time(0),
            ended: Time(0),
            started_raw: Time(0),
            ended_raw: Time(0),
            clock_error: Nanos::ZERO,
            counts: sojourn_record::Counts::default(),
            responder_kernel: true,
            wait: "",
            cpu: None,
            fifo: false,
            dscp: None,
        }
    }
}
