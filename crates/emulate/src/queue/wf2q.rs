//! WF2Q+ (Bennett and Zhang, "Hierarchical packet fair queueing algorithms", 1997): among the packets that the fluid
//! model would have started by now, serves the one that it would finish first.
//!
//! Virtual time is in bytes per weight with 32 fractional bits, in 128 bits: it cannot wrap. Idle sub-queues leave the
//! sum of weights when virtual time passes their last finish. For an arrival during a transmission, virtual time has
//! advanced in proportion to the transmission (by the link's rate; without a constant rate, as if it were complete).

use sojourn_time::Time;

use super::heap::Heap;
use super::sub_queues::SubQueues;
use super::{Context, Serve, Setup, Waiting};
use crate::config;

/// Fractional bits of virtual time.
const PLACES: u32 = 32;
/// Nanoseconds (18 minutes) after which any transmission counts as complete.
const LONGEST: i64 = 1 << 40;

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct Wf2q {
    sub_queues: SubQueues,
    tags: Vec<Tag>,
    now: u128,
    /// The packet on the link: when virtual time was last advanced, and its remaining work then, in bytes with fractional bits.
    serving: (Time, u128),
    /// The sub-queue whose last packet is on the link.
    on_link: Option<u32>,
    rate_bps: Option<u64>,
    /// Sum of the weights of all sub-queues that are not gone.
    weights: u64,
    /// Backlogged sub-queues that may be served, by virtual finish time.
    eligible: Heap<u128>,
    /// Backlogged sub-queues that may not be served yet, by virtual start time.
    later: Heap<u128>,
    /// Sub-queues that are not backlogged and have not finished virtually, by virtual finish time.
    idle: Heap<u128>,
}

/// The tags of a sub-queue.
#[derive(Clone, Copy, Debug)]
struct Tag {
    start: u128,
    finish: u128,
    weight: u32,
    place: Place,
}

/// The state of a sub-queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gone,
    Idle,
    /// Its last packet is on the link: it still counts as backlogged.
    OnLink,
    Later,
    Eligible,
}

