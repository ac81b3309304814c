//! The logger: drains the rings, writes records to the spool, reaps flows that have ended, and reports its status.
//!
//! Has no thread and no timer; [`super::drain`] calls it.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sojourn_tcplog::account::{Account, Disposition};
use sojourn_tcplog::flight::Flight;
use sojourn_tcplog::gaps::{Gap, Gaps};
use sojourn_tcplog::kernel::Cost;
use sojourn_tcplog::layout::{Flow, Options, Totals};
use sojourn_tcplog::numbers::Numbers;
use sojourn_tcplog::spool::{Export, Spool, SpoolError, Written};
use sojourn_tcplog::tables::{INTERRUPTED, LISTED};
use sojourn_tcplog::{Head, Mode};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::asked::Asked;
use super::log_options::LogOptions;
use super::parts::Parts;
use super::programs::{Facts, Programs};
use super::{recorder, show};
use crate::failure::WrongRequest;
pub use own::Own;
pub use turn::Turn;
use turn::{Sinks, keep_latest};

/// The grace period after a flow's socket has closed, in which packets in flight are still counted.
const GRACE: Nanos = Nanos::seconds(1);
/// The grace period while the flow table is filling up: as long as a running program may take.
const SHORT_GRACE: Nanos = Nanos::millis(20);
/// The maximum number of reads of the counters at the end, until two are equal.
const STILL_TRIES: u32 = 200;
/// More slots than a table can have: it limits the memory that untrusted input can claim.
pub const MOST_SLOTS: u32 = 1 << 20;

/// A log: its source, its options, and the state of its records.
pub struct Logger {
    programs: Box<dyn Programs>,
    facts: Facts,
    pub asked: Asked,
    /// The number of loop iterations of the placebo.
    pub burn: u32,
    /// The capacity of the flow table.
    pub room: u32,
    spool: Option<Spool>,
    /// The export to another host; `own` has its connections.
    pub export: Option<Export>,
    pub own: Own,
    /// The rotation of parts; `None`: the log is one file.
    pub parts: Option<Parts>,
    flight: Option<Flight>,
    gaps: Gaps,
    /// The numbers that flows will have in the records.
    numbers: Numbers,
    /// The latest sample of each slot.
    latest: Vec<Vec<u8>>,
    /// By slot: the generation that has ended, and when the end was noticed.
    ending: HashMap<u32, (u64, Time)>,
    /// The counters of reaped flows: the spool has them individually, this is their sum.
    gone: Account,
    gone_flows: u64,
    /// The names of the first reaped flows, for the footer.
    listed: Vec<String>,
    /// By slot: generation and packets of the flow when it was last written to the spool.
    written: HashMap<u32, (u64, u64)>,
    /// The number of samples.
    records: u64,
    /// The number of private states.
    privates: u64,
    /// The number of gaps so far.
    found: u64,
    failed: Option<SpoolError>,
    /// The last time at which all programs were found attached.
    attached: Time,
    interruption: Option<Interruption>,
}

/// A time from which packets passed unlogged, because another process detached programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interruption {
    /// What was detached.
    pub why: String,
    /// When it was last found attached.
    pub after_ns: Time,
    /// When it was found detached.
    pub before_ns: Time,
}

/// A flow in use.
pub struct Shown {
    /// Its number in the records; `None` before its first sample.
    pub number: Option<i32>,
    pub flow: Flow,
    /// Its latest sample.
    pub latest: Option<Vec<u8>>,
}

/// The results of a log.
pub struct Ended {
    pub account: Account,
    /// The export that still lacks its end record, with its counters.
    pub export: Option<(Export, Account)>,
    /// Whether the counters stopped changing at the end, so that they are exact.
    pub is_still: bool,
    /// The number of samples written.
    pub records: u64,
    /// Samples among them that belong to no packet.
    pub events: u64,
    /// The number of private states written.
    pub privates: u64,
    pub gaps: u64,
    pub missing: u64,
    /// The number of duplicate record numbers.
    pub unexpected: u64,
    pub flows: u64,
    /// The names of flows for the footer, at most the first [`LISTED`].
    pub flow_list: Vec<String>,
    /// The numbers of parts begun and removed, and the counters of the removed ones.
    pub parts: [u64; 2],
    pub removed: Written,
    /// The number of runs that the kernel skipped, by program name.
    pub not_run: Value,
    /// The number of triggers of the flight recorder, by name; null without a recorder.
    pub triggers: Value,
    /// The requested fields of a control block.
    pub fields: Vec<String>,
    pub failed: Option<SpoolError>,
    pub interruption: Option<Interruption>,
}

