//! Which records are missing, by the numbers that each CPU gives them: a number that never comes had no room in its ring.
//!
//! Programs may interrupt each other between taking a number and taking their place in the ring, so numbers come a little out
//! of order, and one may come with the next batch only. A hole is therefore decided some batches after it has opened
//! ([`PATIENCE`]); what comes in the meantime closes or splits it. Pure: numbers and times in, gaps out.

use std::collections::BTreeMap;

/// How many batches of its CPU a hole stays open for what may still come.
pub const PATIENCE: u64 = 16;

/// A row of records without a gap that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU whose ring had no room.
    pub cpu: u32,
    /// The first record that is missing.
    pub number: u64,
    /// How many in a row are.
    pub missing: u64,
    /// When the record before them was taken.
    pub after_ns: Option<u64>,
    /// When the record behind them was taken.
    pub before_ns: Option<u64>,
}

/// Finds gaps in the rows of numbers of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    cpus: BTreeMap<u32, Row>,
    missing: u64,
    unexpected: u64,
}

/// The numbers of one CPU.
#[derive(Clone, Debug, Default)]
struct Row {
    /// One more than the highest that has come.
    next: u64,
    /// When the highest was taken.
    last_ns: Option<u64>,
    /// By their first numbers, which is also the order in which they opened.
    holes: BTreeMap<u64, Hole>,
    batch: u64,
}

/// Numbers that have not come, up to `end`.
#[derive(Clone, Copy, Debug)]
struct Hole {
    end: u64,
    after_ns: Option<u64>,
    before_ns: Option<u64>,
    /// The batch in which it opened.
    batch: u64,
}

impl Gaps {
    /// Says that the numbers of a CPU go on from here; from 0, if it is not said.
    pub fn begin(&mut self, cpu: u32, next_number: u64) {
        self.cpus.insert(cpu, Row { next: next_number, ..Row::default() });
    }

    /// Takes note of a record, of any kind.
    pub fn note(&mut self, cpu: u32, number: u64, time_ns: u64) {
        let row = self.cpus.entry(cpu).or_default();
        let is_new = if number >= row.next { row.append(number, time_ns) } else { row.fill(number, time_ns) };
        self.unexpected += u64::from(!is_new);
    }

    /// Ends a batch of this CPU: gives the gaps that have been open for long enough.
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

    /// Ends a CPU's row at the number that its next record would have had: gives all that is open, also at the very end. The
    /// row can go on from there.
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

    /// How many records the gaps given so far add up to.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// How many records came that had come before, or had been given up: 0, unless something is wrong.
    #[must_use]
    pub fn unexpected(&self) -> u64 {
        self.unexpected
    }
}

impl Row {
    /// Takes a number above all others.
    fn append(&mut self, number: u64, time_ns: u64) -> bool {
        if number > self.next {
            self.skip_to(number, Some(time_ns));
        }
        self.next = number + 1;
        self.last_ns = Some(time_ns);
        true
    }

    /// Opens a hole up to a number above all others.
    fn skip_to(&mut self, number: u64, before_ns: Option<u64>) {
        let hole = Hole { end: number, after_ns: self.last_ns, before_ns, batch: self.batch };
        self.holes.insert(self.next, hole);
        self.next = number;
    }

    /// Takes a number that has been passed over: closes or splits its hole. False where there is none.
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
