//! Estimates each receiver's clock from exchanges, for records, for answers and for the end of a stream.

use serde_json::{Value, json};
use sojourn_clock::{Estimate, Estimator, Limits, Line, Sources};
use sojourn_record::stream as rows;
use sojourn_stream::{EndLine, Exchange};
use sojourn_time::{Nanos, Source, Time};

/// How many clocks of a flow are estimated: the limit on receivers of a group.
const MOST_CLOCKS: usize = 256;

/// The estimate of a receiver's clock.
#[derive(Clone, Debug)]
pub struct Known {
    /// The flow of the receiver.
    pub flow: u16,
    /// The receiver's address.
    pub peer: String,
    /// The receiver's clock ID; 0 if no receiver answered.
    pub clock: u64,
    /// The estimate, or why there is none.
    pub estimate: Result<Estimate, String>,
}

/// Estimates each clock that answered the exchanges of a flow: a group has several receivers. `own` is the ID of this host's clock.
pub fn learn(flow: u16, peer: &str, exchanges: &[Exchange], own: u64) -> Vec<Known> {
    let mut clocks: Vec<u64> = Vec::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.flow == flow) {
        if clocks.len() < MOST_CLOCKS && !clocks.contains(&exchange.clock) {
            clocks.push(exchange.clock);
        }
    }
    let known = |clock: &u64| {
        let of_clock = exchanges.iter().filter(|exchange| (exchange.flow, exchange.clock) == (flow, *clock));
        let of_clock: Vec<_> = of_clock.copied().collect();
        let peer = if clocks.len() > 1 { format!("{peer} (clock {clock:012x})") } else { peer.to_owned() };
        Known { flow, peer, clock: *clock, estimate: estimate(&of_clock, *clock == own) }
    };
    match clocks.as_slice() {
        [] => vec![Known { flow, peer: peer.to_owned(), clock: 0, estimate: estimate(&[], false) }],
        _ => clocks.iter().map(known).collect(),
    }
}

/// Estimates a clock. If the driver stamped most departures, the others are left out. If not, the delay between call and driver is
/// not symmetric: the 95 % error grows by that delay at this host, and equals the maximum error if the delay is unknown.
fn estimate(exchanges: &[Exchange], is_own: bool) -> Result<Estimate, String> {
    let by_driver: Vec<&Exchange> = exchanges.iter().filter(|exchange| exchange.t3.source != Source::User).collect();
    let are_alike = 2 * by_driver.len() > exchanges.len();
    let used = if are_alike { by_driver } else { exchanges.iter().collect() };
    let mut estimator = Estimator::new(Limits::default());
    used.iter().for_each(|exchange| estimator.push(converted(exchange)));
    match estimator.round_trip_min() {
        Some(least) if is_own => Ok(Estimate::shared(exchanges.len() as u64, least, estimator.limits())),
        _ if are_alike => estimator.estimate().map_err(|error| error.to_string()),
        _ => estimator.estimate().map(|known| widened(known, lag_ns(exchanges))).map_err(|error| error.to_string()),
    }
}

/// Returns the minimum time from the send call to the driver's timestamp; infinite if there is none.
fn lag_ns(exchanges: &[Exchange]) -> f64 {
    exchanges.iter().filter_map(|exchange| exchange.lag).min().map_or(f64::INFINITY, |lag| lag.0 as f64)
}

/// Returns the estimate with 95 % errors increased by so much, up to the maximum error.
fn widened(mut estimate: Estimate, by_ns: f64) -> Estimate {
    for line in &mut estimate.lines {
        line.error95_ns = (line.error95_ns + by_ns).min(line.bound_ns);
    }
    estimate
}

/// Returns the estimate for two ends that are asserted to share the clock of that ID.
pub fn asserted(flow: u16, peer: &str, clock: u64) -> Known {
    let estimate = Ok(Estimate::shared(0, Nanos::ZERO, Limits::default()));
    Known { flow, peer: peer.to_owned(), clock, estimate }
}

