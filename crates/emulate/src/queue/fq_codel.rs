//! FQ-CoDel (RFC 8290): flows hashed into sub-queues, each under CoDel; a newly backlogged sub-queue is served first, for one quantum.

use std::collections::VecDeque;

use super::sub_queue::Room;
use super::sub_queues::SubQueues;
use super::{Context, Serve, Setup, Waiting};
use crate::config;
use crate::config::{Aqm, DropFrom, Limit};

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct FqCodel {
    sub_queues: SubQueues,
    parameters: config::FqCodel,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    turns: Vec<Turn>,
}

/// The state of a sub-queue.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    deficit: i64,
    is_listed: bool,
}

impl FqCodel {
    pub(super) fn new(setup: &Setup<'_>, parameters: config::FqCodel) -> Self {
        let aqm = Some(Aqm::Codel(parameters.codel));
        Self {
            sub_queues: SubQueues::of_flows(setup, room(setup, &parameters), aqm, Some(parameters.flows)),
            parameters,
            new: VecDeque::new(),
            old: VecDeque::new(),
            turns: Vec::new(),
        }
    }

    /// Appends newly backlogged sub-queues to the list of new ones.
    fn refresh_changed(&mut self, cx: &Context<'_>) {
        let deficit = self.quantum();
        while let Some(id) = self.sub_queues.changed() {
            if self.turns.len() <= id as usize {
                self.turns.resize(id as usize + 1, Turn::default());
            }
            let turn = &mut self.turns[id as usize];
            if self.sub_queues.first(id, cx).is_some() && !turn.is_listed {
                *turn = Turn { deficit, is_listed: true };
                self.new.push_back(id);
            }
        }
    }

    fn quantum(&self) -> i64 {
        i64::from(self.parameters.quantum.max(1))
    }

    /// Returns the sub-queue to serve, and whether it is a new one. Sub-queues without deficit move to the end of the old ones.
    fn choose(&mut self) -> Option<(u32, bool)> {
        loop {
            let (id, is_new) = match self.new.front() {
                Some(id) => (*id, true),
                None => (*self.old.front()?, false),
            };
            if self.turns[id as usize].deficit > 0 {
                return Some((id, is_new));
            }
            self.turns[id as usize].deficit += self.quantum();
            self.take(is_new);
            self.old.push_back(id);
        }
    }

    fn take(&mut self, is_new: bool) -> Option<u32> {
        if is_new { self.new.pop_front() } else { self.old.pop_front() }
    }
}

impl Serve for FqCodel {
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        let config::Scheduler::FqCodel(parameters) = setup.queue.scheduler else { return false };
        if parameters.flows != self.parameters.flows {
            return false;
        }
        self.parameters = parameters;
        self.sub_queues.set_flows(setup, room(setup, &parameters), Some(Aqm::Codel(parameters.codel)), cx);
        self.refresh_changed(cx);
        true
    }

    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
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
        while let Some((id, is_new)) = self.choose() {
            if let Some(packet) = self.sub_queues.dequeue(id, cx) {
                self.turns[id as usize].deficit -= i64::from(packet.bytes);
                return Some(packet);
            }
            self.take(is_new);
            if is_new {
                // An empty new sub-queue becomes an old one for a round, so that it cannot starve the old ones (RFC 8290 §4.2).
                self.old.push_back(id);
            } else {
                self.turns[id as usize].is_listed = false;
            }
        }
        None
    }
}

/// Returns FQ-CoDel's own limit, and the queue's if one was configured; a computed limit does not apply.
fn room(setup: &Setup<'_>, parameters: &config::FqCodel) -> Room {
    let most = u64::from(parameters.limit);
    let slots = setup.queue.limit.slots.map_or(most, |slots| slots.min(most));
    Room { limit: Limit { slots: Some(slots), bytes: setup.queue.limit.bytes }, from: DropFrom::Head }
}
