//! Deficit round robin (Shreedhar and Varghese 1995): serves sub-queues in turn, a quantum times the weight at a time.

use std::collections::VecDeque;

use super::sub_queues::SubQueues;
use super::{Context, Serve, Setup, Waiting};
use crate::config;

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct Drr {
    sub_queues: SubQueues,
    quantum: u32,
    /// Backlogged sub-queues; the first one is served now.
    round: VecDeque<u32>,
    turns: Vec<Turn>,
}

/// The state of a sub-queue.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Bytes it may still send; negative if queue management returned a larger packet than the first one.
    deficit: i64,
    is_in_round: bool,
    /// Whether it received its quantum in this turn.
    is_paid: bool,
}

impl Drr {
    pub(super) fn new(setup: &Setup<'_>, quantum: u32) -> Self {
        Self { sub_queues: SubQueues::new(setup), quantum: quantum.max(1), round: VecDeque::new(), turns: Vec::new() }
    }

    /// Appends newly backlogged sub-queues to the round.
    fn refresh_changed(&mut self, cx: &Context<'_>) {
        while let Some(id) = self.sub_queues.changed() {
            if self.turns.len() <= id as usize {
                self.turns.resize(id as usize + 1, Turn::default());
            }
            let turn = &mut self.turns[id as usize];
            if self.sub_queues.first(id, cx).is_some() && !turn.is_in_round {
                *turn = Turn { is_in_round: true, ..Turn::default() };
                self.round.push_back(id);
            }
        }
    }

    /// Ends the turn of the first sub-queue, which moves to the end of the round if it is still backlogged.
    fn end_turn(&mut self, id: u32, waits: bool) {
        self.round.pop_front();
        let turn = &mut self.turns[id as usize];
        turn.is_paid = false;
        if waits {
            self.round.push_back(id);
        } else {
            *turn = Turn::default();
        }
    }
}

impl Serve for Drr {
    fn set(&mut self, setup: &Setup<'_>, cx: &mut Context<'_>) -> bool {
        let config::Scheduler::Drr { quantum } = setup.queue.scheduler else { return false };
        self.quantum = quantum.max(1);
        let is_same = self.sub_queues.set(setup, cx);
        self.refresh_changed(cx);
        is_same
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
        while let Some(id) = self.round.front().copied() {
            let Some(first) = self.sub_queues.first(id, cx) else {
                self.end_turn(id, false);
                continue;
            };
            let turn = &mut self.turns[id as usize];
            if !turn.is_paid {
                turn.is_paid = true;
                let paid = i64::from(self.quantum).saturating_mul(i64::from(self.sub_queues.weight(id)));
                turn.deficit = turn.deficit.saturating_add(paid);
            }
            if i64::from(first) > turn.deficit {
                self.end_turn(id, true);
                continue;
            }
            let Some(packet) = self.sub_queues.dequeue(id, cx) else { continue };
            turn.deficit -= i64::from(packet.bytes);
            if self.sub_queues.first(id, cx).is_none() {
                self.end_turn(id, false);
            }
            return Some(packet);
        }
        None
    }
}
