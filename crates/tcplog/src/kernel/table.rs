//! The flow table, which the programs write and user space reads in place, and the counters of released flows.
//!
//! Each number is consistent, but those of a flow in use may be of different moments: a packet may be in one counter
//! and not yet in another. Counts that the programs leave to user space are completed here.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object};

use super::KernelError;
use super::sys::{Mapping, page};
use crate::decode::Raw;
use crate::layout::{Counts, Flow, Totals, disposition};

const FLOW: usize = size_of::<Flow>();
const GENERATION: usize = std::mem::offset_of!(Flow, generation);
const COOKIE: usize = std::mem::offset_of!(Flow, cookie);
const VERDICT: usize = std::mem::offset_of!(Flow, verdict);
const FIRST: usize = std::mem::offset_of!(Flow, first_ns);
const LAST: [usize; 2] = [
    std::mem::offset_of!(Flow, directions) + std::mem::offset_of!(Counts, last_ns),
    std::mem::offset_of!(Flow, directions) + size_of::<Counts>() + std::mem::offset_of!(Counts, last_ns),
];
const ENDED: usize = std::mem::offset_of!(Flow, ended_ns);
const IN: usize = 0;
const OUT: usize = 1;

/// The flow table.
#[derive(Debug)]
pub(super) struct Table {
    memory: Mapping,
    room: u32,
    /// The sum of the counters of released flows.
    gone: Totals,
}

impl Table {
    pub fn open(object: &Object, room: u32) -> Result<Self, KernelError> {
        let map = object.maps().find(|map| map.name() == "flows").ok_or(KernelError::Damaged("flows"))?;
        let length = (FLOW * room as usize).next_multiple_of(page());
        let memory =
            Mapping::new(map.as_fd(), 0, length, true).map_err(|error| KernelError::io("map", "the flows", error))?;
        Ok(Self { memory, room, gone: Totals::take(&mut [].as_slice()) })
    }

    /// Call `show` for every flow in the first `used` slots.
    pub fn show(&self, used: u32, show: &mut dyn FnMut(u32, &Flow)) {
        for slot in 0..used.min(self.room) {
            let at = at(slot);
            if self.memory.load(at + COOKIE) == 0 || self.memory.load(at + FIRST) == 0 {
                continue;
            }
            show(slot, &self.flow(at));
        }
    }

    /// Call `show` for flows that have ended; of the others, only one number is read.
    pub fn show_ended(&self, used: u32, show: &mut dyn FnMut(u32, &Flow)) {
        for slot in (0..used.min(self.room)).filter(|slot| self.memory.load(at(*slot) + ENDED) != 0) {
            let at = at(slot);
            if self.memory.load(at + COOKIE) != 0 && self.memory.load(at + FIRST) != 0 {
                show(slot, &self.flow(at));
            }
        }
    }

    /// Free a slot for reuse: its next generation is another flow.
    pub fn release(&mut self, object: &Object, slot: u32) -> Result<Option<Flow>, KernelError> {
        let at = at(slot);
        if slot >= self.room || self.memory.load(at + COOKIE) == 0 {
            return Ok(None);
        }
        // From here on its packets are counted as late; earlier ones are in the counters read next.
        let generation = self.memory.load(at + GENERATION);
        self.memory.store(at + GENERATION, generation + 1);
        let last = Flow { generation, ..self.flow(at) };
        add(&mut self.gone, &last);
        for word in (0..FLOW).step_by(8).filter(|offset| *offset != GENERATION) {
            self.memory.store(at + word, 0);
        }
        let free = object.maps().find(|map| map.name() == "free_slots").ok_or(KernelError::Damaged("free_slots"))?;
        free.update(&[], &slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| KernelError::system("give back", "a flow's place", &error))?;
        Ok(Some(last))
    }

    /// Clear the options generation in every verdict, so that the flow's next packet passes the filters again.
    pub fn reevaluate(&self, used: u32) {
        for at in (0..used.min(self.room)).map(at) {
            let verdict = self.memory.load(at + VERDICT);
            if verdict > 1 {
                self.memory.store(at + VERDICT, verdict & 1);
            }
        }
    }

    /// End every flow, after the programs that detect its end have been detached.
    pub fn end_all(&self, used: u32) {
        for slot in 0..used.min(self.room) {
            let at = at(slot);
            if self.memory.load(at + COOKIE) != 0 && self.memory.load(at + ENDED) == 0 {
                // Not before the flow began: the coarse clock of packets that are not logged is slightly late.
                let last = LAST.iter().chain([&FIRST]).map(|last| self.memory.load(at + last)).max();
                self.memory.store(at + ENDED, last.unwrap_or_default().max(1));
                self.memory.store(at + GENERATION, self.memory.load(at + GENERATION) + 1);
            }
        }
    }

    /// Return the sum of the counters of all flows, including released ones.
    pub fn sums(&self, used: u32) -> Totals {
        let mut sums = self.gone;
        self.show(used, &mut |_, flow| add(&mut sums, flow));
        sums
    }

    fn flow(&self, at: usize) -> Flow {
        completed(Flow::take(&mut self.memory.load_all(at, FLOW).as_slice()))
    }
}

fn at(slot: u32) -> usize {
    FLOW * slot as usize
}

fn add(sums: &mut Totals, flow: &Flow) {
    for (way, counts) in flow.directions.iter().enumerate() {
        for disposition in 0..disposition::OF_FLOW {
            sums.dispositions[way][disposition] += counts.dispositions[disposition];
            sums.segments_of_dispositions[way][disposition] += counts.segments_of_dispositions[disposition];
        }
    }
}

/// Complete the segment counts: the programs count only the segments after the first of each packet.
fn completed(mut flow: Flow) -> Flow {
    for counts in &mut flow.directions {
        counts.segments += counts.seen;
        for (segments, packets) in counts.segments_of_dispositions.iter_mut().zip(counts.dispositions) {
            *segments += packets;
        }
    }
    flow
}

/// Complete the counters of a CPU likewise.
pub(super) fn completed_totals(mut totals: Totals) -> Totals {
    for way in [IN, OUT] {
        totals.segments[way] += totals.seen[way];
        for disposition in 0..disposition::ALL {
            totals.segments_of_dispositions[way][disposition] += totals.dispositions[way][disposition];
        }
    }
    totals
}
