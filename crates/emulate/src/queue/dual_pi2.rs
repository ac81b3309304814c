//! DualPI2 (RFC 9332 appendix A): a low-latency queue and a classic queue, coupled through one PI controller.
//!
//! The controller updates at exact times, at a fixed interval from the first arrival.

use sojourn_time::{Nanos, Time};

use super::store::List;
use super::sub_queue::{Room, exceeds};
use super::{Context, Serve, Setup, Waiting, Why};
use crate::config;
use crate::config::DropFrom;
use crate::select::Ecn;

/// The longest round-trip time for which the controller is stable, in seconds (RFC 9332 appendix A.1).
const LONGEST_RTT: f64 = 0.1;
/// While both are backlogged, the classic queue gets 1/`PARTS` of the bytes (RFC 9332 §4.2.2: classic protection).
const PARTS: i64 = 16;
/// A full Ethernet frame without FCS, in bytes.
const FULL: i64 = 1514;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    pub(super) target: Nanos,
    pub(super) step: Nanos,
    pub(super) coupling: f64,
}

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct DualPi2 {
    parameters: Parameters,
    room: Room,
    low: Side,
    classic: Side,
    /// Above 0 the classic queue is served.
    credit: i64,
    /// p′: the low-latency marking probability is coupling × p′, the classic probability p′².
    base: f64,
    delay_before: f64,
    next_update: Option<Time>,
}

/// One of the two queues.
#[derive(Debug, Default)]
struct Side {
    list: List,
    /// Accumulated probability of drops or marks.
    due: f64,
}

impl DualPi2 {
    pub(super) fn new(setup: &Setup<'_>, parameters: Parameters) -> Self {
        Self {
            parameters,
            room: Room { limit: setup.limit, from: setup.queue.drop },
            low: Side::default(),
            classic: Side::default(),
            credit: fresh_credit(),
            base: 0.0,
            delay_before: 0.0,
            next_update: None,
        }
    }

    /// Performs all updates that were due by `now`.
    fn pass(&mut self, cx: &Context<'_>) {
        let step = self.update_step();
        let mut due = *self.next_update.get_or_insert(cx.now + step);
        while due <= cx.now {
            let before = (self.base, self.delay_before);
            self.update(due, cx);
            due = due + step;
            let is_still = cx.store.slots() == 0 && before == (self.base, self.delay_before);
            if is_still && due <= cx.now {
                let skipped = (cx.now - due).0 / step.0 + 1;
                due = due + Nanos(skipped.saturating_mul(step.0));
            }
        }
        self.next_update = Some(due);
    }

    /// Updates p′ (RFC 9332 figure 6), with the longer delay of the two queues as in appendix A.2.
    fn update(&mut self, at: Time, cx: &Context<'_>) {
        let age = |side: &Side| cx.store.first(&side.list).map_or(0.0, |first| seconds(at - first.since).max(0.0));
        let delay = age(&self.low).max(age(&self.classic));
        let alpha = 0.1 * seconds(self.update_step()) / (LONGEST_RTT * LONGEST_RTT);
        let beta = 0.3 / LONGEST_RTT;
        let change = alpha * (delay - seconds(self.parameters.target)) + beta * (delay - self.delay_before);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.delay_before = delay;
    }

    fn update_step(&self) -> Nanos {
        Nanos(self.parameters.target.0.clamp(1, (LONGEST_RTT / 3.0 * 1e9) as i64))
    }

    /// Returns whether the low-latency queue is served next (weighted round robin; low latency first).
    fn is_turn_of_low(&mut self) -> bool {
        if self.low.list.is_empty() || self.classic.list.is_empty() {
            self.credit = fresh_credit();
            return !self.low.list.is_empty();
        }
        self.credit <= 0
    }

    fn dequeue_low(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        let mut packet = cx.store.pop(&mut self.low.list)?;
        let coupled = self.parameters.coupling * self.base;
        let classic = self.base * self.base;
        if coupled >= 1.0 {
            // Overload: marks no longer help.
            if self.low.strikes(classic) {
                cx.lost.push((packet, Why::Managed));
                return None;
            }
            packet.is_marked = true;
            self.credit += i64::from(packet.bytes);
            return Some(packet);
        }
        // A single packet is no queue, however slow the link is.
        let stands = cx.now - packet.since > self.parameters.step && !self.low.list.is_empty();
        packet.is_marked |= self.low.strikes(if stands { 1.0 } else { coupled });
        self.credit += i64::from(packet.bytes);
        Some(packet)
    }

