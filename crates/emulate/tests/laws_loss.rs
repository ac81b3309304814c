//! Loss models compared with their distributions over millions of packets; netem's own arithmetic must fail the tests.

mod models;
mod statistics;

use models::{lose, stage};
use rand::RngCore;
use sojourn_emulate::config::Loss;
use sojourn_emulate::random::Origin;
use statistics::{assert_likely, geometric, independent, run_lengths, runs, share};

const PACKETS: usize = 2_000_000;

/// Returns the lowest p-value of four tests of independent losses: number, runs, autocorrelation, gaps.
fn judge_independent(lost: &[bool], probability: f64) -> f64 {
    let number = share(lost.iter().filter(|lost| **lost).count() as u64, lost.len() as u64, probability);
    let values: Vec<f64> = lost.iter().map(|lost| f64::from(u8::from(*lost))).collect();
    let gaps = geometric(&run_lengths(lost, false), probability);
    let bursts = geometric(&run_lengths(lost, true), 1.0 - probability);
    let all = [number, runs(lost), independent(&values, 20), gaps, bursts];
    println!("  number {number:.2e}, runs {:.2e}, lags {:.2e}, gaps {gaps:.2e}, bursts {bursts:.2e}", all[1], all[2]);
    all.into_iter().fold(1.0, f64::min)
}

#[test]
fn independent_loss_has_the_requested_rate_and_is_independent() {
    for (seed, probability) in [(1, 0.003), (2, 0.01), (3, 0.1), (4, 0.25), (5, 0.5), (6, 0.85), (7, 0.95)] {
        let lost = lose(&[Loss::Independent { probability }], PACKETS, seed);
        assert_likely(&format!("seed {seed}, {probability}"), judge_independent(&lost, probability));
    }
}

#[test]
fn probabilities_0_and_1_are_exact() {
    assert!(lose(&[Loss::Independent { probability: 0.0 }], PACKETS, 1).iter().all(|lost| !lost));
    assert!(lose(&[Loss::Independent { probability: 1.0 }], PACKETS, 1).iter().all(|lost| *lost));
}

#[test]
fn several_loss_models_lose_the_union_of_their_losses() {
    let losses = [Loss::Independent { probability: 0.1 }, Loss::Independent { probability: 0.2 }];
    let together = lose(&losses, PACKETS, 1);
    assert_likely("both", judge_independent(&together, 1.0 - 0.9 * 0.8));
    // The first model draws the same as alone; the other one only adds losses.
    let alone = lose(&losses[..1], PACKETS, 1);
    assert!(alone.iter().zip(&together).all(|(alone, together)| !alone || *together));
}

/// netem's `get_crandom`: a weighted mean of a new uniform number and the last result, in 32 bits
/// (net/sched/sch_netem.c).
struct Crandom {
    rho: u64,
    last: u64,
    random: sojourn_emulate::random::Random,
}

impl Crandom {
    fn new(correlation: f64, seed: u64) -> Self {
        let mut random = Origin { seed, pipe: "netem", flow: 0 }.stream("crandom");
        Self { rho: (correlation * 4_294_967_295.0) as u64 + 1, last: u64::from(random.next_u32()), random }
    }

    fn next(&mut self) -> u32 {
        let value = u64::from(self.random.next_u32());
        self.last = (value * ((1 << 32) - self.rho) + self.last * self.rho) >> 32;
        self.last as u32
    }
}

#[test]
fn correlated_loss_of_netem_fails_the_test() {
    let threshold = (0.1 * 4_294_967_295.0) as u32;
    let lost = |correlation| {
        let mut crandom = Crandom::new(correlation, 1);
        (0..PACKETS).map(|_| threshold >= crandom.next()).collect::<Vec<_>>()
    };
    let correlated = lost(0.25);
    let share = correlated.iter().filter(|lost| **lost).count() as f64 / PACKETS as f64;
    assert!((share - 0.0175).abs() < 0.0005, "10 % with 25 % is {share} there");
    assert!(judge_independent(&correlated, 0.1) < statistics::ALARM);
    // Not only by their number: these losses are not independent at their actual ratio either.
    assert!(judge_independent(&correlated, share) < statistics::ALARM);
    // The correlation fails, not the test itself: without correlation it passes.
    assert_likely("netem's losses without correlation", judge_independent(&lost(0.0), 0.1));
}

#[test]
fn other_impairments_do_not_change_the_drawn_losses() {
    let gilbert = Loss::GilbertElliott { p: 0.02, r: 0.2, h: 0.1, k: 0.99 };
    let alone = lose(std::slice::from_ref(&gilbert), 100_000, 9);
    let mut all = models::impairments(&[gilbert, Loss::Every { every: 50, first: 3 }]);
    all.corruption = Some(sojourn_emulate::config::Corruption::BitErrorRate(0.01));
    all.duplication = Some(0.5);
    let mut stage = stage(&all, 9);
    for (number, lost) in alone.into_iter().enumerate() {
        let met = models::meet(&mut stage, number, None);
        assert_eq!(met.is_lost, lost || number % 50 == 2, "packet {number}");
        assert!(!(met.is_lost && met.is_duplicated));
        if !met.is_lost {
            stage.damage(&mut [0; 300]);
        }
    }
}

#[test]
fn loss_of_a_trace_replaces_the_models_while_their_state_advances() {
    let gilbert = [Loss::GilbertElliott { p: 0.01, r: 0.1, h: 0.0, k: 1.0 }];
    let alone = lose(&gilbert, 400_000, 5);
    let mut stage = stage(&models::impairments(&gilbert), 5);
    let seen: Vec<bool> = (0..400_000)
        .map(|number| models::meet(&mut stage, number, (100_000..300_000).contains(&number).then_some(0.25)).is_lost)
        .collect();
    assert_eq!(alone[..100_000], seen[..100_000]);
    assert_eq!(alone[300_000..], seen[300_000..]);
    assert_likely("the trace's", judge_independent(&seen[100_000..300_000], 0.25));
}
