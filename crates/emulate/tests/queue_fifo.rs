//! FIFOs with limits compared with an independent model, and CoDel compared with the pseudo-code of RFC 8289.

mod queue_link;

use queue_link::{Arrivals, Link, packet};
use sojourn_emulate::config::{Aqm, Codel, DropFrom, Limit, Queue};
use sojourn_emulate::queue::{Discipline, Losses, Why};
use sojourn_emulate::select::Ecn;
use sojourn_time::{Nanos, Time};
use std::collections::VecDeque;

#[test]
fn full_queue_drops_at_the_configured_end() {
    for (from, kept) in [(DropFrom::Tail, [0, 1, 2]), (DropFrom::Head, [2, 3, 4])] {
        let queue = Queue { drop: from, ..Queue::default() };
        let mut discipline = queue_link::discipline(&queue, slots(3), None);
        let mut lost = Losses::new();
        for slot in 0..5 {
            discipline.enqueue(packet(slot, 100, Time(0)), Time(0), &mut lost);
        }
        assert_eq!(drain(&mut discipline), kept);
        assert!(lost.iter().all(|(_, why)| *why == Why::Full) && lost.len() == 2);
    }
}

#[test]
fn limits_in_bytes_and_in_packets_both_apply() {
    let limit = Limit { slots: Some(3), bytes: Some(1000) };
    let mut discipline = queue_link::discipline(&Queue::default(), limit, None);
    let mut lost = Losses::new();
    for (slot, bytes) in [(0, 600), (1, 500), (2, 400), (3, 1), (4, 0), (5, 0)] {
        discipline.enqueue(packet(slot, bytes, Time(0)), Time(0), &mut lost);
    }
    assert_eq!(drain(&mut discipline), [0, 2, 4]);
    assert_eq!(lost.iter().map(|(packet, _)| packet.slot).collect::<Vec<_>>(), [1, 3, 5]);
}

#[test]
fn packet_larger_than_the_queue_evicts_no_other() {
    let queue = Queue { drop: DropFrom::Head, ..Queue::default() };
    let mut discipline = queue_link::discipline(&queue, Limit { slots: None, bytes: Some(1000) }, None);
    let mut lost = Losses::new();
    discipline.enqueue(packet(0, 900, Time(0)), Time(0), &mut lost);
    discipline.enqueue(packet(1, 1001, Time(0)), Time(0), &mut lost);
    assert_eq!(lost[0].0.slot, 1);
    assert_eq!(drain(&mut discipline), [0]);
}

#[test]
fn lowering_the_limit_drops_only_the_excess() {
    let mut discipline = queue_link::discipline(&Queue::default(), slots(5), None);
    let mut lost = Losses::new();
    for slot in 0..5 {
        discipline.enqueue(packet(slot, 100, Time(0)), Time(0), &mut lost);
    }
    discipline.set(&Queue::default(), slots(3), None, Time(0), &mut lost);
    assert_eq!(lost.iter().map(|(packet, _)| packet.slot).collect::<Vec<_>>(), [4, 3]);
    assert_eq!(drain(&mut discipline), [0, 1, 2]);
}

#[test]
fn codel_is_the_pseudo_code_of_its_rfc() {
    let aqm = Codel { ecn: true, ..Codel::default() };
    for (seed, load) in [(1, 0.7), (2, 0.95), (3, 1.05), (4, 1.3), (5, 3.0)] {
        let queue = Queue { aqm: Some(Aqm::Codel(aqm)), ..Queue::default() };
        let mut ours = Link::new(queue_link::discipline(&queue, slots(1000), None), 10_000_000);
        let mut oracle = Link::new(Oracle::new(aqm, 1000), 10_000_000);
        let arrivals: Vec<_> = Arrivals::new(seed, load, 10_000_000).mixed_ecn().take(300_000).collect();
        for arrival in &arrivals {
            ours.arrive(*arrival);
            oracle.arrive(*arrival);
        }
        let (ours, oracle) = (ours.finish(), oracle.finish());
        let losses = ours.iter().filter(|disposition| disposition.left.is_none()).count();
        println!("seed {seed}, load {load}: {losses} lost, {} marked", ours.iter().filter(|f| f.is_marked).count());
        assert!(load < 1.0 || losses > 100);
        assert_eq!(ours, oracle, "seed {seed}, load {load}");
    }
}