    fn dequeue_classic(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        let mut packet = cx.store.pop(&mut self.classic.list)?;
        let probability = self.base * self.base;
        let most_marked = (1.0 / (self.parameters.coupling * self.parameters.coupling)).min(1.0);
        if self.classic.strikes(probability) {
            if packet.ecn == Ecn::NotCapable || probability >= most_marked {
                cx.lost.push((packet, Why::Managed));
                return None;
            }
            packet.is_marked = true;
        }
        self.credit -= (PARTS - 1) * i64::from(packet.bytes);
        Some(packet)
    }

    /// Drops a packet of the longer queue, from the configured end.
    fn lose(&mut self, cx: &mut Context<'_>) -> bool {
        let is_low = self.low.list.bytes() > self.classic.list.bytes();
        let is_low = is_low || self.classic.list.is_empty();
        let list = if is_low { &mut self.low.list } else { &mut self.classic.list };
        let packet = match self.room.from {
            DropFrom::Tail => cx.store.pop_last(list),
            DropFrom::Head => cx.store.pop(list),
        };
        cx.lost.extend(packet.map(|packet| (packet, Why::Full)));
        packet.is_some()
    }

    fn has_room(&self, slots: u64, bytes: u64, cx: &Context<'_>) -> bool {
        !exceeds(self.room.limit, cx.store.slots() + slots, cx.store.bytes() + bytes)
    }
}

impl Side {
    /// Returns whether this packet is hit; hits are spread evenly (RFC 9332: `recur`).
    fn strikes(&mut self, probability: f64) -> bool {
        self.due += probability;
        let is_struck = self.due >= 1.0;
        if is_struck {
            self.due -= 1.0;
        }
        is_struck
    }
}

impl Serve for DualPi2 {
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        let config::Scheduler::DualPi2 { target, step, coupling } = setup.queue.scheduler else { return false };
        self.pass(cx);
        self.parameters = Parameters { target, step, coupling };
        self.room = Room { limit: setup.limit, from: setup.queue.drop };
        while !self.has_room(0, 0, cx) && self.lose(cx) {}
        true
    }

    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.pass(cx);
        self.put(packet, cx);
    }

    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        let bytes = u64::from(packet.bytes);
        let never_fits = exceeds(self.room.limit, 1, bytes);
        while !self.has_room(1, bytes, cx) {
            let is_made = self.room.from == DropFrom::Head && !never_fits && self.lose(cx);
            if !is_made {
                cx.lost.push((packet, Why::Full));
                return;
            }
        }
        let is_low = matches!(packet.ecn, Ecn::Ect1 | Ecn::Marked);
        let side = if is_low { &mut self.low } else { &mut self.classic };
        cx.store.push(&mut side.list, packet);
    }

    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        self.pass(cx);
        while cx.store.slots() > 0 {
            let packet = if self.is_turn_of_low() { self.dequeue_low(cx) } else { self.dequeue_classic(cx) };
            if packet.is_some() {
                return packet;
            }
        }
        None
    }
}

