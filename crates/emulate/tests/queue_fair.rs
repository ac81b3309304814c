//! Fairness of schedulers compared with fluid sharing (GPS), over any interval and not only in the long run.

mod queue_link;

use queue_link::{Disposition, Link, packet};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sojourn_emulate::config::{Class, Limit, Queue, Scheduler};
use sojourn_emulate::queue::Waiting;
use sojourn_time::{Nanos, Time};

/// 8 ns per byte: all times are integers.
const RATE: u64 = 1_000_000_000;
const NANOS_PER_BYTE: f64 = 8.0;
const LARGEST: f64 = 1514.0;
/// Includes seeds that detect virtual time charged before a packet has been sent (54, 133, 189: 1.6 to 1.7 of the
/// bound), and a sub-queue counted as idle while its last packet is on the link (116: 1.06).
const SEEDS: [u64; 12] = [0, 1, 2, 3, 4, 8, 13, 54, 70, 116, 133, 189];

#[test]
fn wf2q_is_never_more_than_a_packet_behind_the_guaranteed_rate() {
    for seed in SEEDS {
        let case = Case::new(seed);
        let dispositions = case.run(Scheduler::Wf2q, true);
        let worst =
            (0..case.weights.len()).map(|class| case.worst_fair_index(&dispositions, class)).fold(0.0, f64::max);
        println!("seed {seed}: {} packets, {worst:.3} of the bound", dispositions.len());
        assert!(worst <= 1.0 + 1e-6, "seed {seed}: {worst}");
        assert!(worst > 0.3, "seed {seed}: {worst} proves nothing");
    }
}

#[test]
fn wf2q_departs_no_later_than_the_guaranteed_rate_and_one_packet() {
    for seed in SEEDS {
        let case = Case::new(seed);
        let dispositions = case.run(Scheduler::Wf2q, true);
        let latest = case.latest(&dispositions);
        println!("seed {seed}: at most {latest:.1} ns after the guaranteed rate would have had it");
        assert!(latest <= LARGEST * NANOS_PER_BYTE + 1.0, "seed {seed}: {latest}");
    }
}

#[test]
fn wf2q_is_within_one_packet_of_fluid_sharing() {
    for seed in 0..20 {
        let case = Case::greedy(seed);
        let (behind, ahead) = case.off_fluid(&case.run(Scheduler::Wf2q, true));
        println!("seed {seed}: {behind:.1} bytes behind, {ahead:.1} ahead");
        assert!(behind <= LARGEST + 1e-3 && ahead <= LARGEST + 1e-3, "seed {seed}: {behind} {ahead}");
    }
}

#[test]
fn flows_without_classes_share_equally() {
    for seed in 0..10 {
        let mut case = Case::greedy(seed);
        case.weights.fill(1);
        let (behind, ahead) = case.off_fluid(&case.run(Scheduler::Wf2q, false));
        assert!(behind <= LARGEST + 1e-3 && ahead <= LARGEST + 1e-3, "seed {seed}: {behind} {ahead}");
    }
}

#[test]
fn fifo_and_drr_violate_the_bounds_of_wf2q() {
    for scheduler in [Scheduler::Fifo, Scheduler::Drr { quantum: 1514 }] {
        let case = Case::new(1);
        let dispositions = case.run(scheduler.clone(), true);
        let worst =
            (0..case.weights.len()).map(|class| case.worst_fair_index(&dispositions, class)).fold(0.0, f64::max);
        let latest = case.latest(&dispositions);
        let (behind, ahead) = Case::greedy(1).off_fluid(&Case::greedy(1).run(scheduler.clone(), true));
        println!("{scheduler:?}: {worst:.2} of the bound, {latest:.0} ns late, {behind:.0} behind, {ahead:.0} ahead");
        assert!(worst > 2.0 && latest > 2.0 * LARGEST * NANOS_PER_BYTE && behind.max(ahead) > 2.0 * LARGEST);
    }
}

#[test]
fn drr_is_fair_to_a_quantum_and_a_packet() {
    for (seed, quantum) in [(0, 1514), (1, 1514), (2, 3000), (3, 300), (4, 9000), (5, 1514)] {
        let case = Case::greedy(seed);
        let (from_start, anywhere) = case.unfairness(&case.run(Scheduler::Drr { quantum }, true));
        let quantum = f64::from(quantum);
        println!("seed {seed}, quantum {quantum}: {from_start:.0} from the start, {anywhere:.0} anywhere");
        assert!(from_start <= quantum + LARGEST, "{from_start}");
        assert!(anywhere <= quantum + 2.0 * LARGEST, "{anywhere}");
    }
    let (from_start, _) = Case::greedy(1).unfairness(&Case::greedy(1).run(Scheduler::Fifo, true));
    assert!(from_start > 4.0 * LARGEST, "a FIFO must fail this test: {from_start}");
}

