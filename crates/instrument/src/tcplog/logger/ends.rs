//! The final records of a log: open flows, totals and counters, written to the spool and to the export.

use sojourn_tcplog::account::{Account, Disposition};
use sojourn_tcplog::layout::Totals;
use sojourn_tcplog::spool::Export;

use super::Logger;

impl Logger {
    /// Writes the final records. Returns the numbers of samples without a packet and of private states that are in no
    /// file, and the export with its counters.
    pub(super) fn end_logs(
        &mut self,
        account: &mut Account,
        totals: &[Totals],
    ) -> ((u64, u64), Option<(Export, Account)>) {
        let removed = self.removed();
        let mut lost = (removed.events + self.own.events, removed.privates + self.own.privates);
        let (mut spool, mut export) = (self.spool.take(), self.export.take());
        let mut sent = account.clone();
        if let Some(export) = &export {
            sent.leave_out(Disposition::Broken, export.left_out());
        }
        if let Some(spool) = &mut spool {
            account.leave_out(Disposition::Broken, spool.left_out());
            spool.begin_end();
        }
        let (flight, own) = (&mut self.flight, &mut self.own);
        self.programs.flows(&mut |slot, flow| {
            let forgotten = flight.as_mut().map(|flight| flight.tell_end(flow.cookie)).unwrap_or_default();
            let filtered = own.left_out.tell(flow.cookie);
            if let Some(spool) = &mut spool {
                spool.left_out_of(flow.cookie, Disposition::Filtered, filtered);
                spool.gone(slot, flow, forgotten);
            }
            if let Some(export) = &mut export {
                export.left_out_of(flow.cookie, Disposition::Filtered, filtered);
                export.gone(slot, flow, forgotten);
            }
        });
        // Packets that were counted after their flow was reaped.
        let forgotten = self.flight.as_ref().into_iter().flat_map(|flight| flight.left_out().iter());
        let late = forgotten.map(|late| (Disposition::Forgotten, late));
        let late = late.chain(self.own.left_out.iter().map(|late| (Disposition::Filtered, late)));
        for (disposition, (cookie, tallies)) in late {
            if let Some(spool) = &mut spool {
                spool.left_out_of(cookie, disposition, tallies);
            }
            if let Some(export) = &mut export {
                export.left_out_of(cookie, disposition, tallies);
            }
        }
        if let Some(export) = &mut export {
            export.totals(totals);
            export.account(&sent);
            export.flush();
        }
        if let Some(mut spool) = spool {
            spool.totals(totals);
            spool.account(account);
            lost = (lost.0 + spool.events_left_out(), lost.1 + spool.privates_left_out());
            if let Err(error) = spool.end() {
                self.failed.get_or_insert(error);
            }
        }
        (lost, export.map(|export| (export, sent)))
    }
}
