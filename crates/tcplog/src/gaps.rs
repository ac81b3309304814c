//! Find lost records by the numbers of each CPU: a record whose number never arrives had no room in its ring.
//!
//! A program may interrupt another between taking a number and taking a slot, so numbers arrive slightly out of order,
//! sometimes one batch later. A hole is therefore reported as a gap only after [`PATIENCE`] batches; records that
//! arrive meanwhile close or split it. Pure: numbers and times in, gaps out.

use std::collections::BTreeMap;

/// How many batches of its CPU a hole stays open for late records.
pub const PATIENCE: u64 = 16;

/// Consecutive records that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU whose ring had no room.
    pub cpu: u32,
    /// The first record that is missing.
    pub number: u64,
    /// How many are missing.
    pub missing: u64,
    /// The time of the record before them.
    pub after_ns: Option<u64>,
    /// The time of the record after them.
    pub before_ns: Option<u64>,
}

/// Find gaps in the record numbers of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    cpus: BTreeMap<u32, Row>,
    missing: u64,
    unexpected: u64,
}

/// The record numbers of one CPU.
#[derive(Clone, Debug, Default)]
struct Row {
    /// The highest number that has arrived, plus 1.
    next: u64,
    /// The time of the record with the highest number.
    last_ns: Option<u64>,
    /// By first number, which is also the order in which they opened.
    holes: BTreeMap<u64, Hole>,
    batch: u64,
}

/// Missing numbers, up to `end` (exclusive).
#[derive(Clone, Copy, Debug)]
struct Hole {
    end: u64,
    after_ns: Option<u64>,
    before_ns: Option<u64>,
    /// The batch in which it opened.
    batch: u64,
}

impl Gaps {
    /// Set the next number of a CPU; without this call it is 0.
    pub fn begin(&mut self, cpu: u32, next_number: u64) {
        self.cpus.insert(cpu, Row { next: next_number, ..Row::default() });
    }

    /// Handle a record of any kind.
    pub fn note(&mut self, cpu: u32, number: u64, time_ns: u64) {
        let row = self.cpus.entry(cpu).or_default();
        let is_new = if number >= row.next { row.append(number, time_ns) } else { row.fill(number, time_ns) };
        self.unexpected += u64::from(!is_new);
    }

    /// End a batch of this CPU; return the gaps that have been open long enough.
    pub fn end_batch(&mut self, cpu: u32) -> Vec<Gap> {
        let row = self.cpus.entry(cpu).or_default();
        row.batch += 1;
        let mut gaps = Vec::new();
        while let Some(entry) = row.holes.first_entry()
            && entry.get().batch + PATIENCE <= row.batch
        {
            let (number, hole) = entry.remove_entry();
            gaps.push(hole.gap(cpu, number));
        }
        self.missing += gaps.iter().map(|gap| gap.missing).sum::<u64>();
        gaps
    }

    /// End a CPU's numbers at `next_number`, which its next record would have; return all open gaps. Numbering may
    /// continue from there.
    pub fn finish(&mut self, cpu: u32, next_number: u64) -> Vec<Gap> {
        let row = self.cpus.entry(cpu).or_default();
        if next_number > row.next {
            row.skip_to(next_number, None);
            row.last_ns = None;
        }
        let gaps: Vec<Gap> = std::mem::take(&mut row.holes).into_iter().map(|(at, hole)| hole.gap(cpu, at)).collect();
        self.missing += gaps.iter().map(|gap| gap.missing).sum::<u64>();
        gaps
    }

    /// Return the number of missing records in all gaps returned so far.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Return the number of records that arrived twice or after their gap was returned: 0 unless something is wrong.
    #[must_use]
    pub fn unexpected(&self) -> u64 {
        self.unexpected
    }
}

impl Row {
    /// Add a number above all others.
    fn append(&mut self, number: u64, time_ns: u64) -> bool {
        if number > self.next {
            self.skip_to(number, Some(time_ns));
        }
        self.next = number + 1;
        self.last_ns = Some(time_ns);
        true
    }

    /// Open a hole up to `number`, which is above all others.
    fn skip_to(&mut self, number: u64, before_ns: Option<u64>) {
        let hole = Hole { end: number, after_ns: self.last_ns, before_ns, batch: self.batch };
        self.holes.insert(self.next, hole);
        self.next = number;
    }

    /// Handle a number in a hole: close or split the hole. Return false where there is none.
    fn fill(&mut self, number: u64, time_ns: u64) -> bool {
        let Some((&start, &hole)) = self.holes.range(..=number).next_back().filter(|(_, hole)| number < hole.end)
        else {
            return false;
        };
        self.holes.remove(&start);
        if start < number {
            self.holes.insert(start, Hole { end: number, before_ns: Some(time_ns), ..hole });
        }
        if number + 1 < hole.end {
            self.holes.insert(number + 1, Hole { after_ns: Some(time_ns), ..hole });
        }
        true
    }
}

impl Hole {
    fn gap(self, cpu: u32, number: u64) -> Gap {
        Gap { cpu, number, missing: self.end - number, after_ns: self.after_ns, before_ns: self.before_ns }
    }
}

#[cfg(test)]
mod tests;
