//! Simulated exchanges with known truth, many seeds of each case: the maximum error always holds, the 95 % error holds
//! in 93 to 98 % of cases if its assumption holds, and there is a finding if it does not.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sojourn_clock::simulate::{Slew, StepAt, Temperature, Truth};
use sojourn_clock::{Estimate, Estimator, Finding, Limits};
use sojourn_port::sim::{Delay, Gamma, Normal, Pareto};

/// Number of seeds that measures a coverage of 95 % to a percent or two.
const FOR_COVERAGE: u64 = 200;
/// Number of these seeds for cases with thousands of exchanges in ordinary test runs; `make proof` runs all of them.
const OF_LONG_ONES: u64 = 100;
/// Number of seeds that shows whether something occurs nearly always or nearly never.
const FOR_FINDINGS: u64 = 60;
/// The same for cases that are tried in several sizes.
const OF_EACH_SIZE: u64 = 20;
const SECOND: i64 = 1_000_000_000;

/// The results of the estimates of one case.
#[derive(Debug, Default)]
struct Worth {
    /// Converted times with an error above the maximum error.
    broken: u64,
    /// Share of converted times within the 95 % error.
    coverage: f64,
    /// Mean error, mean 95 % error, mean maximum error.
    error_ns: f64,
    error95_ns: f64,
    bound_ns: f64,
    /// Shares of estimates with a finding.
    stepped: f64,
    asymmetric: f64,
    unsynchronised: f64,
}

const TIMES: usize = 40;

/// Estimates a case, with another offset, another skew and other draws for each seed.
fn judge(name: &str, seeds: u64, case: impl Fn(&mut StdRng) -> Truth) -> Worth {
    let mut worth = Worth::default();
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let truth = Truth {
            offset_ns: random.random_range(-3e9..3e9),
            skew_ppm: random.random_range(-100.0..100.0),
            seed: seed + 1,
            ..case(&mut random)
        };
        let estimate = estimated(&truth);
        for _ in 0..TIMES {
            weigh(&mut worth, &truth, (&estimate, seeds), random.random_range(0.002..0.998));
        }
        let has = |finding| f64::from(u8::from(estimate.findings.iter().any(|found| found.finding == finding)));
        worth.stepped += has(Finding::ClockStepped) / seeds as f64;
        worth.asymmetric += has(Finding::ClockAsymmetric) / seeds as f64;
        worth.unsynchronised += has(Finding::ClockUnsynchronised) / seeds as f64;
    }
    println!("{name:32} {worth:.3?}");
    worth
}

/// The limits of the simulated paths: with a share for asymmetry every coverage would be near 100 %.
const ALIKE: Limits = Limits { skew_ppm: 200.0, drift_ppm_per_s: 0.5, slew_ppm: 500.0, asymmetry_share: 0.0 };

fn estimated(truth: &Truth) -> Estimate {
    estimated_within(truth, ALIKE)
}

fn estimated_within(truth: &Truth, limits: Limits) -> Estimate {
    let mut estimator = Estimator::new(limits);
    truth.exchanges().expect("a sound truth").into_iter().for_each(|exchange| estimator.push(exchange));
    estimator.estimate().expect("enough exchanges")
}

fn weigh(worth: &mut Worth, truth: &Truth, (estimate, seeds): (&Estimate, u64), share: f64) {
    let ours = truth.at(share);
    let converted = estimate.convert(truth.remote(ours));
    let error = (converted.ours - ours).0.abs() as f64;
    let all = (seeds * TIMES as u64) as f64;
    if error > converted.bound_ns + 1.0 {
        worth.broken += 1;
    }
    worth.coverage += f64::from(u8::from(error <= converted.error95_ns)) / all;
    worth.error_ns += error / all;
    worth.error95_ns += converted.error95_ns / all;
    worth.bound_ns += converted.bound_ns / all;
}

fn gamma(shape: f64, scale_ns: f64) -> Delay {
    Delay::Gamma(Gamma { shape, scale_ns, shift_ns: 15_000.0 })
}