/// Returns the rows of linear segments, one flow per clock: of several flows to one receiver, that with the smallest maximum error.
pub fn line_rows(known: &[Known], span: (Time, Time)) -> Vec<rows::ClockLine> {
    let mut best: Vec<&Known> = Vec::new();
    for one in known.iter().filter(|one| one.estimate.is_ok()) {
        match best.iter_mut().find(|other| other.clock == one.clock) {
            Some(other) if one.bound_ns() < other.bound_ns() => *other = one,
            Some(_) => {}
            None => best.push(one),
        }
    }
    best.iter().flat_map(|known| known.rows(span)).collect()
}

fn converted(exchange: &Exchange) -> sojourn_clock::Exchange {
    let local = exchange.t1.source.max(exchange.t4.source);
    sojourn_clock::Exchange {
        t1: exchange.t1.at,
        t2: exchange.t2.at,
        t3: exchange.t3.at,
        t4: exchange.t4.at,
        sources: Sources { local, remote: exchange.t2.source.max(exchange.t3.source) },
    }
}

/// Returns the rows of exchanges.
pub fn exchange_rows(exchanges: &[Exchange], known: &[Known]) -> Vec<rows::Exchange> {
    let peer = |exchange: &Exchange| {
        let of = known.iter().find(|known| (known.flow, known.clock) == (exchange.flow, exchange.clock));
        of.map_or("", |known| &known.peer)
    };
    let row = |exchange: &Exchange| rows::Exchange {
        peer: peer(exchange).to_owned(),
        clock_id: exchange.clock,
        phase: exchange.phase.name(),
        number: exchange.number,
        t1: exchange.t1.at,
        t2: exchange.t2.at,
        t3: exchange.t3.at,
        t4: exchange.t4.at,
        local_source: exchange.t1.source.max(exchange.t4.source),
        remote_source: exchange.t2.source.max(exchange.t3.source),
    };
    exchanges.iter().map(row).collect()
}

impl Known {
    /// Returns the rows of its linear segments; for a shared clock, one row of zeros from `from` to `to`.
    pub fn rows(&self, (from, to): (Time, Time)) -> Vec<rows::ClockLine> {
        let Ok(estimate) = &self.estimate else { return Vec::new() };
        if estimate.is_shared {
            return vec![rows::ClockLine {
                peer: self.peer.clone(),
                clock_id: self.clock,
                is_shared: true,
                from,
                to,
                reference: from,
                offset_ns: 0.0,
                skew_ppb: 0.0,
                bound_ns: 0.0,
                error95_ns: 0.0,
                skew_bound_ppb: 0.0,
                skew95_ppb: 0.0,
                exchanges: estimate.exchanges,
            }];
        }
        let row = |line: &Line| rows::ClockLine {
            peer: self.peer.clone(),
            clock_id: self.clock,
            is_shared: false,
            from: line.from,
            to: line.to,
            reference: line.reference,
            offset_ns: line.offset_ns,
            skew_ppb: line.skew_ppb,
            bound_ns: line.bound_ns,
            error95_ns: line.error95_ns,
            skew_bound_ppb: line.skew_bound_ppb,
            skew95_ppb: line.skew95_ppb,
            exchanges: line.exchanges,
        };
        estimate.lines.iter().map(row).collect()
    }

    /// Returns the estimate for answers.
    pub fn json(&self) -> Value {
        match &self.estimate {
            Ok(estimate) => json!({
                "flow": self.flow,
                "peer": self.peer,
                "clock_id": self.clock,
                "shared": estimate.is_shared,
                "exchanges": estimate.exchanges,
                "round_trip_min_ns": estimate.round_trip_min,
                "lines": estimate.lines,
                "steps": estimate.steps,
                "findings": estimate.findings,
            }),
            Err(problem) => json!({ "flow": self.flow, "peer": self.peer, "problem": problem }),
        }
    }