impl Logger {
    /// Creates a logger with default options, which only watches until it has a spool.
    ///
    /// # Errors
    /// If the source does not report its facts.
    pub fn new(programs: Box<dyn Programs>, flight: Option<Flight>) -> anyhow::Result<Self> {
        let facts = programs.facts()?;
        let mut asked = Asked::default();
        asked.waits_for_rare = flight.is_some();
        Ok(Self {
            programs,
            facts,
            asked,
            burn: 0,
            room: u32::MAX,
            spool: None,
            export: None,
            own: Own::default(),
            parts: None,
            flight,
            gaps: Gaps::default(),
            numbers: Numbers::default(),
            latest: Vec::new(),
            ending: HashMap::new(),
            gone: Account::default(),
            gone_flows: 0,
            listed: Vec::new(),
            written: HashMap::new(),
            records: 0,
            privates: 0,
            found: 0,
            failed: None,
            attached: Time(0),
            interruption: None,
        })
    }

    /// Starts writing records to a spool.
    pub fn spool_to(&mut self, spool: Spool) {
        self.spool = Some(spool);
    }

    /// Returns the facts about the source.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether records can no longer be written.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns why packets are no longer seen, if another process has detached the programs.
    pub fn interruption(&self) -> Option<&Interruption> {
        self.interruption.as_ref()
    }

    /// Checks that the programs are still attached. Packets after a detachment are not seen, so the counters are incomplete.
    pub fn look_at_programs(&mut self, now: Time) {
        if self.interruption.is_some() {
            return;
        }
        let Some(why) = self.programs.taken_away() else {
            self.attached = now;
            return;
        };
        let found = Interruption { why, after_ns: self.attached, before_ns: now };
        if let Some(spool) = &mut self.spool {
            // A gap of unknown length, in the records of every CPU.
            let [after_ns, before_ns] = [found.after_ns, now].map(|at| Some(at.0.cast_unsigned()));
            // The entry after those of the CPUs is the total of all flows.
            let totals = self.programs.totals().unwrap_or_default();
            let of_cpus = totals.split_last().map_or(&[][..], |(_, of_cpus)| of_cpus);
            for (cpu, totals) in (0..).zip(of_cpus) {
                let gap = Gap { cpu, number: totals.number, missing: 0, after_ns, before_ns };
                spool.gap(&gap);
                if let Some(export) = &mut self.export {
                    export.gap(&gap);
                }
                self.found += 1;
            }
            let note = json!({ INTERRUPTED: found }).to_string();
            spool.lasting_note(&note);
            if let Some(export) = &mut self.export {
                export.note(&note);
            }
        }
        self.interruption = Some(found);
        self.flush();
    }

    /// Applies options, all or none; returns warnings.
    ///
    /// # Errors
    /// If an option is invalid, or the kernel refuses.
    pub fn set(&mut self, request: &LogOptions, enabled: Option<bool>) -> anyhow::Result<Vec<String>> {
        let mut asked = self.asked.clone();
        let (absent, unasked) = (&self.facts.absent, &self.facts.unasked);
        let lacking: Vec<_> = absent.iter().filter(|name| !unasked.contains(name)).cloned().collect();
        let said = asked.apply(request, &lacking)?;
        if self.spool.is_some() && asked.field_set() != self.asked.field_set() {
            let (wanted, has) = (request.fields.join(","), self.asked.fields.join(","));
            let problem = format!("--fields {wanted}: a log keeps the fields that it began with ({has})");
            return Err(WrongRequest(problem).into());
        }
        asked.enabled = enabled.unwrap_or(asked.enabled);
        let before = std::mem::replace(&mut self.asked, asked);
        if let Err(error) = self.ask() {
            self.asked = before;
            return Err(error);
        }
        if let Some(spool) = &mut self.spool {
            let note = json!({ "set": self.asked }).to_string();
            spool.note(&note);
            if let Some(export) = &mut self.export {
                export.note(&note);
            }
        }
        Ok(said)
    }

