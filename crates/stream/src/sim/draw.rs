//! Random draws for each frame of a simulated path.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sojourn_port::sim::Sampler;
use sojourn_time::Nanos;

use super::path::LONGEST_NS;
use super::{GilbertElliott, Path, PathError, Serialiser};

/// Separates the seeds of neighbouring blocks: 2⁶⁴ divided by the golden ratio.
const SEED_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// How long after a frame its duplicate arrives.
const DUPLICATE_AFTER_NS: i64 = 1_000;

/// A frame that would arrive later than 30 years after the start is lost, so that differences of times do not overflow.
const LATEST_NS: i64 = 1_000_000_000_000_000_000;

/// Returns the arrival time after a delay, which is limited to a year.
fn after(now_ns: i64, delay_ns: f64) -> i64 {
    now_ns.saturating_add(delay_ns.clamp(0.0, LONGEST_NS).round() as i64)
}

/// The impairments of a path, with their state.
#[derive(Debug)]
pub struct Draw {
    path: Path,
    forward: Sampler,
    backward: Sampler,
    random: StdRng,
    queue: Option<Queue>,
    chain: Option<Chain>,
}

/// The disposition of a frame on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// Arrival, in true time.
    pub at_ns: i64,
    /// Arrival of the duplicate.
    pub again_at_ns: Option<i64>,
    /// The damaged byte, as a share of the frame's length in units of 2⁻³².
    pub damaged: Option<u32>,
    /// Whether the receiver's socket drops it.
    pub is_dropped: bool,
}

impl Draw {
    /// Prepares the draws of a checked path for one block.
    pub fn new(path: &Path, block: u32) -> Result<Self, PathError> {
        let seed = path.seed.wrapping_add(u64::from(block).wrapping_add(1).wrapping_mul(SEED_STRIDE));
        let mut random = StdRng::seed_from_u64(seed);
        let sampler = |delay| Sampler::new(delay).map_err(PathError::Delay);
        Ok(Self {
            forward: sampler(path.delay)?,
            backward: sampler(path.delay_backward.unwrap_or(path.delay))?,
            queue: path.serialiser.map(Queue::new),
            chain: path.bursty_loss.map(|chain| Chain::new(chain, &mut random)),
            random,
            path: path.clone(),
        })
    }

    /// Returns when a frame that leaves the sender at `now_ns` has passed the serialiser; `None`: its queue is full.
    pub fn serialise(&mut self, now_ns: i64, frame_bytes: usize) -> Option<i64> {
        let through_ns = match &mut self.queue {
            Some(queue) => queue.pass(now_ns, frame_bytes),
            None => Some(now_ns),
        };
        through_ns.filter(|through_ns| *through_ns <= LATEST_NS)
    }

    /// Returns the disposition of a frame after the serialiser; `None`: it is lost. A frame that is not a packet of a
    /// stream is neither damaged nor dropped.
    pub fn forward(&mut self, now_ns: i64, frame_bytes: usize, is_packet: bool) -> Option<Disposition> {
        let lost_in_burst = self.chain.as_mut().is_some_and(|chain| chain.loses(&mut self.random));
        let lost = self.happens(self.path.loss) || lost_in_burst;
        let held_back = self.happens(self.path.reorder);
        let repeated = self.happens(self.path.duplicate);
        let damaged = self.happens(self.path.corrupt).then(|| self.random.random());
        let is_dropped = self.happens(self.path.own_drop);
        let mut delay_ns = self.forward.sample(&mut self.random) + self.path.per_byte_ns * frame_bytes as f64;
        delay_ns += if held_back { self.path.reorder_ns as f64 } else { 0.0 };
        let at_ns = after(now_ns, delay_ns);
        let disposition = Disposition {
            at_ns,
            again_at_ns: repeated.then_some(at_ns + DUPLICATE_AFTER_NS),
            damaged: damaged.filter(|_| is_packet),
            is_dropped: is_dropped && is_packet,
        };
        (!lost && at_ns <= LATEST_NS).then_some(disposition)
    }

    /// Returns when a frame that leaves the receiver at `now_ns` arrives at the sender.
    pub fn backward(&mut self, now_ns: i64, frame_bytes: usize) -> i64 {
        let delay_ns = self.backward.sample(&mut self.random) + self.path.per_byte_ns * frame_bytes as f64;
        after(now_ns, delay_ns)
    }

    /// Returns how late the sender is this time.
    pub fn sender_late(&mut self) -> Nanos {
        let late = self.path.sender_late.filter(|late| self.happens(late.probability));
        late.map_or(Nanos::ZERO, |late| Nanos(late.by_ns))
    }

    /// Draws only if the probability is not zero, so that the draws of a path do not depend on impairments it lacks.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability.min(1.0))
    }
}

/// A server that serialises one frame after the other, and the queue in front of it.
#[derive(Debug)]
struct Queue {
    serialiser: Serialiser,
    /// When each frame in it will have been served. Not rounded, so that the rate is exact over any number of frames.
    through_ns: VecDeque<f64>,
}

impl Queue {
    fn new(serialiser: Serialiser) -> Self {
        Self { serialiser, through_ns: VecDeque::new() }
    }

    fn pass(&mut self, now_ns: i64, frame_bytes: usize) -> Option<i64> {
        let now = now_ns as f64;
        while self.through_ns.front().is_some_and(|through| *through <= now) {
            self.through_ns.pop_front();
        }
        // One is in service, the others wait.
        if self.through_ns.len() > self.serialiser.queue_frames {
            return None;
        }
        let begins = self.through_ns.back().copied().unwrap_or(now);
        let through = begins + self.serialiser.service_ns(frame_bytes);
        self.through_ns.push_back(through);
        Some(through.round() as i64)
    }
}

impl Serialiser {
    /// Returns the service time of a frame.
    pub fn service_ns(&self, frame_bytes: usize) -> f64 {
        let by_bits = self.rate_bps.map(|rate| frame_bytes as f64 * 8e9 / rate);
        let by_frames = self.rate_pps.map(|rate| 1e9 / rate);
        by_bits.unwrap_or_default() + by_frames.unwrap_or_default()
    }
}

/// The two-state chain of bursty losses.
#[derive(Debug)]
struct Chain {
    chain: GilbertElliott,
    is_bad: bool,
}

impl Chain {
    /// Starts in the stationary distribution.
    fn new(chain: GilbertElliott, random: &mut StdRng) -> Self {
        Self { chain, is_bad: random.random_bool(chain.share_bad()) }
    }

    fn loses(&mut self, random: &mut StdRng) -> bool {
        let GilbertElliott { p, r, h, k } = self.chain;
        let loses = !random.random_bool(if self.is_bad { h } else { k });
        let changes = random.random_bool(if self.is_bad { r } else { p });
        self.is_bad ^= changes;
        loses
    }
}

impl GilbertElliott {
    /// Returns the share of frames in the bad state.
    pub fn share_bad(&self) -> f64 {
        if self.p + self.r > 0.0 { self.p / (self.p + self.r) } else { 0.0 }
    }

    /// Returns the loss ratio.
    pub fn loss(&self) -> f64 {
        let bad = self.share_bad();
        bad * (1.0 - self.h) + (1.0 - bad) * (1.0 - self.k)
    }
}

#[cfg(test)]
mod tests;
