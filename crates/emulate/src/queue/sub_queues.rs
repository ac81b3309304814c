//! The sub-queues of a scheduler: one for each class, or one for each flow.
//!
//! Each class has its own limit, as dummynet's queues have. Flows share one limit: if it is exceeded, the longest
//! sub-queue (in bytes) drops, so that no flow can starve the others.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::heap::Heap;
use super::sub_queue::{Make, Room, SubQueue, exceeds};
use super::{Context, Setup, Waiting, Why};
use crate::config::{Aqm, Class};

/// Limit of remembered idle flows with the state of their queue management; beyond, the one idle for longest is evicted.
const REMEMBERED: usize = 4096;

/// The sub-queues, numbered from 0.
#[derive(Debug)]
pub(super) struct SubQueues {
    sub_queues: Vec<SubQueue>,
    sorting: Sorting,
    make: Make,
    /// Sub-queues whose first packet may have changed since the scheduler last read this list.
    changed: Vec<u32>,
}

/// The classifier: which packet enters which sub-queue.
#[derive(Debug)]
enum Sorting {
    Classes(Vec<Terms>),
    Flows(Box<Flows>),
}

/// The parameters of a class.
#[derive(Debug)]
struct Terms {
    name: String,
    weight: u32,
    room: Room,
}

#[derive(Debug)]
struct Flows {
    room: Room,
    /// Number of sub-queues that flows are hashed into; `None`: each flow has its own.
    buckets: Option<u32>,
    perturbation: u64,
    known: HashMap<u64, u32>,
    /// The key in `known` of each sub-queue.
    keys: Vec<u64>,
    longest: Heap<Reverse<u64>>,
    /// Empty sub-queues, in the order in which they became empty.
    idle: Heap<u64>,
    idled: u64,
}

