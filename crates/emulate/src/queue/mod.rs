//! The queue before the link: how much it holds, what it loses, who is next.
//!
//! A discipline is a scheduler over sub-queues; a sub-queue is a list with a limit and active queue management. It reads no clock: the
//! engine calls [`Discipline::dequeue`] when the link becomes free, so `now` is the exact virtual time of a decision, and
//! what happens at fixed times of its own (PIE, PI2) is made up for then. Where it departs from the papers is in
//! `docs/decisions/0019-queues.md`.

mod codel;
mod drr;
mod dual_pi2;
mod fq_codel;
mod heap;
mod pie;
mod red;
mod store;
mod sub_queue;
mod sub_queues;
mod wf2q;

use rand::Rng;
use sojourn_time::Time;

use crate::config;
use crate::config::Limit;
use crate::random::Origin;
use crate::select::Ecn;

use drr::Drr;
use dual_pi2::{DualPi2, Parameters};
use fq_codel::FqCodel;
use store::Store;
use sub_queue::{Fifo, Make};
use wf2q::Wf2q;

/// A packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Where the engine keeps its frame and what it knows of it.
    pub slot: u32,
    /// Bytes of its frame, without FCS.
    pub bytes: u32,
    /// When it came.
    pub since: Time,
    /// Its flow, hashed.
    pub flow: u64,
    /// Its class, by its place in the configuration; 0 where there are none.
    pub class: u16,
    /// Whether it may be marked.
    pub ecn: Ecn,
    /// Whether it has been marked here.
    pub is_marked: bool,
}

/// Why a queue lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There was no room.
    Full,
    /// Active queue management.
    Managed,
}

/// What was lost meanwhile; used again and again.
pub type Losses = Vec<(Waiting, Why)>;

/// A queue with its management and its scheduler.
#[derive(Debug)]
pub struct Discipline {
    store: Store,
    scheduler: Box<dyn Serve>,
    /// From which all its randomness is made.
    seed: u64,
}

/// A scheduler: who is next.
trait Serve: std::fmt::Debug + Send {
    /// Takes other parameters in place; says no where it would have to be another scheduler.
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool;
    /// Takes a packet, or loses it or others.
    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>);
    /// Puts a packet in that another scheduler had taken: management is not asked again.
    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>);
    /// Gives the packet that is next, losing on the way what management loses; `None`: nothing waits.
    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting>;
    /// Tells the sub-queue that a packet belongs to.
    fn sub_queue(&self, _packet: &Waiting) -> u64 {
        0
    }
}

/// What a scheduler is made from.
struct Setup<'a> {
    queue: &'a config::Queue,
    limit: Limit,
    rate_bps: Option<u64>,
    seed: u64,
}

/// What management says of a packet that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Take,
    /// Marks it, if it can be marked; else loses it.
    Mark,
    Lose,
}

/// What every step needs.
struct Context<'a> {
    store: &'a mut Store,
    lost: &'a mut Losses,
    now: Time,
}

impl Discipline {
    /// Makes one; `limit` is what it really holds (the configuration's, or what it was sized to), `rate_bps` that of the link.
    pub fn new(queue: &config::Queue, limit: Limit, rate_bps: Option<u64>, origin: Origin<'_>) -> Self {
        let seed = origin.stream("queue").random();
        let scheduler = (Setup { queue, limit, rate_bps, seed }).scheduler();
        Self { store: Store::default(), scheduler, seed }
    }

    /// Takes other parameters; what waits stays, unless a smaller limit has no room for it.
    ///
    /// The scheduler and the management keep what they know as long as they are of the same kind. Else what waits moves into
    /// the new ones in the order in which it came.
    pub fn set(&mut self, queue: &config::Queue, limit: Limit, rate_bps: Option<u64>, now: Time, lost: &mut Losses) {
        let cx = &mut Context { store: &mut self.store, lost, now };
        let setup = Setup { queue, limit, rate_bps, seed: self.seed };
        if !self.scheduler.set(&setup, cx) {
            self.scheduler = setup.scheduler();
            for packet in cx.store.drain() {
                self.scheduler.put(packet, cx);
            }
        }
    }

    /// Takes a packet, or loses it or another.
    pub fn enqueue(&mut self, packet: Waiting, now: Time, lost: &mut Losses) {
        let cx = &mut Context { store: &mut self.store, lost, now };
        self.scheduler.enqueue(packet, cx);
    }

    /// Gives the packet that is next, losing on the way what management loses.
    pub fn dequeue(&mut self, now: Time, lost: &mut Losses) -> Option<Waiting> {
        let cx = &mut Context { store: &mut self.store, lost, now };
        self.scheduler.dequeue(cx)
    }

    /// Tells the sub-queue that a packet belongs to: its class by its place, its flow or bucket; 0 where there is one for all.
    pub fn sub_queue(&self, packet: &Waiting) -> u64 {
        self.scheduler.sub_queue(packet)
    }

    /// Counts what waits.
    pub fn slots(&self) -> u64 {
        self.store.slots()
    }

    /// Counts its bytes.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

impl Setup<'_> {
    fn scheduler(&self) -> Box<dyn Serve> {
        match self.queue.scheduler {
            config::Scheduler::Fifo => Box::new(Fifo::new(self)),
            config::Scheduler::Wf2q => Box::new(Wf2q::new(self)),
            config::Scheduler::Drr { quantum } => Box::new(Drr::new(self, quantum)),
            config::Scheduler::FqCodel(parameters) => Box::new(FqCodel::new(self, parameters)),
            config::Scheduler::DualPi2 { target, step, coupling } => {
                Box::new(DualPi2::new(self, Parameters { target, step, coupling }))
            }
        }
    }

    fn make(&self, aqm: Option<config::Aqm>) -> Make {
        Make { aqm, rate_bps: self.rate_bps, seed: self.seed }
    }
}

/// Whether congestion can be signalled through it.
fn may_be_marked(packet: &Waiting) -> bool {
    packet.ecn != Ecn::NotCapable
}