#[test]
fn changed_weights_apply_from_the_change_on() {
    let queue = |weights: &[u32], scheduler| Queue { scheduler, classes: classes(weights), ..Queue::default() };
    for scheduler in [Scheduler::Wf2q, Scheduler::Drr { quantum: 500 }] {
        let mut discipline = queue_link::discipline(&queue(&[1, 1], scheduler.clone()), Limit::default(), None);
        let mut lost = Vec::new();
        for slot in 0..40_000 {
            let waiting = Waiting { class: (slot % 2) as u16, ..packet(slot, 1000, Time(0)) };
            discipline.enqueue(waiting, Time(0), &mut lost);
        }
        let mut share = |weights: &[u32]| {
            discipline.set(&queue(weights, scheduler.clone()), Limit::default(), None, Time(0), &mut lost);
            let served = (0..5000).filter(|_| discipline.dequeue(Time(0), &mut lost).unwrap().class == 0);
            served.count() as f64 / 5000.0
        };
        assert!((share(&[1, 1]) - 0.5).abs() < 0.001);
        assert!((share(&[4, 1]) - 0.8).abs() < 0.002);
        assert!((share(&[1, 9]) - 0.1).abs() < 0.002);
    }
}

/// Classes with weights, and their arrivals.
struct Case {
    weights: Vec<u32>,
    arrivals: Vec<Waiting>,
}

