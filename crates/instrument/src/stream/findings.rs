//! Findings about a stream: what makes its results doubtful, and what is worth knowing.

use serde_json::{Value, json};
use sojourn_probe::{Found, LATE_SHARE, late_limit, late_sentence};
use sojourn_record::{Finding, Severity};
use sojourn_stream::goodness::chance;
use sojourn_stream::{FlowReceived, FlowSent, Pattern, Schedule, Unexpected};
use sojourn_time::Nanos;

use super::clocks::Known;
use super::host::Took;
use crate::failure::NotTrusted;

/// The maximum relative difference between achieved and requested rate.
const LOAD_MISSED: f64 = 0.005;
/// The maximum relative excess of the sending time over the schedule, and an excess that is never a finding.
const STRETCHED: f64 = 0.001;
const STRETCHED_LEAST: Nanos = Nanos::micros(200);
/// The number of unexpected frames from which they are a finding: a few retries of a refused sender are not.
const MANY_UNEXPECTED: u64 = 10;
/// The p-value below which a Poisson stream does not fit.
pub const MISFIT: f64 = 0.01;

/// Returns a sentence on whether inter-departure times are exponential, as those of a Poisson stream are.
pub fn gaps(fit: sojourn_stream::Fit) -> String {
    let verdict = if fit.p < MISFIT { "are not exponentially distributed" } else { "fit an exponential distribution" };
    let p = if fit.p < 1e-4 { "p < 0.0001".to_owned() } else { format!("p = {:.4}", fit.p) };
    let critical = fit.critical(MISFIT);
    let (level, a2, n) = (MISFIT * 100.0, fit.a2, fit.n);
    format!(
        "the gaps as sent {verdict} (Anderson–Darling: A² = {a2:.2}, critical value {critical:.2} at {level:.0} %, {p}, n = {n})"
    )
}

/// Returns the number of unexpected frames, and their kinds.
pub fn unexpected_of(unexpected: Unexpected) -> String {
    let Unexpected { foreign, packets, exchanges, ends, greetings, to_group } = unexpected;
    let kinds = [
        (packets, "packets"),
        (exchanges, "exchanges of times"),
        (ends, "ends"),
        (greetings, "greetings"),
        (to_group, "to a broadcast address or to a group that was not joined"),
        (foreign, "others"),
    ];
    let told: Vec<String> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    format!("{} unexpected frames ({})", unexpected.total(), told.join(", "))
}

/// The findings collected so far.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<Found>);

impl Findings {
    /// Starts with the findings about this program.
    pub fn new(is_simulated: bool) -> Self {
        let mut found = Self::default();
        found.add_if(cfg!(debug_assertions) && !is_simulated, Finding::DebugBuild, || {
            "this instrument was built without optimisation".to_owned()
        });
        found
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding, sentence: String) {
        self.0.push(Found { finding, sentence });
    }

    /// Adds a finding if a condition holds.
    pub fn add_if(&mut self, is_so: bool, finding: Finding, sentence: impl FnOnce() -> String) {
        if is_so {
            self.add(finding, sentence());
        }
    }

    /// Adds the finding of a clock step during the measurement.
    pub fn of_host(&mut self, took: &Took) {
        if let Some(step) = took.step() {
            let ms = step.0 as f64 / 1e6;
            self.add(Finding::ClockStepped, format!("the clock moved by {ms:.3} ms against the raw one"));
        }
    }

    /// Adds the findings of a sender about a flow.
    pub fn of_sender(&mut self, flow: &FlowSent, schedule: &Schedule) {
        let counts = flow.counts;
        self.add_if(counts.refused > 0, Finding::SenderRefused, || {
            format!("our own queue refused {} of {} frames", counts.refused, counts.asked)
        });
        if schedule.pattern == Pattern::Flood {
            return;
        }
        self.of_pace(flow);
        let interval = if flow.asked_pps > 0.0 { 1e9 / flow.asked_pps } else { 1e9 };
        let limit = late_limit(Nanos(interval as i64));
        let late = flow.pacing_error.share_above(limit.0);
        self.add_if(late > LATE_SHARE, Finding::SenderLate, || late_sentence("frames", late, limit));
    }

