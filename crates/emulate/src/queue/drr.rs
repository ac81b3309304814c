//! Deficit round robin (Shreedhar and Varghese 1995): each lane in turn, a quantum times its weight at a time.

use std::collections::VecDeque;

use super::lanes::Lanes;
use super::{Context, Serve, Setup, Waiting};
use crate::config;

/// Its state.
#[derive(Debug)]
pub(super) struct Drr {
    lanes: Lanes,
    quantum: u32,
    /// Lanes that wait, the one whose turn it is first.
    round: VecDeque<u32>,
    turns: Vec<Turn>,
}

/// A lane's.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Bytes that it may still send; below nothing, where management gave a larger packet than the first one was.
    deficit: i64,
    is_in_round: bool,
    /// Whether it has had its quantum in this turn.
    is_paid: bool,
}

impl Drr {
    pub(super) fn new(setup: &Setup<'_>, quantum: u32) -> Self {
        Self { lanes: Lanes::new(setup), quantum: quantum.max(1), round: VecDeque::new(), turns: Vec::new() }
    }

    /// Lanes that have come to wait stand at the end of the round.
    fn refresh_changed(&mut self, cx: &Context<'_>) {
        while let Some(id) = self.lanes.changed() {
            if self.turns.len() <= id as usize {
                self.turns.resize(id as usize + 1, Turn::default());
            }
            let turn = &mut self.turns[id as usize];
            if self.lanes.first(id, cx).is_some() && !turn.is_in_round {
                *turn = Turn { is_in_round: true, ..Turn::default() };
                self.round.push_back(id);
            }
        }
    }

    /// Ends the turn of the first lane, which goes to the end of the round if it still waits.
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
        let is_same = self.lanes.set(setup, cx);
        self.refresh_changed(cx);
        is_same
    }

    fn enqueue(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.lanes.enqueue(packet, cx);
        self.refresh_changed(cx);
    }

    fn put(&mut self, packet: Waiting, cx: &mut Context<'_>) {
        self.lanes.put(packet, cx);
        self.refresh_changed(cx);
    }

    fn lane(&self, packet: &Waiting) -> u64 {
        self.lanes.key(packet)
    }

    fn dequeue(&mut self, cx: &mut Context<'_>) -> Option<Waiting> {
        while let Some(id) = self.round.front().copied() {
            let Some(first) = self.lanes.first(id, cx) else {
                self.end_turn(id, false);
                continue;
            };
            let turn = &mut self.turns[id as usize];
            if !turn.is_paid {
                turn.is_paid = true;
                turn.deficit += i64::from(self.quantum) * i64::from(self.lanes.weight(id));
            }
            if i64::from(first) > turn.deficit {
                self.end_turn(id, true);
                continue;
            }
            let Some(packet) = self.lanes.dequeue(id, cx) else { continue };
            turn.deficit -= i64::from(packet.bytes);
            if self.lanes.first(id, cx).is_none() {
                self.end_turn(id, false);
            }
            return Some(packet);
        }
        None
    }
}
