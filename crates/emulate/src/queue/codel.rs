//! CoDel (RFC 8289): drops from the head while the queue delay stays above the target, at intervals proportional to 1/√count.

use sojourn_time::{Nanos, Time};

use super::store::List;
use super::{Context, Waiting, Why, may_be_marked};
use crate::config;

/// A cycle that begins within this many intervals of the last drop continues with its rate (RFC 8289 §5.5).
const MEMORY: i64 = 16;

/// The state, named as in RFC 8289 §5.
#[derive(Debug)]
pub(super) struct Codel {
    parameters: config::Codel,
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    is_dropping: bool,
    /// The largest packet seen, used as the MTU, which an emulator does not know.
    largest: u64,
}

impl Codel {
    pub(super) fn new(parameters: config::Codel) -> Self {
        Self {
            parameters,
            first_above: None,
            drop_next: Time(0),
            count: 0,
            last_count: 0,
            is_dropping: false,
            largest: 0,
        }
    }

    /// Changes the parameters; the state stays.
    pub(super) fn set(&mut self, parameters: config::Codel) {
        self.parameters = parameters;
    }

    /// Notes an arriving packet.
    pub(super) fn arrive(&mut self, packet: &Waiting) {
        self.largest = self.largest.max(u64::from(packet.bytes));
    }

    /// Returns the next packet of a list, and drops or marks on the way.
    pub(super) fn dequeue(&mut self, list: &mut List, cx: &mut Context<'_>) -> Option<Waiting> {
        let (mut next, ok_to_drop) = self.take(list, cx);
        if self.is_dropping {
            self.is_dropping = ok_to_drop;
            while self.is_dropping && cx.now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.mark(&mut next) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                next = self.lose(next, list, cx);
                if self.is_dropping {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if ok_to_drop {
            if !self.mark(&mut next) {
                next = self.lose(next, list, cx);
            }
            self.begin(cx.now);
        }
        next
    }

    /// Begins a dropping cycle, at the last cycle's rate if that ended recently.
    fn begin(&mut self, now: Time) {
        let delta = self.count.wrapping_sub(self.last_count);
        let is_recent = (now - self.drop_next).0 < MEMORY.saturating_mul(self.parameters.interval.0);
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.is_dropping = true;
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }

    /// Takes the next packet, and returns whether it may be dropped.
    fn take(&mut self, list: &mut List, cx: &mut Context<'_>) -> (Option<Waiting>, bool) {
        let Some(packet) = cx.store.pop(list) else {
            self.first_above = None;
            return (None, false);
        };
        let is_good = cx.now - packet.since < self.parameters.target || list.bytes() <= self.largest;
        if is_good {
            self.first_above = None;
            return (Some(packet), false);
        }
        let first_above = *self.first_above.get_or_insert(cx.now + self.parameters.interval);
        // A time that was set just now is in the future, unless the interval is zero.
        (Some(packet), cx.now >= first_above)
    }

    fn lose(&mut self, packet: Option<Waiting>, list: &mut List, cx: &mut Context<'_>) -> Option<Waiting> {
        cx.lost.extend(packet.map(|packet| (packet, Why::Managed)));
        let (next, ok_to_drop) = self.take(list, cx);
        self.is_dropping &= ok_to_drop;
        next
    }

    fn mark(&self, packet: &mut Option<Waiting>) -> bool {
        match packet {
            Some(packet) if self.parameters.ecn && may_be_marked(packet) => {
                packet.is_marked = true;
                true
            }
            _ => false,
        }
    }

    fn control_law(&self, from: Time) -> Time {
        let step = self.parameters.interval.0 as f64 / f64::from(self.count).sqrt();
        from + Nanos(step.round() as i64)
    }
}
