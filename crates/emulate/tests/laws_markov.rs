//! Markov loss models compared with exact expectations of their chains.

mod models;
mod statistics;

use models::{STEP, impairments, lose, stage};
use rand::RngCore;
use sojourn_emulate::config::Loss;
use sojourn_emulate::random::{Origin, uniform};
use sojourn_emulate::select::Key;
use sojourn_time::{Nanos, Time};
use statistics::{assert_likely, chi_square, geometric, mean, run_lengths, share};

const PACKETS: usize = 4_000_000;

/// A chain whose states lose with given probabilities; its expectations are computed from powers of its matrix.
struct Chain<const N: usize> {
    moves: [[f64; N]; N],
    loses: [f64; N],
}

impl<const N: usize> Chain<N> {
    fn stationary(&self) -> [f64; N] {
        let mut share = [1.0 / N as f64; N];
        // Averages each state with the next: the same stationary distribution without oscillation.
        for _ in 0..200_000 {
            let next = self.step(&share);
            share = std::array::from_fn(|state| 0.5 * (share[state] + next[state]));
        }
        share
    }

    fn step(&self, share: &[f64; N]) -> [f64; N] {
        std::array::from_fn(|to| (0..N).map(|from| share[from] * self.moves[from][to]).sum())
    }

    fn loss(&self) -> f64 {
        self.stationary().iter().zip(self.loses).map(|(share, loses)| share * loses).sum()
    }

    /// Returns the probability that a packet and the one `lag` later are both lost.
    fn both(&self, lag: usize) -> f64 {
        let stationary = self.stationary();
        let mut share: [f64; N] = std::array::from_fn(|state| stationary[state] * self.loses[state]);
        for _ in 0..lag {
            share = self.step(&share);
        }
        share.iter().zip(self.loses).map(|(share, loses)| share * loses).sum()
    }

    /// Returns the mean burst length: a burst ends at a loss that is followed by none.
    fn mean_burst(&self) -> f64 {
        self.loss() / (self.loss() - self.both(1))
    }
}

fn gilbert_chain([p, r, h, k]: [f64; 4]) -> Chain<2> {
    Chain { moves: [[1.0 - p, p], [r, 1.0 - r]], loses: [1.0 - k, 1.0 - h] }
}

fn gilbert([p, r, h, k]: [f64; 4]) -> Loss {
    Loss::GilbertElliott { p, r, h, k }
}

fn four_chain([p13, p31, p23, p32, p14]: [f64; 5]) -> Chain<4> {
    let moves = [
        [1.0 - p13 - p14, 0.0, p13, p14],
        [0.0, 1.0 - p23, p23, 0.0],
        [p31, p32, 1.0 - p31 - p32, 0.0],
        [1.0, 0.0, 0.0, 0.0],
    ];
    Chain { moves, loses: [0.0, 0.0, 1.0, 1.0] }
}

fn four([p13, p31, p23, p32, p14]: [f64; 5]) -> Loss {
    Loss::FourState { p13, p31, p23, p32, p14 }
}

/// Compares the loss ratio, pairs of losses at several lags, and the mean burst with the chain.
fn assert_law<const N: usize>(what: &str, loss: Loss, chain: &Chain<N>, seed: u64) -> Vec<bool> {
    let lost = lose(&[loss], PACKETS, seed);
    let value = |lost: bool| f64::from(u8::from(lost));
    assert_likely(&format!("{what}: loss"), mean(lost.iter().map(|lost| value(*lost)), chain.loss()));
    for lag in [1, 2, 3, 7, 30] {
        let pairs = (0..PACKETS - lag).map(|at| value(lost[at] && lost[at + lag]));
        assert_likely(&format!("{what}: both of two {lag} apart"), mean(pairs, chain.both(lag)));
    }
    let bursts = run_lengths(&lost, true);
    let burst = mean(bursts.iter().map(|length| *length as f64), chain.mean_burst());
    assert_likely(&format!("{what}: mean burst"), burst);
    lost
}

const GILBERTS: [[f64; 4]; 5] = [
    [0.01, 0.25, 0.0, 1.0],
    [0.001, 0.02, 0.0, 1.0],
    [0.05, 0.3, 0.4, 0.995],
    [0.9, 0.8, 0.0, 1.0],
    [0.003, 0.1, 0.5, 0.9999],
];

const FOURS: [[f64; 5]; 4] =
    [[0.01, 0.2, 0.5, 0.1, 0.005], [0.002, 0.05, 0.9, 0.3, 0.0], [0.0, 0.5, 0.5, 0.5, 0.03], [0.1, 0.0, 0.3, 0.2, 0.1]];

#[test]
fn gilbert_elliott_losses_have_their_distribution() {
    for (seed, parameters) in (1..).zip(GILBERTS) {
        let what = format!("seed {seed}, p r h k {parameters:?}");
        assert_law(&what, gilbert(parameters), &gilbert_chain(parameters), seed);
    }
}

