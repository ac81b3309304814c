//! From exchanges of times to what is known of each receiver's clock: for records, for answers, for the end of a stream.

use serde_json::{Value, json};
use sojourn_clock::{Estimate, Estimator, Limits, Sources};
use sojourn_record::stream as rows;
use sojourn_stream::{EndLine, Exchange};
use sojourn_time::{Nanos, Source, Time};

/// What is known of a receiver's clock.
#[derive(Clone, Debug)]
pub struct Known {
    /// The flow whose receiver it is.
    pub flow: u16,
    /// The receiver, as it is addressed.
    pub peer: String,
    /// What the exchanges tell; why they do not, else.
    pub estimate: Result<Estimate, String>,
}

/// Returns what the exchanges with a flow's receiver tell; `own` is the id of our clock.
pub fn learn(flow: u16, peer: &str, exchanges: &[Exchange], own: u64) -> Known {
    let of_flow: Vec<&Exchange> = exchanges.iter().filter(|exchange| exchange.flow == flow).collect();
    let mut estimator = Estimator::new(Limits::default());
    for exchange in &of_flow {
        estimator.push(converted(exchange));
    }
    let is_shared = !of_flow.is_empty() && of_flow.iter().all(|exchange| exchange.clock == own);
    let estimate = if is_shared {
        let round_trip = of_flow.iter().map(|exchange| converted(exchange).round_trip()).min();
        Ok(Estimate::shared(of_flow.len() as u64, round_trip.unwrap_or(Nanos::ZERO), Limits::default()))
    } else {
        estimator.estimate().map_err(|error| error.to_string())
    };
    Known { flow, peer: peer.to_owned(), estimate }
}

/// Returns what is known where both ends are asserted to share a clock.
pub fn asserted(flow: u16, peer: &str) -> Known {
    Known { flow, peer: peer.to_owned(), estimate: Ok(Estimate::shared(0, Nanos::ZERO, Limits::default())) }
}

fn converted(exchange: &Exchange) -> sojourn_clock::Exchange {
    let local = exchange.t1.source.max(exchange.t4.source);
    sojourn_clock::Exchange {
        t1: exchange.t1.at,
        t2: exchange.t2.at,
        t3: exchange.t3,
        t4: exchange.t4.at,
        sources: Sources { local, remote: exchange.t2.source.max(remote_least(exchange.t2.source)) },
    }
}

/// A replier stamps its reply by itself, but in a simulation.
fn remote_least(arrival: Source) -> Source {
    if arrival == Source::Simulated { Source::Simulated } else { Source::User }
}

/// Returns the rows of exchanges.
pub fn exchange_rows(exchanges: &[Exchange], known: &[Known]) -> Vec<rows::Exchange> {
    let peer = |flow: u16| known.iter().find(|known| known.flow == flow).map_or("", |known| &known.peer);
    let row = |exchange: &Exchange| rows::Exchange {
        peer: peer(exchange.flow).to_owned(),
        phase: exchange.phase.name(),
        number: exchange.number,
        t1: exchange.t1.at,
        t2: exchange.t2.at,
        t3: exchange.t3,
        t4: exchange.t4.at,
        local_source: exchange.t1.source.max(exchange.t4.source),
        remote_source: exchange.t2.source,
    };
    exchanges.iter().map(row).collect()
}

impl Known {
    /// Returns the rows of its lines; one of zeros from `from` to `to` where the clock is ours.
    pub fn rows(&self, (from, to): (Time, Time)) -> Vec<rows::ClockLine> {
        let Ok(estimate) = &self.estimate else { return Vec::new() };
        if estimate.is_shared {
            return vec![rows::ClockLine {
                peer: self.peer.clone(),
                is_shared: true,
                from,
                to,
                reference: from,
                offset_ns: 0.0,
                skew_ppb: 0.0,
                bound_ns: 0.0,
                error95_ns: 0.0,
                exchanges: estimate.exchanges,
            }];
        }
        let row = |line: &sojourn_clock::Line| rows::ClockLine {
            peer: self.peer.clone(),
            is_shared: false,
            from: line.from,
            to: line.to,
            reference: line.reference,
            offset_ns: line.offset_ns,
            skew_ppb: line.skew_ppb,
            bound_ns: line.bound_ns,
            error95_ns: line.error95_ns,
            exchanges: line.exchanges,
        };
        estimate.lines.iter().map(row).collect()
    }

    /// Returns what an answer says of it.
    pub fn json(&self) -> Value {
        match &self.estimate {
            Ok(estimate) => json!({
                "flow": self.flow,
                "peer": self.peer,
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

    /// Returns what is known, in a sentence.
    pub fn sentence(&self) -> String {
        match &self.estimate {
            Ok(estimate) if estimate.is_shared => "both ends have one clock".to_owned(),
            Ok(estimate) => {
                let over =
                    |of: fn(&sojourn_clock::Line) -> f64| estimate.lines.iter().map(of).fold(0.0, f64::max) / 1e3;
                let (bound, error) = (over(|line| line.bound_ns), over(|line| line.error95_ns));
                format!(
                    "its clock is known to ±{bound:.3} µs at most, ±{error:.3} µs in 95 % where both ways are alike"
                )
            }
            Err(problem) => format!("its clock is not known: {problem}"),
        }
    }

    /// Returns one line for the receiver, with an error that covers all that are known; `None` where nothing is.
    pub fn end_line(&self) -> Option<EndLine> {
        let estimate = self.estimate.as_ref().ok()?;
        if estimate.is_shared {
            let (reference_ns, offset_ns, skew_ppb, bound_ns, error95_ns) = (0, 0.0, 0.0, 0.0, 0.0);
            return Some(EndLine { shared: true, reference_ns, offset_ns, skew_ppb, bound_ns, error95_ns });
        }
        let longest = estimate.lines.iter().max_by_key(|line| (line.to - line.from).0)?;
        let beside = |line: &sojourn_clock::Line| {
            let ends = [line.from, line.to].map(|at| (line.offset_at(at) - longest.offset_at(at)).abs());
            ends[0].max(ends[1])
        };
        let over = |of: fn(&sojourn_clock::Line) -> f64| {
            estimate.lines.iter().map(|line| of(line) + beside(line)).fold(0.0, f64::max)
        };
        Some(EndLine {
            shared: false,
            reference_ns: longest.reference.0,
            offset_ns: longest.offset_ns,
            skew_ppb: longest.skew_ppb,
            bound_ns: over(|line| line.bound_ns),
            error95_ns: over(|line| line.error95_ns),
        })
    }
}
