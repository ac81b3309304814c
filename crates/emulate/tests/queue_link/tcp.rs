//! Senders that respond to losses and marks, for tests of controllers in a closed loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sojourn_emulate::queue::{Losses, Waiting};
use sojourn_emulate::select::Ecn;
use sojourn_time::{Nanos, Time};

use super::{Queueing, packet};

const BYTES: u32 = 1514;

/// How a sender responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Halves its window once per round trip with a loss or a mark (RFC 5681, RFC 3168).
    Reno(Ecn),
    /// Reduces its window by half a packet for each mark (RFC 9332: scalable); ECT(1).
    Scalable,
    /// Sends a packet of 200 bytes at an interval in nanoseconds, without response.
    Steady(Ecn, i64),
    /// Sends full packets at an interval in nanoseconds, without response.
    Flood(i64),
}

/// The results of a sender.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub sent: u64,
    pub served: u64,
    pub bytes: u64,
    pub lost: u64,
    pub marked: u64,
    /// Waiting times in the queue, in nanoseconds.
    pub waited: Vec<i64>,
}

struct Sender {
    kind: Kind,
    rtt: Nanos,
    window: f64,
    slow_start: f64,
    flying: u32,
    reduced_until: Time,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Free,
    Send(usize),
    Acknowledged(usize, bool),
    Missed(usize),
}

/// Senders in front of a queue in front of a link.
pub struct Network<Q> {
    pub queue: Q,
    rate_bps: u64,
    senders: Vec<Sender>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbers: u64,
    is_busy: bool,
    from: Time,
}

impl<Q: Queueing> Network<Q> {
    pub fn new(queue: Q, rate_bps: u64, senders: &[(Kind, Nanos)]) -> Self {
        let sender = |(kind, rtt): &(Kind, Nanos)| Sender {
            kind: *kind,
            rtt: *rtt,
            window: 2.0,
            slow_start: f64::INFINITY,
            flying: 0,
            reduced_until: Time(0),
            seen: Seen::default(),
        };
        let mut network = Self {
            queue,
            rate_bps,
            senders: senders.iter().map(sender).collect(),
            events: BinaryHeap::new(),
            numbers: 0,
            is_busy: false,
            from: Time(0),
        };
        for number in 0..senders.len() {
            network.at(Time(number as i64 * 1_234_567), Event::Send(number));
        }
        network
    }

    /// Runs until a time; results count from `from` on.
    pub fn run(mut self, from: Time, until: Time) -> Vec<Seen> {
        self.from = from;
        while let Some(Reverse((now, _, event))) = self.events.pop()
            && now < until
        {
            match event {
                Event::Free => self.serve(now),
                Event::Send(number) => self.send(number, now),
                Event::Acknowledged(number, is_marked) => self.acknowledged(number, is_marked, now),
                Event::Missed(number) => self.missed(number, now),
            }
        }
        self.senders.into_iter().map(|sender| sender.seen).collect()
    }

    fn at(&mut self, time: Time, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((time, self.numbers, event)));
    }

    fn send(&mut self, number: usize, now: Time) {
        match self.senders[number].kind {
            Kind::Steady(ecn, gap) => {
                self.put(number, 200, ecn, now);
                self.at(now + Nanos(gap), Event::Send(number));
            }
            Kind::Flood(gap) => {
                self.put(number, BYTES, Ecn::NotCapable, now);
                self.at(now + Nanos(gap), Event::Send(number));
            }
            Kind::Reno(ecn) => self.fill(number, ecn, now),
            Kind::Scalable => self.fill(number, Ecn::Ect1, now),
        }
    }

    fn fill(&mut self, number: usize, ecn: Ecn, now: Time) {
        while f64::from(self.senders[number].flying) < self.senders[number].window.floor() {
            self.put(number, BYTES, ecn, now);
        }
    }

    fn put(&mut self, number: usize, bytes: u32, ecn: Ecn, now: Time) {
        self.senders[number].flying += 1;
        if now >= self.from {
            self.senders[number].seen.sent += 1;
        }
        let flow = number as u64;
        let waiting = Waiting { flow, class: number as u16, ecn, ..packet(number as u32, bytes, now) };
        let mut lost = Losses::new();
        self.queue.enqueue(waiting, now, &mut lost);
        self.note(lost, now);
        if !self.is_busy {
            self.serve(now);
        }
    }

    fn serve(&mut self, now: Time) {
        let mut lost = Losses::new();
        let next = self.queue.dequeue(now, &mut lost);
        self.note(lost, now);
        self.is_busy = next.is_some();
        let Some(packet) = next else { return };
        let left = now + Nanos((u64::from(packet.bytes) * 8_000_000_000 / self.rate_bps) as i64);
        self.at(left, Event::Free);
        let number = packet.flow as usize;
        let sender = &mut self.senders[number];
        let rtt = sender.rtt;
        if now >= self.from {
            sender.seen.served += 1;
            sender.seen.bytes += u64::from(packet.bytes);
            sender.seen.marked += u64::from(packet.is_marked);
            sender.seen.waited.push((now - packet.since).0);
        }
        self.at(left + rtt, Event::Acknowledged(number, packet.is_marked));
    }

    fn note(&mut self, lost: Losses, now: Time) {
        for (packet, _) in lost {
            let number = packet.flow as usize;
            if now >= self.from {
                self.senders[number].seen.lost += 1;
            }
            let rtt = self.senders[number].rtt;
            self.at(now + rtt, Event::Missed(number));
        }
    }

    fn acknowledged(&mut self, number: usize, is_marked: bool, now: Time) {
        let sender = &mut self.senders[number];
        sender.flying -= 1;
        match sender.kind {
            Kind::Reno(_) if is_marked => self.halve(number, now),
            Kind::Scalable if is_marked => {
                sender.slow_start = 0.0;
                sender.window = (sender.window - 0.5).max(2.0);
            }
            _ if sender.window < sender.slow_start => sender.window += 1.0,
            _ => sender.window += 1.0 / sender.window,
        }
        self.resume(number, now);
    }

    fn missed(&mut self, number: usize, now: Time) {
        self.senders[number].flying -= 1;
        self.halve(number, now);
        self.resume(number, now);
    }

    fn halve(&mut self, number: usize, now: Time) {
        let sender = &mut self.senders[number];
        if now >= sender.reduced_until {
            sender.window = (sender.window / 2.0).max(2.0);
            sender.slow_start = sender.window;
            sender.reduced_until = now + sender.rtt + Nanos::millis(15);
        }
    }

    fn resume(&mut self, number: usize, now: Time) {
        match self.senders[number].kind {
            Kind::Reno(ecn) => self.fill(number, ecn, now),
            Kind::Scalable => self.fill(number, Ecn::Ect1, now),
            Kind::Steady(..) | Kind::Flood(_) => {}
        }
    }
}

impl Seen {
    pub fn mean_wait(&self) -> f64 {
        self.waited.iter().sum::<i64>() as f64 / self.waited.len() as f64
    }

    /// Returns a quantile of the waiting times, in nanoseconds.
    pub fn wait(&self, quantile: f64) -> i64 {
        let mut sorted = self.waited.clone();
        sorted.sort_unstable();
        sorted[((sorted.len() - 1) as f64 * quantile) as usize]
    }
}
