//! Delays compared with their distributions, with and without correlation; netem's own correlation must fail the test.

mod statistics;

use rand::RngCore;
use sojourn_emulate::config::{Delay, Distribution, Reorder};
use sojourn_emulate::delay::{Drawn, Sampler};
use sojourn_emulate::random::{Origin, Random, uniform};
use sojourn_time::{Nanos, Time};
use statistics::{anderson_darling, assert_likely, chi_square, geometric, independent, mean, normal_below, share};

/// Large enough that rounding to nanoseconds is negligible.
const SCALE: Nanos = Nanos(1_000_000_000_000);
const UNIT: f64 = 1e12;
/// Large enough that nothing is clipped.
const CONSTANT: Nanos = Nanos(100_000_000_000_000);
const HALF_LIFE: Nanos = Nanos::millis(100);

/// A distribution and its known properties, in units of its scale.
struct Law {
    name: &'static str,
    distribution: Distribution,
    below: fn(f64) -> f64,
    mean: f64,
}

fn points() -> Vec<(f64, Nanos)> {
    [(0.0, -1.0), (0.2, 0.0), (0.7, 1.0), (1.0, 4.0)]
        .map(|(share, value)| (share, Nanos((value * UNIT) as i64)))
        .to_vec()
}

fn laws() -> Vec<Law> {
    let law = |name, distribution, below, mean| Law { name, distribution, below, mean };
    vec![
        law("uniform", Distribution::Uniform { spread: SCALE }, |x| 0.5 + 0.5 * x, 0.0),
        law("normal", Distribution::Normal { sd: SCALE }, normal_below, 0.0),
        law("exponential", Distribution::Exponential { mean: SCALE }, |x| -(-x).exp_m1(), 1.0),
        law("pareto", Distribution::Pareto { scale: SCALE, shape: 2.5 }, |x| 1.0 - (1.0 + x).powf(-2.5), 1.0 / 1.5),
        law("gamma 0.7", Distribution::Gamma { shape: 0.7, scale: SCALE }, |x| statistics::gamma_below(0.7, x), 0.7),
        law("gamma 4", Distribution::Gamma { shape: 4.0, scale: SCALE }, |x| statistics::gamma_below(4.0, x), 4.0),
        law("own", Distribution::Empirical { points: points(), file: String::new() }, own_below, 1.0 / 20.0 * 18.0),
    ]
}

/// The CDF of `points`, linear between them; its mean is 0.2 × −0.5 + 0.5 × 0.5 + 0.3 × 2.5.
fn own_below(x: f64) -> f64 {
    match x {
        ..0.0 => 0.2 * (x + 1.0),
        0.0..1.0 => 0.2 + 0.5 * x,
        _ => 0.7 + 0.1 * (x - 1.0),
    }
}

fn sampler(jitter: Distribution, half_life: Option<Nanos>, seed: u64) -> Sampler {
    let delay = Delay { constant: CONSTANT, jitter: Some(jitter), half_life, ..Delay::default() };
    Sampler::new(&delay, Origin { seed, pipe: "forward", flow: 0 })
}

/// Returns the random part, in units of the scale.
fn beyond(drawn: Drawn) -> f64 {
    assert!(!drawn.is_clipped && !drawn.is_reordered);
    (drawn.delay - CONSTANT).0 as f64 / UNIT
}

fn draw(law: &Law, half_life: Option<Nanos>, times: impl Iterator<Item = Time>, seed: u64) -> Vec<f64> {
    let mut sampler = sampler(law.distribution.clone(), half_life, seed);
    times.map(|at| beyond(sampler.draw(at, None))).collect()
}

fn regular(packets: i64, step: Nanos) -> impl Iterator<Item = Time> {
    (0..packets).map(move |number| Time(number * step.0))
}

