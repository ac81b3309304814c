//! A link in virtual time for tests of queues: serves one packet after the other, exactly.
#![allow(dead_code, reason = "each file of tests uses its part")]

pub mod tcp;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sojourn_emulate::config::{Limit, Queue};
use sojourn_emulate::queue::{Discipline, Losses, Waiting, Why};
use sojourn_emulate::random::Origin;
use sojourn_emulate::select::Ecn;
use sojourn_time::{Nanos, Time};

/// A queue in front of a link.
pub trait Queueing {
    fn enqueue(&mut self, packet: Waiting, now: Time, lost: &mut Losses);
    fn dequeue(&mut self, now: Time, lost: &mut Losses) -> Option<Waiting>;
}

impl Queueing for Discipline {
    fn enqueue(&mut self, packet: Waiting, now: Time, lost: &mut Losses) {
        Discipline::enqueue(self, packet, now, lost);
    }

    fn dequeue(&mut self, now: Time, lost: &mut Losses) -> Option<Waiting> {
        Discipline::dequeue(self, now, lost)
    }
}

/// The disposition of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    pub packet: Waiting,
    /// When its transmission began.
    pub served: Option<Time>,
    /// When it left the link.
    pub left: Option<Time>,
    pub why: Option<Why>,
    pub is_marked: bool,
}

/// The link; the slot of a packet is its number.
pub struct Link<Q> {
    pub queue: Q,
    pub dispositions: Vec<Disposition>,
    rate_bps: u64,
    free_at: Time,
    is_idle: bool,
    lost: Losses,
}

impl<Q: Queueing> Link<Q> {
    pub fn new(queue: Q, rate_bps: u64) -> Self {
        Self { queue, dispositions: Vec::new(), rate_bps, free_at: Time(i64::MIN), is_idle: true, lost: Losses::new() }
    }

    /// Serves nothing before a time.
    pub fn hold_until(&mut self, time: Time) {
        (self.is_idle, self.free_at) = (false, time);
    }

    /// Delivers a packet; its number becomes its slot. Times must not decrease.
    pub fn arrive(&mut self, mut packet: Waiting) {
        self.advance(packet.since);
        packet.slot = self.dispositions.len() as u32;
        self.dispositions.push(Disposition { packet, served: None, left: None, why: None, is_marked: false });
        self.queue.enqueue(packet, packet.since, &mut self.lost);
        self.note();
        if self.is_idle {
            self.serve(packet.since);
        }
    }

    /// Serves until `now`, inclusive.
    pub fn advance(&mut self, now: Time) {
        while !self.is_idle && self.free_at <= now {
            self.serve(self.free_at);
        }
    }

    /// Serves all waiting packets.
    pub fn finish(mut self) -> Vec<Disposition> {
        self.advance(Time::NEVER);
        self.dispositions
    }

    pub fn time_of(&self, bytes: u32) -> Nanos {
        Nanos((u64::from(bytes) * 8_000_000_000 / self.rate_bps) as i64)
    }

    fn serve(&mut self, now: Time) {
        let next = self.queue.dequeue(now, &mut self.lost);
        self.note();
        self.is_idle = next.is_none();
        if let Some(packet) = next {
            self.free_at = now + self.time_of(packet.bytes);
            let disposition = &mut self.dispositions[packet.slot as usize];
            assert!(disposition.left.is_none() && disposition.why.is_none(), "{packet:?} twice");
            (disposition.served, disposition.left, disposition.is_marked) =
                (Some(now), Some(self.free_at), packet.is_marked);
        }
    }

    fn note(&mut self) {
        for (packet, why) in self.lost.drain(..) {
            let disposition = &mut self.dispositions[packet.slot as usize];
            assert!(disposition.left.is_none() && disposition.why.is_none(), "{packet:?} twice");
            disposition.why = Some(why);
        }
    }
}

/// Makes a packet of flow 0.
pub fn packet(slot: u32, bytes: u32, since: Time) -> Waiting {
    Waiting { slot, bytes, since, flow: 0, class: 0, ecn: Ecn::NotCapable, is_marked: false }
}

/// Makes a discipline with seed 1.
pub fn discipline(queue: &Queue, limit: Limit, rate_bps: Option<u64>) -> Discipline {
    Discipline::new(queue, limit, rate_bps, Origin { seed: 1, pipe: "test", flow: 0 })
}

/// Poisson arrivals of bursts of packets of 64 to 1514 bytes, at a given load of a link, in several flows and classes.
pub struct Arrivals {
    random: Xoshiro256PlusPlus,
    mean_gap: f64,
    now: Time,
    burst: u32,
    ecn: bool,
    flows: u64,
    sizes: (u32, u32),
}

/// Mean packets per burst.
const BURST: u32 = 8;

impl Arrivals {
    pub fn new(seed: u64, load: f64, rate_bps: u64) -> Self {
        let mean_bytes = f64::from(64 + 1514) / 2.0;
        let mean_gap = mean_bytes * 8e9 / rate_bps as f64 / load;
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            mean_gap,
            now: Time(0),
            burst: 0,
            ecn: false,
            flows: 1,
            sizes: (64, 1514),
        }
    }

    pub fn mixed_ecn(mut self) -> Self {
        self.ecn = true;
        self
    }

    pub fn flows(mut self, flows: u64) -> Self {
        self.flows = flows;
        self
    }
}

impl Iterator for Arrivals {
    type Item = Waiting;

    fn next(&mut self) -> Option<Waiting> {
        if self.burst == 0 {
            self.burst = self.random.random_range(1..2 * BURST);
            let gap = -self.random.random::<f64>().max(1e-300).ln() * self.mean_gap * f64::from(BURST);
            self.now = self.now + Nanos(gap.round() as i64);
        }
        self.burst -= 1;
        let flow = self.random.random_range(0..self.flows);
        let ecn = match self.random.random_range(0..4) {
            _ if !self.ecn => Ecn::NotCapable,
            0 => Ecn::Ect0,
            1 => Ecn::Ect1,
            2 => Ecn::Marked,
            _ => Ecn::NotCapable,
        };
        let bytes = self.random.random_range(self.sizes.0..=self.sizes.1);
        Some(Waiting { flow, class: flow as u16, ecn, ..packet(0, bytes, self.now) })
    }
}
