//! One pipe, or one flow's instance of a pipe with a mask: impairments, queue, link, impairments, delay line.
//!
//! A pipe has its own virtual time, which advances with arrivals and with events of the link. Results do not depend on
//! when it is called: due events are processed in the order of their times.

pub(crate) mod flows;
mod mark;

use sojourn_time::{Nanos, Time};

use crate::config::queue::effective_limit;
use crate::config::{self, Distribution, Order, PortDelay, Trace};
use crate::delay::Sampler;
use crate::delay::line::Line;
use crate::disposition::Cause;
use crate::engine::accounting::Accounting;
use crate::impair::{Met, Stage};
use crate::link::{Link, Ride};
use crate::queue::{Discipline, Waiting};
use crate::random::Origin;

/// How long before the end of its time on the link a packet's departure is announced, so that the sender can prepare.
/// Later changes of parameters do not affect the packet.
const AHEAD: Nanos = Nanos::millis(1);

/// A running pipe.
#[derive(Debug)]
pub(crate) struct Path {
    /// The pipe, as an index into the configuration.
    pub pipe: u16,
    /// The flow; 0 without a mask.
    pub flow: u64,
    before: Stage,
    queue: Discipline,
    link: Link,
    ride: Option<(Waiting, Ride)>,
    after: Stage,
    sampler: Sampler,
    order: Order,
    /// Constant delays by port: packets of entry n use sub-queue n + 1 of the delay line.
    of_ports: Vec<PortDelay>,
    /// The minimum delay of each sub-queue of the delay line, except for reordered packets.
    least: Vec<Nanos>,
    /// The minimum time of any packet in the delay line.
    soonest: Nanos,
    pub line: Line,
    /// The time of the link's last event.
    clock: Time,
}

impl Path {
    /// Makes an empty pipe; traces and outages begin at `start`.
    pub fn new(place: u16, pipe: &config::Pipe, flow: u64, seed: u64, start: Time) -> Self {
        let origin = Origin { seed, pipe: &pipe.name, flow };
        Self {
            pipe: place,
            flow,
            before: Stage::new(&pipe.before, origin, "before"),
            queue: Discipline::new(&pipe.queue, effective_limit(pipe), pipe.link.largest_rate(), origin),
            link: Link::new(&pipe.link, start, origin),
            ride: None,
            after: Stage::new(&pipe.after, origin, "after"),
            sampler: Sampler::new(&pipe.delay, origin),
            order: pipe.delay.order,
            of_ports: pipe.delay.of_ports.clone(),
            least: least_of_lanes(pipe),
            soonest: soonest(pipe),
            line: Line::new(),
            clock: Time(i64::MIN),
        }
    }

    /// Changes the parameters at `now`. Waiting packets stay, unless a smaller queue cannot hold them.
    pub fn set(&mut self, pipe: &config::Pipe, start: Time, now: Time, accounting: &mut Accounting) {
        self.serve(now, accounting);
        let had_link = !self.link.is_instant();
        self.before.set(&pipe.before);
        // A packet whose departure was announced keeps that departure time.
        let ride = self.ride.as_mut().filter(|(_, ride)| !ride.is_told);
        self.link.set(&pipe.link, start, now, ride.map(|(_, ride)| ride));
        let mut losses = std::mem::take(&mut accounting.losses);
        self.queue.set(&pipe.queue, effective_limit(pipe), pipe.link.largest_rate(), now, &mut losses);
        accounting.lose_all(&mut losses);
        accounting.losses = losses;
        self.after.set(&pipe.after);
        self.sampler.set(&pipe.delay);
        (self.order, self.least, self.soonest) = (pipe.delay.order, least_of_lanes(pipe), soonest(pipe));
        self.of_ports.clone_from(&pipe.delay.of_ports);
        if had_link || !self.link.is_instant() {
            self.clock = self.clock.max(now);
            self.go_on(now, accounting);
        }
        self.serve(now, accounting);
    }

    /// Accepts a packet. Returns its actual entry time: the pipe's past cannot change.
    pub fn enter(&mut self, slot: u32, at: Time, accounting: &mut Accounting) -> Time {
        let at = at.max(self.earliest());
        self.serve(at, accounting);
        let packet = accounting.store.packet_mut(slot);
        packet.flow = self.flow;
        packet.arrival.entered = at;
        let met = self.before.meet(&packet.arrival.key, at, None);
        if met.is_lost {
            accounting.lose(slot, Cause::Before);
            return at;
        }
        let copy = impair(&mut self.before, met, slot, accounting);
        self.queue_up(slot, at, accounting);
        if let Some(copy) = copy {
            self.queue_up(copy, at, accounting);
        }
        at
    }

    /// Processes the events of the link until `until`.
    pub fn serve(&mut self, until: Time, accounting: &mut Accounting) {
        while self.next_event() <= until.min(Time::NEVER - Nanos(1)) {
            if self.link.has_opportunities() && self.ride.is_none_or(|(_, ride)| !ride.is_told) {
                self.use_opportunity(accounting);
            } else {
                self.ride_on(accounting);
            }
        }
    }