/// Returns times with random steps from zero to two half-lives.
fn irregular(packets: usize, seed: u64) -> Vec<Time> {
    let mut random = Origin { seed, pipe: "times", flow: 0 }.stream("gaps");
    let mut now = Time(1_790_000_000_000_000_000);
    (0..packets)
        .map(|_| {
            let step = [0.0, 0.001, 0.1, 2.0][(random.next_u64() % 4) as usize] * uniform(&mut random);
            now = now + Nanos((step * HALF_LIFE.0 as f64) as i64);
            now
        })
        .collect()
}

#[test]
fn independent_delays_have_their_distribution_and_no_autocorrelation() {
    for (seed, law) in (1..).zip(laws()) {
        let values = draw(&law, None, regular(1_000_000, Nanos::millis(1)), seed);
        let levels: Vec<f64> = values.iter().map(|value| (law.below)(*value)).collect();
        let what = format!("seed {seed}, {}", law.name);
        assert_likely(&format!("{what}: mean"), mean(values.iter().copied(), law.mean));
        assert_likely(&format!("{what}: lags"), independent(&levels, 20));
        let high: Vec<bool> = levels.iter().map(|level| *level > 0.5).collect();
        assert_likely(&format!("{what}: runs"), statistics::runs(&high));
        assert_likely(&format!("{what}: Anderson–Darling"), anderson_darling(levels));
    }
}

#[test]
fn correlated_delays_have_the_same_distribution_and_mean() {
    distribution_of_correlated(600_000);
}

#[test]
#[ignore = "proof: more packets of correlated_delays_have_the_same_distribution_and_mean"]
fn many_correlated_delays_have_the_same_distribution_and_mean() {
    distribution_of_correlated(3_000_000);
}

fn distribution_of_correlated(packets: usize) {
    let times = irregular(packets, 9);
    for (seed, law) in (1..).zip(laws()) {
        let values = draw(&law, Some(HALF_LIFE), times.iter().copied(), seed);
        let what = format!("seed {seed}, {}", law.name);
        assert_likely(&format!("{what}: mean"), mean(values.iter().copied(), law.mean));
        // The distribution of Anderson–Darling is for independent values: uses one in 25 half-lives (ρ = 3 × 10^-8).
        let mut levels = Vec::new();
        let mut last = times[0];
        for (at, value) in times.iter().zip(&values) {
            if *at - last >= Nanos(25 * HALF_LIFE.0) {
                levels.push((law.below)(*value));
                last = *at;
            }
        }
        assert!(levels.len() > packets / 100, "{}", levels.len());
        assert_likely(&format!("{what}: Anderson–Darling"), anderson_darling(levels));
    }
}

/// Returns the autocorrelation of a delay whose deviates have correlation r, by Mehler's series Σ c_k² r^k, for the
/// quantile function `of`. Closed forms: r for the normal, (6/π) asin(r/2) for the uniform distribution.
fn by_mehler(of: impl Fn(f64) -> f64, r: f64) -> f64 {
    let (mut sum, mut variance, mut power) = (0.0, 0.0, 1.0);
    for k in 1..=60 {
        power *= r;
        let squared = coefficient(&of, k).powi(2);
        sum += squared * power;
        variance += squared;
    }
    sum / variance
}

/// Returns ∫ q(z) He_k(z) φ(z) dz / √k!, by the trapezoidal rule.
fn coefficient(of: impl Fn(f64) -> f64, k: i32) -> f64 {
    (-1700..=1700)
        .map(|step| {
            let z = f64::from(step) / 200.0;
            let (mut before, mut hermite) = (0.0, 1.0);
            for n in 0..k {
                let n = f64::from(n);
                (before, hermite) = (hermite, (z * hermite - n.sqrt() * before) / (n + 1.0).sqrt());
            }
            of(z) * hermite * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt() / 200.0
        })
        .sum()
}

/// Returns the p-value of the autocorrelation at a lag, for values with known mean and variance.
fn judge_correlation(values: &[f64], centre: f64, variance: f64, lag: usize, expected: f64) -> f64 {
    let products = values.iter().zip(&values[lag..]).map(|(a, b)| (a - centre) * (b - centre) / variance);
    mean(products.collect::<Vec<_>>().into_iter(), expected)
}

