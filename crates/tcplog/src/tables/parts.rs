//! The parts of a log, read in their order: what those had that were removed, and what those had that cannot be read.
//!
//! Each part says what was written before it, so what is not there is known exactly, without being there. Packets whose samples were
//! removed count as forgotten, those whose samples were lost otherwise as broken.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ConvertError, Converted, Work};
use crate::account::{self, Both, Disposition, Entry, Tally};
use crate::spool::{self, Ending, Reader, SpoolError, Written};

/// What is known of a log's parts so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The one that is or was read last, or could not be.
    last: Option<u32>,
    /// What was written in those that were removed.
    pub(super) removed: Written,
    /// What was written in those that remained, and is not there.
    pub(super) lost: Written,
    /// What of that is not told of any flow yet.
    untold: [Tally; 2],
    /// Last words on flows that were read.
    pub(super) gone: u64,
    /// Packets that the flight recorder forgot, of which was read.
    forgotten: [Tally; 2],
    /// How many were removed.
    removed_parts: u32,
    /// Whether one lacks something.
    is_partial: bool,
}

impl Parts {
    /// Whether what is there is not all that was written and not removed.
    pub(super) const fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// How many were removed.
    pub(super) const fn removed_parts(&self) -> u32 {
        self.removed_parts
    }

    /// How many were begun.
    pub(super) fn begun(&self) -> u32 {
        self.last.unwrap_or_default().saturating_add(1)
    }

    /// The one that is read, in a sentence.
    pub(super) fn named(&self) -> String {
        self.last
            .filter(|part| *part > 0)
            .map_or_else(|| "the log".to_owned(), |part| format!("part {part} of the log"))
    }

    /// Takes note of packets that were left out.
    pub(super) fn note_left_out(&mut self, disposition: Disposition, tallies: [Tally; 2]) {
        if disposition == Disposition::Forgotten {
            account::add_both(&mut self.forgotten, tallies);
        }
    }

    /// What the kernel had logged and is forgotten, but for what is told of the flows that are there.
    pub(super) fn forgotten(&self) -> [Tally; 2] {
        let mut all = self.removed.packets;
        account::add_both(&mut all, self.removed.forgotten);
        account::add_both(&mut all, self.lost.forgotten);
        all
    }

    /// Takes packets of a flow that were logged, and are not there, for lost, as far as so many were, and else for removed. That no
    /// other is missing follows from the totals, which say how many the parts had.
    pub(super) fn leave_out_missing(&mut self, both: &mut Both, found: [Tally; 2]) {
        let missing = [0, 1].map(|way| both[way].of(Disposition::Logged).less(found[way]));
        let lost = [0, 1].map(|way| missing[way].at_most(self.untold[way]));
        self.untold = [0, 1].map(|way| self.untold[way].less(lost[way]));
        account::leave_out(both, Disposition::Broken, lost);
        if self.removed_parts > 0 {
            account::leave_out(both, Disposition::Forgotten, [0, 1].map(|way| missing[way].less(lost[way])));
        }
    }

    /// Takes packets that were lost out of what is said to be logged of all packets.
    pub(super) fn leave_out_lost(&self, entries: &mut [Entry], found: [Tally; 2]) {
        for (way, found) in found.into_iter().enumerate() {
            let mut lost = Tally::default();
            if let Some(logged) = tally_of(entries, way, Disposition::Logged) {
                lost = logged.less(found).at_most(self.lost.packets[way]);
                *logged = logged.less(lost);
            }
            if let Some(broken) = tally_of(entries, way, Disposition::Broken) {
                broken.add(lost);
            }
        }
    }

    fn lose(&mut self, lost: &Written) {
        self.is_partial = true;
        self.lost.add(lost);
        account::add_both(&mut self.untold, lost.packets);
    }

    /// Takes note of the end of a part, whether it could be read or not.
    fn end(&mut self, number: u32) {
        if self.last.is_none() {
            self.removed_parts = number;
        }
        self.last = self.last.max(Some(number));
    }
}