#[test]
fn transitions_between_good_and_bad_have_the_requested_probabilities() {
    // With h = 0 and k = 1 a loss means the bad state, so transitions can be counted.
    for (seed, [p, r]) in (1..).zip([[0.01, 0.25], [0.1, 0.02], [0.5, 0.5], [0.95, 0.9]]) {
        let lost = lose(&[gilbert([p, r, 0.0, 1.0])], PACKETS, seed);
        let mut moves = [0_u64; 4];
        for pair in lost.windows(2) {
            moves[usize::from(pair[0]) * 2 + usize::from(pair[1])] += 1;
        }
        let (good, bad) = ((moves[0] + moves[1]) as f64, (moves[2] + moves[3]) as f64);
        let from_good = chi_square(&moves[..2], &[good * (1.0 - p), good * p], 0);
        let from_bad = chi_square(&moves[2..], &[bad * r, bad * (1.0 - r)], 0);
        assert_likely(&format!("seed {seed}: from good with {p}"), from_good);
        assert_likely(&format!("seed {seed}: from bad with {r}"), from_bad);
        assert_likely(&format!("seed {seed}: bursts"), geometric(&run_lengths(&lost, true), r));
        assert_likely(&format!("seed {seed}: gaps"), geometric(&run_lengths(&lost, false), p));
    }
}

#[test]
fn four_state_losses_have_their_distribution() {
    for (seed, parameters) in (1..).zip(FOURS) {
        let what = format!("seed {seed}, p13 p31 p23 p32 p14 {parameters:?}");
        assert_law(&what, four(parameters), &four_chain(parameters), seed);
    }
}

#[test]
fn stationary_four_state_distribution_equals_the_published_formula() {
    // Salsano et al. 2012, for p41 = 1.
    for [p13, p31, p23, p32, p14] in FOURS.into_iter().take(2) {
        let norm = p13 * p23 + p13 * p32 + p23 * p31 + p14 * p23 * p31;
        let expected = [p23 * p31, p13 * p32, p13 * p23, p14 * p23 * p31].map(|weight| weight / norm);
        let share = four_chain([p13, p31, p23, p32, p14]).stationary();
        for (a, b) in share.into_iter().zip(expected) {
            assert!((a - b).abs() < 1e-9, "{share:?}, not {expected:?}");
        }
    }
}

/// Checks over many seeds that the first two packets are distributed as any two: the chain starts in its stationary distribution.
fn assert_stationary_start<const N: usize>(what: &str, loss: &Loss, chain: &Chain<N>) {
    const SEEDS: u64 = 100_000;
    let mut seen = [0_u64; 4];
    for seed in 0..SEEDS {
        let lost = lose(std::slice::from_ref(loss), 2, seed);
        seen[usize::from(lost[0]) * 2 + usize::from(lost[1])] += 1;
    }
    let (one, both) = (chain.loss(), chain.both(1));
    let expected = [1.0 - 2.0 * one + both, one - both, one - both, both].map(|share| share * SEEDS as f64);
    assert_likely(what, chi_square(&seen, &expected, 0));
}

#[test]
fn chains_start_in_their_stationary_distribution() {
    for parameters in GILBERTS {
        let what = format!("start of {parameters:?}");
        assert_stationary_start(&what, &gilbert(parameters), &gilbert_chain(parameters));
    }
    for parameters in FOURS {
        let what = format!("start of {parameters:?}");
        assert_stationary_start(&what, &four(parameters), &four_chain(parameters));
    }
    let (good, bad) = (Nanos(12 * STEP), Nanos(4 * STEP));
    assert_stationary_start("start of dwell times", &Loss::Dwell { good, bad }, &dwell_chain(good, bad, STEP));
}

#[test]
fn absorbing_states_are_not_left() {
    let all = |loss: Loss, is_lost: bool| assert!(lose(&[loss], 10_000, 3).iter().all(|lost| *lost == is_lost));
    all(gilbert([0.0, 0.0, 0.0, 1.0]), false);
    all(gilbert([0.5, 0.0, 0.0, 1.0]), true);
    all(four([0.0; 5]), false);
    all(four([0.5, 0.0, 0.0, 0.0, 0.5]), true);
    all(four([0.5, 0.5, 0.0, 0.5, 0.0]), false);
    all(Loss::Dwell { good: Nanos::ZERO, bad: Nanos::ZERO }, false);
    all(Loss::Dwell { good: Nanos(1), bad: Nanos::ZERO }, false);
    all(Loss::Dwell { good: Nanos::ZERO, bad: Nanos(1) }, true);
}

/// Returns which packets at these times are lost by a loss in time.
fn lose_at(good: Nanos, bad: Nanos, times: &[Time], seed: u64) -> Vec<bool> {
    let mut stage = stage(&impairments(&[Loss::Dwell { good, bad }]), seed);
    times.iter().map(|at| stage.meet(&Key::default(), *at, None).is_lost).collect()
}