    /// Adds the joint finding of the tests of all Poisson flows: of several, one may fail by chance. Studies apply the
    /// same rule to the trials of a cell.
    pub fn of_departures(&mut self, fits: &[sojourn_stream::Fit]) {
        let failing: Vec<_> = fits.iter().filter(|fit| fit.p < MISFIT).collect();
        let chance = chance(failing.len(), fits.len(), MISFIT);
        let worst = failing.iter().max_by(|one, other| one.a2.total_cmp(&other.a2));
        let Some(worst) = worst.filter(|_| chance <= MISFIT * (1.0 + 1e-9)) else { return };
        let of = match fits.len() {
            1 => String::new(),
            tests => format!("in {} of {tests} streams, of which the worst: ", failing.len()),
        };
        self.add(Finding::PoissonMisfit, of + &gaps(**worst));
    }

    fn of_pace(&mut self, flow: &FlowSent) {
        let (Some(first), Some(last), true) = (flow.first, flow.last, flow.intended_pps > 0.0) else { return };
        let intended = flow.counts.sent.saturating_sub(1) as f64 * 1e9 / flow.intended_pps;
        let excess = (last - first).0 as f64 - intended;
        let limit = (intended * STRETCHED).max(STRETCHED_LEAST.0 as f64);
        self.add_if(excess > limit, Finding::DurationStretched, || {
            let percent = excess * 100.0 / intended;
            format!("sending took {:.3} ms longer than scheduled ({percent:.2} %)", excess / 1e6)
        });
        let offered = flow.achieved_pps / flow.intended_pps;
        let is_off = (offered - 1.0).abs() > LOAD_MISSED && excess.abs() > STRETCHED_LEAST.0 as f64;
        self.add_if(is_off, Finding::LoadMissed, || {
            format!("{:.1} frames a second were to be offered, and {:.1} were", flow.intended_pps, flow.achieved_pps)
        });
    }

    /// Adds the findings about a receiver's clock.
    pub fn of_clock(&mut self, known: &Known) {
        let estimate = match &known.estimate {
            Ok(estimate) => estimate,
            Err(problem) => {
                let peer = &known.peer;
                return self.add(Finding::ClockUnsynchronised, format!("the clock of {peer} is not known: {problem}"));
            }
        };
        for found in &estimate.findings {
            let finding = Finding::ALL.iter().find(|finding| finding.name() == found.finding.name());
            self.add(*finding.unwrap_or(&Finding::ClockUnsynchronised), found.sentence.clone());
        }
    }

    /// Adds the findings of a receiver about a flow. Late frames are reported only if both ends share a clock, because
    /// lateness compares times of both.
    pub fn of_receiver(&mut self, flow: &FlowReceived, is_one_clock: bool) {
        let counts = flow.counts;
        let sent = counts.packets();
        let mut of_sent = |n: u64, finding, what: &str| {
            self.add_if(n > 0, finding, || format!("{n} of {sent} frames {what}"));
        };
        of_sent(counts.lost, Finding::Loss, "did not arrive");
        of_sent(if is_one_clock { counts.late } else { 0 }, Finding::LateFrames, "took longer than the limit");
        of_sent(counts.reordered, Finding::Reordering, "arrived after a later one");
        of_sent(counts.corrupted, Finding::Corruption, "arrived damaged");
        self.add_if(counts.duplicated > 0, Finding::Duplication, || {
            format!("{} frames arrived again", counts.duplicated)
        });
        self.add_if(counts.excess > 0, Finding::CountsContradict, || {
            format!("at least {} more frames of flow {} arrived than its sender says it sent", counts.excess, flow.flow)
        });
    }

