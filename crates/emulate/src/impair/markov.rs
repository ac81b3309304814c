//! Markov loss models: Gilbert–Elliott by packets, the same in time, and the four states of Salsano et al.
//!
//! Each chain starts in its stationary distribution, so the first packet is as likely lost as any other. A packet is
//! subject to the current state; then the chain moves.

use rand::RngCore;
use sojourn_time::{Nanos, Time};

use crate::random::{Chance, Random, uniform};

/// Gilbert 1960, Elliott 1963: loss probability 1 − k in the good state and 1 − h in the bad one, which has the share p / (p + r).
#[derive(Debug)]
pub(super) struct Gilbert {
    to_bad: Chance,
    to_good: Chance,
    lost_in_good: Chance,
    lost_in_bad: Chance,
    is_bad: bool,
}

impl Gilbert {
    /// Makes a chain from `[p, r, h, k]`. With p = r = 0 it stays in the good state.
    pub(super) fn new([p, r, h, k]: [f64; 4], random: &mut Random) -> Self {
        let share = if p > 0.0 { p / (p + r) } else { 0.0 };
        let is_bad = Chance::of(share).happens(random);
        let mut chain = Self {
            to_bad: Chance::NEVER,
            to_good: Chance::NEVER,
            lost_in_good: Chance::NEVER,
            lost_in_bad: Chance::NEVER,
            is_bad,
        };
        chain.set([p, r, h, k]);
        chain
    }

    pub(super) fn set(&mut self, [p, r, h, k]: [f64; 4]) {
        self.to_bad = Chance::of(p);
        self.to_good = Chance::of(r);
        self.lost_in_good = Chance::of(1.0 - k);
        self.lost_in_bad = Chance::of(1.0 - h);
    }

    pub(super) fn meets(&mut self, random: &mut Random) -> bool {
        let (loss, change) =
            if self.is_bad { (self.lost_in_bad, self.to_good) } else { (self.lost_in_good, self.to_bad) };
        let is_lost = loss.happens(random);
        self.is_bad ^= change.happens(random);
        is_lost
    }
}

/// Two states in time with exponential dwell times. The state is drawn only at the times of packets, from the chain's
/// transition function: this has the same distribution as the full path, and a pause of hours costs no more than one
/// packet.
#[derive(Debug)]
pub(super) struct Dwell {
    bad_share: f64,
    /// Sum of the two transition rates, per nanosecond.
    rate: f64,
    last: Option<Time>,
    is_bad: bool,
}

impl Dwell {
    pub(super) fn new(good: Nanos, bad: Nanos, random: &mut Random) -> Self {
        let mut chain = Self { bad_share: 0.0, rate: 0.0, last: None, is_bad: false };
        chain.set(good, bad);
        chain.is_bad = Chance::of(chain.bad_share).happens(random);
        chain
    }

    /// Sets the mean dwell times. A state with a dwell time of zero never occurs; if both are zero, the chain stays good.
    pub(super) fn set(&mut self, good: Nanos, bad: Nanos) {
        let (good, bad) = (good.0.max(0) as f64, bad.0.max(0) as f64);
        self.bad_share = if bad > 0.0 { bad / (good + bad) } else { 0.0 };
        self.rate = 1.0 / good + 1.0 / bad;
    }

    pub(super) fn meets(&mut self, at: Time, random: &mut Random) -> bool {
        let since = self.last.map_or(0, |last| (at - last).0.max(0));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
        let draw = uniform(random);
        // With no time passed the state is the same: avoids 0 × ∞.
        let kept = if since == 0 { 1.0 } else { libm::exp(-self.rate * since as f64) };
        let was_bad = if self.is_bad { 1.0 } else { 0.0 };
        self.is_bad = draw < self.bad_share + (was_bad - self.bad_share) * kept;
        self.is_bad
    }
}

/// Salsano, Ludovici and Ordine 2012, "Definition of a general and intuitive loss model for packet networks": an
/// isolated loss (4) is always followed by the good state.
#[derive(Debug)]
pub(super) struct FourState {
    /// Cumulative probabilities from good (1): to 3, to 3 or 4.
    good: [Chance; 2],
    /// Cumulative probabilities from 3: to 1, to 1 or 2.
    burst: [Chance; 2],
    /// Probability from 2 to 3.
    within: Chance,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    ReceivedWithin,
    LostWithin,
    LostAlone,
}

