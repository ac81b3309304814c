//! The exchanges with one peer, and the estimate of its clock.

use serde_json::{Value, json};
use sojourn_clock::{Estimate, Estimator, Limits, Unsynchronised};
use sojourn_record::stream as rows;
use sojourn_time::{Nanos, Time};

use super::peer::{Batch, Exchanger};
use crate::stream::clocks::Known;
use sojourn_probe::Peer;

/// While exchanges go on, what is reported rests on those of this time.
const RECENT: Nanos = Nanos::seconds(120);

/// The most exchanges with a peer that are held: an hour of the default interval, 40 octets each, twice.
pub const MOST: usize = 360_000;

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
    /// What was known of those that are held no more.
    forgotten: Forgotten,
    /// How many are held at most.
    most: usize,
    /// How many have a row.
    numbered: u64,
    lost: u64,
    unexpected: u64,
    span: Option<(Time, Time)>,
    failure: Option<String>,
}

/// What exchanges showed that are held no more: counts, for lines go to the records.
#[derive(Clone, Debug, Default)]
struct Forgotten {
    exchanges: u64,
    round_trip_min: Option<Nanos>,
    steps: u64,
    largest_step_ns: f64,
    /// Names of what made their estimates doubtful, each once.
    findings: Vec<&'static str>,
}

/// Rows of what was taken in.
#[derive(Debug, Default)]
pub struct Rows {
    /// All exchanges.
    pub exchanges: Vec<rows::Exchange>,
    /// Lines of exchanges that are held no more.
    pub lines: Vec<rows::ClockLine>,
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
        Self::with_room(exchanger.peer, exchanger.clock, MOST)
    }

    fn with_room(peer: Peer, clock: u32, most: usize) -> Self {
        let estimator = Estimator::new(Limits::default());
        Self {
            peer,
            clock: u64::from(clock),
            is_shared: clock == super::own_id(),
            all: estimator.clone(),
            recent: estimator,
            forgotten: Forgotten::default(),
            most,
            numbered: 0,
            lost: 0,
            unexpected: 0,
            span: None,
            failure: None,
        }
    }

    /// Takes exchanges, and returns their rows. Where more are held than there is room for, the older half is forgotten.
    pub fn take(&mut self, batch: &Batch) -> Rows {
        let first = self.numbered;
        for exchange in &batch.exchanges {
            self.all.push(*exchange);
            self.recent.push(*exchange);
            self.span = Some((self.span.map_or(exchange.t2, |(from, _)| from), exchange.t3));
        }
        if let Some(last) = batch.exchanges.last() {
            self.recent.discard_before(last.t1 - RECENT);
        }
        self.recent.discard_oldest(self.recent.exchanges().len().saturating_sub(self.most));
        self.numbered += batch.exchanges.len() as u64;
        self.lost += batch.lost;
        self.unexpected += batch.unexpected;
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
        let exchanges = batch.exchanges.iter().enumerate().map(row).collect();
        Rows { exchanges, lines: self.forget() }
    }

    /// Where more exchanges are held than there is room for, returns the rows of the older half's lines and forgets it. Its
    /// estimate sees the first exchange of the other half, too: so it has a step that came between them.
    fn forget(&mut self) -> Vec<rows::ClockLine> {
        let held = self.all.exchanges().len();
        if held <= self.most {
            return Vec::new();
        }
        let older = held - self.most / 2;
        let estimate = self.all.estimate_oldest(older + 1);
        let least = self.all.exchanges()[..older].iter().map(sojourn_clock::Exchange::round_trip);
        self.forgotten.round_trip_min = least.chain(self.forgotten.round_trip_min).min();
        self.all.discard_oldest(older);
        self.forgotten.exchanges += older as u64;
        // A shared clock has one row, at the end, for the whole time.
        let Some(estimate) = estimate.ok().filter(|_| !self.is_shared) else { return Vec::new() };
        self.forgotten.add(&estimate);
        let known = Known { flow: 0, peer: self.name(), clock: self.clock, estimate: Ok(estimate) };
        let mut rows = known.rows((Time(0), Time(0)));
        // The seam exchange is counted in the newer half; if a step occurred just before it, its linear segment belongs there, too.
        let seam = self.all.exchanges()[0].t3;
        match rows.last_mut().filter(|last| last.to == seam) {
            Some(last) if last.exchanges > 1 => last.exchanges -= 1,
            Some(_) => drop(rows.pop()),
            None => {}
        }
        rows
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
        self.of(&self.all, self.round_trip_min())
    }

    /// Returns what the exchanges of late show.
    pub fn recently(&self) -> Result<Estimate, Unsynchronised> {
        self.of(&self.recent, self.recent.round_trip_min())
    }

    fn of(&self, estimator: &Estimator, least: Option<Nanos>) -> Result<Estimate, Unsynchronised> {
        match (self.is_shared, least) {
            (true, Some(least)) => Ok(Estimate::shared(self.count(), least, estimator.limits())),
            _ => estimator.estimate(),
        }
    }

    /// The least round trip of all exchanges, those that are held no more included.
    fn round_trip_min(&self) -> Option<Nanos> {
        self.all.round_trip_min().into_iter().chain(self.forgotten.round_trip_min).min()
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

    /// Counts frames that are no reply to a request of ours: from somebody else, damaged, or too late.
    pub const fn unexpected(&self) -> u64 {
        self.unexpected
    }

    fn count(&self) -> u64 {
        self.forgotten.exchanges + self.all.exchanges().len() as u64
    }

    /// Returns what was known of exchanges that are held no more, in a sentence; `None` where all are held.
    pub fn forgotten(&self) -> Option<String> {
        let Forgotten { exchanges, steps, largest_step_ns, findings, .. } = &self.forgotten;
        let found = if findings.is_empty() { String::new() } else { format!("; found: {}", findings.join(", ")) };
        let set = match steps {
            0 => String::new(),
            _ => format!("; a clock was set {steps} times, by up to {:.3} us", largest_step_ns / 1e3),
        };
        let told = || format!("of its first {exchanges} exchanges only the records have lines{set}{found}");
        (*exchanges > 0).then(told)
    }

    /// Returns the rows of all lines that are held.
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
            told.insert("unexpected".to_owned(), self.unexpected.into());
            told.insert("now".to_owned(), now.map_or(Value::Null, |now| now.json()));
            if self.forgotten.exchanges > 0 {
                // The number of all exchanges, as during the measurement; segments, steps and findings are those of the
                // exchanges kept.
                told.insert("exchanges".to_owned(), self.count().into());
                told.insert("round_trip_min_ns".to_owned(), json!(self.round_trip_min()));
                told.insert("forgotten".to_owned(), self.forgotten.json());
            }
            if let Some(problem) = &self.failure {
                told.insert("problem".to_owned(), problem.clone().into());
            }
        }
        told
    }
}

