//! Tests whether departures of a Poisson schedule are a Poisson process: the Anderson–Darling test of the inter-departure times.
//!
//! Studies use the same rule (`analysis/poisson.py`); a block by hand is one test. Either all departures are tested or
//! none: which timestamps are missing, and which probes are dropped locally, depends on the inter-departure times.

use serde_json::{Value, json};
use sojourn_probe::Found;
use sojourn_record::{Finding, Probe};
use sojourn_stream::Fit;
use sojourn_stream::goodness::exponential;
use sojourn_time::{Source, Time};

use super::measure::Measured;
use crate::stream::findings::{MISFIT, gaps};

/// The result of the test, or why there is none.
#[derive(Debug)]
pub enum Departed {
    /// Tested, with the source of the timestamps.
    Tested(Fit, Source),
    /// Not tested: some probes were dropped locally, so the time between two departures may span several intervals.
    Refused {
        /// Local drops, replies included.
        dropped: u64,
        /// Requested probes that were not sent.
        unsent: u64,
    },
}

impl Departed {
    /// Tests the departures of a block with a Poisson schedule; `None` for another schedule, or for too few probes.
    pub fn of(measured: &Measured) -> Option<Self> {
        if measured.block.schedule != sojourn_probe::Schedule::Poisson.name() {
            return None;
        }
        let counts = measured.block.counts;
        let (dropped, unsent) = (counts.local_drops, u64::from(measured.block.count).saturating_sub(counts.sent));
        // Both are needed: a stopped block has unsent probes without drops, and dropped replies leave all departures known.
        if dropped > 0 && unsent > 0 {
            return Some(Self::Refused { dropped, unsent });
        }
        let probes: Vec<&Probe> = measured.probes.iter().filter(|probe| !probe.is_warmup).collect();
        let source = probes.first()?.departure.source;
        let is_alike = probes.iter().all(|probe| probe.departure.source == source);
        let (of, source): (fn(&Probe) -> Time, Source) =
            if is_alike { (|probe| probe.departure.at, source) } else { (|probe| probe.send_call, Source::User) };
        let mut gaps_ns: Vec<f64> = probes.windows(2).map(|pair| (of(pair[1]) - of(pair[0])).0 as f64).collect();
        exponential(&mut gaps_ns).map(|fit| Self::Tested(fit, source))
    }

    /// Returns the finding, if any.
    pub fn found(&self) -> Option<Found> {
        let is_misfit = matches!(self, Self::Tested(fit, _) if fit.p < MISFIT);
        is_misfit.then(|| Found { finding: Finding::PoissonMisfit, sentence: self.text() })
    }

    /// Returns the result as a sentence.
    pub fn text(&self) -> String {
        match self {
            Self::Tested(fit, Source::User) => format!("{}; of the calls to send", gaps(*fit)),
            Self::Tested(fit, _) => gaps(*fit),
            Self::Refused { dropped, unsent } => format!(
                "the gaps as sent were not tested for an exponential distribution: this machine dropped {dropped} frames \
                 and did not send {unsent} of the probes"
            ),
        }
    }

    /// Returns the result as JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Tested(fit, source) => json!({
                "a2": fit.a2, "critical": fit.critical(MISFIT), "p": fit.p, "n": fit.n, "source": source.name(),
            }),
            Self::Refused { .. } => Value::Null,
        }
    }
}
