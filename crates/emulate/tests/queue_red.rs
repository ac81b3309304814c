//! RED's drops over millions of packets: their number, compared with its curve, and their spacing.

mod queue_link;

use queue_link::packet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sojourn_emulate::config::{Aqm, Limit, Queue, Red};
use sojourn_emulate::queue::{Discipline, Losses, Waiting, Why};
use sojourn_emulate::random::Origin;
use sojourn_emulate::select::Ecn;
use sojourn_time::Time;

const RED: Red = Red { weight: 1.0, min: 20.0, max: 120.0, max_p: 0.1, gentle: true, in_bytes: false, ecn: false };

#[test]
fn drops_by_the_red_curve() {
    for slots in [19, 20, 30, 45, 70, 95, 110, 119, 121, 140, 200, 239, 240] {
        let gaps = gaps(RED, slots, 1000, 300_000);
        let p = curve(slots);
        if p == 0.0 {
            assert!(gaps.is_empty(), "{slots}");
            continue;
        }
        let (mean, sd) = law(p);
        let measured = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let error = (measured - mean) / (sd / (gaps.len() as f64).sqrt()).max(1e-12);
        println!(
            "{slots} slots: p = {p:.4}, {measured:.4} packets from loss to loss, {mean:.4} by its law: {error:.2} sigma"
        );
        assert!(error.abs() < 4.0 || measured == mean, "{slots}");
    }
}

#[test]
fn spreads_its_losses_evenly() {
    // At 70 slots p is 0.05: distances between drops are uniform on 1 … 20.
    let gaps = gaps(RED, 70, 1000, 2_000_000);
    let score = chi_square(&gaps, 20);
    println!("{} losses, chi-square {score:.1} at 19 degrees of freedom", gaps.len());
    assert!(score < 43.8, "{score}: less than one in a thousand");
    // The same number of independent drops must fail the test.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let geometric = || std::iter::repeat_with(|| random.random_bool(2.0 / 21.0)).position(|lost| lost);
    let independent: Vec<u64> =
        std::iter::repeat_with(geometric).take(gaps.len()).map(|gap| gap.unwrap_or(0) as u64 + 1).collect();
    assert!(chi_square(&independent, 20) > 1000.0);
}

#[test]
fn byte_mode_drops_small_packets_less_often() {
    let red = Red { in_bytes: true, min: 20_000.0, max: 120_000.0, ..RED };
    for (slots, bytes) in [(70, 1000), (700, 100)] {
        let gaps = gaps(red, slots, bytes, 500_000);
        let p = 0.05 * f64::from(bytes) / 1514.0;
        let (mean, sd) = law(p);
        let measured = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        println!("{bytes} bytes: {measured:.3} packets from loss to loss, {mean:.3} by its law");
        assert!((measured - mean).abs() < 4.0 * sd / (gaps.len() as f64).sqrt());
    }
}

#[test]
fn marks_ecn_capable_packets_and_drops_above_the_maximum_threshold() {
    for (slots, is_marked) in [(70, true), (240, false)] {
        let mut discipline = filled(Red { ecn: true, ..RED }, slots, 1000);
        let (mut lost, mut marks, mut losses) = (Losses::new(), 0, 0);
        for slot in 0..10_000 {
            let waiting = Waiting { ecn: Ecn::Ect0, ..packet(slot, 1000, Time(0)) };
            discipline.enqueue(waiting, Time(0), &mut lost);
            losses += lost.len();
            if lost.drain(..).next().is_none() {
                marks += u32::from(discipline.dequeue(Time(0), &mut lost).is_some_and(|packet| packet.is_marked));
            }
        }
        // A marked packet leaves after all packets that were in front of it.
        assert!(
            if is_marked { marks > 900 && losses == 0 } else { marks == 0 && losses == 10_000 },
            "{marks} {losses}"
        );
    }
}

/// Returns the distances between drops, in packets, at a constant queue length.
fn gaps(red: Red, slots: u32, bytes: u32, packets: u32) -> Vec<u64> {
    let mut discipline = filled(red, slots, bytes);
    let (mut lost, mut gaps, mut gap) = (Losses::new(), Vec::new(), 0);
    for slot in 0..packets {
        gap += 1;
        discipline.enqueue(packet(slot, bytes, Time(0)), Time(0), &mut lost);
        if let Some((_, why)) = lost.pop() {
            assert_eq!(why, Why::Managed);
            gaps.push(std::mem::take(&mut gap));
        } else {
            assert!(discipline.dequeue(Time(0), &mut lost).is_some());
        }
    }
    gaps
}

/// Returns a queue with `slots` packets whose RED starts now, so that the average equals the length.
fn filled(red: Red, slots: u32, bytes: u32) -> Discipline {
    let origin = Origin { seed: u64::from(slots), pipe: "red", flow: 0 };
    let mut discipline = Discipline::new(&Queue::default(), Limit::default(), None, origin);
    let mut lost = Losses::new();
    (0..slots).for_each(|slot| discipline.enqueue(packet(slot, bytes, Time(0)), Time(0), &mut lost));
    let queue = Queue { aqm: Some(Aqm::Red(red)), ..Queue::default() };
    discipline.set(&queue, Limit::default(), None, Time(0), &mut lost);
    discipline
}

/// The curve of Floyd and Jacobson, with Floyd's gentle part.
fn curve(slots: u32) -> f64 {
    let average = f64::from(slots);
    match slots {
        0..20 => 0.0,
        20..120 => 0.1 * (average - 20.0) / 100.0,
        120..240 => 0.1 + 0.9 * (average - 120.0) / 120.0,
        _ => 1.0,
    }
}

/// Returns mean and standard deviation of a distance that is 1, 2, … with probability p each, until the sum is 1.
fn law(p: f64) -> (f64, f64) {
    let (mut left, mut gap, mut mean, mut square) = (1.0_f64, 0.0, 0.0, 0.0);
    while left > 1e-12 {
        gap += 1.0;
        let here = p.min(left);
        mean += here * gap;
        square += here * gap * gap;
        left -= here;
    }
    (mean, (square - mean * mean).max(0.0).sqrt())
}

/// Returns χ² of distances compared with the uniform distribution on 1 … n; larger ones count in full.
fn chi_square(gaps: &[u64], n: usize) -> f64 {
    let mut counts = vec![0.0; n + 1];
    gaps.iter().for_each(|gap| counts[(*gap as usize).min(n + 1) - 1] += 1.0);
    let expected = gaps.len() as f64 / n as f64;
    counts[..n].iter().map(|count| (count - expected).powi(2) / expected).sum::<f64>() + counts[n]
}