impl SubQueues {
    /// Makes one sub-queue for each class; without classes, one for each flow.
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let room = Room { limit: setup.limit, from: setup.queue.drop };
        if setup.queue.classes.is_empty() {
            return Self::of_flows(setup, room, setup.queue.aqm, None);
        }
        let make = setup.make(setup.queue.aqm);
        let sub_queue = |(class, number): (&Class, u64)| {
            SubQueue::new(Make { aqm: class.aqm.or(make.aqm), seed: make.seed ^ number, ..make })
        };
        let sub_queues = setup.queue.classes.iter().zip(0..).map(sub_queue).collect();
        Self { sub_queues, sorting: Sorting::Classes(terms(setup)), make, changed: Vec::new() }
    }

    /// Makes sub-queues for flows: `buckets` of them, by hash, or one for each flow.
    pub(super) fn of_flows(setup: &Setup<'_>, room: Room, aqm: Option<Aqm>, buckets: Option<u32>) -> Self {
        let flows = Flows {
            room,
            buckets: buckets.map(|buckets| buckets.max(1)),
            perturbation: mix(setup.seed),
            known: HashMap::new(),
            keys: Vec::new(),
            longest: Heap::default(),
            idle: Heap::default(),
            idled: 0,
        };
        let make = setup.make(aqm);
        Self { sub_queues: Vec::new(), sorting: Sorting::Flows(Box::new(flows)), make, changed: Vec::new() }
    }

    /// Changes the parameters in place; returns false if the classes or the classifier differ.
    pub(super) fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        let classes = &setup.queue.classes;
        match &mut self.sorting {
            Sorting::Classes(old)
                if old.iter().map(|terms| &terms.name).eq(classes.iter().map(|class| &class.name)) =>
            {
                *old = terms(setup);
                for ((sub_queue, class), terms) in self.sub_queues.iter_mut().zip(classes).zip(old) {
                    sub_queue.set(class.aqm.or(setup.queue.aqm), setup.rate_bps, cx.now);
                    sub_queue.shrink(terms.room, cx);
                }
                self.touch_all();
                true
            }
            Sorting::Flows(flows) if classes.is_empty() && flows.buckets.is_none() => {
                let room = Room { limit: setup.limit, from: setup.queue.drop };
                self.set_flows(setup, room, setup.queue.aqm, cx);
                true
            }
            _ => false,
        }
    }

    /// Changes the parameters of sub-queues for flows.
    pub(super) fn set_flows(&mut self, setup: &Setup<'_>, room: Room, aqm: Option<Aqm>, cx: &mut Context<'_>) {
        if let Sorting::Flows(flows) = &mut self.sorting {
            flows.room = room;
        }
        self.make = setup.make(aqm);
        for sub_queue in &mut self.sub_queues {
            sub_queue.set(aqm, setup.rate_bps, cx.now);
        }
        self.shrink(cx);
        self.touch_all();
    }

    /// Enqueues a packet, or drops it or others.
    pub(super) fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        if let Some((id, packet)) = self.find(packet, cx)
            && let Some(packet) = self.sub_queues[id as usize].manage(packet, cx)
        {
            self.put_into(id, packet, cx);
        }
    }

    /// Enqueues a packet without asking active queue management.
    pub(super) fn put(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        if let Some((id, packet)) = self.find(packet, cx) {
            self.put_into(id, packet, cx);
        }
    }

    /// Returns the next packet of a sub-queue, and drops what its queue management drops on the way; `None`: it is empty.
    pub(super) fn dequeue(&mut self, id: u32, cx: &mut Context<'_>) -> Option<Waiting> {
        let packet = self.sub_queues[id as usize].dequeue(cx);
        self.keep(id);
        packet
    }

    /// Returns the length in bytes of a sub-queue's first packet.
    pub(super) fn first(&self, id: u32, cx: &Context<'_>) -> Option<u32> {
        cx.store.first(self.sub_queues[id as usize].list()).map(|packet| packet.bytes)
    }

    /// Returns the weight of a sub-queue; at least 1.
    pub(super) fn weight(&self, id: u32) -> u32 {
        match &self.sorting {
            Sorting::Classes(terms) => terms[id as usize].weight.max(1),
            Sorting::Flows(_) => 1,
        }
    }

    /// Returns the identifier of a packet's sub-queue: the index of its class, its flow, or its bucket.
    pub(super) fn key(&self, packet: &Waiting) -> u64 {
        match &self.sorting {
            Sorting::Classes(terms) => u64::from(packet.class).min(terms.len().saturating_sub(1) as u64),
            Sorting::Flows(flows) => flows.key(packet.flow),
        }
    }

    /// Takes one sub-queue whose first packet may have changed.
    pub(super) fn changed(&mut self) -> Option<u32> {
        self.changed.pop()
    }

    /// Returns the sub-queue of a packet; drops a packet that would not fit into an empty queue.
    fn find(&mut self, packet: Waiting, cx: &mut Context<'_>) -> Option<(u32, Waiting)> {
        let flows = match &mut self.sorting {
            Sorting::Classes(terms) => {
                let last = terms.len().saturating_sub(1);
                return Some((usize::from(packet.class).min(last) as u32, packet));
            }
            Sorting::Flows(flows) => flows,
        };
        if exceeds(flows.room.limit, 1, u64::from(packet.bytes)) {
            cx.lost.push((packet, Why::Full));
            return None;
        }
        let key = flows.key(packet.flow);
        if let Some(id) = flows.known.get(&key) {
            return Some((*id, packet));
        }
        let sub_queue = SubQueue::new(Make { seed: self.make.seed ^ key, ..self.make });
        let id = flows.evict();
        match id {
            Some(id) => self.sub_queues[id as usize] = sub_queue,
            None => self.sub_queues.push(sub_queue),
        }
        let id = id.unwrap_or(self.sub_queues.len() as u32 - 1);
        flows.remember(key, id);
        flows.keep(id, &self.sub_queues[id as usize]);
        Some((id, packet))
    }

    fn put_into(&mut self, id: u32, packet: Waiting, cx: &mut Context<'_>) {
        self.changed.push(id);
        match &self.sorting {
            Sorting::Classes(terms) => self.sub_queues[id as usize].put(packet, terms[id as usize].room, cx),
            Sorting::Flows(_) => {
                self.sub_queues[id as usize].push(packet, cx);
                self.keep(id);
                self.shrink(cx);
            }
        }
    }

    /// Flows: drops from the longest sub-queue until the limit holds.
    fn shrink(&mut self, cx: &mut Context<'_>) {
        while let Sorting::Flows(flows) = &self.sorting
            && exceeds(flows.room.limit, cx.store.slots(), cx.store.bytes())
            && let Some((_, id)) = flows.longest.first()
        {
            let from = flows.room.from;
            self.sub_queues[id as usize].lose(from, cx);
            self.keep(id);
            self.changed.push(id);
        }
    }

    /// Flows: updates the recorded length of a sub-queue.
    fn keep(&mut self, id: u32) {
        if let Sorting::Flows(flows) = &mut self.sorting {
            flows.keep(id, &self.sub_queues[id as usize]);
        }
    }

    fn touch_all(&mut self) {
        self.changed.clear();
        self.changed.extend(0..self.sub_queues.len() as u32);
    }
}

impl Flows {
    fn key(&self, flow: u64) -> u64 {
        match self.buckets {
            Some(buckets) => ((u128::from(mix(flow ^ self.perturbation)) * u128::from(buckets)) >> 64) as u64,
            None => flow,
        }
    }

    fn remember(&mut self, key: u64, id: u32) {
        self.known.insert(key, id);
        if self.keys.len() <= id as usize {
            self.keys.resize(id as usize + 1, 0);
        }
        self.keys[id as usize] = key;
    }

    /// Flows: reuses the sub-queue of the flow that has been idle for longest, if too many are remembered.
    fn evict(&mut self) -> Option<u32> {
        if self.buckets.is_some() || self.known.len() < REMEMBERED {
            return None;
        }
        let (_, id) = self.idle.first()?;
        self.idle.remove(id);
        self.known.remove(&self.keys[id as usize]);
        Some(id)
    }

    fn keep(&mut self, id: u32, sub_queue: &SubQueue) {
        if sub_queue.list().is_empty() {
            self.longest.remove(id);
            self.idled += 1;
            self.idle.set(id, self.idled);
        } else {
            self.longest.set(id, Reverse(sub_queue.list().bytes()));
            self.idle.remove(id);
        }
    }
}

fn terms(setup: &Setup<'_>) -> Vec<Terms> {
    let room = |class: &Class| Room { limit: class.limit.unwrap_or(setup.limit), from: setup.queue.drop };
    let terms = |class: &Class| Terms { name: class.name.clone(), weight: class.weight, room: room(class) };
    setup.queue.classes.iter().map(terms).collect()
}

/// Mixes the bits (the finaliser of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
