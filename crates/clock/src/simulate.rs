//! Exchanges with known truth: two clocks and a path, in simulated time.

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use sojourn_port::sim::{Delay, Gamma, LineError, Sampler};
use sojourn_time::{Nanos, Source, Time};

use crate::{Exchange, Sources};

/// Two clocks, the path between them, and the exchanges over it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truth {
    /// Offset at the start: the remote clock minus ours.
    pub offset_ns: f64,
    /// Skew at the start: how much faster the remote clock runs, in ppm.
    pub skew_ppm: f64,
    /// Drift: the change of the skew, in ppm per second.
    pub drift_ppm_per_s: f64,
    /// A sinusoidal skew, as caused by temperature.
    pub temperature: Option<Temperature>,
    /// A slew of the remote clock.
    pub slew: Option<Slew>,
    /// A step of the remote clock.
    pub step: Option<StepAt>,
    /// Delays of requests.
    pub forward: Delay,
    /// Delays of replies.
    pub backward: Delay,
    /// Growth of load: at the end, the part of a delay above its minimum is multiplied by this.
    pub load_grows: f64,
    /// An increase of the requests' delay.
    pub longer: Option<StepAt>,
    /// Processing time of the remote host.
    pub responder_ns: i64,
    /// The interval between exchanges.
    pub interval_ns: i64,
    /// The number of exchanges.
    pub count: u32,
    /// The seed of all draws.
    pub seed: u64,
}

/// A sinusoidal skew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temperature {
    /// Amplitude, in ppm.
    pub amplitude_ppm: f64,
    /// Period.
    pub period_s: f64,
}

/// A slew: a temporary change of a clock's rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slew {
    /// Begin, on our clock, since the start.
    pub at_ns: i64,
    /// Duration.
    pub for_ns: i64,
    /// How much faster the clock runs meanwhile, in ppm.
    pub ppm: f64,
    /// Whether an opposite slew of the same duration follows at once.
    #[serde(default)]
    pub returns: bool,
}

impl Slew {
    /// Returns the effect of the slew on the clock at a time since the start.
    fn moved(&self, since: f64) -> f64 {
        let (passed, lasts) = ((since - self.at_ns as f64).max(0.0), self.for_ns as f64);
        let back = if self.returns { (passed - lasts).clamp(0.0, lasts) } else { 0.0 };
        self.ppm * 1e-6 * (passed.min(lasts) - back)
    }
}

/// A single change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepAt {
    /// Time of the change, on our clock, since the start.
    pub at_ns: i64,
    /// Size of the change.
    pub by_ns: i64,
}

/// Our clock at the start; the value is arbitrary.
const START: Time = Time(1_000_000_000_000_000_000);

impl Default for Truth {
    fn default() -> Self {
        let delay = Delay::Gamma(Gamma { shape: 1.5, scale_ns: 4_000.0, shift_ns: 15_000.0 });
        Self {
            offset_ns: 0.0,
            skew_ppm: 0.0,
            drift_ppm_per_s: 0.0,
            temperature: None,
            slew: None,
            step: None,
            forward: delay,
            backward: delay,
            load_grows: 1.0,
            longer: None,
            responder_ns: 2_000,
            interval_ns: 10_000_000,
            count: 1_000,
            seed: 1,
        }
    }
}

impl Truth {
    /// Returns the true offset at a time of our clock.
    pub fn offset_at(&self, ours: Time) -> f64 {
        let since = (ours - START).0 as f64;
        let seconds = since * 1e-9;
        let turned = self.temperature.map_or(0.0, |temperature| {
            let rate = std::f64::consts::TAU / temperature.period_s;
            temperature.amplitude_ppm * 1e3 / rate * (1.0 - (rate * seconds).cos())
        });
        let stepped = self.step.filter(|step| since >= step.at_ns as f64).map_or(0.0, |step| step.by_ns as f64);
        let slewed = self.slew.map_or(0.0, |slew| slew.moved(since));
        let drift = self.drift_ppm_per_s * 1e3 * seconds * seconds / 2.0;
        self.offset_ns + self.skew_ppm * 1e-6 * since + drift + turned + slewed + stepped
    }

    /// Returns the remote clock's time at a time of ours.
    pub fn remote(&self, ours: Time) -> Time {
        ours + Nanos(self.offset_at(ours).round() as i64)
    }

    /// Returns the time on our clock at which a share of the whole duration has passed.
    pub fn at(&self, share: f64) -> Time {
        START + Nanos((self.span() * share) as i64)
    }

    fn span(&self) -> f64 {
        self.interval_ns as f64 * f64::from(self.count)
    }

    /// Draws the exchanges.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn exchanges(&self) -> Result<Vec<Exchange>, LineError> {
        let (forward, backward) = (Sampler::new(self.forward)?, Sampler::new(self.backward)?);
        let floors = (floor(self.forward), floor(self.backward));
        let mut random = StdRng::seed_from_u64(self.seed);
        let draw = |number: u32| {
            let left = START + Nanos(self.interval_ns.saturating_mul(i64::from(number)));
            let load = 1.0 + (self.load_grows - 1.0) * f64::from(number) / f64::from(self.count);
            let loaded = |drawn: f64, floor: f64| Nanos((floor + (drawn - floor).max(0.0) * load).round() as i64);
            let since = (left - START).0;
            let longer = self.longer.filter(|longer| since >= longer.at_ns).map_or(0, |longer| longer.by_ns);
            let arrived = left + loaded(forward.sample(&mut random), floors.0) + Nanos(longer);
            let answered = arrived + Nanos(self.responder_ns);
            let back = answered + loaded(backward.sample(&mut random), floors.1);
            let sources = Sources { local: Source::Simulated, remote: Source::Simulated };
            Exchange { t1: left, t2: self.remote(arrived), t3: self.remote(answered), t4: back, sources }
        };
        Ok((0..self.count).map(draw).collect())
    }
}

/// Returns the minimum of a delay distribution, if it has one.
fn floor(delay: Delay) -> f64 {
    match delay {
        Delay::Constant(ns) => ns as f64,
        Delay::Normal(_) => 0.0,
        Delay::Gamma(gamma) => gamma.shift_ns,
        Delay::Pareto(pareto) => pareto.scale_ns,
    }
}