impl Work {
    /// Makes records of all files, which begin with so many bytes of header; returns those that could not be read, too.
    pub(super) fn make(
        mut self,
        files: &[PathBuf],
        header_bytes: u64,
    ) -> Result<(Converted, Vec<PathBuf>), ConvertError> {
        let (mut unread, mut ending) = (Vec::new(), Ending::Unfinished);
        for (place, path) in files.iter().enumerate() {
            let opened = Reader::open(path);
            let is_last = place > 0 && place + 1 == files.len();
            if let Ending::Torn(at) = ending {
                let which = self.parts.named();
                self.breach(format!("{which} is cut or damaged after {at} bytes"));
            }
            let number = spool::number_of(path).unwrap_or_default();
            if is_last && opened.is_err() && is_just_made(path, header_bytes) {
                ending = Ending::Unfinished;
                self.miss_begun(number);
                break;
            }
            let problem = match opened {
                Ok(reader) => self.take_all(reader, &mut ending)?,
                Err(problem) => {
                    ending = Ending::Unfinished;
                    Some(problem)
                }
            };
            self.parts.end(number);
            if let Some(problem) = problem {
                self.miss(number, &problem);
                unread.push(path.clone());
            }
        }
        Ok((self.finish(ending)?, unread))
    }

    /// Takes a file as far as it can be read; says what is wrong where the file system refuses more.
    fn take_all(&mut self, mut reader: Reader, ending: &mut Ending) -> Result<Option<SpoolError>, ConvertError> {
        let problem = loop {
            match reader.next_frame() {
                Ok(Some(frame)) => self.take(frame)?,
                Ok(None) => break None,
                Err(problem) => break Some(problem),
            }
        };
        *ending = reader.ending().cloned().unwrap_or(Ending::Unfinished);
        Ok(problem)
    }

    /// Says that a part could not be read, or not wholly.
    fn miss(&mut self, number: u32, problem: &SpoolError) {
        let name = spool::unread_name(number);
        self.parts.is_partial = true;
        self.converted.unread += 1;
        self.breach(format!(
            "{problem}: what cannot be read of this part of the log is left out, its file stays as {name}"
        ));
    }

    /// Says that the last part has no whole header. Who wrote it was killed when it had just made it, or the power failed before any of it
    /// was on the disk: nobody knows which, so it counts as one that cannot be read.
    fn miss_begun(&mut self, number: u32) {
        self.parts.end(number);
        self.converted.unread += 1;
        self.problem(format!(
            "part {number} of the log is cut within its header: it had just begun, or its samples were lost with the power"
        ));
    }

    /// Takes note of the begin of a part. The first that is there says what those had that were removed; others must follow each
    /// other, and what they say was written before must be there.
    pub(super) fn take_part(&mut self, number: u32, before: &Written) {
        let found = self.found();
        let Some(last) = self.parts.last.replace(number) else {
            (self.parts.removed, self.parts.removed_parts) = (*before, number);
            self.converted.flows_removed = before.gone;
            return;
        };
        if last.checked_add(1) != Some(number) {
            self.breach(format!("part {} of the log is missing", last.saturating_add(1)));
        }
        let mut known = self.parts.removed;
        known.add(&found);
        known.add(&self.parts.lost);
        if known == Written::default() {
            // Nothing of what was before is there: no flow that had ended has a row.
            self.converted.flows_removed = before.gone;
        }
        if known.less(before).packets != [Tally::default(); 2] {
            self.breach(format!("there are more samples than were written before part {number} of the log"));
        }
        let lost = before.less(&known);
        let packets = lost.packets[0].packets.saturating_add(lost.packets[1].packets);
        let (others, privates) = (lost.events, lost.privates);
        if [packets, others, privates] != [0; 3] {
            self.breach(format!(
                "{packets} packets, {others} other samples and {privates} private states that were written before part {number} \
                 of the log are not there: these packets count as broken"
            ));
        }
        if lost != Written::default() {
            self.parts.lose(&lost);
        }
    }

    /// What is there so far.
    fn found(&self) -> Written {
        let packets = self.flows.logged();
        let of_packets = packets[0].packets.saturating_add(packets[1].packets);
        Written {
            packets,
            events: self.converted.records.saturating_sub(of_packets),
            privates: self.converted.privates,
            missing: self.missing,
            forgotten: self.parts.forgotten,
            gone: self.parts.gone,
        }
    }
}

/// Whether who wrote a file was killed when it had just made it: it has no whole header yet.
fn is_just_made(path: &Path, header_bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|about| about.len() < header_bytes)
}

fn tally_of(entries: &mut [Entry], way: usize, disposition: Disposition) -> Option<&mut Tally> {
    let found = entries.iter_mut().find(|entry| entry.direction == way && entry.disposition == Some(disposition));
    found.map(|entry| &mut entry.tally)
}