impl Forgotten {
    fn add(&mut self, estimate: &Estimate) {
        let largest = estimate.steps.iter().map(|step| step.by_ns.abs());
        self.largest_step_ns = largest.fold(self.largest_step_ns, f64::max);
        self.steps += estimate.steps.len() as u64;
        for name in estimate.findings.iter().map(|found| found.finding.name()) {
            if !self.findings.contains(&name) {
                self.findings.push(name);
            }
        }
    }

    fn json(&self) -> Value {
        json!({
            "exchanges": self.exchanges,
            "steps": self.steps,
            "largest_step_ns": self.largest_step_ns,
            "findings": self.findings,
        })
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

#[cfg(test)]
mod tests {
    use sojourn_clock::Exchange;
    use sojourn_clock::simulate::{StepAt, Truth};

    use super::*;

    fn peer() -> Peer {
        "10.0.0.2".parse().expect("a peer")
    }

    /// What a peer shows whose exchanges come by the hundred, with room for so many.
    fn watch(most: usize, clock: u32, exchanges: &[Exchange]) -> (Watched, Vec<rows::Exchange>, Vec<rows::ClockLine>) {
        let mut watched = Watched::with_room(peer(), clock, most);
        let (mut of_exchanges, mut of_lines) = (Vec::new(), Vec::new());
        for some in exchanges.chunks(100) {
            let rows = watched.take(&Batch { exchanges: some.to_vec(), lost: 1, unexpected: 2 });
            assert!(watched.all.exchanges().len() <= most && watched.recent.exchanges().len() <= most);
            of_exchanges.extend(rows.exchanges);
            of_lines.extend(rows.lines);
        }
        of_lines.extend(watched.rows());
        (watched, of_exchanges, of_lines)
    }

    /// Whether each line holds the truth within its bound, all along it.
    fn holds(truth: &Truth, line: &rows::ClockLine) -> bool {
        [line.from, line.to].into_iter().all(|remote| {
            let offset = line.offset_ns + line.skew_ppb * 1e-9 * (remote - line.reference).0 as f64;
            (offset - truth.offset_at(remote - Nanos(offset.round() as i64))).abs() <= line.bound_ns
        })
    }

    #[test]
    fn memory_per_peer_is_bounded_and_no_segment_of_its_clock_line_is_lost() {
        let truth = Truth { offset_ns: 5e6, skew_ppm: 12.0, count: 20_000, ..Truth::default() };
        let (watched, exchanges, lines) = watch(4_000, 7, &truth.exchanges().expect("exchanges"));
        assert_eq!((watched.counts(), watched.unexpected()), ((20_000, 200), 400));
        assert_eq!(watched.json()["unexpected"], 400);
        let numbers: Vec<u64> = exchanges.iter().map(|row| row.number).collect();
        assert_eq!(numbers, (0..20_000).collect::<Vec<_>>());
        // The gap between neighbouring segments is at most two intervals, from the first exchange to the last.
        let apart = lines.windows(2).map(|pair| pair[1].from - pair[0].to).max().expect("lines");
        assert!(lines.len() > 6 && apart <= Nanos(2 * truth.interval_ns), "{apart:?} {lines:#?}");
        let of_all = (exchanges[0].t2, exchanges[19_999].t3);
        assert_eq!((lines[0].from, lines[lines.len() - 1].to), of_all);
        assert!(lines.iter().all(|line| holds(&truth, line)), "{lines:#?}");
        let told = watched.forgotten().expect("some are held no more");
        assert!(told.starts_with("of its first 16") && !told.contains("found"), "{told}");
        assert_eq!(watched.json()["forgotten"]["steps"], 0);
        // Each exchange belongs to one segment, and is counted once.
        assert_eq!(lines.iter().map(|line| line.exchanges).sum::<u64>(), 20_000);
        assert_eq!(watched.json()["exchanges"], 20_000);
        let least = exchanges.iter().map(|row| ((row.t4 - row.t1) - (row.t3 - row.t2)).0).min();
        assert_eq!(watched.json()["round_trip_min_ns"].as_i64(), least, "also where it is held no more");
    }

    #[test]
    fn clock_step_among_discarded_exchanges_is_reported() {
        // The older half ends after 2,100 of 4,100 exchanges: a step there falls between the halves.
        for at in [500, 2_099, 2_100, 2_101] {
            let step = StepAt { at_ns: at * 10_000_000, by_ns: 40_000_000 };
            let truth = Truth { step: Some(step), count: 8_000, ..Truth::default() };
            let (watched, _, lines) = watch(4_000, 7, &truth.exchanges().expect("exchanges"));
            let told = watched.json()["forgotten"].clone();
            // At the seam, one exchange lies beyond the step: too few for a 95 % error of that segment.
            assert_eq!((&told["steps"], &told["findings"][0]), (&json!(1), &json!("clock_stepped")), "{at}");
            let largest = told["largest_step_ns"].as_f64().expect("a number");
            assert!((largest - 4e7).abs() < 1e5, "{at}: {largest}");
            let of_none: Vec<_> = lines.iter().filter(|line| line.exchanges == 0).collect();
            assert!(of_none.len() == 1 && of_none[0].bound_ns >= 2e7, "{at}: the time of the step alone: {of_none:#?}");
            // The exchanges on either side of a step may belong to no segment.
            let counted = lines.iter().map(|line| line.exchanges).sum::<u64>();
            assert!((7_998..=8_000).contains(&counted), "{at}: {counted}");
        }
    }

    #[test]
    fn exchanges_with_the_own_clock_are_bounded_and_give_one_row() {
        let truth = Truth { count: 9_000, ..Truth::default() };
        let own = crate::clock::own_id();
        let (watched, exchanges, lines) = watch(4_000, own, &truth.exchanges().expect("exchanges"));
        assert_eq!((watched.counts().0, lines.len()), (9_000, 1));
        assert_eq!((lines[0].from, lines[0].to), (exchanges[0].t2, exchanges[8_999].t3));
        assert_eq!(lines[0].exchanges, 9_000);
    }

    #[test]
    fn limit_of_exchanges_is_the_one_stated_in_the_help() {
        use clap::CommandFactory;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            watch: crate::clock::request::Watch,
        }
        let help = Line::command().render_long_help().to_string();
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains("At most 360,000 exchanges"), "{help}");
        assert_eq!(MOST, 360_000);
    }
}