#[test]
fn autocorrelation_decays_over_time_as_requested() {
    correlation_of(200_000);
}

#[test]
#[ignore = "proof: more packets of autocorrelation_decays_over_time_as_requested"]
fn autocorrelation_of_many_packets_decays_over_time_as_requested() {
    correlation_of(1_000_000);
}

fn correlation_of(packets: i64) {
    type Theory = fn(f64) -> f64;
    let exponential: Theory = |r| by_mehler(|z| -normal_below(-z).ln(), r);
    let known: [(usize, f64, f64, Theory); 3] = [
        (0, 0.0, 1.0 / 3.0, |r| 6.0 / std::f64::consts::PI * (r / 2.0).asin()),
        (1, 0.0, 1.0, |r| r),
        (2, 1.0, 1.0, exponential),
    ];
    for (law, centre, variance, theory) in known {
        let law = &laws()[law];
        for (seed, step) in [(1, Nanos::millis(1)), (2, Nanos::millis(30)), (3, Nanos::millis(250))] {
            let values = draw(law, Some(HALF_LIFE), regular(packets, step), seed);
            for lag in [1, 2, 5, 20] {
                let halvings = lag as f64 * step.0 as f64 / HALF_LIFE.0 as f64;
                let expected = theory((-halvings).exp2());
                let what = format!("seed {seed}, {}, {lag} × {} ms", law.name, step.0 / 1_000_000);
                assert_likely(&what, judge_correlation(&values, centre, variance, lag, expected));
            }
        }
    }
}

#[test]
fn autocorrelation_depends_on_time_also_with_irregular_arrivals() {
    let times = irregular(2_000_000, 3);
    let values = draw(&laws()[1], Some(HALF_LIFE), times.iter().copied(), 4);
    let pairs = times.windows(2).zip(values.windows(2));
    let off = pairs.map(|(times, values)| {
        let halvings = (times[1] - times[0]).0 as f64 / HALF_LIFE.0 as f64;
        values[0] * values[1] - (-halvings).exp2()
    });
    assert_likely("seed 4", mean(off.collect::<Vec<_>>().into_iter(), 0.0));
}

#[test]
fn expected_autocorrelation_of_this_test_equals_closed_forms() {
    for r in [0.1, 0.5, 0.9] {
        let uniform = by_mehler(normal_below, r);
        assert!((uniform - 6.0 / std::f64::consts::PI * (r / 2.0_f64).asin()).abs() < 1e-3, "{r}: {uniform}");
        assert!((by_mehler(|z| z, r) - r).abs() < 1e-9);
    }
}

/// netem's uniform jitter: `rnd % (2 × sigma) − sigma` with its correlated numbers (net/sched/sch_netem.c, `tabledist`).
fn netem(correlation: f64, sigma: u32, packets: usize) -> Vec<f64> {
    let mut random: Random = Origin { seed: 1, pipe: "netem", flow: 0 }.stream("crandom");
    let rho = (correlation * 4_294_967_295.0) as u64 + 1;
    let mut last = u64::from(random.next_u32());
    (0..packets)
        .map(|_| {
            last = (u64::from(random.next_u32()) * ((1 << 32) - rho) + last * rho) >> 32;
            f64::from(last as u32 % (2 * sigma)) / f64::from(sigma) - 1.0
        })
        .collect()
}

#[test]
fn correlated_delay_of_netem_fails_the_test() {
    for asked in [0.25, 0.5, 0.9] {
        let values = netem(asked, 2_000_000, 1_000_000);
        let p_value = judge_correlation(&values, 0.0, 1.0 / 3.0, 1, asked);
        assert!(p_value < statistics::ALARM, "{asked}: p = {p_value}");
        // Its actual correlation is zero.
        let seen = statistics::autocorrelation(&values, 1);
        assert!(seen.abs() < 0.01, "{asked}: {seen}");
    }
}

