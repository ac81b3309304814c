//! Draws what happens to each frame of a simulated path.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sojourn_port::sim::Sampler;
use sojourn_time::Nanos;

use super::path::LONGEST_NS;
use super::{GilbertElliott, Path, PathError, Serialiser};

/// Seeds of neighbouring blocks must not resemble each other: 2⁶⁴ divided by the golden ratio.
const SEED_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// How long after a frame its duplicate comes.
const DUPLICATE_AFTER_NS: i64 = 1_000;

/// What would arrive later than 30 years after the start is lost: times that are farther apart have no difference.
const LATEST_NS: i64 = 1_000_000_000_000_000_000;

/// Returns when something that is delayed by so much arrives: after a year at most, whatever was drawn.
fn after(now_ns: i64, delay_ns: f64) -> i64 {
    now_ns.saturating_add(delay_ns.clamp(0.0, LONGEST_NS).round() as i64)
}

/// What a path does to frames, with the state that it keeps.
#[derive(Debug)]
pub struct Draw {
    path: Path,
    forward: Sampler,
    backward: Sampler,
    random: StdRng,
    queue: Option<Queue>,
    chain: Option<Chain>,
}

/// What becomes of a frame that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// When it arrives, in true time.
    pub at_ns: i64,
    /// When it arrives a second time.
    pub again_at_ns: Option<i64>,
    /// Which of its bytes is damaged, as a share of its length in 2⁻³².
    pub damaged: Option<u32>,
    /// Whether the receiver's socket has no room for it.
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

    /// Returns when a frame that leaves the sender at `now_ns` is through the serialiser; `None` when its queue is
    /// full.
    pub fn serialise(&mut self, now_ns: i64, frame_bytes: usize) -> Option<i64> {
        let through_ns = match &mut self.queue {
            Some(queue) => queue.pass(now_ns, frame_bytes),
            None => Some(now_ns),
        };
        through_ns.filter(|through_ns| *through_ns <= LATEST_NS)
    }

    /// Returns what becomes of a frame on its further way; `None` when it is lost. What carries no packet of a stream
    /// is neither damaged nor dropped.
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

    /// Returns when a frame that leaves the receiver at `now_ns` is back at the sender.
    pub fn backward(&mut self, now_ns: i64, frame_bytes: usize) -> i64 {
        let delay_ns = self.backward.sample(&mut self.random) + self.path.per_byte_ns * frame_bytes as f64;
        after(now_ns, delay_ns)
    }

    /// Returns by how much the sender is late this time.
    pub fn sender_late(&mut self) -> Nanos {
        let late = self.path.sender_late.filter(|late| self.happens(late.probability));
        late.map_or(Nanos::ZERO, |late| Nanos(late.by_ns))
    }

    /// Draws only where there is something to draw, so that a path's draws do not depend on what it does not do.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability.min(1.0))
    }
}

/// A line that serves one frame after the other, and the queue before it.
#[derive(Debug)]
struct Queue {
    serialiser: Serialiser,
    /// When each of the frames that are in it will be through. Not rounded: the rate is kept over any number of them.
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
    /// Returns how long a frame is in service.
    pub fn service_ns(&self, frame_bytes: usize) -> f64 {
        let by_bits = self.rate_bps.map(|rate| frame_bytes as f64 * 8e9 / rate);
        let by_frames = self.rate_pps.map(|rate| 1e9 / rate);
        by_bits.unwrap_or_default() + by_frames.unwrap_or_default()
    }
}

/// The chain of two states that loses frames in bursts.
#[derive(Debug)]
struct Chain {
    chain: GilbertElliott,
    is_bad: bool,
}

impl Chain {
    /// Begins in a state as it is after a long time.
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
    /// Returns the share of frames that meet the bad state.
    pub fn share_bad(&self) -> f64 {
        if self.p + self.r > 0.0 { self.p / (self.p + self.r) } else { 0.0 }
    }

    /// Returns the share of frames that are lost.
    pub fn loss(&self) -> f64 {
        let bad = self.share_bad();
        bad * (1.0 - self.h) + (1.0 - bad) * (1.0 - self.k)
    }
}

#[cfg(test)]
mod tests;
