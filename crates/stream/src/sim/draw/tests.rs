//! Frequencies and times of impairments match the path's parameters.

use proptest::prelude::*;

use super::*;

fn draw(path: &Path) -> Draw {
    path.check().unwrap();
    Draw::new(path, 1).unwrap()
}

/// Returns which of `frames` frames are lost.
fn losses(path: &Path, frames: usize) -> Vec<bool> {
    let mut draw = draw(path);
    (0..frames).map(|_| draw.forward(0, 64, true).is_none()).collect()
}

#[test]
fn gilbert_elliott_has_the_loss_ratio_and_burst_lengths_of_its_chain() {
    for (p, r, h, k) in [(0.01, 0.25, 0.0, 1.0), (0.002, 0.1, 0.5, 0.999), (0.2, 0.6, 0.2, 0.95)] {
        let chain = GilbertElliott { p, r, h, k };
        let n = 300_000;
        let lost = losses(&Path { bursty_loss: Some(chain), ..Path::constant(0) }, n);
        let share = lost.iter().filter(|lost| **lost).count() as f64 / n as f64;
        // The chain's correlation multiplies the binomial variance by (2 - p - r) / (p + r) at most.
        let error = (chain.loss() / n as f64 * (1.0 + 2.0 * (2.0 - p - r) / (p + r))).sqrt();
        assert!((share - chain.loss()).abs() < 4.0 * error, "{share} {} {error}", chain.loss());
        // The exact probability of two losses in a row: within the states, or across a transition.
        let (good, bad) = (1.0 - chain.share_bad(), chain.share_bad());
        let (in_good, in_bad) = (1.0 - k, 1.0 - h);
        let pair =
            good * in_good * ((1.0 - p) * in_good + p * in_bad) + bad * in_bad * ((1.0 - r) * in_bad + r * in_good);
        let told = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / n as f64;
        assert!((told - pair).abs() < 5.0 * error, "{told} {pair}");
    }
}

#[test]
fn bursts_of_simple_gilbert_loss_are_geometric() {
    let (p, r) = (0.01, 0.2);
    let path = Path { bursty_loss: Some(GilbertElliott { p, r, h: 0.0, k: 1.0 }), ..Path::constant(0) };
    let lost = losses(&path, 300_000);
    let bursts: Vec<_> = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
    let n = bursts.len() as f64;
    let mean = bursts.iter().sum::<usize>() as f64 / n;
    assert!((mean - 1.0 / r).abs() < 4.0 * ((1.0 - r) / (r * r) / n).sqrt(), "{mean}");
    let singles = bursts.iter().filter(|length| **length == 1).count() as f64 / n;
    assert!((singles - r).abs() < 4.0 * (r * (1.0 - r) / n).sqrt(), "{singles}");
}

#[test]
fn waiting_time_of_poisson_arrivals_is_that_of_pollaczek_and_khinchine() {
    for load in [0.3, 0.5, 0.8] {
        let service_ns = 1_000.0;
        let serialiser = Serialiser { rate_bps: None, rate_pps: Some(1e9 / service_ns), queue_frames: usize::MAX };
        let mut draw = draw(&Path { serialiser: Some(serialiser), ..Path::constant(0) });
        let schedule = crate::Schedule::new(crate::Pattern::Poisson, load * 1e9 / service_ns, 400_000, 3);
        let waits: f64 = schedule
            .departures()
            .map(|at| draw.serialise(at.0, 64).map_or(0.0, |through| (through - at.0) as f64 - service_ns))
            .sum();
        let mean = waits / schedule.count as f64;
        let truth = load * service_ns / (2.0 * (1.0 - load));
        assert!((mean / truth - 1.0).abs() < 0.05, "load {load}: {mean} {truth}");
    }
}

#[test]
fn serialiser_keeps_its_rate_and_queue_limit() {
    let serialiser = Serialiser { rate_bps: Some(1e9), rate_pps: None, queue_frames: 10 };
    let mut draw = draw(&Path { serialiser: Some(serialiser), ..Path::constant(0) });
    // 1,250 bytes take 10 µs; of 100 simultaneous frames one is served and ten wait.
    let through: Vec<_> = (0..100).filter_map(|_| draw.serialise(0, 1_250)).collect();
    assert_eq!(through, (1..=11).map(|place| place * 10_000).collect::<Vec<_>>());
    assert_eq!(draw.serialise(10_000, 1_250), Some(120_000), "one has left");
}

#[test]
fn rate_with_fractional_nanoseconds_is_exact() {
    let serialiser = Serialiser { rate_bps: None, rate_pps: Some(3e6), queue_frames: usize::MAX };
    let mut draw = draw(&Path { serialiser: Some(serialiser), ..Path::constant(0) });
    let last = (0..300_000).filter_map(|_| draw.serialise(0, 64)).last();
    assert_eq!(last, Some(100_000_000));
}

#[test]
fn impairments_have_the_configured_probabilities() {
    let path = Path {
        loss: 0.1,
        duplicate: 0.05,
        corrupt: 0.02,
        own_drop: 0.03,
        reorder: 0.2,
        reorder_ns: 500,
        ..Path::constant(100)
    };
    let mut draw = draw(&path);
    let n = 200_000;
    let dispositions: Vec<_> = (0..n).filter_map(|_| draw.forward(0, 64, true)).collect();
    let arrived = dispositions.len() as f64;
    let near = |count: usize, of: f64, share: f64| {
        let error = (of * share * (1.0 - share)).sqrt();
        assert!((count as f64 - of * share).abs() < 4.0 * error, "{count} {}", of * share);
    };
    near(dispositions.len(), f64::from(n), 0.9);
    near(dispositions.iter().filter(|disposition| disposition.again_at_ns.is_some()).count(), arrived, 0.05);
    near(dispositions.iter().filter(|disposition| disposition.damaged.is_some()).count(), arrived, 0.02);
    near(dispositions.iter().filter(|disposition| disposition.is_dropped).count(), arrived, 0.03);
    near(dispositions.iter().filter(|disposition| disposition.at_ns == 600).count(), arrived, 0.2);
}

proptest! {
    #[test]
    fn the_same_seed_and_block_give_the_same_dispositions(seed: u64, block: u32) {
        let path = Path { loss: 0.5, duplicate: 0.5, seed, ..Path::constant(5) };
        let dispositions = |block| {
            let mut draw = Draw::new(&path, block).unwrap();
            (0..64).map(|_| draw.forward(0, 64, true)).collect::<Vec<_>>()
        };
        prop_assert_eq!(dispositions(block), dispositions(block));
        prop_assert_ne!(dispositions(block), dispositions(block.wrapping_add(1)));
    }
}