/// Returns the chain that packets at equal intervals see of two states in time.
fn dwell_chain(good: Nanos, bad: Nanos, step: i64) -> Chain<2> {
    let [good, bad, step] = [good.0, bad.0, step].map(|nanos| nanos as f64);
    let kept = (-step * (1.0 / good + 1.0 / bad)).exp();
    let [to_bad, to_good] = [bad, good].map(|part| part / (good + bad) * (1.0 - kept));
    gilbert_chain([to_bad, to_good, 0.0, 1.0])
}

#[test]
fn dwell_times_do_not_depend_on_packet_arrivals() {
    let (good, bad) = (Nanos::millis(200), Nanos::millis(20));
    // The same distribution in time at 10 packets per burst, 1 per burst and 1,000 per burst.
    for (seed, step) in [(1, STEP * 2), (2, STEP * 20), (3, STEP / 50)] {
        let times: Vec<Time> = (0..PACKETS as i64).map(|number| Time(number * step)).collect();
        let lost = lose_at(good, bad, &times, seed);
        let (share, chain) = (1.0 / 11.0, dwell_chain(good, bad, step));
        let what = format!("seed {seed}, every {step} ns");
        assert_likely(&what, mean(lost.iter().map(|lost| f64::from(u8::from(*lost))), share));
        assert_likely(&format!("{what}: bursts"), geometric(&run_lengths(&lost, true), chain.moves[1][0]));
        assert_likely(&format!("{what}: gaps"), geometric(&run_lengths(&lost, false), chain.moves[0][1]));
    }
}

#[test]
fn bursts_sampled_finely_have_the_requested_duration() {
    let (good, bad) = (Nanos::millis(10), Nanos::millis(4));
    let times: Vec<Time> = (0..8_000_000).map(|number| Time(number * 10_000)).collect();
    let lost = lose_at(good, bad, &times, 4);
    // Sampled every 10 µs, a burst of 4 ms has the same length to 0.1 %: the error is the time between two samples.
    for (what, of, expected) in [("bad", true, 4e6_f64), ("good", false, 1e7)] {
        let lengths = run_lengths(&lost, of);
        let seen = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64 * 10_000.0;
        let error = 5.7 * expected / (lengths.len() as f64).sqrt();
        assert!((seen - expected).abs() < error + 10_000.0, "{what}: {seen} ns, not {expected} ± {error}");
    }
}

#[test]
fn dwell_model_has_its_distribution_at_any_packet_times() {
    let (good, bad) = (Nanos::millis(3), Nanos::millis(1));
    let mut random = Origin { seed: 5, pipe: "times", flow: 0 }.stream("gaps");
    // Gaps from nanoseconds to hours, some of zero and some negative.
    let gaps: Vec<i64> = (0..PACKETS)
        .map(|_| match random.next_u64() % 8 {
            0 => 0,
            1 => -1000,
            2 => 3_600_000_000_000,
            _ => (10.0_f64.powf(2.0 + 6.0 * uniform(&mut random))) as i64,
        })
        .collect();
    let mut now = Time(0);
    let times: Vec<Time> = gaps
        .iter()
        .map(|gap| {
            now = now + Nanos(*gap);
            now
        })
        .collect();
    let lost = lose_at(good, bad, &times, 5);
    let mut latest = times[0];
    let mut cells = [[0_u64; 2]; 40];
    let mut expected = [[0.0; 2]; 40];
    for (at, pair) in times[1..].iter().zip(lost.windows(2)) {
        let since = (*at - latest).0.max(0) as f64;
        latest = latest.max(*at);
        let kept = (-since * (1.0 / 3e6 + 1.0 / 1e6)).exp();
        let was = f64::from(u8::from(pair[0]));
        let now = 0.25 + (was - 0.25) * kept;
        let cell = (since.max(1.0).log10() * 1.5) as usize * 2 + usize::from(pair[0]);
        cells[cell.min(39)][usize::from(pair[1])] += 1;
        expected[cell.min(39)][1] += now;
        expected[cell.min(39)][0] += 1.0 - now;
        assert!(since > 0.0 || pair[0] == pair[1], "nothing passed, so nothing changed");
    }
    for (cell, (cells, expected)) in cells.iter().zip(expected).enumerate() {
        if expected[0].min(expected[1]) > 100.0 {
            let of = cells[0] + cells[1];
            assert_likely(&format!("gaps of cell {cell}"), share(cells[1], of, expected[1] / of as f64));
        }
    }
}

#[test]
fn chain_keeps_its_state_when_its_probabilities_change() {
    for seed in 0..200 {
        let mut stage = stage(&impairments(&[gilbert([0.5, 0.5, 0.0, 1.0])]), seed);
        let meet = |stage: &mut sojourn_emulate::impair::Stage| stage.meet(&Key::default(), Time(0), None).is_lost;
        // With p = r = 0 the chain stays in its state, so two packets have the same loss.
        stage.set(&impairments(&[gilbert([0.0, 0.0, 0.0, 1.0])]));
        let first = meet(&mut stage);
        assert_eq!(first, meet(&mut stage));
        stage.set(&impairments(&[gilbert([0.0, 0.0, 1.0, 0.0])]));
        assert_eq!(meet(&mut stage), !first, "the same state, which now loses the other way round");
    }
}