/// Asserts that the coverage is as claimed and that there are no findings: the assumption of the 95 % error holds.
fn assert_sound(worth: &Worth) {
    assert_eq!(worth.broken, 0);
    // Two standard deviations of 95 % in 200 estimates are 3 %; with three groups the error is conservative.
    assert!((0.93..=0.98).contains(&worth.coverage), "coverage {}", worth.coverage);
    assert!(worth.stepped <= 0.01, "{worth:?}");
    assert!(worth.asymmetric <= 0.02, "{worth:?}");
}

macro_rules! sound {
    ($($(#[$marked:meta])* $name:ident: $case:expr;)*) => {
        $($(#[$marked])*
        #[test]
        fn $name() {
            assert_sound(&judge(stringify!($name), FOR_COVERAGE, |_| $case));
        })*
    };
}

/// Cases with thousands of exchanges: few seeds in ordinary runs, all of them in `make proof`.
macro_rules! sound_for_long {
    ($($name:ident: $case:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn maximum_error_holds() {
                assert_sound(&judge(stringify!($name), OF_LONG_ONES, |_| $case));
            }

            #[test]
            #[ignore = "proof: more seeds of maximum_error_holds"]
            fn maximum_error_holds_for_many_seeds() {
                assert_sound(&judge(stringify!($name), FOR_COVERAGE, |_| $case));
            }
        })*
    };
}

sound_for_long! {
    load_that_ramps_up: Truth {
        forward: gamma(1.0, 2e4), backward: gamma(1.0, 2e4), load_grows: 7.0, count: 6_000, ..Truth::default()
    };
    warming_up: Truth {
        temperature: Some(Temperature { amplitude_ppm: 1.0, period_s: 60.0 }), count: 6_000, ..Truth::default()
    };
    steady_drift: Truth { drift_ppm_per_s: 0.02, count: 3_000, ..Truth::default() };
}

sound! {
    light_gamma: Truth { forward: gamma(1.5, 4e3), backward: gamma(1.5, 4e3), ..Truth::default() };
    #[ignore = "proof: a gentler load_that_ramps_up"]
    exponential: Truth { forward: gamma(1.0, 5e4), backward: gamma(1.0, 5e4), count: 6_000, ..Truth::default() };
    round_minima: Truth { forward: gamma(3.0, 1e4), backward: gamma(3.0, 1e4), ..Truth::default() };
    heavy_tails: {
        let delay = Delay::Pareto(Pareto { scale_ns: 15e3, shape: 1.2 });
        Truth { forward: delay, backward: delay, ..Truth::default() }
    };
    normal_delays: {
        let delay = Delay::Normal(Normal { mean_ns: 30e3, sd_ns: 4e3 });
        Truth { forward: delay, backward: delay, ..Truth::default() }
    };
    #[ignore = "proof: a gentler warming_up"]
    gentle_warmth: Truth {
        temperature: Some(Temperature { amplitude_ppm: 0.2, period_s: 300.0 }), count: 6_000, ..Truth::default()
    };
    forty_exchanges: Truth { count: 40, interval_ns: SECOND / 10, ..Truth::default() };
    sixteen_exchanges: Truth { count: 16, ..Truth::default() };
    twenty_exchanges: Truth { count: 20, ..Truth::default() };
    twelve_exchanges: Truth { count: 12, ..Truth::default() };
    a_slow_interval: Truth { count: 120, interval_ns: SECOND, ..Truth::default() };
}

#[test]
fn very_few_exchanges_have_a_maximum_error_but_no_95_percent_error() {
    for count in [2, 3, 6, 11] {
        let worth = judge("very few", FOR_FINDINGS, |_| Truth { count, ..Truth::default() });
        assert_eq!(worth.broken, 0);
        assert!(worth.coverage >= 0.93, "{worth:?}");
        assert!(worth.unsynchronised > 0.99, "{worth:?}");
        let line = estimated(&Truth { count, ..Truth::default() }).lines[0];
        assert!(line.skew95_ppb > 0.0 && line.skew95_ppb.to_bits() == line.skew_bound_ppb.to_bits(), "{line:?}");
    }
}

#[test]
fn clock_step_is_detected_and_the_maximum_error_holds_across_it() {
    steps_are_found(OF_EACH_SIZE);
}

#[test]
#[ignore = "proof: more seeds of clock_step_is_detected_and_the_maximum_error_holds_across_it"]
fn clock_steps_are_detected_and_the_maximum_error_holds_across_them() {
    steps_are_found(FOR_FINDINGS);
}

fn steps_are_found(seeds: u64) {
    for by_ns in [-2 * SECOND, 1_000_000_000, 1_000_000, -100_000, -50_000, 40_000, 25_000, -20_000] {
        let worth = judge(&format!("a step by {by_ns} ns"), seeds, |random| {
            let at_ns = random.random_range(3 * SECOND..17 * SECOND);
            Truth { step: Some(StepAt { at_ns, by_ns }), count: 2_000, ..Truth::default() }
        });
        assert_eq!(worth.broken, 0);
        assert!(worth.stepped > 0.99, "{worth:?}");
        assert!(worth.coverage > 0.92, "{worth:?}");
    }
}

#[test]
fn maximum_error_holds_for_steps_as_large_as_the_delay_detected_or_not() {
    let worth = judge("a step of a delay's size", FOR_FINDINGS, |random| {
        let at_ns = random.random_range(SECOND / 2..19 * SECOND);
        let by_ns = random.random_range(14_000..32_000) * if random.random_bool(0.5) { 1 } else { -1 };
        Truth { step: Some(StepAt { at_ns, by_ns }), count: 2_000, ..Truth::default() }
    });
    assert_eq!(worth.broken, 0);
    assert!(worth.stepped > 0.9, "{worth:?}");
}

#[test]
fn maximum_error_holds_for_small_steps_detected_or_not() {
    for by_ns in [500, 2_000, 8_000] {
        let worth = judge(&format!("a step by {by_ns} ns"), OF_EACH_SIZE, |random| {
            let at_ns = random.random_range(3 * SECOND..17 * SECOND);
            Truth { step: Some(StepAt { at_ns, by_ns }), count: 2_000, ..Truth::default() }
        });
        assert_eq!(worth.broken, 0);
    }
}

/// Frames may arrive after the last exchange: both errors grow there.
#[test]
fn maximum_and_95_percent_error_hold_after_the_last_exchange() {
    let (mut worth, seeds) = (Worth::default(), FOR_COVERAGE);
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let (offset_ns, skew_ppm) = (random.random_range(-3e9..3e9), random.random_range(-100.0..100.0));
        let truth = Truth { offset_ns, skew_ppm, drift_ppm_per_s: 0.005, count: 400, seed, ..Truth::default() };
        let estimate = estimated(&truth);
        for _ in 0..TIMES {
            weigh(&mut worth, &truth, (&estimate, seeds), random.random_range(1.0..3.0));
        }
    }
    println!("beyond the last exchange {worth:.3?}");
    assert_eq!(worth.broken, 0);
    assert!(worth.coverage >= 0.93, "{worth:?}");
}

/// Returns how many conversions during and around a slew exceed the maximum error. The slew begins and ends between
/// exchanges, or soon after; one direction has nearly all of the round trip, so that the truth is near an end of the
/// possible range.
fn broken_by_slews(name: &str, interval_ns: i64, lasting: impl Fn(&mut StdRng) -> (i64, bool), slew_ppm: f64) -> u32 {
    let mut broken = 0;
    for seed in 0..FOR_FINDINGS {
        let mut random = StdRng::seed_from_u64(seed);
        let (for_ns, returns) = lasting(&mut random);
        let at_ns = interval_ns * random.random_range(20..40) + interval_ns / 100;
        let ppm = if random.random_bool(0.5) { 500.0 } else { -500.0 };
        let fast = Delay::Gamma(Gamma { shape: 1.5, scale_ns: 1e3, shift_ns: 200.0 });
        let (forward, backward) =
            if random.random_bool(0.5) { (fast, gamma(1.5, 4e3)) } else { (gamma(1.5, 4e3), fast) };
        let slew = Some(Slew { at_ns, for_ns, ppm, returns });
        let skew_ppm = random.random_range(-100.0..100.0);
        let truth = Truth {
            slew,
            skew_ppm,
            forward,
            backward,
            interval_ns,
            count: 60,
            responder_ns: 500,
            seed,
            ..Truth::default()
        };
        let estimate = estimated_within(&truth, Limits { slew_ppm, ..ALIKE });
        let wrong = |random: &mut StdRng| {
            let around = random.random_range(at_ns - interval_ns..at_ns + 2 * for_ns + interval_ns);
            let ours = truth.at(around as f64 / (interval_ns * 60) as f64);
            let converted = estimate.convert(truth.remote(ours));
            (converted.ours - ours).0.abs() as f64 > converted.bound_ns + 1.0
        };
        broken += (0..10 * TIMES).filter(|_| wrong(&mut random)).count() as u32;
    }
    println!("{name}: {broken} of {} beyond the maximum error", FOR_FINDINGS * 10 * TIMES as u64);
    broken
}

#[test]
fn a_slew_that_begins_and_ends_between_exchanges_keeps_within_the_maximum_error() {
    for interval_ns in [SECOND / 100, SECOND / 10, SECOND] {
        let once = |random: &mut StdRng| (random.random_range(interval_ns / 4..interval_ns * 9 / 10), false);
        let there_and_back = |random: &mut StdRng| (random.random_range(interval_ns / 4..interval_ns * 45 / 100), true);
        let over_several = |random: &mut StdRng| (random.random_range(interval_ns..interval_ns * 15), false);
        assert_eq!(broken_by_slews("once", interval_ns, once, 500.0), 0);
        assert_eq!(broken_by_slews("there and back", interval_ns, there_and_back, 500.0), 0);
        assert_eq!(broken_by_slews("over several", interval_ns, over_several, 500.0), 0);
        assert!(broken_by_slews("there and back, not allowed for", interval_ns, there_and_back, 0.0) > 0);
        // For exchanges a second apart, the slew exceeds a delay and is detected as a step.
        assert!(interval_ns == SECOND || broken_by_slews("once, not allowed for", interval_ns, once, 0.0) > 0);
    }
}

#[test]
fn a_slew_after_the_last_exchange_keeps_within_the_maximum_error() {
    let worth = judge("a slew at the end", OF_EACH_SIZE, |random| {
        let at_ns = random.random_range(95 * SECOND / 100..SECOND);
        let slew = Some(Slew { at_ns, for_ns: 10 * SECOND, ppm: 500.0, returns: false });
        Truth { slew, count: 100, ..Truth::default() }
    });
    assert_eq!(worth.broken, 0);
    let truth = Truth {
        slew: Some(Slew { at_ns: SECOND, for_ns: 10 * SECOND, ppm: -500.0, returns: false }),
        count: 100,
        ..Truth::default()
    };
    for share in [1.5, 2.0, 5.0, 10.0] {
        let converted = estimated(&truth).convert(truth.remote(truth.at(share)));
        let error = (converted.ours - truth.at(share)).0.abs() as f64;
        assert!(error > 2e5 * (share - 1.0) && error <= converted.bound_ns, "{share}: {error} {converted:?}");
    }
}

#[test]
fn load_in_one_direction_is_detected() {
    let worth = judge("loaded to the peer", FOR_FINDINGS, |_| Truth {
        forward: gamma(2.0, 2e5),
        count: 3_000,
        ..Truth::default()
    });
    assert_eq!(worth.broken, 0);
    assert!(worth.asymmetric > 0.95, "{worth:?}");
    let worth = judge("loaded from the peer", FOR_FINDINGS, |_| Truth {
        backward: gamma(2.0, 2e5),
        count: 3_000,
        ..Truth::default()
    });
    assert_eq!(worth.broken, 0);
    assert!(worth.asymmetric > 0.95, "{worth:?}");
}

#[test]
fn delay_increase_in_one_direction_is_detected() {
    let worth = judge("longer to the peer", OF_EACH_SIZE, |_| Truth {
        longer: Some(StepAt { at_ns: 30 * SECOND, by_ns: 10_000 }),
        count: 6_000,
        ..Truth::default()
    });
    assert_eq!(worth.broken, 0);
    assert!(worth.asymmetric > 0.95, "{worth:?}");
}

#[test]
fn a_constant_asymmetry_stays_within_the_maximum_error() {
    let worth = judge("another way back", FOR_FINDINGS, |_| Truth {
        backward: Delay::Gamma(Gamma { shape: 1.5, scale_ns: 4e3, shift_ns: 115e3 }),
        ..Truth::default()
    });
    assert_eq!(worth.broken, 0);
    assert!(worth.coverage < 0.01, "nobody can see it: {worth:?}");
}

/// A single segment, whose error includes nothing for what other segments show.
#[test]
fn the_share_for_asymmetry_is_in_the_95_percent_error_in_quadrature() {
    let truth = Truth { count: 40, ..Truth::default() };
    let line = |limits| estimated_within(&truth, Limits { slew_ppm: 0.0, ..limits }).lines[0];
    let (with, without) = (line(Limits::default()), line(ALIKE));
    let share = (with.error95_ns.powi(2) - without.error95_ns.powi(2)).sqrt() / with.bound_ns;
    assert!((share - 0.2).abs() < 0.001, "{share}");
    assert!(with.bound_ns.to_bits() == without.bound_ns.to_bits(), "the maximum error needs no such assumption");
}

/// The maximum error is half of the minimum round trip, some 15 µs: a difference of 6 µs between minimum delays shifts
/// the offset by a fifth of it.
#[test]
fn the_95_percent_error_holds_where_directions_differ_within_the_limits() {
    let mut within = 0;
    for seed in 1..=FOR_FINDINGS {
        let longer_ns = StdRng::seed_from_u64(seed).random_range(-6e3..6e3);
        let backward = Delay::Gamma(Gamma { shape: 1.5, scale_ns: 4e3, shift_ns: 15e3 + longer_ns });
        let truth = Truth { backward, seed, ..Truth::default() };
        let line = estimated_within(&truth, Limits::default()).lines[0];
        let error = (line.offset_ns - truth.offset_at(truth.at(0.0))).abs();
        assert!(error <= line.bound_ns, "{line:?}");
        within += u64::from(error <= line.error95_ns);
    }
    assert!(within >= FOR_FINDINGS * 95 / 100, "{within} of {FOR_FINDINGS}");
}

/// The purpose of the hull: under load that ramps up sevenfold, least squares through all midpoints is far off.
#[test]
fn the_hull_beats_least_squares_under_ramping_load() {
    const SEEDS: u64 = 2;
    let (mut ours, mut squares) = (0.0, 0.0);
    for seed in 1..=SEEDS {
        let truth = Truth {
            skew_ppm: 20.0,
            forward: gamma(1.5, 4e4),
            load_grows: 7.0,
            interval_ns: 600_000,
            count: 100_000,
            seed,
            ..Truth::default()
        };
        let estimate = estimated(&truth);
        let exchanges = truth.exchanges().expect("a sound truth");
        let fitted = least_squares(&exchanges);
        for share in [0.1, 0.3, 0.5, 0.7, 0.9] {
            let remote = truth.remote(truth.at(share));
            let offset = truth.offset_at(truth.at(share));
            ours += (estimate.line_at(remote).expect("a line").offset_at(remote) - offset).abs() / (5 * SEEDS) as f64;
            squares += (fitted((remote - exchanges[0].t2).0 as f64) - offset).abs() / (5 * SEEDS) as f64;
        }
    }
    println!("mean error: hulls {ours:.0} ns, least squares {squares:.0} ns");
    assert!(ours < squares / 50.0, "{ours} {squares}");
}

fn least_squares(exchanges: &[sojourn_clock::Exchange]) -> impl Fn(f64) -> f64 {
    let point = |exchange: &sojourn_clock::Exchange| {
        ((exchange.t2 - exchanges[0].t2).0 as f64, (exchange.most() + exchange.least()).0 as f64 / 2.0)
    };
    let count = exchanges.len() as f64;
    let mean = |of: &dyn Fn((f64, f64)) -> f64| exchanges.iter().map(|one| of(point(one))).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let slope = mean(&|point| (point.0 - x) * (point.1 - y)) / mean(&|point| (point.0 - x).powi(2));
    move |at| y + slope * (at - x)
}

/// The skew as `sojourn clock` prints it: of each segment, under constant load.
#[test]
fn the_skew_is_within_its_error_95_times_in_100_and_always_within_its_bound() {
    let (mut within, mut lines) = (0_u32, 0_u32);
    for seed in 0..2 * FOR_COVERAGE {
        let skew_ppm = StdRng::seed_from_u64(seed).random_range(-100.0..100.0);
        let truth = Truth { skew_ppm, seed: seed + 1, ..Truth::default() };
        for line in estimated(&truth).lines {
            // Per time of the remote clock, as the segment's skew.
            let true_ppb = skew_ppm * 1e3 / (1.0 + skew_ppm * 1e-6);
            let error = (line.skew_ppb - true_ppb).abs();
            assert!(error <= line.skew_bound_ppb, "seed {seed}: {error} ppb, {line:?}");
            within += u32::from(error <= line.skew95_ppb);
            lines += 1;
        }
    }
    let share = f64::from(within) / f64::from(lines);
    println!("skew within its 95 % error: {share:.3} of {lines}");
    // Three standard deviations of 95 % in some 1,800 segments.
    assert!((0.935..=0.965).contains(&share), "{share}");
}

/// 95 % of the errors of offsets at a segment's middle, and of skews, are below the stated errors for any number of
/// groups, by Student's t alone without a factor of our own.
#[test]
#[ignore = "proof: thousands of lines for each number of groups"]
fn intervals_of_offset_and_skew_have_95_percent_coverage_for_each_number_of_groups() {
    calibrated(4_000, 0.02);
}

#[test]
fn intervals_of_offset_and_skew_have_about_95_percent_coverage() {
    calibrated(400, 0.035);
}

/// From 3 groups of 4 exchanges to 6 groups of 66.
fn calibrated(seeds: u64, tolerance: f64) {
    for count in [12, 16, 24, 40, 60, 400] {
        let (mut offsets, mut skews) = (Vec::new(), Vec::new());
        for seed in 0..seeds {
            let skew_ppm = StdRng::seed_from_u64(seed).random_range(-100.0..100.0);
            let truth = Truth { skew_ppm, seed: seed + 1, count, ..Truth::default() };
            for line in estimated(&truth).lines {
                let skew_ppb = skew_ppm * 1e3 / (1.0 + skew_ppm * 1e-6);
                skews.push((line.skew_ppb - skew_ppb).abs() / line.skew95_ppb);
                let offset_ns = (line.reference - truth.at(0.0)).0 as f64 * skew_ppb * 1e-9;
                offsets.push((line.offset_ns - offset_ns).abs() / line.error95_at(line.reference));
            }
        }
        let share = |ratios: &[f64]| ratios.iter().filter(|ratio| **ratio <= 1.0).count() as f64 / ratios.len() as f64;
        let quantile = |ratios: &mut Vec<f64>| {
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() * 95 / 100]
        };
        let shares = (share(&offsets), share(&skews));
        println!(
            "{count}: {shares:.3?}, 95 % of the ratios below {:.3?}",
            (quantile(&mut offsets), quantile(&mut skews))
        );
        assert!((shares.0 - 0.95).abs() < tolerance && (shares.1 - 0.95).abs() < tolerance, "{count}: {shares:?}");
    }
}

/// The time contains billions of segments of a second, of which a few have an exchange.
#[test]
fn exchanges_over_decades_take_no_more_time_than_as_many_in_a_second() {
    let truth = Truth { skew_ppm: 0.0, offset_ns: 5e6, count: 200, interval_ns: 1 << 53, ..Truth::default() };
    let estimate = estimated(&truth);
    assert_eq!(estimate.exchanges, 200);
    for share in [0.1, 0.5, 0.9] {
        let at = truth.at(share);
        let line = estimate.lines.iter().find(|line| line.from <= at && at <= line.to).expect("a line");
        assert!((line.offset_at(at) - truth.offset_at(at)).abs() <= line.bound_ns, "{line:?}");
    }
}

/// Later exchanges are clamped to the last representable time.
#[test]
fn exchange_intervals_beyond_the_range_of_time_do_not_overflow() {
    let truth = Truth { count: 200, interval_ns: i64::MAX / 10, ..Truth::default() };
    assert_eq!(truth.exchanges().expect("drawn").len(), 200);
}
