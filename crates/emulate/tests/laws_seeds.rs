//! The results of a seed are pinned for ever: a change here would change the dispositions of all experiments.

mod models;

use models::{STEP, impairments, lose, meet, stage};
use sojourn_emulate::config::{Corruption, Delay, Distribution, Impairments, Loss, Reorder};
use sojourn_emulate::delay::Sampler;
use sojourn_emulate::random::Origin;
use sojourn_time::{Nanos, Time};

/// Returns the first 64 losses as bits, the first packet in the lowest bit.
fn dispositions(loss: Loss) -> u64 {
    lose(&[loss], 64, 1).iter().rev().fold(0, |bits, lost| bits << 1 | u64::from(*lost))
}

#[test]
fn losses_of_a_seed_are_pinned() {
    let seen = [
        dispositions(Loss::Independent { probability: 0.3 }),
        dispositions(Loss::GilbertElliott { p: 0.2, r: 0.4, h: 0.1, k: 0.95 }),
        dispositions(Loss::Dwell { good: Nanos(5 * STEP), bad: Nanos(3 * STEP) }),
        dispositions(Loss::FourState { p13: 0.2, p31: 0.3, p23: 0.5, p32: 0.2, p14: 0.1 }),
    ];
    assert_eq!(seen, LOSSES, "{seen:#018x?}");
}

#[test]
fn damage_and_copies_of_a_seed_are_pinned() {
    let damaging = |corruption| Impairments { corruption: Some(corruption), ..impairments(&[]) };
    let flipped = |corruption| {
        let mut stage = stage(&damaging(corruption), 1);
        let mut frame = [0; 14 + 8];
        for number in 0..3 {
            meet(&mut stage, number, None);
            stage.damage(&mut frame);
        }
        frame[14..].iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte))
    };
    let mut copying = stage(&Impairments { duplication: Some(0.3), ..impairments(&[]) }, 1);
    let copies =
        (0..64).fold(0_u64, |bits, number| bits << 1 | u64::from(meet(&mut copying, number, None).is_duplicated));
    let seen = [flipped(Corruption::BitErrorRate(0.1)), flipped(Corruption::OneBit(0.9)), copies];
    assert_eq!(seen, DAMAGES, "{seen:#018x?}");
}

#[test]
fn delays_of_a_seed_are_pinned() {
    let scale = Nanos::millis(1);
    let points = vec![(0.0, Nanos(0)), (0.5, Nanos(100_000)), (1.0, Nanos(5_000_000))];
    let distributions = [
        Distribution::Uniform { spread: scale },
        Distribution::Normal { sd: scale },
        Distribution::Exponential { mean: scale },
        Distribution::Pareto { scale, shape: 3.0 },
        Distribution::Gamma { shape: 2.5, scale },
        Distribution::Empirical { points, file: String::new() },
        Distribution::Table { sd: scale, values: vec![-9000, -3000, -500, 800, 2000, 11_000], file: String::new() },
    ];
    let mut seen = Vec::new();
    for half_life in [None, Some(Nanos::millis(3))] {
        for distribution in &distributions {
            let delay = Delay {
                constant: Nanos::millis(10),
                jitter: Some(distribution.clone()),
                half_life,
                reorder: Some(Reorder { probability: 0.4, gap: 0, by: Some(Nanos::millis(7)) }),
                ..Delay::default()
            };
            let mut sampler = Sampler::new(&delay, Origin { seed: 1, pipe: "forward", flow: 0 });
            seen.push([0, 1, 2, 3].map(|number| sampler.draw(Time(number * STEP), None).delay.0));
        }
    }
    assert_eq!(seen, DELAYS, "{seen:?}");
}

const LOSSES: [u64; 4] = [0x4980_44e9_6128_4422, 0x8182_2602_7398_8f80, 0x7dcf_e0e7_f090_0030, 0x4770_445b_20e8_3ce2];

const DAMAGES: [u64; 3] = [0x01c5_0205_0008_5000, 0x0000_0000_1000_4000, 0x2047_1226_9720_59e2];

/// By distribution, first without correlation, then with; the first, third and fourth packet are reordered.
const DELAYS: [[i64; 4]; 14] = [
    [2_445_274, 10_943_146, 2_991_310, 2_280_859],
    [2_236_682, 11_904_431, 2_989_109, 1_921_607],
    [3_251_848, 13_560_413, 3_684_495, 3_151_322],
    [3_087_574, 12_276_594, 3_256_293, 3_051_735],
    [4_247_117, 16_255_125, 5_159_916, 3_961_953],
    [3_044_527, 14_721_415, 3_099_131, 3_028_086],
    [2_633_789, 11_342_773, 2_938_965, 1_901_367],
    [2_445_274, 10_419_487, 3_334_260, 2_754_193],
    [2_236_682, 10_552_636, 3_432_002, 2_686_884],
    [3_251_848, 11_236_990, 4_100_003, 3_473_364],
    [3_087_574, 10_510_333, 3_442_918, 3_170_918],
    [4_247_117, 13_083_769, 5_867_473, 4_751_600],
    [3_044_527, 12_155_486, 4_737_874, 3_075_419],
    [2_633_789, 10_244_141, 3_244_141, 2_938_965],
];