/// The credit when a queue becomes backlogged: low latency may first send its part of a round.
fn fresh_credit() -> i64 {
    -(PARTS - 2) * FULL
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limit, Queue};
    use crate::queue::store::Store;

    fn dual(base: f64) -> DualPi2 {
        let queue = Queue::default();
        let setup = Setup { queue: &queue, limit: Limit::default(), rate_bps: None, seed: 1 };
        let parameters = Parameters { target: Nanos::millis(15), step: Nanos::millis(1), coupling: 2.0 };
        let mut dual = DualPi2::new(&setup, parameters);
        (dual.base, dual.next_update) = (base, Some(Time::NEVER));
        dual
    }

    fn packet(ecn: Ecn, since: Time) -> Waiting {
        Waiting { slot: 0, bytes: 1000, since, flow: 0, class: 0, ecn, is_marked: false }
    }

    /// Returns the marks and drops of 100,000 packets at a constant p′.
    fn of(base: f64, ecn: Ecn) -> (u32, usize) {
        let (mut dual, mut store, mut lost, mut marked) = (dual(base), Store::default(), Vec::new(), 0);
        for at in 0..100_000 {
            let cx = &mut Context { store: &mut store, lost: &mut lost, now: Time(at) };
            dual.enqueue(packet(ecn, Time(at)), cx);
            marked += u32::from(dual.dequeue(cx).is_some_and(|packet| packet.is_marked));
        }
        (marked, lost.len())
    }

    #[test]
    fn mark_probability_is_coupled_and_drop_probability_is_its_square() {
        let near = |value: u32, of: f64| f64::from(value.abs_diff((1e5 * of).round() as u32)) <= 1.0;
        for base in [0.001, 0.01, 0.1, 0.3, 0.49] {
            let (marked, lost) = of(base, Ecn::Ect1);
            assert!(near(marked, 2.0 * base) && lost == 0, "{base}: {marked} {lost}");
            let (marked, lost) = of(base, Ecn::NotCapable);
            assert!(near(lost as u32, base * base) && marked == 0, "{base}: {marked} {lost}");
            let (marked, lost) = of(base, Ecn::Ect0);
            assert!(near(marked, base * base) && lost == 0, "{base}: {marked} {lost}");
        }
        for (base, ecn) in [(0.6, Ecn::Ect1), (0.6, Ecn::Ect0), (0.9, Ecn::Marked)] {
            let (marked, lost) = of(base, ecn);
            assert!(near(lost as u32, base * base), "overload {base}: {marked} {lost}");
            assert_eq!(marked, if ecn == Ecn::Ect0 { 0 } else { 100_000 - lost as u32 });
        }
    }

    #[test]
    fn marks_packets_that_waited_beyond_the_step_threshold_if_others_wait_behind() {
        let (mut dual, mut store, mut lost) = (dual(0.0), Store::default(), Vec::new());
        let cx = &mut Context { store: &mut store, lost: &mut lost, now: Time(0) };
        (0..3).for_each(|_| dual.enqueue(packet(Ecn::Ect1, Time(0)), cx));
        let marks = [1_000_000, 1_000_001, 2_000_000].map(|now| {
            cx.now = Time(now);
            dual.dequeue(cx).is_some_and(|packet| packet.is_marked)
        });
        assert_eq!(marks, [false, true, false]);
    }

    #[test]
    fn gives_the_classic_queue_a_sixteenth_while_both_wait() {
        let (mut dual, mut store, mut lost) = (dual(0.0), Store::default(), Vec::new());
        let cx = &mut Context { store: &mut store, lost: &mut lost, now: Time(0) };
        (0..20_000).for_each(|_| dual.enqueue(packet(Ecn::Ect1, Time(0)), cx));
        (0..20_000).for_each(|_| dual.enqueue(packet(Ecn::Ect0, Time(0)), cx));
        let low = (0..16_000).filter(|_| dual.dequeue(cx).is_some_and(|packet| packet.ecn == Ecn::Ect1)).count();
        // Low latency is first ahead by its part of a round.
        assert!((15_000..15_030).contains(&low), "{low}");
    }

    #[test]
    fn updates_its_probability_by_the_pi_controller_at_exact_times() {
        let (mut dual, mut store, mut lost) = (dual(0.0), Store::default(), Vec::new());
        dual.next_update = None;
        let cx = &mut Context { store: &mut store, lost: &mut lost, now: Time(0) };
        dual.enqueue(packet(Ecn::NotCapable, Time(0)), cx);
        cx.now = Time(100_000_000);
        dual.pass(cx);
        // The head is 15, 30, … 90 ms old: alpha = 0.15 Hz on the delay above 15 ms, beta = 3 Hz on its change.
        let mut base = 0.0;
        for update in 1..=6 {
            base += 0.15 * (f64::from(update) - 1.0) * 0.015 + 3.0 * 0.015;
        }
        assert!((dual.base - base).abs() < 1e-12, "{} {base}", dual.base);
    }
}
