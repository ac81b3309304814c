//! Properties of every discipline in any configuration: no packet is lost twice or forgotten, limits hold, flows keep
//! their order, and the link is never idle while a packet waits.

mod queue_link;

use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sojourn_emulate::config::{Aqm, Class, Codel, DropFrom, FqCodel, Limit, Pie, Queue, Red, Scheduler};
use sojourn_emulate::queue::{Discipline, Losses, Waiting, Why};
use sojourn_emulate::random::Origin;
use sojourn_emulate::select::Ecn;
use sojourn_time::{Nanos, Time};

type Random = Xoshiro256PlusPlus;

#[test]
fn every_queue_discipline_conserves_packets() {
    let mut seen = HashMap::<&str, u64>::new();
    for seed in 0..4000 {
        let mut random = Random::seed_from_u64(seed);
        let mut case = Case::new(&mut random, seed);
        for _ in 0..400 {
            case.step(&mut random);
        }
        case.finish();
        for (what, count) in case.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    println!("{seen:?}");
    for what in ["sent", "marked", "full", "managed", "set"] {
        assert!(seen[what] > 10_000, "{what} is not tried: {seen:?}");
    }
}

/// A discipline, and its state as seen from outside.
struct Case {
    name: String,
    discipline: Discipline,
    queue: Queue,
    limit: Limit,
    now: Time,
    waiting: HashMap<u32, Waiting>,
    next: u32,
    /// The last packet sent of each flow.
    last_sent: HashMap<(u64, bool), u32>,
    lost: Losses,
    seen: HashMap<&'static str, u64>,
}

impl Case {
    fn new(random: &mut Random, seed: u64) -> Self {
        let (queue, limit) = (some_queue(random), some_limit(random));
        let discipline = Discipline::new(&queue, limit, some_rate(random), Origin { seed, pipe: "all", flow: 0 });
        Self {
            name: format!("seed {seed}"),
            discipline,
            queue,
            limit,
            now: Time(seed as i64 * 1_000_000_007),
            waiting: HashMap::new(),
            next: 0,
            last_sent: HashMap::new(),
            lost: Losses::new(),
            seen: HashMap::new(),
        }
    }

    fn step(&mut self, random: &mut Random) {
        if random.random_bool(0.5) {
            let longest = if random.random_bool(0.01) { 10_000_000_000 } else { 4_000_000 };
            self.now = self.now + Nanos(random.random_range(0..longest));
        }
        match random.random_range(0..100) {
            0..60 => self.enqueue(random),
            60..99 => self.dequeue(),
            _ => self.set(random),
        }
        self.check();
    }

    fn enqueue(&mut self, random: &mut Random) {
        let flow = random.random_range(0..6);
        let ecn = [Ecn::NotCapable, Ecn::Ect0, Ecn::Ect1, Ecn::Marked][random.random_range(0..4)];
        let bytes = random.random_range(60..1515);
        let (slot, since, class) = (self.next, self.now, (flow % 4) as u16);
        let packet = Waiting { slot, bytes, since, flow, class, ecn, is_marked: false };
        self.waiting.insert(self.next, packet);
        self.next += 1;
        self.discipline.enqueue(packet, self.now, &mut self.lost);
    }

    fn dequeue(&mut self) {
        let sent = self.discipline.dequeue(self.now, &mut self.lost);
        // Packets dropped by this call were waiting before it.
        self.account_losses();
        let Some(sent) = sent else {
            assert_eq!(self.discipline.slots(), 0, "{}: the link waits", self.name);
            return;
        };
        let known = self.waiting.remove(&sent.slot);
        assert_eq!(known, Some(Waiting { is_marked: false, ..sent }), "{}", self.name);
        assert!(!sent.is_marked || sent.ecn != Ecn::NotCapable, "{}: marked what cannot be", self.name);
        self.see("sent", 1);
        self.see("marked", u64::from(sent.is_marked));
        let is_low = matches!(sent.ecn, Ecn::Ect1 | Ecn::Marked) && self.is_dual();
        let before = self.last_sent.insert((sent.flow, is_low), sent.slot);
        assert!(before < Some(sent.slot), "{}: {before:?} before {}", self.name, sent.slot);
    }

    fn set(&mut self, random: &mut Random) {
        let (old, old_limit) = (self.queue.clone(), self.limit);
        match random.random_range(0..4) {
            0 => self.queue = some_queue(random),
            1 => self.queue = Queue { aqm: some_aqm(random), ..self.queue.clone() },
            2 => self.queue = Queue { scheduler: some_scheduler(random), ..self.queue.clone() },
            _ => self.limit = some_limit(random),
        }
        let before = self.waiting.len();
        self.discipline.set(&self.queue, self.limit, some_rate(random), self.now, &mut self.lost);
        let has_room = self.fits();
        self.see("set", 1);
        if has_room {
            assert!(self.lost.is_empty(), "{}: {old:?} {old_limit:?} to {:?} lost", self.name, self.queue);
            assert_eq!(before, self.waiting.len());
        }
        assert!(self.lost.iter().all(|(_, why)| *why == Why::Full), "{}", self.name);
        // Two queues become one, or one becomes two: order holds only among later packets.
        self.last_sent.clear();
    }

    /// Checks the counters and limits of the discipline.
    fn check(&mut self) {
        self.account_losses();
        let bytes: u64 = self.waiting.values().map(|packet| u64::from(packet.bytes)).sum();
        assert_eq!(self.discipline.slots(), self.waiting.len() as u64, "{}", self.name);
        assert_eq!(self.discipline.bytes(), bytes, "{}", self.name);
        assert!(self.fits(), "{}: {:?} {:?} holds {}", self.name, self.queue, self.limit, self.waiting.len());
    }

    fn account_losses(&mut self) {
        for (packet, why) in std::mem::take(&mut self.lost) {
            assert!(self.waiting.remove(&packet.slot).is_some(), "{}: {packet:?} lost twice", self.name);
            self.see(if why == Why::Full { "full" } else { "managed" }, 1);
        }
    }

    fn finish(&mut self) {
        while self.discipline.slots() > 0 {
            self.now = self.now + Nanos::millis(1);
            self.dequeue();
            self.check();
        }
        assert!(self.waiting.is_empty());
    }

    /// Returns whether the waiting packets are within all limits.
    fn fits(&self) -> bool {
        let within = |limit: Limit, packets: &mut dyn Iterator<Item = &Waiting>| {
            let (slots, bytes) = packets.fold((0, 0), |(slots, bytes), p| (slots + 1, bytes + u64::from(p.bytes)));
            limit.slots.is_none_or(|most| slots <= most) && limit.bytes.is_none_or(|most| bytes <= most)
        };
        match &self.queue.scheduler {
            Scheduler::FqCodel(fq) => {
                let most = self.queue.limit.slots.unwrap_or(u64::MAX).min(u64::from(fq.limit));
                let limit = Limit { slots: Some(most), bytes: self.queue.limit.bytes };
                within(limit, &mut self.waiting.values())
            }
            Scheduler::Wf2q | Scheduler::Drr { .. } if !self.queue.classes.is_empty() => {
                let last = self.queue.classes.len() - 1;
                self.queue.classes.iter().enumerate().all(|(number, class)| {
                    let mut its = self.waiting.values().filter(|p| usize::from(p.class).min(last) == number);
                    within(class.limit.unwrap_or(self.limit), &mut its)
                })
            }
            _ => within(self.limit, &mut self.waiting.values()),
        }
    }

    fn is_dual(&self) -> bool {
        matches!(self.queue.scheduler, Scheduler::DualPi2 { .. })
    }

    fn see(&mut self, what: &'static str, count: u64) {
        *self.seen.entry(what).or_default() += count;
    }
}

fn some_queue(random: &mut Random) -> Queue {
    let classes = if random.random() { 0 } else { random.random_range(1..5) };
    let class = |number: usize, random: &mut Random| Class {
        name: format!("class {number}"),
        weight: random.random_range(1..100),
        limit: random.random::<bool>().then(|| some_limit(random)),
        aqm: some_aqm(random),
    };
    Queue {
        limit: some_limit(random),
        drop: [DropFrom::Tail, DropFrom::Head][random.random_range(0..2)],
        aqm: some_aqm(random),
        scheduler: some_scheduler(random),
        classes: (0..classes).map(|number| class(number, random)).collect(),
    }
}

fn some_limit(random: &mut Random) -> Limit {
    Limit {
        slots: random.random::<bool>().then(|| random.random_range(0..60)),
        bytes: random.random::<bool>().then(|| random.random_range(0..60_000)),
    }
}

fn some_rate(random: &mut Random) -> Option<u64> {
    random.random::<bool>().then(|| random.random_range(1_000_000..1_000_000_000))
}

fn some_aqm(random: &mut Random) -> Option<Aqm> {
    let ecn = random.random();
    match random.random_range(0..4) {
        0 => None,
        1 => {
            let in_bytes = random.random();
            let unit = if in_bytes { 800.0 } else { 1.0 };
            let (min, max) = (2.0 * unit, 12.0 * unit);
            Some(Aqm::Red(Red { weight: 0.1, min, max, max_p: 0.3, gentle: random.random(), in_bytes, ecn }))
        }
        2 => Some(Aqm::Codel(Codel { target: Nanos::millis(1), interval: Nanos::millis(5), ecn })),
        _ => {
            let (target, max_burst) = (Nanos::millis(1), Nanos::millis(5));
            Some(Aqm::Pie(Pie {
                target,
                max_burst,
                update: Nanos::micros(700),
                alpha: 5.0,
                beta: 50.0,
                ecn,
                ..Pie::default()
            }))
        }
    }
}

fn some_scheduler(random: &mut Random) -> Scheduler {
    match random.random_range(0..5) {
        0 => Scheduler::Fifo,
        1 => Scheduler::Wf2q,
        2 => Scheduler::Drr { quantum: random.random_range(10..3000) },
        3 => Scheduler::FqCodel(FqCodel {
            flows: random.random_range(1..9),
            quantum: random.random_range(100..3000),
            limit: random.random_range(1..60),
            codel: Codel { target: Nanos::millis(1), interval: Nanos::millis(5), ecn: random.random() },
        }),
        _ => Scheduler::DualPi2 { target: Nanos::millis(2), step: Nanos::micros(500), coupling: 2.0 },
    }
}