    /// Returns the time of the link's next event.
    pub fn next_event(&self) -> Time {
        match &self.ride {
            Some((_, ride)) if ride.is_told => ride.done,
            _ if self.link.has_opportunities() => self.next_opportunity(),
            Some((_, ride)) => tell_at(ride),
            None => Time::NEVER,
        }
    }

    /// Returns the latest time at which that event must be processed so that no departure is late.
    pub fn needed(&self) -> Time {
        self.next_event() + self.soonest
    }

    /// Returns the earliest time at which a packet can still enter. Results depend on when the engine was called only
    /// if a packet is handed over later than its timestamp says.
    pub fn earliest(&self) -> Time {
        match self.order {
            Order::Kept => self.clock.max(self.line.earliest(&self.least)),
            Order::Free => self.clock,
        }
    }

    /// Returns whether the pipe is empty at `now`.
    pub fn is_idle(&self, now: Time) -> bool {
        self.ride.is_none() && self.queue.slots() == 0 && self.line.latest() <= now
    }

    /// Returns whether the pipe holds no packet.
    pub fn is_unused(&self) -> bool {
        self.ride.is_none() && self.queue.slots() == 0 && self.line.len() == 0
    }

    /// Enqueues a packet, or bypasses the queue if the link takes no time.
    fn queue_up(&mut self, slot: u32, at: Time, accounting: &mut Accounting) {
        if self.link.is_instant() && self.ride.is_none() {
            self.leave(slot, at, false, accounting);
            return;
        }
        self.clock = self.clock.max(at);
        let waiting = self.waiting(slot, at, accounting);
        self.link.pass_opportunities(at);
        let mut losses = std::mem::take(&mut accounting.losses);
        self.queue.enqueue(waiting, at, &mut losses);
        accounting.lose_all(&mut losses);
        accounting.losses = losses;
        let counts = accounting.counts(self.pipe);
        counts.most_slots = counts.most_slots.max(self.queue.slots());
        counts.most_bytes = counts.most_bytes.max(self.queue.bytes());
        self.go_on(at, accounting);
        self.serve(at, accounting);
    }

    fn waiting(&self, slot: u32, at: Time, accounting: &mut Accounting) -> Waiting {
        let packet = accounting.store.packet_mut(slot);
        packet.queue_slots = u32::try_from(self.queue.slots()).unwrap_or(u32::MAX);
        packet.queue_bytes = self.queue.bytes();
        let waiting = Waiting {
            slot,
            bytes: packet.arrival.bytes,
            since: at,
            flow: packet.arrival.key.flow(),
            class: packet.class,
            ecn: packet.arrival.key.ecn,
            is_marked: false,
        };
        packet.sub_queue = self.queue.sub_queue(&waiting);
        waiting
    }

    /// Starts the next packet if the link is idle.
    fn go_on(&mut self, now: Time, accounting: &mut Accounting) {
        if self.ride.is_none() && !self.link.has_opportunities() {
            self.start(now, accounting);
        }
    }

    /// Puts the next packet on the link, if there is one.
    fn start(&mut self, now: Time, accounting: &mut Accounting) {
        if let Some(waiting) = self.dequeue(now, accounting) {
            accounting.waited(self.pipe, now, now - waiting.since);
            self.ride = Some((waiting, self.link.begin(waiting.bytes, now)));
        }
    }

    fn dequeue(&mut self, now: Time, accounting: &mut Accounting) -> Option<Waiting> {
        let mut losses = std::mem::take(&mut accounting.losses);
        let next = self.queue.dequeue(now, &mut losses);
        accounting.lose_all(&mut losses);
        accounting.losses = losses;
        if let Some(waiting) = next.filter(|waiting| waiting.is_marked) {
            let mut key = accounting.store.packet(waiting.slot).arrival.key;
            mark::mark(accounting.store.frame_mut(waiting.slot), &mut key);
            let packet = accounting.store.packet_mut(waiting.slot);
            (packet.arrival.key, packet.is_marked) = (key, true);
            accounting.counts(self.pipe).marked += 1;
        }
        next
    }

    /// Announces the departure of the packet on the link; after the departure, starts the next packet.
    fn ride_on(&mut self, accounting: &mut Accounting) {
        let Some((waiting, ride)) = &mut self.ride else { return };
        if ride.is_told {
            let done = ride.done;
            self.clock = self.clock.max(done);
            self.ride = None;
            // If opportunities have replaced the rate, this packet occupied the link until now.
            self.link.pass_opportunities(done);
            self.go_on(done, accounting);
        } else {
            self.clock = self.clock.max(tell_at(ride));
            ride.is_told = true;
            let (slot, done, is_lost) = (waiting.slot, ride.done, ride.is_lost);
            self.leave(slot, done, is_lost, accounting);
        }
    }

    fn next_opportunity(&self) -> Time {
        let is_waiting = self.ride.is_some() || self.queue.slots() > 0;
        if is_waiting { self.link.next_opportunity() } else { Time::NEVER }
    }

