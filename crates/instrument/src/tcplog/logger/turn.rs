//! One turn of the drain: the records read, the latest sample per flow, and the destinations of records.

use sojourn_tcplog::Head;
use sojourn_tcplog::numbers::Numbers;
use sojourn_tcplog::spool::{Export, Spool};

use super::MOST_SLOTS;

/// The results of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The number of records of all CPUs.
    pub records: u64,
    /// The number of records of the CPU with the most.
    pub most: u64,
    /// The CPUs with records, and the number of records of each.
    pub(super) cpus: Vec<(u32, u64)>,
}

impl Turn {
    pub(super) fn note(&mut self, cpu: u32) {
        self.records += 1;
        // Records arrive CPU by CPU.
        if self.cpus.last().is_none_or(|(last, _)| *last != cpu) {
            self.cpus.push((cpu, 0));
        }
        if let Some((_, sum)) = self.cpus.last_mut() {
            *sum += 1;
            self.most = self.most.max(*sum);
        }
    }
}

/// The destinations of records.
pub(super) struct Sinks<'a> {
    pub spool: &'a mut Option<Spool>,
    pub export: &'a mut Option<Export>,
    pub numbers: &'a mut Numbers,
}

impl Sinks<'_> {
    /// Writes a record to the spool, if there is one, numbers its flow, and exports the record, if requested.
    pub(super) fn write(&mut self, cpu: u32, event: &[u8]) {
        // A record that is not written must not give its flow a number.
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
