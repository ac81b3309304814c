//! A sub-queue: packets in order of arrival, with their own limit and active queue management.

use rand::SeedableRng;
use sojourn_time::Time;

use super::codel::Codel;
use super::pie::Pie;
use super::red::Red;
use super::store::List;
use super::{Context, Serve, Setup, Verdict, Waiting, Why, may_be_marked};
use crate::config;
use crate::config::{Aqm, DropFrom, Limit};
use crate::random::Random;

/// A sub-queue.
#[derive(Debug)]
pub(super) struct SubQueue {
    list: List,
    management: Management,
    random: Random,
}

/// Active queue management: drops or marks before the queue is full.
#[derive(Debug)]
enum Management {
    None,
    Red(Red),
    Codel(Codel),
    Pie(Pie),
}

/// The limit, and which end drops when it is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) limit: Limit,
    pub(super) from: DropFrom,
}

/// The parameters of a new sub-queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Make {
    pub(super) aqm: Option<Aqm>,
    pub(super) rate_bps: Option<u64>,
    pub(super) seed: u64,
}

impl SubQueue {
    pub(super) fn new(make: Make) -> Self {
        let management = Management::new(make.aqm, make.rate_bps);
        Self { list: List::default(), management, random: Random::seed_from_u64(make.seed) }
    }

    /// Changes the active queue management; if its kind stays the same, it keeps its state.
    pub(super) fn set(&mut self, aqm: Option<Aqm>, rate_bps: Option<u64>, now: Time) {
        match (&mut self.management, aqm) {
            (Management::Red(red), Some(Aqm::Red(to))) => red.set(to, rate_bps),
            (Management::Codel(codel), Some(Aqm::Codel(to))) => codel.set(to),
            (Management::Pie(pie), Some(Aqm::Pie(to))) => pie.set(to, now),
            (management, aqm) => *management = Management::new(aqm, rate_bps),
        }
    }

    /// Enqueues a packet if queue management accepts it and it fits, or room is made at the head.
    pub(super) fn admit(&mut self, packet: Waiting, room: Room, cx: &mut Context<'_>) {
        if let Some(packet) = self.manage(packet, cx) {
            self.put(packet, room, cx);
        }
    }

    /// Applies queue management to an arriving packet: returns it, possibly marked, or drops it.
    pub(super) fn manage(&mut self, mut packet: Waiting, cx: &mut Context<'_>) -> Option<Waiting> {
        match self.judge(&packet, cx) {
            Verdict::Take => Some(packet),
            Verdict::Mark if may_be_marked(&packet) => {
                packet.is_marked = true;
                Some(packet)
            }
            Verdict::Mark | Verdict::Lose => {
                cx.lost.push((packet, Why::Managed));
                None
            }
        }
    }

    /// Enqueues a packet without asking queue management, if it fits or room is made at the head.
    pub(super) fn put(&mut self, packet: Waiting, room: Room, cx: &mut Context<'_>) {
        let bytes = u64::from(packet.bytes);
        let never_fits = exceeds(room.limit, 1, bytes);
        while exceeds(room.limit, self.list.slots() + 1, self.list.bytes() + bytes) {
            let is_made = room.from == DropFrom::Head && !never_fits && self.lose(room.from, cx);
            if !is_made {
                cx.lost.push((packet, Why::Full));
                return;
            }
        }
        self.push(packet, cx);
    }

    /// Enqueues a packet without checking the limit.
    pub(super) fn push(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        cx.store.push(&mut self.list, packet);
    }

    /// Returns the next packet, and drops what queue management drops on the way.
    pub(super) fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        if let Management::Codel(codel) = &mut self.management {
            return codel.dequeue(&mut self.list, cx);
        }
        let packet = cx.store.pop(&mut self.list)?;
        match &mut self.management {
            Management::Red(red) => red.depart(&self.list, cx.now),
            Management::Pie(pie) => pie.depart(&packet, &self.list, cx.now),
            Management::None | Management::Codel(_) => {}
        }
        Some(packet)
    }

    /// Drops one packet because the limit is exceeded.
    pub(super) fn lose(&mut self, from: DropFrom, cx: &mut Context<'_>) -> bool {
        let packet = match from {
            DropFrom::Tail => cx.store.pop_last(&mut self.list),
            DropFrom::Head => cx.store.pop(&mut self.list),
        };
        cx.lost.extend(packet.map(|packet| (packet, Why::Full)));
        packet.is_some()
    }

    /// Drops packets until a limit holds.
    pub(super) fn shrink(&mut self, room: Room, cx: &mut Context<'_>) {
        while exceeds(room.limit, self.list.slots(), self.list.bytes()) && self.lose(room.from, cx) {}
    }

    pub(super) fn list(&self) -> &List {
        &self.list
    }

    fn judge(&mut self, packet: &Waiting, cx: &Context<'_>) -> Verdict {
        match &mut self.management {
            Management::None => Verdict::Take,
            Management::Red(red) => red.arrive(packet, &self.list, cx.now, &mut self.random),
            Management::Pie(pie) => pie.arrive(&self.list, cx.now, &mut self.random),
            Management::Codel(codel) => {
                codel.arrive(packet);
                Verdict::Take
            }
        }
    }
}

impl Management {
    fn new(aqm: Option<Aqm>, rate_bps: Option<u64>) -> Self {
        match aqm {
            None => Self::None,
            Some(Aqm::Red(red)) => Self::Red(Red::new(red, rate_bps)),
            Some(Aqm::Codel(codel)) => Self::Codel(Codel::new(codel)),
            Some(Aqm::Pie(pie)) => Self::Pie(Pie::new(pie)),
        }
    }
}

/// Returns whether a number of packets or bytes exceeds a limit.
pub(super) fn exceeds(limit: Limit, slots: u64, bytes: u64) -> bool {
    limit.slots.is_some_and(|most| slots > most) || limit.bytes.is_some_and(|most| bytes > most)
}

/// A single sub-queue for all packets.
#[derive(Debug)]
pub(super) struct Fifo {
    sub_queue: SubQueue,
    room: Room,
}

impl Fifo {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let room = Room { limit: setup.limit, from: setup.queue.drop };
        Self { sub_queue: SubQueue::new(setup.make(setup.queue.aqm)), room }
    }
}

impl Serve for Fifo {
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        if setup.queue.scheduler != config::Scheduler::Fifo {
            return false;
        }
        self.room = Room { limit: setup.limit, from: setup.queue.drop };
        self.sub_queue.set(setup.queue.aqm, setup.rate_bps, cx.now);
        self.sub_queue.shrink(self.room, cx);
        true
    }

    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.sub_queue.admit(packet, self.room, cx);
    }

    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.sub_queue.put(packet, self.room, cx);
    }

    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        self.sub_queue.dequeue(cx)
    }
}