    /// Adds the finding of frames that belong to no requested stream; no other figure includes them.
    pub fn of_unexpected(&mut self, unexpected: Unexpected) {
        self.add_if(unexpected.total() >= MANY_UNEXPECTED, Finding::UnexpectedFrames, || {
            format!("{} came and changed no figure: another sender, or a forger", unexpected_of(unexpected))
        });
    }

    /// Adds the findings of local drops at the receiver's socket, and the fix.
    pub fn of_local_drops(&mut self, drops: u64, via: &str) {
        let fix = match via {
            "xdp" => "the ring of the XDP socket was full: free the processor that receives, or use --engine live",
            _ => {
                "the socket's receive buffer was full: ask for more with --buffer-bytes, raise its limit \
                 (`sysctl -w net.core.rmem_max=67108864`), or free the processor that receives"
            }
        };
        self.add_if(drops > 0, Finding::LocalDrops, || format!("our own machine dropped {drops} frames"));
        self.add_if(drops > 0, Finding::BufferTooSmall, || fix.to_owned());
    }

    /// Returns the findings as JSON.
    pub fn json(&self) -> Vec<Value> {
        let one = |found: &Found| {
            json!({
                "name": found.finding.name(), "severity": found.finding.severity(), "sentence": found.sentence,
            })
        };
        self.0.iter().map(one).collect()
    }

    /// Returns the findings as text, one per line.
    pub fn text(&self) -> String {
        let line = |found: &Found| {
            let severity = format!("{:?}", found.finding.severity()).to_lowercase();
            format!("{severity}: {} ({})\n", found.sentence, found.finding.name())
        };
        self.0.iter().map(line).collect()
    }

    /// Returns an error if a finding says that the results must not be used.
    ///
    /// # Errors
    /// If there is such a finding.
    pub fn refuse_useless(&self) -> Result<(), NotTrusted> {
        match self.0.iter().find(|found| found.finding.severity() == Severity::Invalid) {
            Some(found) => Err(NotTrusted(format!("{}: {}", found.finding.name(), found.sentence))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sojourn_stream::{SentCounts, Spread};

    use super::*;

    /// Departures on which the analysis of studies and `sojourn probe` must agree.
    const CASES: &str = include_str!("../../../../tests/sender_late.json");

    #[test]
    fn late_departures_are_judged_as_in_a_study() {
        let told: Value = serde_json::from_str(CASES).unwrap();
        let cases = told["cases"].as_array().unwrap().iter().filter(|case| case["exact"] != true);
        let mut judged = 0;
        for case in cases {
            let mut pacing_error = Spread::default();
            for group in case["departures"].as_array().unwrap() {
                pacing_error.record_many(group[1].as_i64().unwrap(), group[0].as_u64().unwrap());
            }
            let sent = pacing_error.count();
            let rate_pps = 1e9 / case["interval_ns"].as_f64().unwrap();
            let schedule =
                Schedule { pattern: Pattern::Regular, rate_pps, count: sent, seed: 0, offsets: Vec::new().into() };
            let mut findings = Findings::default();
            findings.of_sender(&flow(pacing_error, sent, rate_pps), &schedule);
            let found = findings.0.iter().any(|found| found.finding == Finding::SenderLate);
            assert_eq!(found, case["is_late"].as_bool().unwrap(), "{}", case["name"]);
            judged += 1;
        }
        assert!(judged >= 15);
    }

    fn flow(pacing_error: Spread, sent: u64, pps: f64) -> FlowSent {
        FlowSent {
            flow: 1,
            port: 0,
            counts: SentCounts { asked: sent, sent, refused: 0, unsent: 0 },
            next: sent,
            asked_pps: pps,
            intended_pps: pps,
            achieved_pps: pps,
            is_by_stamps: true,
            first: None,
            last: None,
            pacing_error,
            inter_departure: Spread::default(),
            within_1us: 1.0,
            within_10us: 1.0,
            fit: None,
        }
    }
}
