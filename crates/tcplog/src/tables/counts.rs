//! Compare the total counters with the samples found. For a log that was cut off, compute the accounting from its
//! latest entries.

use sojourn_record::tcp::{self, DISPOSITIONS};

use super::Work;
use crate::account::{self, Disposition, Entry, Tally};
use crate::spool::Counted;

impl Work {
    /// Compute the accounting from the latest entries of flows and totals, where the log has none. In a log that was
    /// cut off, these are older than the last samples, which are added; what else was seen since is unknown.
    pub(super) fn reckon(&mut self, is_cut: bool) -> Counted {
        let mut account = self.told.clone();
        self.totals.iter().for_each(|totals| account.add_totals(totals));
        self.left_out
            .iter()
            .for_each(|(disposition, tallies)| account::leave_out(&mut account.all, *disposition, *tallies));
        let mut counted = Counted { events: account.events, full: account.full(), ..Counted::default() };
        let (removed, lost) = (self.parts.forgotten(), self.parts.lost);
        if is_cut {
            let before = account.all.map(|counters| counters.of(Disposition::Logged).packets);
            let mut logged = self.flows.logged();
            account::add_both(&mut logged, removed);
            account::add_both(&mut logged, lost.packets);
            account.all.iter_mut().zip(logged).for_each(|(counters, found)| counters.find(found));
            let after = account.all.map(|counters| counters.of(Disposition::Logged).packets);
            let added = after.iter().zip(before).map(|(after, before)| after - before).fold(0, u64::saturating_add);
            counted.full =
                [self.parts.removed.missing, lost.missing].into_iter().fold(self.missing, u64::saturating_add);
            self.problem(format!(
                "its last account was written before the last {added} packets were logged: they were added"
            ));
        } else {
            counted.breach = account.check().err().map(|breach| breach.to_string()).unwrap_or_default();
        }
        counted.entries = account.totals_without(removed).collect();
        counted
    }

    /// Return the row of an entry; `None` where it is omitted.
    pub(super) fn account_row(&self, flow: Option<i32>, entry: &Entry) -> Option<tcp::Account> {
        // Zero counts of a flow's dispositions are many and carry no information.
        let is_told = flow.is_none()
            || entry.tally != Tally::default()
            || matches!(entry.disposition, None | Some(Disposition::Logged));
        let name = entry.disposition.map_or(DISPOSITIONS[0], Disposition::name);
        let disposition = DISPOSITIONS.iter().position(|known| *known == name)?;
        is_told.then(|| tcp::Account {
            block: self.block,
            flow,
            way: u8::try_from(entry.direction).unwrap_or_default(),
            disposition: u8::try_from(disposition).unwrap_or_default(),
            packets: entry.tally.packets,
            segments: entry.tally.segments,
        })
    }

    /// Compare the total counters with the samples found.
    pub(super) fn check(&mut self, counted: &Counted) {
        if !counted.breach.is_empty() {
            self.breach(counted.breach.clone());
        }
        self.converted.unrecorded = counted.unrecorded;
        // A size limit was requested and explains missing entries; a full disk does not.
        if counted.unrecorded > 0 && !self.converted.is_limited {
            let unrecorded = counted.unrecorded;
            self.breach(format!(
                "{unrecorded} flows ended when there was no room to record their end: what was not recorded of them \
                 before is in the totals only"
            ));
        }
        for entry in counted.entries.iter().filter(|entry| entry.disposition == Some(Disposition::Logged)) {
            self.compare(None, entry.direction, self.flows.logged()[entry.direction], entry.tally);
        }
        let more = [self.missing_beyond, self.parts.removed.missing, self.parts.lost.missing];
        let missing = more.into_iter().fold(self.missing, u64::saturating_add);
        if missing != counted.full {
            let problem = format!("gaps of {missing} records where {} had no room", counted.full);
            self.breach(problem);
        }
    }

    /// Compare the samples found with the packets counted as logged.
    pub(super) fn compare(&mut self, flow: Option<i32>, direction: usize, found: Tally, said: Tally) {
        if found != said {
            let whose = flow.map_or("all flows".to_owned(), |flow| format!("flow {flow}"));
            let (found, said, way) = (found.packets, said.packets, tcp::WAYS[direction]);
            self.breach(format!("{whose}, {way}: {found} samples where {said} packets were logged"));
        }
    }
}