#[test]
fn packets_with_equal_or_earlier_times_get_the_same_delay() {
    let mut sampler = sampler(Distribution::Normal { sd: SCALE }, Some(HALF_LIFE), 1);
    let first = sampler.draw(Time(1_000_000), None);
    assert_eq!(sampler.draw(Time(1_000_000), None), first);
    assert_eq!(sampler.draw(Time(5), None), first);
    assert_eq!(sampler.draw(Time(1_000_000), None), first, "time that went back has not passed twice");
    assert_ne!(sampler.draw(Time(1_100_000), None), first);
}

#[test]
fn negative_delays_become_zero_and_are_counted() {
    let delay =
        Delay { constant: SCALE, jitter: Some(Distribution::Normal { sd: Nanos(SCALE.0 / 2) }), ..Delay::default() };
    let mut sampler = Sampler::new(&delay, Origin { seed: 1, pipe: "forward", flow: 0 });
    let drawn: Vec<Drawn> = (0..2_000_000).map(|at| sampler.draw(Time(at), None)).collect();
    assert!(drawn.iter().all(|drawn| drawn.delay >= Nanos::ZERO && (!drawn.is_clipped || drawn.delay == Nanos::ZERO)));
    let clipped = drawn.iter().filter(|drawn| drawn.is_clipped).count() as u64;
    assert_likely("clipped", share(clipped, 2_000_000, normal_below(-2.0)));
    // E max(0, X) = μ Φ(μ/σ) + σ φ(μ/σ).
    let expected = normal_below(2.0) + 0.5 * (-2.0_f64).exp() / std::f64::consts::TAU.sqrt();
    assert_likely("mean", mean(drawn.iter().map(|drawn| drawn.delay.0 as f64 / UNIT), expected));
}

#[test]
fn constant_delay_is_constant_and_a_trace_replaces_it() {
    let delay = Delay { constant: Nanos(20_000_001), ..Delay::default() };
    let mut sampler = Sampler::new(&delay, Origin { seed: 1, pipe: "forward", flow: 0 });
    for at in 0..1000 {
        assert_eq!(sampler.draw(Time(at), None), Drawn { delay: delay.constant, ..Drawn::default() });
        assert_eq!(sampler.draw(Time(at), Some(Nanos(5))).delay, Nanos(5));
    }
    let below = sampler.draw(Time(0), Some(Nanos(-5)));
    assert_eq!(below, Drawn { delay: Nanos::ZERO, is_clipped: true, is_reordered: false });
    let far = sampler.draw(Time(0), Some(Nanos(i64::MAX))).delay;
    assert!(far.0 > 3600 * 24 * 365 * 30 * 1_000_000_000, "30 years and more");
    assert!(1_800_000_000_000_000_000_i64.checked_add(far.0).is_some(), "and still a time");
}

#[test]
fn small_jitters_are_rounded_without_a_bias() {
    let delay =
        Delay { constant: Nanos(100), jitter: Some(Distribution::Uniform { spread: Nanos(2) }), ..Delay::default() };
    let mut sampler = Sampler::new(&delay, Origin { seed: 2, pipe: "forward", flow: 0 });
    let mut seen = [0_u64; 5];
    for at in 0..1_000_000 {
        seen[(sampler.draw(Time(at), None).delay.0 - 98) as usize] += 1;
    }
    assert_likely("to the nearest", chi_square(&seen, &[125e3, 250e3, 250e3, 250e3, 125e3], 0));
}

#[test]
fn values_of_a_table_are_equally_likely() {
    let values: Vec<i16> = (-500..500).map(|value| value * 60).collect();
    let distribution = Distribution::Table { sd: Nanos(8192), values, file: String::new() };
    for (seed, half_life) in [(1, None), (2, Some(HALF_LIFE))] {
        let mut sampler = sampler(distribution.clone(), half_life, seed);
        let mut seen = [0_u64; 1000];
        for at in 0..1_000_000 {
            // Thirty half-lives apart: practically independent.
            let drawn = sampler.draw(Time(at * 30 * HALF_LIFE.0), None).delay - CONSTANT;
            assert_eq!(drawn.0 % 60, 0);
            seen[(drawn.0 / 60 + 500) as usize] += 1;
        }
        assert_likely(&format!("seed {seed}"), chi_square(&seen, &[1000.0; 1000], 0));
    }
}