impl FourState {
    /// Makes a chain from `[p13, p31, p23, p32, p14]`.
    pub(super) fn new(probabilities: [f64; 5], random: &mut Random) -> Self {
        let mut chain =
            Self { good: [Chance::NEVER; 2], burst: [Chance::NEVER; 2], within: Chance::NEVER, state: State::Good };
        chain.set(probabilities);
        chain.state = start(probabilities, uniform(random));
        chain
    }

    pub(super) fn set(&mut self, [p13, p31, p23, p32, p14]: [f64; 5]) {
        self.good = [Chance::of(p13), Chance::of(p13 + p14)];
        self.burst = [Chance::of(p31), Chance::of(p31 + p32)];
        self.within = Chance::of(p23);
    }

    pub(super) fn meets(&mut self, random: &mut Random) -> bool {
        let state = self.state;
        let draw = random.next_u64();
        self.state = match state {
            State::Good if self.good[0].covers(draw) => State::LostWithin,
            State::Good if self.good[1].covers(draw) => State::LostAlone,
            State::LostWithin if self.burst[0].covers(draw) => State::Good,
            State::LostWithin if self.burst[1].covers(draw) => State::ReceivedWithin,
            State::ReceivedWithin if self.within.covers(draw) => State::LostWithin,
            State::LostAlone => State::Good,
            stays => stays,
        };
        matches!(state, State::LostWithin | State::LostAlone)
    }
}

/// Draws a state from the stationary distribution. Transient states have no share; if only some states are ever left,
/// the chain starts in an absorbing one.
fn start([p13, p31, p23, p32, p14]: [f64; 5], draw: f64) -> State {
    let weights = if p13 <= 0.0 {
        [1.0, 0.0, 0.0, p14]
    } else if p32 > 0.0 && p23 <= 0.0 {
        [0.0, 1.0, 0.0, 0.0]
    } else {
        // The flows between 1 and 3, and between 3 and 2, balance; all weights are scaled by p31, which may be 0.
        let within = if p32 > 0.0 { p13 * p32 / p23 } else { 0.0 };
        [p31, within, p13, p31 * p14]
    };
    let states = [State::Good, State::ReceivedWithin, State::LostWithin, State::LostAlone];
    let mut left = draw * weights.iter().sum::<f64>();
    for (state, weight) in states.into_iter().zip(weights) {
        if left < weight {
            return state;
        }
        left -= weight;
    }
    State::Good
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Origin;

    #[test]
    fn four_state_chain_has_the_requested_transition_probabilities() {
        const PACKETS: u64 = 3_000_000;
        let [p13, p31, p23, p32, p14] = [0.05, 0.2, 0.5, 0.1, 0.02];
        let moves = [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ];
        let mut random = Origin { seed: 1, pipe: "forward", flow: 0 }.stream("before/loss/0");
        let mut chain = FourState::new([p13, p31, p23, p32, p14], &mut random);
        let mut counts = [[0_u64; 4]; 4];
        for _ in 0..PACKETS {
            let before = chain.state as usize;
            let is_lost = chain.meets(&mut random);
            assert_eq!(is_lost, before >= 2, "lost in the state that the packet met");
            counts[before][chain.state as usize] += 1;
        }
        for (counts, moves) in counts.iter().zip(moves) {
            let visits = counts.iter().sum::<u64>() as f64;
            assert!(visits > 10_000.0);
            let allowed = counts.iter().zip(moves).filter(|(_, p)| *p > 0.0);
            let square: f64 = allowed.map(|(count, p)| (*count as f64 - visits * p).powi(2) / (visits * p)).sum();
            // χ² with at most 2 degrees of freedom exceeds 37 with probability 10^-8.
            assert!(square < 37.0, "seed 1: {counts:?} of {visits}, χ² = {square}");
            assert!(counts.iter().zip(moves).all(|(count, p)| p > 0.0 || *count == 0), "{counts:?}");
        }
    }
}