    /// Returns the estimate as a sentence.
    pub fn sentence(&self) -> String {
        match &self.estimate {
            Ok(estimate) if estimate.is_shared => "both ends have one clock".to_owned(),
            Ok(estimate) => {
                let over = |of: fn(&Line) -> f64| estimate.lines.iter().map(of).fold(0.0, f64::max) / 1e3;
                let (bound, error) = (over(|line| line.bound_ns), over(|line| line.error95_ns));
                format!(
                    "its clock is known to ±{bound:.3} µs at most, ±{error:.3} µs in 95 % where both ways are alike"
                )
            }
            Err(problem) => format!("its clock is not known: {problem}"),
        }
    }

    /// Returns the largest maximum error of its segments.
    fn bound_ns(&self) -> f64 {
        let lines = self.estimate.iter().flat_map(|estimate| &estimate.lines);
        lines.map(|line| line.bound_ns).fold(0.0, f64::max)
    }

    /// Returns one linear segment for the receiver, with an error that covers all segments and the whole span, even
    /// where they end earlier; `None` without an estimate.
    pub fn end_line(&self, span: (Time, Time)) -> Option<EndLine> {
        let estimate = self.estimate.as_ref().ok()?;
        if estimate.is_shared {
            let (reference_ns, offset_ns, skew_ppb, bound_ns, error95_ns) = (0, 0.0, 0.0, 0.0, 0.0);
            return Some(EndLine { shared: true, reference_ns, offset_ns, skew_ppb, bound_ns, error95_ns });
        }
        let longest = estimate.lines.iter().max_by_key(|line| (line.to - line.from).0)?;
        let beside = |line: &Line, at: Time| (line.offset_at(at) - longest.offset_at(at)).abs();
        let on_lines = estimate.lines.iter().map(|line| {
            let beside = beside(line, line.from).max(beside(line, line.to));
            (line.bound_ns + beside, line.error95_ns + beside)
        });
        let at_ends = [span.0, span.1].map(|ours| {
            let at = ours + Nanos(longest.offset_ns.round() as i64);
            let (converted, beside) = (estimate.convert(at), estimate.line_at(at).map_or(0.0, |line| beside(line, at)));
            (converted.bound_ns + beside, converted.error95_ns + beside)
        });
        let widest = |one: (f64, f64), other: (f64, f64)| (one.0.max(other.0), one.1.max(other.1));
        let (bound_ns, error95_ns) = on_lines.chain(at_ends).fold((0.0, 0.0), widest);
        let (reference_ns, offset_ns, skew_ppb) = (longest.reference.0, longest.offset_ns, longest.skew_ppb);
        Some(EndLine { shared: false, reference_ns, offset_ns, skew_ppb, bound_ns, error95_ns })
    }
}

#[cfg(test)]
mod tests {
    use sojourn_stream::Phase;
    use sojourn_time::Stamp;

    use super::*;

    const MS: i64 = 1_000_000;

    /// Returns exchanges 2 ms apart with a clock that is `ahead` by so much; about 10 µs each way.
    fn exchanges(flow: u16, clock: u64, ahead: i64) -> Vec<Exchange> {
        let exchange = |number: i64| {
            let (there, back) = (10_000 + number * 37 % 900, 10_000 + number * 53 % 900);
            let stamp = |at: i64| Stamp { at: Time(at), source: Source::Kernel };
            let t1 = number * 2 * MS;
            let (t2, t3) = (t1 + there + ahead, t1 + there + ahead + 1_000);
            let (t2, t4) = (stamp(t2), stamp(t3 - ahead + back));
            let number = number as u64;
            let (t1, t3, lag) = (stamp(t1), stamp(t3), Some(Nanos(700)));
            Exchange { number, flow, phase: Phase::Before, t1, t2, t3, t4, clock, lag }
        };
        (0..100).map(exchange).collect()
    }

