//! Bit errors and duplicates compared with their distributions.

mod models;
mod statistics;

use models::{impairments, meet, stage};
use sojourn_emulate::config::{Corruption, Impairments, Loss};
use statistics::{assert_likely, chi_square, geometric, independent, log_binomial, share};

fn corrupting(corruption: Corruption) -> Impairments {
    Impairments { corruption: Some(corruption), ..Impairments::default() }
}

/// Returns which bits of `frames` copies of a frame are flipped.
fn damage(corruption: Corruption, frame: &[u8], frames: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut stage = stage(&corrupting(corruption), seed);
    assert!(stage.is_damaging());
    (0..frames)
        .map(|number| {
            meet(&mut stage, number, None);
            let mut damaged = frame.to_vec();
            let flipped = stage.damage(&mut damaged);
            let bits: Vec<usize> =
                (0..frame.len() * 8).filter(|bit| (damaged[bit / 8] ^ frame[bit / 8]) >> (bit % 8) & 1 == 1).collect();
            assert_eq!(bits.len(), flipped as usize);
            bits
        })
        .collect()
}

#[test]
fn flipped_bits_are_binomial_in_number_and_uniform_in_place() {
    let frame = [0; 14 + 100];
    for (seed, rate) in [(1, 1e-4), (2, 1e-3), (3, 0.02), (4, 0.5), (5, 0.999)] {
        let frames = 30_000;
        let bits = damage(Corruption::BitErrorRate(rate), &frame, frames, seed);
        let mut numbers = [0_u64; 801];
        let mut places = [0_u64; 800];
        for frame in &bits {
            numbers[frame.len()] += 1;
            frame.iter().for_each(|bit| places[bit - 14 * 8] += 1);
        }
        let expected: Vec<f64> = (0..=800).map(|k| frames as f64 * log_binomial(k, 800, rate).exp()).collect();
        assert_likely(&format!("seed {seed}, {rate}: how many"), chi_square(&numbers, &expected, 0));
        let spread = frames as f64 * rate;
        let z2: f64 = places.iter().map(|count| (*count as f64 - spread).powi(2) / (spread * (1.0 - rate))).sum();
        assert_likely(&format!("seed {seed}, {rate}: where"), statistics::chi_square_above(z2, 800));
    }
}

#[test]
fn distances_between_flipped_bits_are_geometric_within_a_frame() {
    let bits = damage(Corruption::BitErrorRate(0.01), &[0; 14 + 125_000], 40, 6);
    let distances: Vec<u64> =
        bits.iter().flat_map(|bits| bits.windows(2).map(|pair| (pair[1] - pair[0]) as u64)).collect();
    assert!(distances.len() > 390_000);
    assert_likely("distances", geometric(&distances, 0.01));
}

#[test]
fn rare_bit_errors_have_the_requested_rate() {
    // 4,000,000 frames of 12,000 bits at 10^-9: 48 bit errors.
    let mut stage = stage(&corrupting(Corruption::BitErrorRate(1e-9)), 7);
    let mut frame = [0; 1514];
    let flipped: u64 = (0..4_000_000)
        .map(|number| {
            meet(&mut stage, number, None);
            u64::from(stage.damage(&mut frame))
        })
        .sum();
    // Poisson with mean 48: outside [15, 97] with probability below 10^-8.
    assert!((15..=97).contains(&flipped), "{flipped} bits, 48 expected");
}

#[test]
fn probabilities_0_and_1_are_exact_and_headers_of_layer_2_stay_intact() {
    let tagged: Vec<u8> = [[0xff; 12].as_slice(), &[0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6, 0x08, 0x00], &[0; 30]].concat();
    for (frame, header) in [(vec![0; 60], 14), (tagged, 22), (vec![0x81; 64], 14)] {
        let all = damage(Corruption::BitErrorRate(1.0), &frame, 1, 1);
        assert_eq!(all[0], (header * 8..frame.len() * 8).collect::<Vec<_>>());
        for none in [Corruption::BitErrorRate(0.0), Corruption::OneBit(0.0)] {
            assert!(damage(none, &frame, 1000, 1).iter().all(Vec::is_empty));
        }
        let one = damage(Corruption::OneBit(1.0), &frame, 1000, 1);
        assert!(one.iter().all(|bits| bits.len() == 1 && bits[0] >= header * 8));
    }
}

#[test]
fn frame_without_payload_is_not_corrupted() {
    for bytes in [0, 5, 12, 13, 14] {
        assert_eq!(damage(Corruption::OneBit(1.0), &vec![0; bytes], 1, 1), [Vec::new()]);
        assert_eq!(damage(Corruption::BitErrorRate(1.0), &vec![0; bytes], 1, 1), [Vec::new()]);
    }
}

#[test]
fn one_bit_at_a_uniform_place_is_flipped_in_the_requested_share_of_packets() {
    let frames = 1_000_000;
    let bits = damage(Corruption::OneBit(0.05), &[0; 14 + 46], frames, 8);
    let mut places = [0_u64; 46 * 8];
    bits.iter().flatten().for_each(|bit| places[bit - 14 * 8] += 1);
    let hit: u64 = places.iter().sum();
    assert_likely("packets", share(hit, frames as u64, 0.05));
    assert_likely("places", chi_square(&places, &[hit as f64 / (46.0 * 8.0); 46 * 8], 0));
    let series: Vec<f64> = bits.iter().map(|bits| bits.len() as f64).collect();
    assert_likely("one after the other", independent(&series, 10));
}

#[test]
fn corruption_of_a_packet_is_independent_of_losses_and_lengths_of_others() {
    let frame = [0; 300];
    let corruption = Corruption::BitErrorRate(0.001);
    let alone = damage(corruption, &frame, 2000, 3);
    let all = Impairments { corruption: Some(corruption), ..impairments(&[Loss::Independent { probability: 0.5 }]) };
    let mut stage = stage(&all, 3);
    for (number, expected) in alone.iter().enumerate() {
        if !meet(&mut stage, number, None).is_lost {
            let mut damaged = vec![0; 300 - number % 7];
            stage.damage(&mut damaged);
            let bits: Vec<usize> =
                (0..damaged.len() * 8).filter(|bit| damaged[bit / 8] >> (bit % 8) & 1 == 1).collect();
            let wanted: Vec<usize> = expected.iter().copied().filter(|bit| *bit < damaged.len() * 8).collect();
            assert_eq!(bits, wanted, "packet {number}");
        }
    }
}

#[test]
fn duplication_has_the_requested_rate_and_is_independent() {
    for (seed, probability) in [(1, 0.001), (2, 0.3), (3, 0.9)] {
        let duplicating = Impairments { duplication: Some(probability), ..Impairments::default() };
        let mut stage = stage(&duplicating, seed);
        let copied: Vec<bool> = (0..1_000_000).map(|number| meet(&mut stage, number, None).is_duplicated).collect();
        let copies = copied.iter().filter(|copied| **copied).count() as u64;
        assert_likely(&format!("seed {seed}: copies"), share(copies, 1_000_000, probability));
        let gaps = statistics::run_lengths(&copied, false);
        assert_likely(&format!("seed {seed}: gaps"), geometric(&gaps, probability));
        assert_likely(&format!("seed {seed}: runs"), statistics::runs(&copied));
    }
}
