//! Coverage: how often a run's 95 % interval contains the true loss ratio, by which users judge the emulator. At least 93 % must.
//!
//! Four thousand runs: among a thousand with a coverage of 95 %, chance alone leaves fewer than 930 once in 500 times.

mod models;
mod statistics;

use models::{STEP, impairments, lose, meet, stage};
use sojourn_emulate::config::{Impairments, Loss};
use sojourn_time::Nanos;
use statistics::{clopper_pearson, log_binomial};

const RUNS: u64 = 4000;
const WANTED: u64 = RUNS * 93 / 100;

/// Returns the probability that fewer than `WANTED` runs cover, if each covers with this probability.
fn false_alarm(coverage: f64) -> f64 {
    (0..WANTED).map(|covered| log_binomial(covered, RUNS, coverage).exp()).sum()
}

/// Returns the exact coverage of the Clopper–Pearson interval: at least 95 %, because counts are integers.
fn exact_coverage(packets: u64, probability: f64) -> f64 {
    let covers = |lost: &u64| {
        let (low, high) = clopper_pearson(*lost, packets);
        low <= probability && probability <= high
    };
    let likely = |lost: &u64| log_binomial(*lost, packets, probability) > -40.0;
    (0..=packets).filter(likely).filter(covers).map(|lost| log_binomial(lost, packets, probability).exp()).sum()
}

fn assert_covers(what: &str, probability: f64, packets: u64, count: impl Fn(u64) -> u64) {
    let covered = (0..RUNS)
        .filter(|seed| {
            let (low, high) = clopper_pearson(count(*seed), packets);
            low <= probability && probability <= high
        })
        .count() as u64;
    let alarm = false_alarm(exact_coverage(packets, probability));
    println!("{what} of {packets}, seeds 0..{RUNS}: {covered} cover; fewer than {WANTED} by chance: {alarm:.1e}");
    assert!(alarm < 1e-7, "{what}: chance alone fails with {alarm}");
    assert!(covered >= WANTED, "{what}: {covered} of {RUNS}");
}

fn count(lost: &[bool]) -> u64 {
    lost.iter().filter(|lost| **lost).count() as u64
}

#[test]
fn intervals_of_independent_loss_have_their_coverage() {
    for probability in [0.02, 0.05, 0.07, 0.15, 0.35, 0.5, 0.65, 0.85, 0.95] {
        let loss = [Loss::Independent { probability }];
        assert_covers(&format!("{probability}"), probability, 2000, |seed| count(&lose(&loss, 2000, seed)));
    }
}

#[test]
fn intervals_cover_other_models_of_independent_events() {
    // With p + r = 1 the next state does not depend on the last one.
    let chain = [Loss::GilbertElliott { p: 0.1, r: 0.9, h: 0.0, k: 1.0 }];
    assert_covers("a chain without memory", 0.1, 1000, |seed| count(&lose(&chain, 1000, seed)));
    // A thousand times the mean dwell time between packets.
    let dwell = [Loss::Dwell { good: Nanos(900), bad: Nanos(100) }];
    assert_covers("losses by time, seen rarely", 0.1, 1000, |seed| count(&lose(&dwell, 1000, seed)));
    assert_covers("a trace's loss", 0.03, 1000, |seed| {
        let mut stage = stage(&Impairments::default(), seed);
        (0..1000).filter(|number| meet(&mut stage, *number, Some(0.03)).is_lost).count() as u64
    });
    let duplicating = Impairments { duplication: Some(0.2), ..impairments(&[]) };
    assert_covers("copies", 0.2, 1000, |seed| {
        let mut stage = stage(&duplicating, seed);
        (0..1000).filter(|number| meet(&mut stage, *number, None).is_duplicated).count() as u64
    });
}

/// Checks the interval of a two-state chain: its variance is (1 + λ) / (1 − λ) times that of independent losses.
fn assert_chain_covers(what: &str, loss: &Loss, share: f64, memory: f64) {
    const PACKETS: usize = 6_000;
    let wider = ((1.0 + memory) / (1.0 - memory)).sqrt();
    let half = 1.96 * (share * (1.0 - share) / PACKETS as f64).sqrt();
    let (mut covered, mut narrow) = (0, 0);
    for seed in 0..RUNS {
        let seen = count(&lose(std::slice::from_ref(loss), PACKETS, seed)) as f64 / PACKETS as f64;
        covered += u64::from((seen - share).abs() <= half * wider);
        narrow += u64::from((seen - share).abs() <= half);
    }
    // The interval is a normal approximation: it covers 95 % to a few tenths.
    let alarm = false_alarm(0.948);
    println!(
        "{what}, seeds 0..{RUNS}: {covered} cover; fewer than {WANTED} by chance: {alarm:.1e}; without memory {narrow}"
    );
    assert!(covered >= WANTED, "{what}: {covered} of {RUNS}");
    assert!(narrow < WANTED, "{what}: the interval of independent losses would be too narrow, but {narrow} are in it");
}

#[test]
fn intervals_for_correlated_loss_cover_burst_loss() {
    for (share, burst) in [(0.02, 4.0), (0.1, 2.0), (0.3, 10.0)] {
        let r = 1.0 / burst;
        let p = share * r / (1.0 - share);
        let loss = Loss::GilbertElliott { p, r, h: 0.0, k: 1.0 };
        assert_chain_covers(&format!("{share} in bursts of {burst}"), &loss, share, 1.0 - p - r);
    }
    let dwell = Loss::Dwell { good: Nanos(20 * STEP), bad: Nanos(5 * STEP) };
    assert_chain_covers("losses by time", &dwell, 0.2, (-0.25_f64).exp());
}