    #[test]
    fn each_receiver_of_a_group_has_its_own_clock_line() {
        let all = [exchanges(1, 8, 5 * MS), exchanges(1, 9, -3 * MS), exchanges(1, 7, 0)].concat();
        let known = learn(1, "group", &all, 7);
        let clocks: Vec<u64> = known.iter().map(|one| one.clock).collect();
        assert_eq!(clocks, [8, 9, 7]);
        for (one, ahead) in known.iter().zip([5 * MS, -3 * MS]) {
            let line = one.end_line((Time(0), Time(200 * MS))).unwrap();
            assert!(!line.shared);
            assert!((line.offset_ns - ahead as f64).abs() <= line.bound_ns && line.bound_ns < 13_500.0, "{line:?}");
        }
        assert!(known[2].end_line((Time(0), Time(MS))).unwrap().shared);
        let rows = line_rows(&known, (Time(0), Time(MS)));
        assert!(clocks.iter().all(|clock| rows.iter().any(|row| row.clock_id == *clock)));
        let peers: Vec<_> = exchange_rows(&all, &known).into_iter().map(|row| (row.peer, row.clock_id)).collect();
        assert_eq!(peers[150], ("group (clock 000000000009)".to_owned(), 9));
    }

    #[test]
    fn of_several_flows_to_one_clock_the_most_accurate_clock_line_is_kept() {
        let dense = exchanges(2, 8, MS);
        let sparse: Vec<Exchange> = exchanges(1, 8, MS).into_iter().step_by(40).collect();
        let known = [learn(1, "one", &sparse, 7), learn(2, "two", &dense, 7)].concat();
        let rows = line_rows(&known, (Time(0), Time(MS)));
        assert!(rows.iter().all(|row| row.peer == "two"), "{rows:?}");
    }

    #[test]
    fn departure_times_of_send_calls_widen_the_error_by_the_delay_to_the_driver() {
        let by_driver = exchanges(1, 8, MS);
        let called = |exchange: &Exchange| {
            let t3 = Stamp { source: Source::User, ..exchange.t3 };
            Exchange { t3, ..*exchange }
        };
        let by_program: Vec<Exchange> = by_driver.iter().map(called).collect();
        let line = |all: &[Exchange]| learn(1, "peer", all, 7)[0].estimate.clone().unwrap().lines[0];
        let (narrow, wide) = (line(&by_driver), line(&by_program));
        assert!((wide.error95_ns - narrow.error95_ns - 700.0).abs() < 1e-6, "{narrow:?} {wide:?}");
        let unknown: Vec<Exchange> = by_program.iter().map(|one| Exchange { lag: None, ..*one }).collect();
        assert_eq!(line(&unknown).error95_ns, line(&unknown).bound_ns);
        // The few exchanges without a follow-up are left out.
        let mixed: Vec<Exchange> = [&by_driver[..90], &by_program[90..]].concat();
        assert_eq!(line(&mixed).exchanges, 90);
    }

    #[test]
    fn peer_that_does_not_answer_is_an_error_and_has_no_clock_line() {
        let known = learn(1, "peer", &[], 7);
        assert!(known[0].estimate.is_err() && known[0].end_line((Time(0), Time(1))).is_none());
        assert!(line_rows(&known, (Time(0), Time(1))).is_empty());
    }

    #[test]
    fn error_grows_after_the_last_exchange_until_the_stream_ends() {
        let known = &learn(1, "peer", &exchanges(1, 8, MS), 7)[0];
        let within = known.end_line((Time(0), Time(190 * MS))).unwrap();
        let beyond = known.end_line((Time(0), Time(10_190 * MS))).unwrap();
        let limits = Limits::default();
        assert!(beyond.bound_ns > within.bound_ns + limits.drift_ppm_per_s * 1e-15 * 1e20 / 2.0, "{beyond:?}");
        assert!(beyond.error95_ns > within.error95_ns && beyond.error95_ns <= beyond.bound_ns);
    }
}
