//! The flight recorder: keep the last samples of each flow, and write them only after a trigger.
//!
//! A trigger is one of [`Triggers`], or a request. Then the kept samples are written, followed by the next samples
//! until a number of samples or a time has passed. Each flow keeps a number of samples or a time span, within a memory
//! limit for all flows. A flow that ends without a trigger is discarded; its packets are counted by flow and direction,
//! so that the packet accounting adds up. Records are passed as the bytes of the rings.
//!
//! Samples are ordered by arrival: the rings of several CPUs are drained one after another, so samples of a flow from
//! two CPUs may be reordered within one drain. Pure: bytes in, bytes out.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;

use crate::account::{LeftOut, Tally};
use crate::layout::{PrivateState, Sample, kind, point};
use sojourn_time::Nanos;
use trigger::Watch;
pub use trigger::{KINDS, NAMES, Triggers};

mod trigger;

/// How many written samples are remembered, to match the private state that follows them.
const REMEMBERED: usize = 8;

/// The options of a flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightOptions {
    /// How much of each flow is kept: at least 1 sample.
    pub keep: Keep,
    /// How much is written after a trigger.
    pub after: Keep,
    /// The triggers.
    pub on: Triggers,
    /// The memory limit over all flows: beyond it, the flows that have been idle longest are discarded.
    pub limit_bytes: usize,
}

/// An amount of a flow's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// This number of samples.
    Samples(usize),
    /// The samples of this time span.
    Span(Nanos),
}

impl FlightOptions {
    /// Keep the last `keep`, write half as much after any event, and use at most 256 MiB.
    #[must_use]
    pub const fn keeping(keep: Keep) -> Self {
        let after = match keep {
            Keep::Samples(most) => Keep::Samples(most / 2),
            Keep::Span(span) => Keep::Span(Nanos(span.0 / 2)),
        };
        Self { keep, after, on: Triggers::EVENTS, limit_bytes: 256 << 20 }
    }
}

/// Counts of records by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Samples of a packet.
    pub packets: u64,
    /// Samples at events.
    pub events: u64,
    /// Private states.
    pub privates: u64,
}

impl Recorded {
    /// Return the total.
    #[must_use]
    pub const fn sum(self) -> u64 {
        self.packets + self.events + self.privates
    }
}

/// Keeps the last samples of each flow.
#[derive(Debug)]
pub struct Flight {
    options: FlightOptions,
    flows: HashMap<u64, Kept>,
    kept_bytes: usize,
    /// Counts the records received, to find the flow that has been idle longest.
    clock: u64,
    left_out: LeftOut,
    forgotten: Recorded,
    /// The number of triggers of each kind.
    triggers: [u64; KINDS],
    /// The time of the latest sample of any flow.
    latest_ns: u64,
}

/// One flow.
#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Record>,
    /// How many more samples are written as they arrive.
    passing: usize,
    /// Samples up to this time are written as they arrive, too.
    passing_until_ns: u64,
    /// CPU and number of the samples written last.
    out: VecDeque<(u32, u64)>,
    watch: Watch,
    last_come: u64,
}

/// A sample with its private state.
#[derive(Debug)]
struct Record {
    cpu: u32,
    sample: Vec<u8>,
    private: Option<Vec<u8>>,
}

/// The sink for records: the CPU, and the record's bytes.
type Out<'a> = &'a mut dyn FnMut(u32, &[u8]);

impl Flight {
    /// Create an empty recorder.
    #[must_use]
    pub fn new(options: FlightOptions) -> Self {
        Self {
            options: FlightOptions { keep: options.keep.at_least_one(), ..options },
            flows: HashMap::new(),
            kept_bytes: 0,
            clock: 0,
            left_out: LeftOut::default(),
            forgotten: Recorded::default(),
            triggers: [0; KINDS],
            latest_ns: 0,
        }
    }

    /// Take a record of a CPU and pass on what must be written now: nothing, this record, or many. A record that is
    /// neither a sample nor a private state is passed on unchanged.
    pub fn take(&mut self, cpu: u32, event: &[u8], out: Out<'_>) {
        match event.first() {
            Some(&kind::SAMPLE) if event.len() >= size_of::<Sample>() => self.take_sample(cpu, event, out),
            Some(&kind::PRIVATE) if event.len() >= size_of::<PrivateState>() => self.take_private(cpu, event, out),
            _ => out(cpu, event),
        }
    }