    /// Attaches the programs of a mode.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn be(&mut self, mode: Mode) -> anyhow::Result<()> {
        // Check first: after a new attachment, an earlier detachment cannot be detected.
        self.look_at_programs(HostClock.now());
        self.programs.attach_as(mode)?;
        self.attached = HostClock.now();
        self.facts = self.programs.facts()?;
        Ok(())
    }

    /// Enables or disables the kernel's measurement of program costs.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn measure(&mut self, wanted: bool) -> anyhow::Result<()> {
        self.programs.measure(wanted)
    }

    /// Returns how often the kernel skipped a program because it had interrupted itself, by name; programs without
    /// skips are omitted.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn not_run(&self) -> anyhow::Result<Value> {
        let missed = self.costs()?.into_iter().filter(|cost| cost.missed > 0);
        Ok(missed.map(|cost| (cost.name, Value::from(cost.missed))).collect::<Map<_, _>>().into())
    }

    /// Re-evaluates the filters of flows by congestion control, which changes without a notification.
    pub fn reevaluate(&mut self) {
        if self.asked.congestion.is_some() {
            self.programs.reevaluate();
        }
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        let options = Options { burn: self.burn, ..self.asked.options() };
        Ok(self.programs.ask(&options, self.asked.prefixes())?)
    }

    /// Returns the cost of each program.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn costs(&self) -> anyhow::Result<Vec<Cost>> {
        self.programs.costs()
    }

    /// Drains the rings.
    ///
    /// # Errors
    /// If they cannot be read. A failure to write the spool is only recorded, because counting continues.
    pub fn drain(&mut self) -> anyhow::Result<Turn> {
        let Self { programs, spool, export, own, flight, gaps, latest, numbers, .. } = self;
        let mut sinks = Sinks { spool, export, numbers };
        let (mut turn, mut privates) = (Turn::default(), 0);
        programs.drain(&mut |cpu, event| {
            turn.note(cpu);
            if let Some(head) = Head::of(event) {
                gaps.note(cpu, head.number, head.time_ns);
                privates += u64::from(head.is_private);
                if !head.is_private {
                    keep_latest(latest, head.slot, event);
                }
            }
            match flight {
                _ if own.take(event) => {}
                Some(flight) => flight.take(cpu, event, &mut |cpu, event| sinks.write(cpu, event)),
                None => sinks.write(cpu, event),
            }
        })?;
        self.records += turn.records - privates;
        self.privates += privates;
        for (cpu, _) in &turn.cpus {
            let found = self.gaps.end_batch(*cpu);
            self.found += found.len() as u64;
            self.tell_gaps(&found);
        }
        self.flush();
        Ok(turn)
    }

    /// Reaps flows: writes those that have ended to the spool, and frees their slots after the grace period.
    ///
    /// # Errors
    /// If a slot cannot be freed.
    pub fn reap(&mut self, now: Time) -> anyhow::Result<()> {
        let (mut over, ending) = (Vec::new(), &mut self.ending);
        self.programs.ended_flows(&mut |slot, flow| {
            let (generation, since) = *ending.entry(slot).or_insert((flow.generation, now));
            // If the clock was set back, the grace period restarts.
            if generation != flow.generation || now < since {
                ending.insert(slot, (flow.generation, now));
            } else if now - since >= SHORT_GRACE {
                over.push((slot, since));
            }
        });
        // While the table is filling up, the short grace period applies.
        let grace = if self.ending.len() > self.room as usize / 4 { SHORT_GRACE } else { GRACE };
        over.retain(|(_, since)| now - *since >= grace);
        let mut outcome = Ok(());
        for (slot, _) in over {
            // A slot that cannot be freed does not delay the others.
            outcome = outcome.and(self.release(slot));
        }
        outcome
    }

    fn release(&mut self, slot: u32) -> anyhow::Result<()> {
        self.ending.remove(&slot);
        if let Some(latest) = self.latest.get_mut(slot as usize) {
            latest.clear();
        }
        self.written.remove(&slot);
        let Some(flow) = self.programs.release(slot)? else { return Ok(()) };
        let forgotten = self.flight.as_mut().map(|flight| flight.tell_end(flow.cookie)).unwrap_or_default();
        self.numbers.word(flow.cookie, slot, true);
        // A logger that only watches has no spool for counters.
        if let Some(spool) = &mut self.spool {
            let own = self.own.left_out.tell(flow.cookie);
            spool.left_out_of(flow.cookie, Disposition::Filtered, own);
            spool.gone(slot, &flow, forgotten);
            if let Some(export) = &mut self.export {
                export.left_out_of(flow.cookie, Disposition::Filtered, own);
                export.gone(slot, &flow, forgotten);
            }
            self.gone.add_gone(&flow);
            self.gone_flows += 1;
            list(&mut self.listed, &flow);
        }
        Ok(())
    }

    /// Writes changed flows and the totals to the spool, so that they survive if the log is killed.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn write_down(&mut self) -> anyhow::Result<()> {
        let Some(spool) = &mut self.spool else { return Ok(()) };
        let Self { written, numbers, programs, export, own, .. } = self;
        programs.flows(&mut |slot, flow| {
            let state = (flow.generation, flow.packets());
            if written.insert(slot, state) != Some(state) {
                numbers.word(flow.cookie, slot, false);
                spool.flow(slot, flow);
                // A record of the log's own connection would count the sending of that record, endlessly.
                if let Some(export) = export.as_mut().filter(|_| !own.has(flow.cookie)) {
                    export.flow(slot, flow);
                }
            }
        });
        let totals = self.programs.totals()?;
        spool.totals(&totals);
        if let Some(export) = export {
            export.totals(&totals);
        }
        self.flush();
        Ok(())
    }

    /// Begins a new part if one is due. The part begins with all flows, so that it can be read without the previous one.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn rotate(&mut self, now: Time) -> anyhow::Result<()> {
        let Self { parts: Some(parts), spool: Some(spool), programs, failed, written, numbers, .. } = self else {
            return Ok(());
        };
        let mut outcome = Ok(());
        if parts.is_due(spool, now) {
            outcome = spool.begin_part(&programs.totals()?, &mut |say| {
                programs.flows(&mut |slot, flow| {
                    written.insert(slot, (flow.generation, flow.packets()));
                    numbers.word(flow.cookie, slot, false);
                    say(slot, flow);
                });
            });
        }
        if let Err(error) = outcome.and_then(|()| parts.remove_oldest(spool)) {
            failed.get_or_insert(error);
        }
        Ok(())
    }

    fn flush(&mut self) {
        let are_used_up = self.numbers.are_used_up();
        let flushed = self.spool.as_mut().map(|spool| if are_used_up { spool.end_events() } else { spool.flush() });
        if let Some(Err(error)) = flushed {
            self.failed.get_or_insert(error);
        }
        if let Some(export) = &mut self.export {
            export.flush();
        }
    }

    /// Writes the records that the flight recorder holds; returns their number.
    pub fn dump(&mut self) -> u64 {
        let Self { flight: Some(flight), spool, export, numbers, .. } = self else { return 0 };
        let mut sinks = Sinks { spool, export, numbers };
        let mut dumped = 0;
        flight.dump(None, &mut |cpu, event| {
            dumped += 1;
            sinks.write(cpu, event);
        });
        self.flush();
        dumped
    }

    /// Returns the number of samples written so far: without those that the flight recorder discarded, that could not
    /// be written, that were removed, or that belong to the log's own connections.
    fn written(&self) -> u64 {
        let forgotten = self.flight.as_ref().map(|flight| flight.forgotten().packets + flight.forgotten().events);
        let of_packets = |spool: &Spool| spool.left_out().sum().iter().map(|tally| tally.packets).sum::<u64>();
        let broken = self.spool.as_ref().map(|spool| of_packets(spool) + spool.events_left_out());
        let removed = self.removed();
        let removed = removed.packets.iter().map(|tally| tally.packets).sum::<u64>() + removed.events;
        let own = self.own.packets + self.own.events;
        self.records.saturating_sub(forgotten.unwrap_or_default() + broken.unwrap_or_default() + removed + own)
    }

    /// Returns the counters of what was removed with the oldest parts.
    fn removed(&self) -> Written {
        self.spool.as_ref().map(|spool| *spool.removed()).unwrap_or_default()
    }

    /// Returns the status of the log.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn status(&self) -> anyhow::Result<Value> {
        let mut account = Account::read(&*self.programs, &self.gone)?;
        account.leave_out(Disposition::Filtered, &self.own.left_out);
        if let Some(flight) = &self.flight {
            account.leave_out(Disposition::Forgotten, flight.left_out());
        }
        if let Some(spool) = &self.spool {
            account.leave_out(Disposition::Broken, spool.left_out());
        }
        let (mut flows, mut ended) = (0_u64, 0_u64);
        self.programs.flows(&mut |_, flow| {
            flows += 1;
            ended += u64::from(flow.ended_ns != 0);
        });
        Ok(json!({
            "enabled": self.asked.enabled,
            "options": self.asked,
            "totals": show::totals(account.totals_without(self.removed().packets)),
            "parts": self.spool.as_ref().map(|spool| spool.parts()[0]),
            "parts_removed": self.spool.as_ref().map(|spool| spool.parts()[1]),
            "flows_removed": self.removed().gone,
            "events": account.events.saturating_sub(self.privates),
            "events_full": account.events_full,
            "records": self.written(),
            "privates": self.privates,
            "missing": self.gaps.missing(),
            "flows": flows + self.gone_flows,
            "flows_open": flows - ended,
            "not_run": self.not_run()?,
            "flight_triggers": recorder::fired(self.flight.as_ref()),
            "careful": self.facts.refusal,
            "failed": self.failed.as_ref().map(SpoolError::to_string),
            "interruption": self.interruption,
        }))
    }

    /// Returns every flow in use.
    pub fn flows(&self) -> Vec<Shown> {
        let mut flows = Vec::new();
        self.programs.flows(&mut |slot, flow| {
            let latest = self.latest.get(slot as usize).cloned();
            flows.push(Shown { number: self.numbers.known(flow.cookie), flow: *flow, latest });
        });
        flows
    }

    /// Ends the log: stops counting, drains the rings, and writes the final records.
    ///
    /// # Errors
    /// If rings or counters cannot be read.
    pub fn end(mut self, wait: &mut dyn FnMut()) -> anyhow::Result<Ended> {
        self.look_at_programs(HostClock.now());
        self.programs.attach_as(Mode::Disabled)?;
        let (_, is_still) = Account::read_still(&*self.programs, &self.gone, STILL_TRIES, wait)?;
        while self.drain()?.records > 0 {}
        let (totals, not_run) = (self.programs.totals()?, self.not_run()?);
        self.finish_gaps(&totals);
        let mut account = Account::read(&*self.programs, &self.gone)?;
        account.leave_out(Disposition::Filtered, &self.own.left_out);
        if let Some(flight) = &mut self.flight {
            flight.finish();
            account.leave_out(Disposition::Forgotten, flight.left_out());
        }
        let (mut flows, mut flow_list) = (self.gone_flows, std::mem::take(&mut self.listed));
        self.programs.flows(&mut |_, flow| {
            flows += 1;
            list(&mut flow_list, flow);
        });
        let forgotten = self.flight.as_ref().map(Flight::forgotten).unwrap_or_default();
        let (records, removed) = (self.written(), self.removed());
        let parts = self.spool.as_ref().map(Spool::parts).unwrap_or_default();
        let (lost, sent) = self.end_logs(&mut account, &totals);
        self.programs.attach_as(Mode::Off)?;
        let events = account.events.saturating_sub(self.privates + forgotten.events + lost.0);
        Ok(Ended {
            flows,
            flow_list,
            parts,
            removed,
            not_run,
            triggers: recorder::fired(self.flight.as_ref()),
            fields: self.asked.fields,
            account,
            export: sent,
            is_still,
            records,
            events,
            privates: self.privates.saturating_sub(forgotten.privates + lost.1),
            gaps: self.found,
            missing: self.gaps.missing(),
            unexpected: self.gaps.unexpected(),
            failed: self.failed,
            interruption: self.interruption,
        })
    }

    fn finish_gaps(&mut self, totals: &[Totals]) {
        for (cpu, totals) in (0..).zip(totals) {
            let found = self.gaps.finish(cpu, totals.number);
            self.found += found.len() as u64;
            self.tell_gaps(&found);
        }
    }

    fn tell_gaps(&mut self, found: &[Gap]) {
        if let Some(spool) = &mut self.spool {
            found.iter().for_each(|gap| spool.gap(gap));
        }
        if let Some(export) = &mut self.export {
            found.iter().for_each(|gap| export.gap(gap));
        }
    }
}

/// Adds a flow to a footer's list, if there is room.
fn list(listed: &mut Vec<String>, flow: &Flow) {
    if listed.len() < LISTED {
        listed.push(show::flow_name(flow));
    }
}

mod ends;
mod own;
#[cfg(test)]
mod tests;
mod turn;
