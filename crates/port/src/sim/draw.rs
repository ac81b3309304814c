//! Draws delay, loss, reordering and duplication of each frame of a simulated link.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::Distribution;
use sojourn_time::{Nanos, Time};

use super::line::{Delay, Gamma, Line, LineError, Normal, Pareto, Stall};

/// Spreads the seeds of consecutive blocks: 2⁶⁴ divided by the golden ratio.
const SEED_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// A link's random draws, with their state.
#[derive(Debug)]
pub(super) struct Draw {
    line: Line,
    forward: Sampler,
    backward: Sampler,
    random: StdRng,
    block_extra_ns: f64,
    /// The number of requests that the device has seen, for `hold` and `ramp`.
    seen: u64,
    /// When the last frame held by the stall arrives, for each direction: held frames leave in order.
    stalled: [Time; 2],
}

/// Draws delays from the distribution of a [`Delay`].
#[derive(Clone, Debug)]
pub struct Sampler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Constant(f64),
    Normal(rand_distr::Normal<f64>),
    Gamma(rand_distr::Gamma<f64>, f64),
    Pareto(rand_distr::Pareto<f64>),
}

#[derive(Clone, Copy)]
enum Direction {
    Forward = 0,
    Backward = 1,
}

impl Draw {
    /// Prepares the draws of a validated link.
    pub(super) fn new(line: &Line) -> Result<Self, LineError> {
        Ok(Self {
            forward: Sampler::new(line.forward)?,
            backward: Sampler::new(line.backward)?,
            random: StdRng::seed_from_u64(line.seed),
            block_extra_ns: 0.0,
            seen: 0,
            stalled: [Time(i64::MIN); 2],
            line: line.clone(),
        })
    }

    pub(super) fn begin_block(&mut self, block: u32) {
        let seed = self.line.seed.wrapping_add(u64::from(block).wrapping_add(1).wrapping_mul(SEED_STRIDE));
        self.random = StdRng::seed_from_u64(seed);
        let deviation: f64 = rand_distr::StandardNormal.sample(&mut self.random);
        self.block_extra_ns = deviation * self.line.block_sd_ns;
    }

    /// Returns when a request that departs at `departed` reaches the responder; `None` when it is lost.
    pub(super) fn forward(&mut self, departed: Time, frame_bytes: usize) -> Option<Time> {
        let lost = self.happens(self.line.loss);
        let held_back = self.happens(self.line.reorder);
        let second_mode = self.line.two_modes.filter(|modes| self.happens(modes.probability));
        let mut delay_ns = self.forward.sample(&mut self.random) + self.block_extra_ns;
        delay_ns += self.line.drift_ns_per_s * departed.0 as f64 / 1e9;
        delay_ns += self.line.per_byte_ns * frame_bytes as f64;
        delay_ns += second_mode.map_or(0.0, |modes| modes.extra_ns as f64);
        delay_ns += if held_back { self.line.reorder_ns as f64 } else { 0.0 };
        self.seen += 1;
        delay_ns += self.hold_ns() + self.ramp_ns(departed);
        let arrived = self.leave(Direction::Forward, departed, delay_ns);
        (!lost).then_some(arrived)
    }

    /// Returns when a reply that departs at `departed` reaches the prober; `None` when it is lost.
    pub(super) fn backward(&mut self, departed: Time, frame_bytes: usize) -> Option<Time> {
        let lost = self.happens(self.line.loss_backward);
        let delay_ns = self.backward.sample(&mut self.random) + self.line.per_byte_ns * frame_bytes as f64;
        let arrived = self.leave(Direction::Backward, departed, delay_ns);
        (!lost).then_some(arrived)
    }

    pub(super) fn duplicates(&mut self) -> bool {
        self.happens(self.line.duplicate)
    }

    /// Returns the prober's lateness for this departure.
    pub(super) fn sender_late(&mut self) -> Nanos {
        let late = self.line.sender_late.filter(|late| self.happens(late.probability));
        late.map_or(Nanos::ZERO, |late| Nanos(late.by_ns))
    }

    fn hold_ns(&self) -> f64 {
        self.line.hold.filter(|hold| self.seen.is_multiple_of(hold.every)).map_or(0.0, |hold| hold.for_ns as f64)
    }

    fn ramp_ns(&self, departed: Time) -> f64 {
        self.line.ramp.filter(|ramp| self.seen.is_multiple_of(ramp.nth)).map_or(0.0, |ramp| {
            let phase = departed.0.rem_euclid(ramp.every_ns);
            if phase < ramp.for_ns { ramp.to_ns as f64 * phase as f64 / ramp.for_ns as f64 } else { 0.0 }
        })
    }

    /// Returns when a frame that reaches the device at `entered` leaves the link.
    fn leave(&mut self, direction: Direction, entered: Time, delay_ns: f64) -> Time {
        // A delay cannot be negative; the saturating cast limits the other end.
        let delay = Nanos(delay_ns.max(0.0).round() as i64);
        match self.line.stall {
            Some(Stall { at_ns, for_ns }) if (at_ns..at_ns + for_ns).contains(&entered.0) => {
                let last = &mut self.stalled[direction as usize];
                *last = (Time(at_ns + for_ns) + delay).max(*last);
                *last
            }
            _ => entered + delay,
        }
    }

    /// Draws only for a probability above 0, so that unused features do not change the other draws.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability.min(1.0))
    }
}

impl Sampler {
    /// Prepares the draws.
    ///
    /// # Errors
    /// When a parameter is out of its range.
    pub fn new(delay: Delay) -> Result<Self, LineError> {
        let kind = match delay {
            Delay::Constant(ns) => Ok(Kind::Constant(ns as f64)),
            Delay::Normal(Normal { mean_ns, sd_ns }) => rand_distr::Normal::new(mean_ns, sd_ns)
                .map(Kind::Normal)
                .map_err(|_| LineError::refused("normal.sd_ns", sd_ns)),
            Delay::Gamma(Gamma { shape, scale_ns, shift_ns }) => rand_distr::Gamma::new(shape, scale_ns)
                .map(|gamma| Kind::Gamma(gamma, shift_ns))
                .map_err(|_| LineError::refused("gamma.shape", shape)),
            Delay::Pareto(Pareto { scale_ns, shape }) => rand_distr::Pareto::new(scale_ns, shape)
                .map(Kind::Pareto)
                .map_err(|_| LineError::refused("pareto.shape", shape)),
        };
        kind.map(Self)
    }

    /// Draws a delay in ns.
    pub fn sample(&self, random: &mut StdRng) -> f64 {
        match &self.0 {
            Kind::Constant(ns) => *ns,
            Kind::Normal(normal) => normal.sample(random).max(0.0),
            Kind::Gamma(gamma, shift) => gamma.sample(random) + shift,
            Kind::Pareto(pareto) => pareto.sample(random),
        }
    }
}
