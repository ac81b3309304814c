//! PIE (RFC 8033 §4, with ECN §5.1 and the cap of §5.5): drops at random on enqueue, so that the delay stays near a target.
//!
//! The delay is that of the last packet to leave, from its timestamp. The probability is updated at exact times, at
//! intervals of `update` from the first arrival, however rarely the queue is used.

use rand::Rng;
use sojourn_time::{Nanos, Time};

use super::store::List;
use super::{Verdict, Waiting};
use crate::config;
use crate::random::Random;

/// At or below this number of bytes (two full frames) no packet is dropped.
const FEW: u64 = 2 * 1514;
/// If the delay is below half the target, probabilities below this drop no packet.
const LOW: f64 = 0.2;
/// Maximum increase of the probability per update, once it is at least 0.1.
const CAP: f64 = 0.02;
/// Factor on the probability per update without any delay.
const DECAY: f64 = 0.98;
/// Below each of these probabilities, the change is divided by the number beside it.
const SCALES: [(f64, f64); 6] =
    [(0.000_001, 2048.0), (0.000_01, 512.0), (0.000_1, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0)];

/// The state of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    probability: f64,
    delay: Nanos,
    delay_before: Nanos,
    burst: Nanos,
}

/// PIE.
#[derive(Debug)]
pub(super) struct Pie {
    parameters: config::Pie,
    state: State,
    next_update: Option<Time>,
}

impl Pie {
    pub(super) fn new(parameters: config::Pie) -> Self {
        let state =
            State { probability: 0.0, delay: Nanos::ZERO, delay_before: Nanos::ZERO, burst: parameters.max_burst };
        Self { parameters, state, next_update: None }
    }

    /// Changes the parameters from the next update on; the state stays.
    pub(super) fn set(&mut self, parameters: config::Pie, now: Time) {
        self.pass(now);
        self.parameters = parameters;
        self.state.burst = self.state.burst.min(parameters.max_burst);
    }

    /// Decides on an arriving packet.
    pub(super) fn arrive(&mut self, list: &List, now: Time, random: &mut Random) -> Verdict {
        self.next_update.get_or_insert(now + self.step());
        self.pass(now);
        if self.state.burst > Nanos::ZERO || self.is_light(list) {
            return Verdict::Take;
        }
        if random.random::<f64>() >= self.state.probability {
            Verdict::Take
        } else if self.parameters.ecn && self.state.probability <= self.parameters.max_ecn {
            Verdict::Mark
        } else {
            Verdict::Lose
        }
    }

    /// Notes a departing packet.
    pub(super) fn depart(&mut self, packet: &Waiting, list: &List, now: Time) {
        self.pass(now);
        self.state.delay = if list.is_empty() { Nanos::ZERO } else { now - packet.since };
    }

    /// Returns whether drops are suspended (RFC 8033 §4.1: "Safeguard PIE to be work conserving").
    fn is_light(&self, list: &List) -> bool {
        let is_quick = self.state.delay_before.0 < self.parameters.target.0 / 2 && self.state.probability < LOW;
        is_quick || list.bytes() <= FEW
    }

    /// Performs all updates that were due by `now`.
    fn pass(&mut self, now: Time) {
        let Some(mut due) = self.next_update else { return };
        let step = self.step();
        while due <= now {
            let before = self.state;
            self.update();
            due = due + step;
            if self.state == before && due <= now {
                // Further updates would change nothing.
                let skipped = ((now - due).0 / step.0).saturating_add(1);
                due = due + Nanos(skipped.saturating_mul(step.0));
            }
        }
        self.next_update = Some(due);
    }

    /// Updates the probability (RFC 8033 §4.2, §4.4 and §5.5).
    fn update(&mut self) {
        let config::Pie { target, alpha, beta, max_burst, .. } = self.parameters;
        let State { probability, delay, delay_before, .. } = self.state;
        let scale = SCALES.iter().find(|(below, _)| probability < *below).map_or(1.0, |(_, scale)| *scale);
        let mut p = (alpha * seconds(delay - target) + beta * seconds(delay - delay_before)) / scale;
        if probability >= 0.1 && p > CAP {
            p = CAP;
        }
        let mut probability = probability + p;
        if delay == Nanos::ZERO && delay_before == Nanos::ZERO {
            probability *= DECAY;
        }
        self.state.probability = probability.clamp(0.0, 1.0);
        let half = target.0 / 2;
        self.state.burst = if self.state.probability == 0.0 && delay.0 < half && delay_before.0 < half {
            max_burst
        } else {
            (self.state.burst - self.step()).max(Nanos::ZERO)
        };
        self.state.delay_before = delay;
    }

    fn step(&self) -> Nanos {
        self.parameters.update.max(Nanos(1))
    }
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::store::Store;
    use crate::select::Ecn;
    use rand::SeedableRng;

    /// RFC 8033 §4.2 and §4.4 as printed there, with the cap of §5.5, called at each update; in seconds.
    #[derive(Default)]
    struct Oracle {
        drop_prob: f64,
        current_qdelay: f64,
        qdelay_old: f64,
        burst_allowance: f64,
    }

