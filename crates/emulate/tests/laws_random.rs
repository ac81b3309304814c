//! Streams never change, and similar seeds give independent streams.

mod statistics;

use rand::RngCore;
use sojourn_emulate::random::{Chance, Origin, uniform};
use statistics::{assert_likely, chi_square, normal};

fn origin(seed: u64) -> Origin<'static> {
    Origin { seed, pipe: "forward", flow: 0 }
}

#[test]
fn first_values_of_random_streams_are_pinned() {
    let first = |origin: Origin<'_>, purpose: &str| origin.stream(purpose).next_u64();
    let seen = [
        first(origin(1), "before/loss/0"),
        first(origin(1), "before/loss/1"),
        first(origin(1), "after/loss/0"),
        first(origin(1), "before/trace"),
        first(origin(1), "before/corruption"),
        first(origin(1), "before/duplication"),
        first(origin(1), "delay"),
        first(origin(1), "delay/reorder"),
        first(origin(2), "delay"),
        first(Origin { pipe: "backward", ..origin(1) }, "delay"),
        first(Origin { flow: 7, ..origin(1) }, "delay"),
    ];
    let pinned: [u64; 11] = [
        0x6368_f302_46d7_4475,
        0x24c6_b603_e6bb_b7b4,
        0x8b79_d3ed_e5a5_2377,
        0xa393_4a24_64af_fde5,
        0x51be_d98d_33ad_f208,
        0xd728_9a56_ee64_b33d,
        0x38fe_b986_1be4_4652,
        0x64df_66e7_0cfb_8c63,
        0x8e30_510d_13da_35c3,
        0x799f_86f0_6be7_9df2,
        0x9c91_4dd1_bc4a_c1c0,
    ];
    assert_eq!(seen, pinned, "{seen:#x?}");
}

#[test]
fn streams_of_near_seeds_are_independent() {
    const DRAWS: usize = 4096;
    let streams: Vec<Vec<f64>> = (1..=1000)
        .map(|seed| {
            let mut random = origin(seed).stream("delay");
            (0..DRAWS).map(|_| (uniform(&mut random) - 0.5) * 12.0_f64.sqrt()).collect()
        })
        .collect();
    // Correlations of neighbours, next but one, …: each is normal with variance 1/DRAWS; the sum of their squares is χ².
    for distance in [1, 2, 3, 8, 16, 64, 256] {
        let deviates: Vec<f64> = streams
            .iter()
            .zip(&streams[distance..])
            .map(|(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / (DRAWS as f64).sqrt())
            .collect();
        let squares: f64 = deviates.iter().map(|z| z * z).sum();
        assert_likely(&format!("seeds {distance} apart"), statistics::chi_square_above(squares, deviates.len() as u32));
        let most = deviates.iter().copied().fold(0.0, |most: f64, z| most.max(z.abs()));
        assert_likely(&format!("the worst pair {distance} apart"), (normal(most) * deviates.len() as f64).min(1.0));
    }
}

#[test]
fn first_values_over_seeds_are_uniform_in_every_bit() {
    const SEEDS: u64 = 100_000;
    let firsts: Vec<u64> = (0..SEEDS).map(|seed| origin(seed).stream("before/loss/0").next_u64()).collect();
    for bit in 0..64 {
        let ones = firsts.iter().filter(|value| *value >> bit & 1 == 1).count() as u64;
        assert_likely(&format!("bit {bit}"), statistics::share(ones, SEEDS, 0.5));
    }
    let mut cells = [0_u64; 256];
    for pair in firsts.windows(2).step_by(2) {
        cells[((pair[0] >> 60 << 4) | (pair[1] >> 60)) as usize] += 1;
    }
    assert_likely("pairs of neighbours", chi_square(&cells, &[SEEDS as f64 / 2.0 / 256.0; 256], 0));
}

#[test]
fn random_streams_differ_by_purpose_pipe_and_flow() {
    let mut firsts = std::collections::HashSet::new();
    for pipe in ["forward", "backward", "a", "b", ""] {
        for flow in 0..1000 {
            for purpose in ["delay", "before/loss/0", "before/loss/1", "after/loss/0", "red"] {
                firsts.insert(Origin { seed: 1, pipe, flow }.stream(purpose).next_u64());
            }
        }
    }
    assert_eq!(firsts.len(), 5 * 1000 * 5);
}

#[test]
fn probabilities_are_exact_at_0_and_1_and_monotonic_between() {
    let mut random = origin(1).stream("chance");
    for _ in 0..100_000 {
        assert!(!Chance::of(0.0).happens(&mut random) && Chance::of(1.0).happens(&mut random));
    }
    assert!(Chance::of(1.0).covers(u64::MAX) && !Chance::of(0.0).covers(0));
    assert!(!Chance::of(1.0 - f64::EPSILON).covers(u64::MAX), "nearly always is not always");
    assert!(Chance::of(0.5f64.powi(64)).covers(0) && !Chance::of(0.5f64.powi(64)).covers(1), "one value in 2^64");
    assert!(Chance::of(0.5).covers((1 << 63) - 1) && !Chance::of(0.5).covers(1 << 63));
    assert_eq!(Chance::of(f64::NAN), Chance::NEVER);
    assert_eq!((Chance::of(-1.0), Chance::of(2.0)), (Chance::NEVER, Chance::of(1.0)));
}
