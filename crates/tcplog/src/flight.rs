//! The flight recorder: keeps the last samples of each flow, and gives them out only when the flow has a trigger.
//!
//! A trigger is one of [`Triggers`], or that somebody asks. Then what is kept goes out, and so do the next samples, until so
//! many, or so much time, have passed. How much is kept of a flow is a number of samples or a span of time, and in either case no
//! more than the room for all flows holds. A flow that ends without a trigger is discarded; its packets are counted
//! by flow and direction, so that the law of the log holds. Samples come as the bytes that the rings hold and go out as these.
//!
//! "Last" means last to come: the rings of several CPUs are drained one after another, so samples of a flow on two CPUs may
//! change places within one drain. Pure: bytes in, bytes out.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;

use crate::account::{LeftOut, Tally};
use crate::layout::{PrivateState, Sample, kind, point};
use sojourn_time::Nanos;
use trigger::Watch;
pub use trigger::{KINDS, NAMES, Triggers};

mod trigger;

/// How many of the samples that went out are remembered for the private state that follows them.
const REMEMBERED: usize = 8;

/// What is asked of a flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightOptions {
    /// How much of each flow is kept: at least 1 sample.
    pub keep: Keep,
    /// How much more goes out after a trigger.
    pub after: Keep,
    /// What the triggers are.
    pub on: Triggers,
    /// How much may be kept of all flows together: beyond it, the flows that have been silent for longest are discarded.
    pub limit_bytes: usize,
}

/// So much of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So many samples.
    Samples(usize),
    /// The samples of so long a time.
    Span(Nanos),
}

impl FlightOptions {
    /// The last `keep` and half as much after any event, in 256 MiB.
    #[must_use]
    pub const fn keeping(keep: Keep) -> Self {
        let after = match keep {
            Keep::Samples(most) => Keep::Samples(most / 2),
            Keep::Span(span) => Keep::Span(Nanos(span.0 / 2)),
        };
        Self { keep, after, on: Triggers::EVENTS, limit_bytes: 256 << 20 }
    }
}

/// How many records of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Samples of a packet.
    pub packets: u64,
    /// Samples after the fact.
    pub events: u64,
    /// Private states.
    pub privates: u64,
}

impl Recorded {
    /// All of them.
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
    /// Counts what came, to tell who has been silent for longest.
    clock: u64,
    left_out: LeftOut,
    forgotten: Recorded,
    /// How often there was a trigger of each kind.
    triggers: [u64; KINDS],
    /// The time of the latest sample of any flow.
    latest_ns: u64,
}

/// One flow.
#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Record>,
    /// How many more samples go out as they come.
    passing: usize,
    /// And all of those up to this time.
    passing_until_ns: u64,
    /// CPU and number of samples that went out lately.
    out: VecDeque<(u32, u64)>,
    watch: Watch,
    last_come: u64,
}

/// A sample, with the private state that belongs to it.
#[derive(Debug)]
struct Record {
    cpu: u32,
    sample: Vec<u8>,
    private: Option<Vec<u8>>,
}

/// Where records go: the CPU, and the event's bytes.
type Out<'a> = &'a mut dyn FnMut(u32, &[u8]);

impl Flight {
    /// A recorder that has kept nothing yet.
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

    /// Takes a record of a CPU and hands on what is to be written now: nothing, itself, or much. What is neither a sample nor a
    /// private state goes out as it is.
    pub fn take(&mut self, cpu: u32, event: &[u8], out: Out<'_>) {
        match event.first() {
            Some(&kind::SAMPLE) if event.len() >= size_of::<Sample>() => self.take_sample(cpu, event, out),
            Some(&kind::PRIVATE) if event.len() >= size_of::<PrivateState>() => self.take_private(cpu, event, out),
            _ => out(cpu, event),
        }
    }

    /// Gives out what is kept of a flow, or of all, because somebody asks; and what comes next of it.
    pub fn dump(&mut self, cookie: Option<u64>, out: Out<'_>) {
        let asked: Vec<u64> =
            self.flows.keys().copied().filter(|at| cookie.is_none_or(|cookie| cookie == *at)).collect();
        for at in asked {
            // A flow that has been idle holds samples that were young when the last one came.
            self.expire(at, self.latest_ns);
            if let Some(flow) = self.flows.get_mut(&at) {
                self.kept_bytes -= flow.release(out);
                flow.pass_on(self.options.after, self.latest_ns);
            }
        }
    }

    /// Discards a flow that has ended: its slot is about to be released, and all of its samples have been taken.
    pub fn end(&mut self, cookie: u64) {
        if let Some(mut flow) = self.flows.remove(&cookie) {
            while let Some(record) = flow.samples.pop_front() {
                self.discard(cookie, &record);
            }
        }
    }

    /// The same; gives away how many of its packets were forgotten, for whoever writes it down.
    pub fn tell_end(&mut self, cookie: u64) -> [Tally; 2] {
        self.end(cookie);
        self.left_out.tell(cookie)
    }

    /// Discards all that is kept: nothing comes any more.
    pub fn finish(&mut self) {
        let cookies: Vec<u64> = self.flows.keys().copied().collect();
        cookies.into_iter().for_each(|cookie| self.end(cookie));
    }

    /// Packets forgotten so far, by flow and direction.
    #[must_use]
    pub const fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Records forgotten so far.
    #[must_use]
    pub const fn forgotten(&self) -> Recorded {
        self.forgotten
    }

    /// How often a flow had a trigger of each kind, as [`NAMES`] has them.
    #[must_use]
    pub const fn triggers(&self) -> [u64; KINDS] {
        self.triggers
    }

    /// Records kept now.
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

    /// Discards what is older of a flow than the span that is kept, now that it is this time.
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
        // Its place in memory is the new one's.
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

    /// A private state goes where its sample went.
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

    /// Discards the flows that have been silent for longest, until an eighth of the room is free.
    fn make_room(&mut self, but: u64) {
        let mut silent: Vec<(u64, u64)> = self.flows.iter().map(|(&cookie, flow)| (flow.last_come, cookie)).collect();
        silent.sort_unstable();
        for (_, cookie) in silent.into_iter().filter(|&(_, cookie)| cookie != but) {
            if self.kept_bytes <= self.options.limit_bytes / 8 * 7 {
                return;
            }
            self.empty(cookie, 0);
        }
        // One flow alone may be too much.
        let most = self.flows.get(&but).map_or(0, |flow| flow.samples.len() / 8 * 7);
        if self.kept_bytes > self.options.limit_bytes {
            self.empty(but, most);
        }
    }

    /// Discards the oldest samples of a flow but so many; its triggers so far stay known.
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
    /// Lets what comes next go out: so many samples, or those of so long after a time.
    fn pass_on(&mut self, after: Keep, from_ns: u64) {
        match after {
            Keep::Samples(most) => self.passing = self.passing.max(most),
            Keep::Span(span) => {
                let until = from_ns.saturating_add(span.0.max(0).cast_unsigned());
                self.passing_until_ns = self.passing_until_ns.max(until);
            }
        }
    }

    /// Whether a sample of this time goes out as it comes.
    fn is_passing(&mut self, time_ns: u64) -> bool {
        let is_counted = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        is_counted || time_ns < self.passing_until_ns
    }

    /// Gives out all that is kept: how many bytes that was.
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

    /// In or out; none: it belongs to no packet.
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
