//! Read the parts of a log in order, and compute the contents of removed and of unreadable parts.
//!
//! Each part states what was written before it, so the contents of missing parts are known exactly. Packets whose
//! samples were removed count as forgotten, those whose samples were lost otherwise as broken.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ConvertError, Converted, Work};
use crate::account::{self, Both, Disposition, Entry, Tally};
use crate::spool::{self, Ending, Reader, SpoolError, Written};

/// The state while the parts are read.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The part that is being read, or the last one.
    last: Option<u32>,
    /// The contents of the removed parts.
    pub(super) removed: Written,
    /// Contents of the remaining parts that are missing.
    pub(super) lost: Written,
    /// The lost packets that are not yet attributed to a flow.
    untold: [Tally; 2],
    /// The number of final entries read.
    pub(super) gone: u64,
    /// Packets that the flight recorder discarded, by the entries read.
    forgotten: [Tally; 2],
    /// The number of removed parts.
    removed_parts: u32,
    /// Whether a remaining part lacks something.
    is_partial: bool,
}

impl Parts {
    /// Return whether something that was written and not removed is missing.
    pub(super) const fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Return the number of removed parts.
    pub(super) const fn removed_parts(&self) -> u32 {
        self.removed_parts
    }

    /// Return the number of parts begun.
    pub(super) fn begun(&self) -> u32 {
        self.last.unwrap_or_default().saturating_add(1)
    }

    /// Return a name of the current part for messages.
    pub(super) fn named(&self) -> String {
        self.last
            .filter(|part| *part > 0)
            .map_or_else(|| "the log".to_owned(), |part| format!("part {part} of the log"))
    }

    /// Count packets that were left out.
    pub(super) fn note_left_out(&mut self, disposition: Disposition, tallies: [Tally; 2]) {
        if disposition == Disposition::Forgotten {
            account::add_both(&mut self.forgotten, tallies);
        }
    }

    /// Return the forgotten packets, except those attributed to flows that are present.
    pub(super) fn forgotten(&self) -> [Tally; 2] {
        let mut all = self.removed.packets;
        account::add_both(&mut all, self.removed.forgotten);
        account::add_both(&mut all, self.lost.forgotten);
        all
    }

    /// Count a flow's logged packets without samples as lost, up to the number of lost packets, and the others as
    /// removed. The totals, which state the contents of each part, exclude any other cause.
    pub(super) fn leave_out_missing(&mut self, both: &mut Both, found: [Tally; 2]) {
        let missing = [0, 1].map(|way| both[way].of(Disposition::Logged).less(found[way]));
        let lost = [0, 1].map(|way| missing[way].at_most(self.untold[way]));
        self.untold = [0, 1].map(|way| self.untold[way].less(lost[way]));
        account::leave_out(both, Disposition::Broken, lost);
        if self.removed_parts > 0 {
            account::leave_out(both, Disposition::Forgotten, [0, 1].map(|way| missing[way].less(lost[way])));
        }
    }

    /// Subtract lost packets from the logged packets in the totals.
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

    /// Record the end of a part, readable or not.
    fn end(&mut self, number: u32) {
        if self.last.is_none() {
            self.removed_parts = number;
        }
        self.last = self.last.max(Some(number));
    }
}

impl Work {
    /// Convert all files, whose headers have `header_bytes` bytes; also return the unreadable ones.
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

    /// Read a file as far as possible; return the error where reading fails.
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

    /// Record a part that could not be read, or only in part.
    fn miss(&mut self, number: u32, problem: &SpoolError) {
        let name = spool::unread_name(number);
        self.parts.is_partial = true;
        self.converted.unread += 1;
        self.breach(format!(
            "{problem}: what cannot be read of this part of the log is left out, its file stays as {name}"
        ));
    }

    /// Record that the last part's header is incomplete. Either its writer was killed just after creating it, or the
    /// power failed before its content reached the disk; since that is unknown, it counts as unreadable.
    fn miss_begun(&mut self, number: u32) {
        self.parts.end(number);
        self.converted.unread += 1;
        self.problem(format!(
            "part {number} of the log is cut within its header: it had just begun, or its samples were lost with the power"
        ));
    }

    /// Handle the beginning of a part. The first existing part states the contents of the removed ones. The others must
    /// be consecutive, and what they state as written before must have been found.
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
            // Nothing of the earlier parts was found: no flow that ended then has a row.
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

    /// Return the contents found so far.
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

/// Whether a file was just created when its writer was killed: its header is incomplete.
fn is_just_made(path: &Path, header_bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|about| about.len() < header_bytes)
}

fn tally_of(entries: &mut [Entry], way: usize, disposition: Disposition) -> Option<&mut Tally> {
    let found = entries.iter_mut().find(|entry| entry.direction == way && entry.disposition == Some(disposition));
    found.map(|entry| &mut entry.tally)
}