    /// Write the kept samples of a flow, or of all flows, on request, and the next ones as after a trigger.
    pub fn dump(&mut self, cookie: Option<u64>, out: Out<'_>) {
        let asked: Vec<u64> =
            self.flows.keys().copied().filter(|at| cookie.is_none_or(|cookie| cookie == *at)).collect();
        for at in asked {
            // Samples of an idle flow may have become too old since its last one arrived.
            self.expire(at, self.latest_ns);
            if let Some(flow) = self.flows.get_mut(&at) {
                self.kept_bytes -= flow.release(out);
                flow.pass_on(self.options.after, self.latest_ns);
            }
        }
    }

    /// Discard a flow that has ended. All its samples must have been taken; its slot is released next.
    pub fn end(&mut self, cookie: u64) {
        if let Some(mut flow) = self.flows.remove(&cookie) {
            while let Some(record) = flow.samples.pop_front() {
                self.discard(cookie, &record);
            }
        }
    }

    /// Discard it, and return the counts of its discarded packets for the caller to record.
    pub fn tell_end(&mut self, cookie: u64) -> [Tally; 2] {
        self.end(cookie);
        self.left_out.tell(cookie)
    }

    /// Discard all kept samples at the end of the log.
    pub fn finish(&mut self) {
        let cookies: Vec<u64> = self.flows.keys().copied().collect();
        cookies.into_iter().for_each(|cookie| self.end(cookie));
    }

    /// Return the discarded packets by flow and direction.
    #[must_use]
    pub const fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Return the number of discarded records.
    #[must_use]
    pub const fn forgotten(&self) -> Recorded {
        self.forgotten
    }

    /// Return the number of triggers of each kind, in the order of [`NAMES`].
    #[must_use]
    pub const fn triggers(&self) -> [u64; KINDS] {
        self.triggers
    }

    /// Return the number of records kept now.
    #[must_use]
    pub fn kept(&self) -> Recorded {
        let mut kept = Recorded::default();
        self.flows.values().flat_map(|flow| &flow.samples).for_each(|record| record.count(&mut kept));
        kept
    }

    fn take_sample(&mut self, cpu: u32, event: &[u8], out: Out<'_>) {
        self.clock += 1;
        let (cookie, time_ns) = (u64_at(event, offset_of!(Sample, cookie)), u64_at(event, offset_of!(Sample, time_ns)));
        self.latest_ns = self.latest_ns.max(time_ns);
        self.expire(cookie, time_ns);
        let flow = self.flows.entry(cookie).or_default();
        flow.last_come = self.clock;
        let shown = flow.watch.look(event, &self.options.on);
        if shown.contains(&true) {
            self.triggers.iter_mut().zip(shown).for_each(|(sum, is_shown)| *sum += u64::from(is_shown));
            self.kept_bytes -= flow.release(out);
            flow.pass(cpu, event, out);
            return flow.pass_on(self.options.after, time_ns);
        }
        if flow.is_passing(time_ns) {
            return flow.pass(cpu, event, out);
        }
        self.keep_sample(cpu, event);
    }

    /// Discard the samples of a flow that are older than the span at this time.
    fn expire(&mut self, cookie: u64, now_ns: u64) {
        let Keep::Span(span) = self.options.keep else { return };
        let from = now_ns.saturating_sub(span.0.max(0).cast_unsigned());
        while let Some(flow) = self.flows.get_mut(&cookie)
            && flow.samples.front().is_some_and(|oldest| oldest.time_ns() < from)
            && let Some(record) = flow.samples.pop_front()
        {
            self.discard(cookie, &record);
        }
    }

    fn keep_sample(&mut self, cpu: u32, event: &[u8]) {
        let cookie = u64_at(event, offset_of!(Sample, cookie));
        let Some(flow) = self.flows.get_mut(&cookie) else { return };
        let is_full = matches!(self.options.keep, Keep::Samples(most) if flow.samples.len() >= most);
        let oldest = is_full.then(|| flow.samples.pop_front()).flatten();
        if let Some(record) = &oldest {
            self.discard(cookie, record);
        }
        // Reuse the memory of the discarded sample.
        let mut sample = oldest.map(|record| record.sample).unwrap_or_default();
        sample.clear();
        sample.extend_from_slice(event);
        let record = Record { cpu, sample, private: None };
        self.kept_bytes += record.bytes();
        if let Some(flow) = self.flows.get_mut(&cookie) {
            flow.samples.push_back(record);
        }
        self.hold_limit(cookie);
    }