impl Wf2q {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            sub_queues: SubQueues::new(setup),
            tags: Vec::new(),
            now: 0,
            serving: (Time(0), 0),
            on_link: None,
            rate_bps: setup.rate_bps,
            weights: 0,
            eligible: Heap::default(),
            later: Heap::default(),
            idle: Heap::default(),
        }
    }

    fn refresh_changed(&mut self, cx: &Context<'_>) {
        while let Some(id) = self.sub_queues.changed() {
            self.refresh(id, cx);
        }
    }

    /// Updates a sub-queue's tags for its first packet.
    fn refresh(&mut self, id: u32, cx: &Context<'_>) {
        if self.tags.len() <= id as usize {
            self.tags.resize(id as usize + 1, Tag { start: 0, finish: 0, weight: 0, place: Place::Gone });
        }
        let Tag { start, finish, place, .. } = self.tags[id as usize];
        let waits = matches!(place, Place::Later | Place::Eligible);
        match self.sub_queues.first(id, cx) {
            None if waits => self.rest(id, start),
            None => {}
            Some(bytes) if waits => self.arm(id, start, bytes),
            Some(bytes) if place == Place::OnLink => self.arm(id, finish, bytes),
            Some(bytes) => self.arm(id, finish.max(self.now), bytes),
        }
    }

    /// Sets the virtual start time of a sub-queue's first packet.
    fn arm(&mut self, id: u32, start: u128, bytes: u32) {
        self.leave(id);
        let tag = &mut self.tags[id as usize];
        if tag.place == Place::Gone {
            tag.weight = self.sub_queues.weight(id);
            self.weights += u64::from(tag.weight);
        }
        tag.start = start;
        tag.finish = start + span(bytes, u64::from(tag.weight));
        if start <= self.now {
            tag.place = Place::Eligible;
            self.eligible.set(id, tag.finish);
        } else {
            tag.place = Place::Later;
            self.later.set(id, tag.start);
        }
    }

    /// Makes a sub-queue idle until its virtual finish time.
    fn rest(&mut self, id: u32, finish: u128) {
        self.leave(id);
        let tag = &mut self.tags[id as usize];
        (tag.finish, tag.place) = (finish, Place::Idle);
        self.idle.set(id, finish);
    }

    fn leave(&mut self, id: u32) {
        match self.tags[id as usize].place {
            Place::Gone => {}
            Place::OnLink => self.on_link = None,
            Place::Idle => self.idle.remove(id),
            Place::Later => self.later.remove(id),
            Place::Eligible => self.eligible.remove(id),
        }
    }

    /// Returns the sub-queue to serve: the eligible one with the earliest virtual finish.
    fn choose(&mut self) -> Option<u32> {
        if self.eligible.first().is_none() {
            let (start, _) = self.later.first()?;
            self.now = self.now.max(start);
        }
        while let Some((start, id)) = self.later.first()
            && start <= self.now
        {
            self.later.remove(id);
            let tag = &mut self.tags[id as usize];
            tag.place = Place::Eligible;
            self.eligible.set(id, tag.finish);
        }
        self.eligible.first().map(|(_, id)| id)
    }

    /// Charges a sub-queue for the packet it sent, which may be another than the one its tags were computed for.
    fn charge(&mut self, id: u32, bytes: u32, cx: &Context<'_>) {
        let tag = self.tags[id as usize];
        let finish = tag.start + span(bytes, u64::from(tag.weight));
        self.reweigh(id);
        match self.sub_queues.first(id, cx) {
            Some(bytes) => self.arm(id, finish, bytes),
            None => {
                self.leave(id);
                let tag = &mut self.tags[id as usize];
                (tag.finish, tag.place) = (finish, Place::OnLink);
                self.on_link = Some(id);
            }
        }
        self.serving = (cx.now, u128::from(bytes) << PLACES);
        if self.rate_bps.is_none() {
            self.pass_served();
        }
    }

    /// Advances virtual time with the transmission on the link until `now`.
    fn progress(&mut self, now: Time) {
        let (since, left) = self.serving;
        let passed = (now - since).0.clamp(0, LONGEST) as u128;
        let rate = u128::from(self.rate_bps.unwrap_or(0));
        let done = left.min(((passed * rate) << PLACES) / 8_000_000_000);
        self.serving = (now, left - done);
        self.pass(done);
    }

    /// Completes the transmission: the link is idle again.
    fn complete(&mut self) {
        self.pass_served();
        if let Some(id) = self.on_link {
            self.rest(id, self.tags[id as usize].finish);
            self.retire(self.now);
        }
    }

    fn pass_served(&mut self) {
        let left = std::mem::take(&mut self.serving.1);
        self.pass(left);
    }

    /// Advances virtual time by bytes on the link (with fractional bits); it runs faster after each sub-queue that retires on the way.
    fn pass(&mut self, mut left: u128) {
        while let Some((finish, _)) = self.idle.first() {
            let until = finish.saturating_sub(self.now) * u128::from(self.weights);
            if until > left {
                break;
            }
            left -= until;
            self.retire(finish);
        }
        self.now += left / u128::from(self.weights.max(1));
    }

    /// Applies a changed weight from the next packet on.
    fn reweigh(&mut self, id: u32) {
        let tag = &mut self.tags[id as usize];
        let weight = self.sub_queues.weight(id);
        self.weights = self.weights - u64::from(tag.weight) + u64::from(weight);
        tag.weight = weight;
    }

    /// Removes idle sub-queues that have finished virtually from the sum of weights.
    fn retire(&mut self, until: u128) {
        while let Some((finish, id)) = self.idle.first()
            && finish <= until
        {
            self.idle.remove(id);
            let tag = &mut self.tags[id as usize];
            tag.place = Place::Gone;
            self.weights -= u64::from(tag.weight);
            self.now = self.now.max(finish);
        }
    }
}

impl Serve for Wf2q {
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        self.progress(cx.now);
        self.rate_bps = setup.rate_bps;
        let is_same = setup.queue.scheduler == config::Scheduler::Wf2q && self.sub_queues.set(setup, cx);
        self.refresh_changed(cx);
        is_same
    }

    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.progress(cx.now);
        self.sub_queues.enqueue(packet, cx);
        self.refresh_changed(cx);
    }

    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.sub_queues.put(packet, cx);
        self.refresh_changed(cx);
    }

    fn sub_queue(&self, packet: &Waiting) -> u64 {
        self.sub_queues.key(packet)
    }

    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        self.complete();
        while let Some(id) = self.choose() {
            if let Some(packet) = self.sub_queues.dequeue(id, cx) {
                self.charge(id, packet.bytes, cx);
                return Some(packet);
            }
            // Queue management has dropped all packets of the sub-queue.
            self.rest(id, self.tags[id as usize].start);
        }
        // The link is idle: no sub-queue is ahead of another any more.
        self.retire(u128::MAX);
        None
    }
}

/// Returns the virtual time of a number of bytes at a weight.
fn span(bytes: u32, weight: u64) -> u128 {
    (u128::from(bytes) << PLACES) / u128::from(weight.max(1))
}