#[test]
fn codel_drop_interval_shrinks_with_the_square_root_of_the_count() {
    // A standing queue: the n-th drop follows the previous one after interval/√n, to within one packet's time.
    let queue = Queue { aqm: Some(Aqm::Codel(Codel::default())), ..Queue::default() };
    let mut discipline = queue_link::discipline(&queue, Limit::default(), None);
    let step = Nanos::micros(100);
    let (mut lost, mut now, mut losses) = (Losses::new(), Time(0), Vec::new());
    for slot in 0..40_000 {
        discipline.enqueue(packet(slot, 1000, Time(0)), Time(0), &mut lost);
    }
    while losses.len() < 200 {
        now = now + step;
        assert!(discipline.dequeue(now, &mut lost).is_some());
        losses.extend(lost.drain(..).map(|_| now));
    }
    let mut due = losses[0];
    for (count, loss) in losses.iter().enumerate().skip(1) {
        due = due + Nanos((1e8 / (count as f64).sqrt()).round() as i64);
        assert!((*loss - due).0 >= 0 && (*loss - due).0 <= step.0, "{count}: {loss:?} for {due:?}");
    }
}

fn slots(slots: u64) -> Limit {
    Limit { slots: Some(slots), bytes: None }
}

fn drain(discipline: &mut Discipline) -> Vec<u32> {
    let mut lost = Losses::new();
    std::iter::from_fn(|| discipline.dequeue(Time(0), &mut lost)).map(|packet| packet.slot).collect()
}

/// RFC 8289 §5, line by line, with its notes on ECN; its times, with 0 for none.
struct Oracle {
    waiting: VecDeque<sojourn_emulate::queue::Waiting>,
    slots: usize,
    bytes: u64,
    parameters: Codel,
    first_above_time: i64,
    drop_next: i64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    maxpacket: u64,
}

type Packet = sojourn_emulate::queue::Waiting;

impl Oracle {
    fn new(parameters: Codel, slots: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            slots,
            bytes: 0,
            parameters,
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
            maxpacket: 0,
        }
    }

    fn dodequeue(&mut self, now: i64) -> (Option<Packet>, bool) {
        let mut ok_to_drop = false;
        let p = self.waiting.pop_front();
        match &p {
            None => self.first_above_time = 0,
            Some(p) => {
                self.bytes -= u64::from(p.bytes);
                let sojourn_time = now - p.since.0;
                if sojourn_time < self.parameters.target.0 || self.bytes <= self.maxpacket {
                    self.first_above_time = 0;
                } else if self.first_above_time == 0 {
                    self.first_above_time = now + self.parameters.interval.0;
                } else if now >= self.first_above_time {
                    ok_to_drop = true;
                }
            }
        }
        (p, ok_to_drop)
    }

    fn control_law(&self, t: i64, count: u32) -> i64 {
        t + (self.parameters.interval.0 as f64 / f64::from(count).sqrt()).round() as i64
    }
}

impl queue_link::Queueing for Oracle {
    fn enqueue(&mut self, packet: Packet, _now: Time, lost: &mut Losses) {
        self.maxpacket = self.maxpacket.max(u64::from(packet.bytes));
        if self.waiting.len() >= self.slots {
            lost.push((packet, Why::Full));
            return;
        }
        self.bytes += u64::from(packet.bytes);
        self.waiting.push_back(packet);
    }

    fn dequeue(&mut self, now: Time, lost: &mut Losses) -> Option<Packet> {
        let now = now.0;
        let can_mark = |p: &Option<Packet>| p.is_some_and(|p| p.ecn != Ecn::NotCapable);
        let (mut p, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                if can_mark(&p) {
                    self.count += 1;
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    return p.map(|p| Packet { is_marked: true, ..p });
                }
                lost.extend(p.map(|p| (p, Why::Managed)));
                self.count += 1;
                (p, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if can_mark(&p) {
                p = p.map(|p| Packet { is_marked: true, ..p });
            } else {
                lost.extend(p.map(|p| (p, Why::Managed)));
                (p, _) = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now - self.drop_next < 16 * self.parameters.interval.0 {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.lastcount = self.count;
        }
        p
    }
}
