//! What is known of one peer's clock.

use serde_json::{Value, json};
use sojourn_clock::{Estimate, Estimator, Limits, Unsynchronised};
use sojourn_record::stream as rows;
use sojourn_time::{Nanos, Time};

use super::peer::{Batch, Exchanger};
use crate::stream::clocks::Known;
use sojourn_probe::Peer;

/// While exchanges go on, what is told rests on those of this time.
const RECENT: Nanos = Nanos::seconds(120);

/// One peer, its exchanges and what they show.
#[derive(Debug)]
pub struct Watched {
    peer: Peer,
    clock: u64,
    is_shared: bool,
    /// All exchanges.
    all: Estimator,
    /// Those of late.
    recent: Estimator,
    lost: u64,
    span: Option<(Time, Time)>,
    failure: Option<String>,
}

/// What is known at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The moment, on our clock.
    pub at: Time,
    /// By how much the remote clock is ahead.
    pub offset_ns: f64,
    pub error95_ns: f64,
    pub bound_ns: f64,
    pub skew_ppm: f64,
    pub skew95_ppm: f64,
    pub skew_bound_ppm: f64,
}

impl Watched {
    /// Begins with a peer that was greeted.
    pub fn new(exchanger: &Exchanger) -> Self {
        let estimator = Estimator::new(Limits::default());
        Self {
            peer: exchanger.peer,
            clock: u64::from(exchanger.clock),
            is_shared: exchanger.clock == super::own_id(),
            all: estimator.clone(),
            recent: estimator,
            lost: 0,
            span: None,
            failure: None,
        }
    }

    /// Takes exchanges, and returns their rows.
    pub fn take(&mut self, batch: &Batch) -> Vec<rows::Exchange> {
        let first = self.all.exchanges().len() as u64;
        for exchange in &batch.exchanges {
            self.all.push(*exchange);
            self.recent.push(*exchange);
            self.span = Some((self.span.map_or(exchange.t2, |(from, _)| from), exchange.t3));
        }
        if let Some(last) = batch.exchanges.last() {
            self.recent.discard_before(last.t1 - RECENT);
        }
        self.lost += batch.lost;
        let row = |(number, exchange): (usize, &sojourn_clock::Exchange)| rows::Exchange {
            peer: self.name(),
            clock_id: self.clock,
            phase: "during",
            number: first + number as u64,
            t1: exchange.t1,
            t2: exchange.t2,
            t3: exchange.t3,
            t4: exchange.t4,
            local_source: exchange.sources.local,
            remote_source: exchange.sources.remote,
        };
        batch.exchanges.iter().enumerate().map(row).collect()
    }

    /// Notes that no more exchanges come.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.failure = Some(crate::failure::sentence(error));
    }

    /// The peer, as it was asked for.
    pub fn name(&self) -> String {
        std::net::SocketAddr::new(self.peer.address, self.peer.port).to_string()
    }

    /// Returns why this peer's figures must not be used, where they must not.
    pub fn problem(&self) -> Option<String> {
        let unknown = || self.estimate().err().map(|error| format!("{}: not synchronised: {error}", self.name()));
        self.failure.clone().or_else(unknown)
    }

    /// Returns what all exchanges show.
    pub fn estimate(&self) -> Result<Estimate, Unsynchronised> {
        self.of(&self.all)
    }

    /// Returns what the exchanges of late show.
    pub fn recently(&self) -> Result<Estimate, Unsynchronised> {
        self.of(&self.recent)
    }

    fn of(&self, estimator: &Estimator) -> Result<Estimate, Unsynchronised> {
        match (self.is_shared, estimator.round_trip_min()) {
            (true, Some(least)) => Ok(Estimate::shared(self.count(), least, estimator.limits())),
            _ => estimator.estimate(),
        }
    }

    /// Returns what an estimate says of the latest exchange's time.
    pub fn now(&self, estimate: &Estimate) -> Option<Now> {
        let last = self.all.exchanges().last()?;
        let converted = estimate.convert(last.t3);
        let line = estimate.line_at(last.t3);
        let of_line = |value: fn(&sojourn_clock::Line) -> f64| line.map_or(0.0, value);
        let skew_ppm = of_line(|line| line.skew_ppb / 1e3);
        let skew95_ppm = of_line(|line| line.skew95_ppb / 1e3);
        let skew_bound_ppm = of_line(|line| line.skew_bound_ppb / 1e3);
        let offset_ns = line.map_or(0.0, |line| line.offset_at(last.t3));
        let (error95_ns, bound_ns) = (converted.error95_ns, converted.bound_ns);
        Some(Now { at: last.t4, offset_ns, error95_ns, bound_ns, skew_ppm, skew95_ppm, skew_bound_ppm })
    }

    /// Counts exchanges, and requests without an answer.
    pub fn counts(&self) -> (u64, u64) {
        (self.count(), self.lost)
    }

    fn count(&self) -> u64 {
        self.all.exchanges().len() as u64
    }

    /// Returns the rows of all lines.
    pub fn rows(&self) -> Vec<rows::ClockLine> {
        let estimate = self.estimate().map_err(|error| error.to_string());
        let known = Known { flow: 0, peer: self.name(), clock: self.clock, estimate };
        self.span.map_or(Vec::new(), |span| known.rows(span))
    }

    /// Returns all that is known, for the summary.
    pub fn json(&self) -> Value {
        let estimate = self.estimate();
        let now = estimate.as_ref().ok().and_then(|estimate| self.now(estimate));
        let known = Known {
            flow: 0,
            peer: self.name(),
            clock: self.clock,
            estimate: estimate.map_err(|error| error.to_string()),
        };
        let mut told = known.json();
        if let Value::Object(told) = &mut told {
            told.remove("flow");
            told.insert("lost".to_owned(), self.lost.into());
            told.insert("now".to_owned(), now.map_or(Value::Null, |now| now.json()));
            if let Some(problem) = &self.failure {
                told.insert("problem".to_owned(), problem.clone().into());
            }
        }
        told
    }
}

impl Now {
    /// Returns it with units in its names.
    pub fn json(&self) -> Value {
        json!({
            "at_ns": self.at,
            "offset_ns": self.offset_ns,
            "error95_ns": self.error95_ns,
            "bound_ns": self.bound_ns,
            "skew_ppm": self.skew_ppm,
            "skew95_ppm": self.skew95_ppm,
            "skew_bound_ppm": self.skew_bound_ppm,
        })
    }
}
