//! A turn of the drain: what it brought, what it leaves of each flow, and where its records go.

use sojourn_tcplog::Head;
use sojourn_tcplog::numbers::Numbers;
use sojourn_tcplog::spool::{Export, Spool};

use super::MOST_SLOTS;

/// What a turn brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Records of all CPUs.
    pub records: u64,
    /// Of the CPU that had the most.
    pub most: u64,
    /// Those that had any, and how many.
    pub(super) cpus: Vec<(u32, u64)>,
}

impl Turn {
    pub(super) fn note(&mut self, cpu: u32) {
        self.records += 1;
        // They come CPU by CPU.
        if self.cpus.last().is_none_or(|(last, _)| *last != cpu) {
            self.cpus.push((cpu, 0));
        }
        if let Some((_, sum)) = self.cpus.last_mut() {
            *sum += 1;
            self.most = self.most.max(*sum);
        }
    }
}

/// Where records go.
pub(super) struct Sinks<'a> {
    pub spool: &'a mut Option<Spool>,
    pub export: &'a mut Option<Export>,
    pub numbers: &'a mut Numbers,
}

impl Sinks<'_> {
    /// Writes a record, where a log is written, counts its flow, and sends it where it is to be sent.
    pub(super) fn write(&mut self, cpu: u32, event: &[u8]) {
        // What is not written is in no record: its flow is not numbered by it.
        if self.spool.as_ref().is_none_or(|spool| !spool.is_broken())
            && let Some(head) = Head::of(event)
        {
            self.numbers.sample(head.cookie, head.slot);
        }
        if let Some(spool) = &mut self.spool {
            spool.event(cpu, event);
        }
        if let Some(export) = &mut self.export {
            export.event(cpu, event);
        }
    }
}

pub(super) fn keep_latest(latest: &mut Vec<Vec<u8>>, slot: u32, event: &[u8]) {
    if slot >= MOST_SLOTS {
        return;
    }
    if latest.len() <= slot as usize {
        latest.resize(slot as usize + 1, Vec::new());
    }
    let kept = &mut latest[slot as usize];
    kept.clear();
    kept.extend_from_slice(event);
}
