//! One-way results of a STAMP session: delays if both clocks allow it, losses if the reflector counts.

use std::fmt::Write;

use serde_json::{Value, json};
use sojourn_probe::{DirectionalLoss, FarEnd, Found, Request, Summary};
use sojourn_record::Finding;
use sojourn_time::Nanos;
use sojourn_wire::stamp::Format;

use super::measure::Measured;

/// The results of each direction.
pub struct Directions {
    far: FarEnd,
    /// The one-way delays, if the clocks can be compared.
    pub delays: Option<Delays>,
    /// Whether one end uses TAI while this host's kernel does not know the offset between TAI and UTC.
    lacks_tai: bool,
    loss: Option<DirectionalLoss>,
}

/// The one-way delays of both directions.
pub struct Delays {
    /// From the sender to the reflector.
    pub there: Summary,
    /// From the reflector to the sender.
    pub back: Summary,
    /// The maximum error of both delays, with opposite signs: the maximum clock offset.
    pub error: Nanos,
    is_shared: bool,
    /// The number of negative delays.
    negative: usize,
}

impl Directions {
    /// Returns the results of a session; `None` if the peer did not speak STAMP.
    pub fn of(request: &Request, measured: &Measured) -> Option<Self> {
        let (far, own) = measured.far?;
        let answered = |seq: u32| measured.probes.get(seq as usize).is_some_and(|probe| probe.reply.is_some());
        let loss = far.loss(measured.block.counts.sent, answered, request.stamp.stateful);
        let is_shared = request.stamp.shared_clock;
        let lacks_tai = !own.scale.knows_tai() && (far.is_ptp || own.format() == Format::Ptp);
        let comparable = is_shared || (far.is_synchronised && own.error.is_synchronised() && !lacks_tai);
        let error = if is_shared { Nanos::ZERO } else { far.error + own.error.error() };
        let delays = comparable.then(|| delays(measured, error, is_shared)).flatten();
        Some(Self { far, delays, lacks_tai, loss })
    }

    /// Returns the finding about the delays, if any.
    pub fn found(&self) -> Option<Found> {
        let Delays { there, back, error, is_shared, negative } = self.delays.as_ref()?;
        let least = there.min_ns.min(back.min_ns);
        let micro = |ns: i64| format!("{:.3} µs", ns as f64 / 1e3);
        let why = if *is_shared {
            "--shared-clock says that both ends read one clock, and they do not, or a departure was stamped late"
                .to_owned()
        } else if least >= -error.0 {
            format!("the clocks are known to ± {} only, and that explains them", micro(error.0))
        } else {
            format!(
                "the clocks' bound of {} does not explain them: a clock is wrong, or counts another TAI",
                micro(error.0)
            )
        };
        (*negative > 0).then(|| Found {
            finding: Finding::NegativeDelay,
            sentence: format!("{negative} delays there or back are negative, the least {}: {why}", micro(least)),
        })
    }

    /// Returns the results as JSON. Keys include their units.
    pub fn json(&self) -> Value {
        let Self { far, delays, loss, .. } = self;
        json!({
            "reflector": {
                "synchronised": far.is_synchronised, "clock_error_ns": far.error, "ttl_min": far.ttl.0, "ttl_max": far.ttl.1,
            },
            "one_way": delays.as_ref().map(|delays| json!({
                "there": delays.there, "back": delays.back, "clock_error_ns": delays.error,
                "clocks": if delays.is_shared { "shared" } else { "synchronised" },
            })),
            "loss_by_direction": loss.map(|loss| json!({ "there": loss.there, "back": loss.back, "unknown": loss.unknown })),
        })
    }

    /// Returns the text below the counters.
    pub fn text(&self) -> String {
        let mut text = match self.loss {
            Some(DirectionalLoss { there, back, unknown }) => {
                let rest = if unknown > 0 { format!(", {unknown} after the last answer") } else { String::new() };
                format!("lost there {there}, back {back}{rest}")
            }
            None => "lost there or back: the reflector's numbers are the sender's".to_owned(),
        };
        let (low, high) = self.far.ttl;
        let ttl = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let clocks = match &self.delays {
            Some(delays) if delays.is_shared => "one clock at both ends".to_owned(),
            Some(delays) => {
                format!("delays there and back ±{:.3} µs, one up and the other down", delays.error.0 as f64 / 1e3)
            }
            None if self.lacks_tai => {
                "this kernel does not know how far TAI is ahead of UTC, so delays there and back are not \
                 known from PTP timestamps"
                    .to_owned()
            }
            None => "the clocks are not synchronised, so delays there and back are not known".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "; TTL at the reflector {ttl}; {clocks}");
        text
    }
}

fn delays(measured: &Measured, error: Nanos, is_shared: bool) -> Option<Delays> {
    let counted = || measured.probes.iter().filter(|probe| !probe.is_warmup);
    let there = || counted().filter_map(|probe| Some(probe.reply?.responder?.0 - probe.departure.at));
    let back = || counted().filter_map(|probe| Some(probe.reply?.arrival.at - probe.reply?.responder?.1));
    let negative = there().chain(back()).filter(|delay| *delay < Nanos::ZERO).count();
    Some(Delays { there: Summary::of(there())?, back: Summary::of(back())?, error, is_shared, negative })
}
