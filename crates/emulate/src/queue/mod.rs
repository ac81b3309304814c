//! The queue in front of the link: its limit, its drops, its scheduler.
//!
//! A discipline is a scheduler over sub-queues; a sub-queue is a list with a limit and active queue management. It
//! reads no clock: the engine calls [`Discipline::dequeue`] when the link becomes idle, so `now` is the exact virtual
//! time of a decision. Periodic updates (PIE, PI2) that were due by then are made up for. Deviations from the papers
//! are listed in `docs/decisions/0019-queues.md`.

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

/// A waiting packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The slot of its frame and metadata.
    pub slot: u32,
    /// Frame length in bytes, without FCS.
    pub bytes: u32,
    /// When it arrived at the queue.
    pub since: Time,
    /// The hash of its flow.
    pub flow: u64,
    /// The index of its class in the configuration; 0 without classes.
    pub class: u16,
    /// Its ECN field.
    pub ecn: Ecn,
    /// Whether it was marked in this queue.
    pub is_marked: bool,
}

/// Why a queue dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The queue was full.
    Full,
    /// Active queue management.
    Managed,
}

/// Dropped packets; the buffer is reused.
pub type Losses = Vec<(Waiting, Why)>;

/// A queue with its active queue management and its scheduler.
#[derive(Debug)]
pub struct Discipline {
    store: Store,
    scheduler: Box<dyn Serve>,
    /// The seed of all its random streams.
    seed: u64,
}

/// A packet scheduler.
trait Serve: std::fmt::Debug + Send {
    /// Changes the parameters in place; returns false if that needs another scheduler.
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool;
    /// Enqueues a packet, or drops it or others.
    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>);
    /// Enqueues a packet that another scheduler had accepted: active queue management is not applied again.
    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>);
    /// Returns the next packet, and drops what active queue management drops on the way; `None`: the queue is empty.
    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting>;
    /// Returns the sub-queue that a packet belongs to.
    fn sub_queue(&self, _packet: &Waiting) -> u64 {
        0
    }
}

/// The parameters of a scheduler.
struct Setup<'a> {
    queue: &'a config::Queue,
    limit: Limit,
    rate_bps: Option<u64>,
    seed: u64,
}

/// The decision of active queue management on an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Take,
    /// Mark the packet if it is ECN-capable, else drop it.
    Mark,
    Lose,
}

/// The state that every operation needs.
struct Context<'a> {
    store: &'a mut Store,
    lost: &'a mut Losses,
    now: Time,
}

impl Discipline {
    /// Creates a queue; `limit` is the effective limit (configured or computed), `rate_bps` the link's rate.
    pub fn new(queue: &config::Queue, limit: Limit, rate_bps: Option<u64>, origin: Origin<'_>) -> Self {
        let seed = origin.stream("queue").random();
        let scheduler = (Setup { queue, limit, rate_bps, seed }).scheduler();
        Self { store: Store::default(), scheduler, seed }
    }

    /// Changes the parameters; waiting packets stay, unless a smaller limit cannot hold them.
    ///
    /// The scheduler and the active queue management keep their state if their kind stays the same. Otherwise waiting
    /// packets move to the new ones in the order of their arrival.
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

    /// Enqueues a packet, or drops it or others.
    pub fn enqueue(&mut self, packet: Waiting, now: Time, lost: &mut Losses) {
        let cx = &mut Context { store: &mut self.store, lost, now };
        self.scheduler.enqueue(packet, cx);
    }

    /// Returns the next packet, and drops what active queue management drops on the way.
    pub fn dequeue(&mut self, now: Time, lost: &mut Losses) -> Option<Waiting> {
        let cx = &mut Context { store: &mut self.store, lost, now };
        self.scheduler.dequeue(cx)
    }

    /// Returns the sub-queue that a packet belongs to: the index of its class, its flow or its bucket; 0 without sub-queues.
    pub fn sub_queue(&self, packet: &Waiting) -> u64 {
        self.scheduler.sub_queue(packet)
    }

    /// Returns the number of waiting packets.
    pub fn slots(&self) -> u64 {
        self.store.slots()
    }

    /// Returns the bytes of waiting packets.
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

/// Returns whether a packet is ECN-capable.
fn may_be_marked(packet: &Waiting) -> bool {
    packet.ecn != Ecn::NotCapable
}