    impl Oracle {
        fn calculate_drop_prob(&mut self, alpha: f64, beta: f64) {
            const QDELAY_REF: f64 = 0.015;
            let mut p = alpha * (self.current_qdelay - QDELAY_REF) + beta * (self.current_qdelay - self.qdelay_old);
            if self.drop_prob < 0.000001 {
                p /= 2048.0;
            } else if self.drop_prob < 0.00001 {
                p /= 512.0;
            } else if self.drop_prob < 0.0001 {
                p /= 128.0;
            } else if self.drop_prob < 0.001 {
                p /= 32.0;
            } else if self.drop_prob < 0.01 {
                p /= 8.0;
            } else if self.drop_prob < 0.1 {
                p /= 2.0;
            } else if p > 0.02 {
                p = 0.02;
            }
            self.drop_prob += p;
            if self.current_qdelay == 0.0 && self.qdelay_old == 0.0 {
                self.drop_prob *= 0.98;
            }
            self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
            self.burst_allowance = (self.burst_allowance - 0.015).max(0.0);
            if self.drop_prob == 0.0 && self.current_qdelay < QDELAY_REF / 2.0 && self.qdelay_old < QDELAY_REF / 2.0 {
                self.burst_allowance = 0.150;
            }
            self.qdelay_old = self.current_qdelay;
        }
    }

    #[test]
    fn its_probability_is_that_of_the_rfc_at_every_event() {
        let (mut random, mut draws) = (Random::seed_from_u64(1), Random::seed_from_u64(2));
        let (mut pie, mut oracle) =
            (Pie::new(config::Pie::default()), Oracle { burst_allowance: 0.15, ..Oracle::default() });
        let (mut store, mut list) = (Store::default(), List::default());
        let (mut now, mut next_update, mut highest, mut skips) = (Time(0), Time(15_000_000), 0.0_f64, 0);
        for event in 0..300_000 {
            let gap =
                if draws.random_range(0..20_000) == 0 { 100_000_000_000 } else { draws.random_range(0..2_000_000) };
            skips += u32::from(gap > 1_000_000_000);
            now = if event == 0 { now } else { now + Nanos(gap) };
            while next_update <= now {
                oracle.calculate_drop_prob(0.125, 1.25);
                next_update = next_update + Nanos::millis(15);
            }
            // Bursts and pauses of some seconds each.
            let arrives = draws.random_bool(if now.0 / 3_000_000_000 % 2 == 0 { 0.6 } else { 0.4 });
            if arrives || event == 0 {
                let waiting = Waiting {
                    slot: 0,
                    bytes: 1000,
                    since: now,
                    flow: 0,
                    class: 0,
                    ecn: Ecn::NotCapable,
                    is_marked: false,
                };
                pie.arrive(&list, now, &mut random);
                store.push(&mut list, waiting);
            } else if let Some(packet) = store.pop(&mut list) {
                pie.depart(&packet, &list, now);
                oracle.current_qdelay = if list.is_empty() { 0.0 } else { (now - packet.since).0 as f64 / 1e9 };
            } else {
                // It performs missed updates only when it is called.
                continue;
            }
            let (ours, theirs) = (pie.state.probability, oracle.drop_prob);
            assert!((ours - theirs).abs() < 1e-9, "event {event}: {ours} {theirs}");
            assert!((seconds(pie.state.burst) - oracle.burst_allowance).abs() < 1e-9, "event {event}");
            highest = highest.max(ours);
        }
        assert!(highest > 0.2 && skips > 3, "{highest} {skips}: too little was tried");
    }

    #[test]
    fn updates_due_before_a_change_use_the_earlier_parameters() {
        let mut pies = [(); 2].map(|()| Pie::new(config::Pie::default()));
        for pie in &mut pies {
            (pie.next_update, pie.state.delay) = (Some(Time(0)), Nanos::millis(40));
        }
        let [left, changed] = &mut pies;
        changed.set(config::Pie { alpha: 0.0, beta: 0.0, ..config::Pie::default() }, Time(1_000_000_000));
        left.pass(Time(1_000_000_000));
        assert!(left.state == changed.state && left.state.probability > 0.0, "{left:?} {changed:?}");
    }

    #[test]
    fn lets_the_first_burst_pass() {
        // A queue of 50 ms from the start: no drops for 150 ms, then some.
        let (mut pie, mut random) = (Pie::new(config::Pie::default()), Random::seed_from_u64(1));
        let (mut store, mut list) = (Store::default(), List::default());
        let (mut first_lost, mut now) = (None, Time(0));
        while first_lost.is_none() && now < Time(10_000_000_000) {
            now = now + Nanos::micros(100);
            let since = now - Nanos::millis(50);
            let waiting =
                Waiting { slot: 0, bytes: 1000, since, flow: 0, class: 0, ecn: Ecn::NotCapable, is_marked: false };
            if pie.arrive(&list, now, &mut random) != Verdict::Take {
                first_lost = Some(now);
            }
            store.push(&mut list, waiting);
            if list.slots() > 10 {
                let packet = store.pop(&mut list).unwrap();
                pie.depart(&packet, &list, now);
            }
        }
        assert!(first_lost.is_some_and(|lost| lost.0 > 150_000_000), "{first_lost:?}");
    }
}