    /// Handle a private state like its sample: keep, write or discard it.
    fn take_private(&mut self, cpu: u32, event: &[u8], out: Out<'_>) {
        let cookie = u64_at(event, offset_of!(PrivateState, cookie));
        let number = u64_at(event, offset_of!(PrivateState, sample));
        let flow = self.flows.get_mut(&cookie);
        if let Some(flow) = flow {
            let mut kept = flow.samples.iter_mut().rev();
            if let Some(record) = kept.find(|record| record.cpu == cpu && record.number() == number) {
                let replaced = record.private.replace(event.to_vec());
                self.kept_bytes += event.len() - replaced.as_ref().map_or(0, Vec::len);
                self.forgotten.privates += u64::from(replaced.is_some());
                return self.hold_limit(cookie);
            }
            if flow.out.contains(&(cpu, number)) {
                return out(cpu, event);
            }
        }
        self.forgotten.privates += 1;
    }

    fn hold_limit(&mut self, cookie: u64) {
        if self.kept_bytes > self.options.limit_bytes {
            self.make_room(cookie);
        }
    }

    /// Discard the flows that have been idle longest, except `but`, until an eighth of the memory is free.
    fn make_room(&mut self, but: u64) {
        let mut silent: Vec<(u64, u64)> = self.flows.iter().map(|(&cookie, flow)| (flow.last_come, cookie)).collect();
        silent.sort_unstable();
        for (_, cookie) in silent.into_iter().filter(|&(_, cookie)| cookie != but) {
            if self.kept_bytes <= self.options.limit_bytes / 8 * 7 {
                return;
            }
            self.empty(cookie, 0);
        }
        // One flow alone may exceed the limit.
        let most = self.flows.get(&but).map_or(0, |flow| flow.samples.len() / 8 * 7);
        if self.kept_bytes > self.options.limit_bytes {
            self.empty(but, most);
        }
    }

    /// Discard the oldest samples of a flow down to `most`; its trigger state is kept.
    fn empty(&mut self, cookie: u64, most: usize) {
        while let Some(flow) = self.flows.get_mut(&cookie).filter(|flow| flow.samples.len() > most)
            && let Some(record) = flow.samples.pop_front()
        {
            self.discard(cookie, &record);
        }
    }

    fn discard(&mut self, cookie: u64, record: &Record) {
        self.kept_bytes -= record.bytes();
        record.count(&mut self.forgotten);
        if let Some(direction) = record.direction() {
            self.left_out.note(cookie, direction, u64::from(record.segments()));
        }
    }
}

impl Kept {
    /// Let the next samples be written: a number of them, or those of a time span from `from_ns`.
    fn pass_on(&mut self, after: Keep, from_ns: u64) {
        match after {
            Keep::Samples(most) => self.passing = self.passing.max(most),
            Keep::Span(span) => {
                let until = from_ns.saturating_add(span.0.max(0).cast_unsigned());
                self.passing_until_ns = self.passing_until_ns.max(until);
            }
        }
    }

    /// Whether a sample of this time is written as it arrives; counts it.
    fn is_passing(&mut self, time_ns: u64) -> bool {
        let is_counted = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        is_counted || time_ns < self.passing_until_ns
    }

    /// Write all kept samples; return their size in bytes.
    fn release(&mut self, out: Out<'_>) -> usize {
        let mut released = 0;
        while let Some(record) = self.samples.pop_front() {
            released += record.bytes();
            self.pass(record.cpu, &record.sample, out);
            if let Some(private) = &record.private {
                out(record.cpu, private);
            }
        }
        released
    }

    fn pass(&mut self, cpu: u32, event: &[u8], out: Out<'_>) {
        if self.out.len() >= REMEMBERED {
            self.out.pop_front();
        }
        self.out.push_back((cpu, u64_at(event, offset_of!(Sample, number))));
        out(cpu, event);
    }
}

impl Keep {
    fn at_least_one(self) -> Self {
        match self {
            Self::Samples(most) => Self::Samples(most.max(1)),
            span @ Self::Span(_) => span,
        }
    }
}

impl Record {
    fn number(&self) -> u64 {
        u64_at(&self.sample, offset_of!(Sample, number))
    }

    fn time_ns(&self) -> u64 {
        u64_at(&self.sample, offset_of!(Sample, time_ns))
    }

    fn segments(&self) -> u16 {
        u16_at(&self.sample, offset_of!(Sample, segments))
    }

    /// 0 ingress, 1 egress; `None`: the sample has no packet.
    fn direction(&self) -> Option<usize> {
        match self.sample[offset_of!(Sample, point)] {
            point::IN => Some(0),
            point::OUT => Some(1),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.sample.len() + self.private.as_ref().map_or(0, Vec::len)
    }

    fn count(&self, recorded: &mut Recorded) {
        recorded.packets += u64::from(self.direction().is_some());
        recorded.events += u64::from(self.direction().is_none());
        recorded.privates += u64::from(self.private.is_some());
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests;