    /// Sends what the next opportunity carries.
    fn use_opportunity(&mut self, accounting: &mut Accounting) {
        let at = self.link.next_opportunity();
        self.clock = self.clock.max(at);
        let mut room = Some(self.link.use_opportunity()).filter(|bytes| *bytes > 0);
        while let Some(bytes) = room.filter(|bytes| *bytes > 0) {
            if self.ride.is_none() {
                self.start(at, accounting);
            }
            let Some((waiting, ride)) = &mut self.ride else { return };
            room = self.link.carry(ride, bytes);
            if room.is_some() {
                let (slot, is_lost) = (waiting.slot, ride.is_lost);
                self.ride = None;
                self.leave(slot, at, is_lost, accounting);
            }
        }
    }

    /// Passes on a packet that leaves the link at `at`.
    fn leave(&mut self, slot: u32, at: Time, is_lost: bool, accounting: &mut Accounting) {
        let packet = accounting.store.packet_mut(slot);
        if !self.link.is_instant() {
            packet.link_left = Some(at);
        }
        if is_lost {
            accounting.lose(slot, Cause::Profile);
            return;
        }
        let (delay, loss) = self.link.traced(at);
        let met = self.after.meet(&packet.arrival.key, at, loss);
        if met.is_lost {
            accounting.lose(slot, Cause::After);
            return;
        }
        let copy = impair(&mut self.after, met, slot, accounting);
        self.delay(slot, at, delay, accounting);
        if let Some(copy) = copy {
            self.delay(copy, at, delay, accounting);
        }
    }

    /// Puts a packet into the delay line.
    fn delay(&mut self, slot: u32, at: Time, constant: Option<Nanos>, accounting: &mut Accounting) {
        let packet = accounting.store.packet_mut(slot);
        let own = packet.arrival.key.ports.and_then(|ports| self.of_ports.iter().position(|own| own.is_of(ports)));
        let drawn = self.sampler.draw(at, own.map(|place| self.of_ports[place].constant).or(constant));
        packet.drawn = Some(packet.drawn.unwrap_or_default() + drawn.delay);
        packet.is_reordered |= drawn.is_reordered;
        let is_free = drawn.is_reordered || self.order == Order::Free;
        let lane = own.map_or(0, |place| place + 1);
        self.line.push(slot, at + drawn.delay, (!is_free).then_some(lane));
        let counts = accounting.counts(self.pipe);
        counts.reordered += u64::from(drawn.is_reordered);
        counts.clipped += u64::from(drawn.is_clipped);
        counts.most_delayed = counts.most_delayed.max(self.line.len());
    }
}

/// Damages and duplicates a packet as the stage decided.
fn impair(stage: &mut Stage, met: Met, slot: u32, accounting: &mut Accounting) -> Option<u32> {
    if stage.is_damaging() {
        let flipped = stage.damage(accounting.store.frame_mut(slot));
        let packet = accounting.store.packet_mut(slot);
        packet.flipped += flipped;
        let pipe = packet.pipe;
        let counts = accounting.counts(pipe);
        counts.corrupted += u64::from(flipped > 0);
        counts.flipped_bits += u64::from(flipped);
    }
    if met.is_duplicated { accounting.copy(slot) } else { None }
}

/// Returns the time from which the departure of a packet on the link may be announced.
fn tell_at(ride: &Ride) -> Time {
    if ride.done == Time::NEVER { Time::NEVER } else { ride.since.max(ride.done - AHEAD) }
}

/// Returns the minimum delay of a pipe, reordered packets included.
fn soonest(pipe: &config::Pipe) -> Nanos {
    let least = least_of_lanes(pipe).into_iter().min().unwrap_or_default();
    match pipe.delay.reorder {
        None => least,
        Some(reorder) => reorder.by.map_or(Nanos::ZERO, |by| (least - by).max(Nanos::ZERO)),
    }
}

/// Returns the minimum delay of a pipe for each sub-queue of the delay line.
fn least_of_lanes(pipe: &config::Pipe) -> Vec<Nanos> {
    let traced = match &pipe.link.trace {
        Some(Trace::Points { points, .. }) => points.iter().filter_map(|point| point.delay).min(),
        _ => None,
    };
    let constant = traced.map_or(pipe.delay.constant, |traced| traced.min(pipe.delay.constant));
    let jitter = match &pipe.delay.jitter {
        None | Some(Distribution::Exponential { .. } | Distribution::Pareto { .. } | Distribution::Gamma { .. }) => 0,
        Some(Distribution::Uniform { spread }) => -spread.0.abs(),
        // Beyond ten standard deviations the probability is negligible for any number of packets.
        Some(Distribution::Normal { sd }) => sd.0.saturating_mul(-10),
        Some(Distribution::Empirical { points, .. }) => points.first().map_or(0, |(_, least)| least.0),
        Some(Distribution::Table { sd, values, .. }) => {
            let least = values.iter().min().map_or(0, |least| i128::from(*least) * i128::from(sd.0));
            // Round down to a nanosecond.
            i64::try_from(least.div_euclid(8_192)).unwrap_or(i64::MIN)
        }
    };
    let of_ports = pipe.delay.of_ports.iter().map(|own| own.constant);
    std::iter::once(constant).chain(of_ports).map(|constant| Nanos(constant.0.saturating_add(jitter).max(0))).collect()
}