fn reordering(probability: f64, gap: u64, by: Option<Nanos>) -> Delay {
    Delay { constant: Nanos::millis(10), reorder: Some(Reorder { probability, gap, by }), ..Delay::default() }
}

#[test]
fn packets_are_reordered_with_the_requested_probability() {
    for (seed, probability, gap) in [(1, 0.25, 0), (2, 0.25, 1), (3, 0.25, 5), (4, 1.0, 4), (5, 0.01, 100)] {
        let delay = reordering(probability, gap, None);
        let mut sampler = Sampler::new(&delay, Origin { seed, pipe: "forward", flow: 0 });
        let chosen: Vec<u64> = (1..=1_000_000)
            .filter(|number| {
                let drawn = sampler.draw(Time(*number), None);
                assert_eq!(drawn.delay, if drawn.is_reordered { Nanos::ZERO } else { delay.constant });
                drawn.is_reordered
            })
            .map(|number| number as u64)
            .collect();
        let beyond: Vec<u64> = chosen.windows(2).map(|pair| pair[1] - pair[0] - (gap.max(1) - 1)).collect();
        let what = format!("seed {seed}, {probability} gap {gap}");
        assert_likely(&what, geometric(&beyond, probability));
        assert_eq!(chosen[0].min(gap.max(1)), gap.max(1), "{what}: none before the gap's turn");
    }
}

#[test]
fn reordered_packet_has_its_delay_reduced_as_requested() {
    let spared = |by| {
        let mut sampler = Sampler::new(&reordering(1.0, 0, Some(by)), Origin { seed: 1, pipe: "f", flow: 0 });
        sampler.draw(Time(0), None).delay
    };
    assert_eq!(spared(Nanos::millis(3)), Nanos::millis(7));
    assert_eq!(spared(Nanos::millis(30)), Nanos::ZERO);
    assert_eq!(spared(Nanos(-1)), Nanos::millis(10));
}

#[test]
fn parameter_change_keeps_the_state_of_unchanged_parameters() {
    let with = |sd, constant| Delay {
        constant,
        jitter: Some(Distribution::Normal { sd: Nanos(sd) }),
        half_life: Some(HALF_LIFE),
        ..Delay::default()
    };
    let origin = Origin { seed: 1, pipe: "forward", flow: 0 };
    let mut sampler = Sampler::new(&with(1_000_000, Nanos::seconds(1)), origin);
    let mut unchanged = Sampler::new(&with(1_000_000, Nanos::seconds(1)), origin);
    let before = sampler.draw(Time(0), None).delay - Nanos::seconds(1);
    unchanged.draw(Time(0), None);
    sampler.set(&with(2_000_000, Nanos::seconds(2)));
    let after = sampler.draw(Time(0), None).delay - Nanos::seconds(2);
    unchanged.draw(Time(0), None);
    assert!((after.0 - 2 * before.0).abs() <= 1, "the deviation is the same, twice as large: {before:?}, {after:?}");
    sampler.set(&with(1_000_000, Nanos::seconds(1)));
    for at in 1..1000 {
        assert_eq!(sampler.draw(Time(at * 1_000_000), None), unchanged.draw(Time(at * 1_000_000), None));
    }
}

#[test]
fn reordering_does_not_change_the_drawn_delays() {
    let jitter = Some(Distribution::Exponential { mean: Nanos::millis(1) });
    let origin = Origin { seed: 1, pipe: "forward", flow: 0 };
    let plain = Delay { jitter, ..reordering(0.0, 0, None) };
    let mut one = Sampler::new(&plain, origin);
    let mut other = Sampler::new(&Delay { reorder: reordering(0.3, 2, None).reorder, ..plain.clone() }, origin);
    for at in 0..10_000 {
        let (one, other) = (one.draw(Time(at), None), other.draw(Time(at), None));
        assert!(other.is_reordered || one == other);
    }
}