impl Case {
    /// Makes classes that are sometimes or always backlogged, each with its own packet sizes.
    fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let weights: Vec<u32> = (0..random.random_range(2..12)).map(|_| random.random_range(1..30)).collect();
        let sum: u32 = weights.iter().sum();
        let mut arrivals = Vec::new();
        for (class, weight) in weights.iter().enumerate() {
            let largest = [64, 600, 1514][random.random_range(0..3)];
            let load = [0.3, 0.9, 1.5, 5.0][random.random_range(0..4)] * f64::from(*weight) / f64::from(sum);
            let (mut now, mut burst) = (0.0, 0);
            while now < 1e8 {
                if burst == 0 {
                    burst = random.random_range(1..60);
                    let mean = f64::from(largest + 60) / 2.0 * NANOS_PER_BYTE * 30.0 / load;
                    now += -random.random::<f64>().max(1e-12).ln() * mean;
                }
                burst -= 1;
                let bytes = random.random_range(60..=largest);
                arrivals.push(Waiting {
                    class: class as u16,
                    flow: class as u64,
                    ..packet(0, bytes, Time(now as i64))
                });
            }
        }
        arrivals.sort_by_key(|packet| packet.since);
        Self { weights, arrivals }
    }

    /// All packets arrive at once, in different numbers, so that classes empty one after the other.
    fn greedy(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let weights: Vec<u32> = (0..random.random_range(2..20)).map(|_| random.random_range(1..50)).collect();
        let mut arrivals = Vec::new();
        for class in 0..weights.len() {
            let largest = [64, 600, 1514, 1514][random.random_range(0..4)];
            for _ in 0..random.random_range(500..5000) {
                let bytes = random.random_range(60..=largest);
                arrivals.push(Waiting { class: class as u16, flow: class as u64, ..packet(0, bytes, Time(0)) });
            }
        }
        Self { weights, arrivals }
    }

    /// Returns the dispositions by a discipline, in order of service.
    fn run(&self, scheduler: Scheduler, by_class: bool) -> Vec<Disposition> {
        let classes = if by_class { classes(&self.weights) } else { Vec::new() };
        let queue = Queue { scheduler, classes, ..Queue::default() };
        let mut link = Link::new(queue_link::discipline(&queue, Limit::default(), Some(RATE)), RATE);
        // No packet is served before all packets of the first arrival time are there.
        link.hold_until(self.arrivals[0].since + Nanos(1));
        self.arrivals.iter().for_each(|packet| link.arrive(*packet));
        let mut dispositions = link.finish();
        assert!(dispositions.iter().all(|disposition| disposition.left.is_some()));
        dispositions.sort_by_key(|disposition| disposition.left);
        dispositions
    }

    fn share(&self, class: usize) -> f64 {
        f64::from(self.weights[class]) / f64::from(self.weights.iter().sum::<u32>())
    }

    /// Returns how far a class was behind its share in the worst interval in which it was backlogged and at whose end a
    /// packet left, as in Bennett and Zhang's worst-case fair index of WF2Q+: L_i + (L_max − L_i) r_i / r.
    fn worst_fair_index(&self, dispositions: &[Disposition], class: usize) -> f64 {
        let share = self.share(class);
        let mine: Vec<_> =
            dispositions.iter().filter(|disposition| usize::from(disposition.packet.class) == class).collect();
        let largest = mine.iter().map(|disposition| f64::from(disposition.packet.bytes)).fold(0.0, f64::max);
        let all = dispositions.iter().map(|disposition| f64::from(disposition.packet.bytes)).fold(0.0, f64::max);
        let bound = largest + (all - largest) * share;
        let (mut free, mut lead, mut worst): (i64, f64, f64) = (i64::MIN, 0.0, 0.0);
        for disposition in mine {
            let (since, end) = (disposition.packet.since.0, left(disposition));
            if since > free {
                // It was not backlogged: a new interval.
                (free, lead) = (since, 0.0);
            }
            // The worst interval begins where the class was least behind.
            let behind = lead + share * (end - free) as f64 / NANOS_PER_BYTE - f64::from(disposition.packet.bytes);
            worst = worst.max(behind);
            (free, lead) = (end, behind.max(0.0));
        }
        worst / bound
    }

    /// Returns how many nanoseconds later a packet left than from a link with its class's guaranteed rate, at most.
    fn latest(&self, dispositions: &[Disposition]) -> f64 {
        let mut done = vec![0.0_f64; self.weights.len()];
        let mut latest = f64::MIN;
        for disposition in dispositions {
            let class = usize::from(disposition.packet.class);
            let takes = f64::from(disposition.packet.bytes) * NANOS_PER_BYTE / self.share(class);
            done[class] = done[class].max(disposition.packet.since.0 as f64) + takes;
            latest = latest.max(left(disposition) as f64 - done[class]);
        }
        latest
    }

    /// Returns how many bytes a class was at most behind and ahead of fluid sharing at the end of any packet; all packets arrive at once.
    fn off_fluid(&self, dispositions: &[Disposition]) -> (f64, f64) {
        let classes = self.weights.len();
        let mut total = vec![0.0; classes];
        dispositions.iter().for_each(|disposition| {
            total[usize::from(disposition.packet.class)] += f64::from(disposition.packet.bytes)
        });
        let (mut fluid, mut served) = (vec![0.0; classes], vec![0.0; classes]);
        let (mut behind, mut ahead) = (0.0_f64, 0.0_f64);
        for disposition in dispositions {
            served[usize::from(disposition.packet.class)] += f64::from(disposition.packet.bytes);
            self.pour(&mut fluid, &total, f64::from(disposition.packet.bytes));
            for class in 0..classes {
                behind = behind.max(fluid[class] - served[class]);
                ahead = ahead.max(served[class] - fluid[class]);
            }
        }
        (behind, ahead)
    }

    /// Distributes bytes among the classes that still have some.
    fn pour(&self, fluid: &mut [f64], total: &[f64], mut bytes: f64) {
        while bytes > 1e-6 {
            let has = |class: &usize| total[*class] - fluid[*class] > 1e-6;
            let active: Vec<usize> = (0..fluid.len()).filter(has).collect();
            let sum: f64 = active.iter().map(|class| f64::from(self.weights[*class])).sum();
            if active.is_empty() {
                return;
            }
            // Until the bytes are distributed, or the first class is empty.
            let until = |class: &usize| (total[*class] - fluid[*class]) * sum / f64::from(self.weights[*class]);
            let step = active.iter().map(until).fold(bytes, f64::min);
            active.iter().for_each(|class| fluid[*class] += step * f64::from(self.weights[*class]) / sum);
            bytes -= step;
        }
    }

    /// Returns the maximum difference between two classes' bytes per weight while both were backlogged: from the start, and in any interval.
    fn unfairness(&self, dispositions: &[Disposition]) -> (f64, f64) {
        let classes = self.weights.len();
        let mut left = vec![0_u64; classes];
        dispositions.iter().for_each(|disposition| left[usize::from(disposition.packet.class)] += 1);
        let mut sent = vec![0.0; classes];
        let mut extremes = vec![(0.0_f64, 0.0_f64); classes * classes];
        for disposition in dispositions {
            let class = usize::from(disposition.packet.class);
            if left.contains(&0) {
                break;
            }
            sent[class] += f64::from(disposition.packet.bytes) / f64::from(self.weights[class]);
            left[class] -= 1;
            for other in 0..classes {
                let difference = sent[class] - sent[other];
                let (least, most) = &mut extremes[class * classes + other];
                (*least, *most) = (least.min(difference), most.max(difference));
                let (least, most) = &mut extremes[other * classes + class];
                (*least, *most) = (least.min(-difference), most.max(-difference));
            }
        }
        let from_start = extremes.iter().map(|(least, most)| most.max(-least)).fold(0.0, f64::max);
        (from_start, extremes.iter().map(|(least, most)| most - least).fold(0.0, f64::max))
    }
}

/// Returns when a packet left, in nanoseconds; all packets left.
fn left(disposition: &Disposition) -> i64 {
    disposition.left.map_or(i64::MAX, |left| left.0)
}

fn classes(weights: &[u32]) -> Vec<Class> {
    let class =
        |(number, weight): (usize, &u32)| Class { name: number.to_string(), weight: *weight, limit: None, aqm: None };
    weights.iter().enumerate().map(class).collect()
}
