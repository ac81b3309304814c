//! The kernel programs as sequences of steps between which they can be interrupted, and the tables that they share.
//!
//! The steps are those of `bpf/`, and decisions use the same C code. As with interrupts, a CPU runs the program that
//! started last.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::ring::Ring;
use super::tcp::Packet;
use super::wanted::{is_wanted, new_flow};
use crate::decide::{self, Watched};
use crate::decode::Raw;
use crate::layout::{
    Flow, NAME_BYTES, Options, PRIVATE_BYTES, PrivateState, Sample, State, Totals, disposition, kind, point, slots,
};
use crate::source::{Prefix, SourceError};

const NO_PACKET: u64 = u64::MAX;
/// The socket of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A connection with this cookie.
    Connection {
        /// The socket cookie.
        cookie: u64,
        /// Whether the headers can be parsed.
        is_parsed: bool,
        /// Whether the socket is closed.
        is_closed: bool,
    },
    /// No socket.
    None,
    /// A listener or a request.
    NoState,
    /// The kernel's control socket.
    Control,
}

/// The true disposition of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// The CPU.
    pub cpu: u32,
    /// The cookie of its flow; 0: none.
    pub cookie: u64,
    /// 0 ingress, 1 egress.
    pub way: u8,
    /// The number of segments.
    pub segments: u16,
    /// Its number in its direction of the flow.
    pub packet: u64,
    /// The number of its first segment.
    pub segment: u64,
    /// The number of a [`disposition`].
    pub disposition: usize,
    /// The generation of the options in use.
    pub generation: u64,
}

/// The cause of a program's run.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// A packet passes.
    Packet(Socket, Packet),
    /// An event of the socket with this cookie.
    Event {
        /// The socket cookie.
        cookie: u64,
        /// The number of the [`point`].
        point: u8,
        /// Old and new state.
        detail: u16,
        /// The state at that moment.
        state: State,
    },
}

/// A consistent set of options.
#[derive(Debug)]
struct Asked {
    options: Options,
    prefixes: Vec<Prefix>,
}

/// A program between two steps.
#[derive(Debug)]
struct Program {
    asked: Arc<Asked>,
    cause: Cause,
    step: Step,
    slot: u32,
    packet: u64,
    segment: u64,
    now_ns: u64,
    last_ns: u64,
    place: u64,
    number: u64,
    is_private_due: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    FindFlow,
    Decide,
    Reserve,
    Submit,
    ReservePrivate,
    SubmitPrivate,
    Count(usize),
    Done,
}

#[derive(Debug)]
struct Cpu {
    totals: Totals,
    ring: Ring,
    running: Vec<Program>,
}

/// The tables, the rings, and the running programs.
#[derive(Debug)]
pub struct Kernel {
    asked: Arc<Asked>,
    cpus: Vec<Cpu>,
    flows: Vec<Flow>,
    free: VecDeque<u32>,
    /// The flow of each socket: generation and slot.
    places: HashMap<u64, (u64, u32)>,
    /// The true disposition of every packet seen.
    pub truth: Vec<Met>,
}

impl Kernel {
    /// Start with logging disabled.
    pub fn new(cpus: u32, ring_bytes: usize, flows: u32) -> Self {
        let cpu = |_| Cpu { totals: nothing(), ring: Ring::new(slots(ring_bytes)), running: Vec::new() };
        Self {
            asked: Arc::new(Asked { options: NOTHING_ASKED, prefixes: Vec::new() }),
            cpus: (0..cpus).map(cpu).collect(),
            flows: (0..flows).map(|_| nothing()).collect(),
            free: (0..flows).collect(),
            places: HashMap::new(),
            truth: Vec::new(),
        }
    }

    /// Start a program on a CPU, interrupting those that run there.
    pub fn start(&mut self, cpu: usize, cause: Cause) {
        let asked = Arc::clone(&self.asked);
        let program = Program {
            asked,
            cause,
            step: Step::Begin,
            slot: 0,
            packet: NO_PACKET,
            segment: 0,
            now_ns: 0,
            last_ns: 0,
            place: 0,
            number: 0,
            is_private_due: false,
        };
        self.cpus[cpu].running.push(program);
    }

    /// Return how many programs are nested on a CPU.
    pub fn depth(&self, cpu: usize) -> usize {
        self.cpus[cpu].running.len()
    }

    /// Return whether a program of this socket is running.
    pub fn is_busy(&self, socket: u64) -> bool {
        self.cpus.iter().flat_map(|cpu| &cpu.running).any(|program| program.cookie() == Some(socket))
    }

    /// Run one step of the program that started last on this CPU.
    pub fn advance(&mut self, cpu: usize, now_ns: u64) {
        let Some(mut program) = self.cpus[cpu].running.pop() else { return };
        program.step = match program.step {
            Step::Begin => self.begin(cpu, &program),
            Step::FindFlow => self.find_flow(&mut program, now_ns),
            Step::Decide => self.decide(&mut program, now_ns),
            Step::Reserve => self.reserve(cpu, &mut program),
            Step::Submit => self.submit(cpu, &mut program),
            Step::ReservePrivate => self.reserve_private(cpu, &mut program),
            Step::SubmitPrivate => self.submit_private(cpu, &program),
            Step::Count(disposition) => self.count(cpu, &mut program, disposition),
            Step::Done => Step::Done,
        };
        if program.step == Step::Done {
            self.end_of(&program, now_ns);
        } else {
            self.cpus[cpu].running.push(program);
        }
    }

    /// Replace the options; running programs keep those that they started with.
    pub fn ask(&mut self, options: &Options, prefixes: &[Prefix]) {
        let generation = self.asked.options.generation + 1;
        let options = Options { generation, prefixes: u32::from(!prefixes.is_empty()), ..*options };
        self.asked = Arc::new(Asked { options, prefixes: prefixes.to_vec() });
    }

    /// Take the oldest record of a CPU's ring.
    pub fn take(&mut self, cpu: usize) -> Option<Vec<u8>> {
        self.cpus[cpu].ring.take()
    }

    /// Call `show` for every flow; one whose programs still run is shown as not ended.
    pub fn show(&self, show: &mut dyn FnMut(u32, &Flow)) {
        for (slot, flow) in (0..).zip(&self.flows).filter(|(_, flow)| flow.cookie != 0) {
            let ended_ns = if self.is_busy(flow.cookie) { 0 } else { flow.ended_ns };
            show(slot, &Flow { ended_ns, ..*flow });
        }
    }

    /// Free a slot.
    ///
    /// # Errors
    /// When its flow has not ended.
    pub fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError> {
        let refused = || SourceError::System {
            operation: "release",
            object: format!("slot {slot}"),
            source: io::ErrorKind::InvalidInput.into(),
        };
        let flow = self.flows.get(slot as usize).ok_or_else(refused)?;
        if flow.cookie == 0 || flow.ended_ns == 0 || self.is_busy(flow.cookie) {
            return Err(refused());
        }
        let last = *flow;
        self.flows[slot as usize] = Flow { generation: flow.generation + 1, ..nothing() };
        self.free.push_back(slot);
        Ok(Some(last))
    }

    /// Return the counters of each CPU.
    pub fn totals(&self) -> Vec<Totals> {
        self.cpus.iter().map(|cpu| cpu.totals).collect()
    }

    fn begin(&mut self, cpu: usize, program: &Program) -> Step {
        let options = &program.asked.options;
        if options.enabled == 0 {
            return Step::Done;
        }
        let (socket, packet) = match &program.cause {
            Cause::Event { point, .. } => {
                return if options.points & 1 << point == 0 { Step::Done } else { Step::FindFlow };
            }
            Cause::Packet(socket, packet) => (socket, packet),
        };
        let totals = &mut self.cpus[cpu].totals;
        totals.seen[usize::from(packet.way)] += 1;
        totals.segments[usize::from(packet.way)] += u64::from(packet.segments);
        match socket {
            Socket::None => Step::Count(disposition::NO_SOCKET),
            Socket::NoState => Step::Count(disposition::NO_STATE),
            Socket::Control => Step::Count(disposition::CONTROL),
            Socket::Connection { .. } => Step::FindFlow,
        }
    }

    fn find_flow(&mut self, program: &mut Program, now_ns: u64) -> Step {
        let Some(cookie) = program.cookie() else { return Step::Done };
        let known = self.places.get(&cookie).copied();
        let live = known.filter(|&(generation, slot)| self.flows[slot as usize].generation == generation);
        let (packet, is_closed) = match &program.cause {
            Cause::Packet(Socket::Connection { is_closed, .. }, packet) => (packet, *is_closed),
            _ => {
                // An event creates no flow.
                let wanted = live.filter(|(_, slot)| self.flows[*slot as usize].verdict & 1 != 0);
                program.slot = wanted.map_or(0, |(_, slot)| slot);
                program.now_ns = now_ns;
                return if wanted.is_some() { Step::Reserve } else { Step::Done };
            }
        };
        let slot = match live {
            Some((_, slot)) => slot,
            None if is_closed => return Step::Count(disposition::LATE),
            None => match self.make_flow(cookie, now_ns) {
                Some(slot) => slot,
                None => return Step::Count(disposition::NO_ROOM),
            },
        };
        let flow = &mut self.flows[slot as usize];
        let counts = &mut flow.directions[usize::from(packet.way)];
        (program.slot, program.packet, program.segment) = (slot, counts.seen, counts.segments);
        counts.seen += 1;
        counts.segments += u64::from(packet.segments);
        counts.last_ns = now_ns;
        Step::Decide
    }

    fn make_flow(&mut self, cookie: u64, now_ns: u64) -> Option<u32> {
        let slot = self.free.pop_front()?;
        let generation = self.flows[slot as usize].generation;
        self.flows[slot as usize] = Flow { generation, first_ns: now_ns, ..new_flow(cookie) };
        self.places.insert(cookie, (generation, slot));
        Some(slot)
    }

    fn decide(&mut self, program: &mut Program, now_ns: u64) -> Step {
        let options = &program.asked.options;
        let Cause::Packet(Socket::Connection { is_parsed, .. }, packet) = program.cause else { return Step::Done };
        let flow = &mut self.flows[program.slot as usize];
        if flow.verdict >> 1 != options.generation {
            flow.verdict = options.generation << 1 | u64::from(is_wanted(options, &program.asked.prefixes, flow));
        }
        if flow.verdict & 1 == 0 || options.points & 1 << packet.way == 0 {
            return Step::Count(disposition::FILTERED);
        }
        let (first, count) =
            if options.by_segment == 0 { (program.packet, 1) } else { (program.segment, packet.segments.into()) };
        if !decide::is_multiple(first, count, options.ppl) {
            return Step::Count(disposition::DECIMATED);
        }
        if !is_parsed {
            return Step::Count(disposition::UNPARSED);
        }
        // Updated at once, as in the kernel: two programs may be at this step for the same flow.
        let mut changes = flow.changes;
        if options.changes != 0 {
            changes = decide::digest(&watched(&packet.state), options.changes);
            if changes == flow.changes {
                return Step::Count(disposition::UNCHANGED);
            }
        }
        program.now_ns = now_ns;
        if decide::is_early(now_ns, flow.logged_ns, options.min_interval_ns) {
            return Step::Count(disposition::EARLY);
        }
        program.last_ns = flow.logged_ns;
        flow.logged_ns = now_ns;
        flow.changes = changes;
        Step::Reserve
    }

    /// Undo the update where the packet was not logged, so that the next one is logged instead.
    fn give_back(&mut self, program: &Program) {
        let flow = &mut self.flows[program.slot as usize];
        if flow.logged_ns == program.now_ns {
            flow.logged_ns = program.last_ns;
        }
        flow.changes = 0;
    }

    fn reserve(&mut self, cpu: usize, program: &mut Program) -> Step {
        let cpu = &mut self.cpus[cpu];
        if let Some(place) = cpu.ring.reserve() {
            program.place = place;
            return if program.is_event() { Step::Submit } else { Step::Count(disposition::LOGGED) };
        }
        cpu.totals.number += 1;
        if program.is_event() {
            cpu.totals.events_full += 1;
            return Step::Done;
        }
        self.give_back(program);
        Step::Count(disposition::FULL)
    }

    fn submit(&mut self, cpu: usize, program: &mut Program) -> Step {
        let cpu = &mut self.cpus[cpu];
        let flow = &mut self.flows[program.slot as usize];
        program.number = cpu.totals.number;
        cpu.totals.number += 1;
        cpu.ring.submit(program.place, bytes_of(&program.sample(flow.cookie)));
        if program.is_event() {
            cpu.totals.events += 1;
        }
        if program.is_private_due { Step::ReservePrivate } else { Step::Done }
    }

    fn reserve_private(&mut self, cpu: usize, program: &mut Program) -> Step {
        let cpu = &mut self.cpus[cpu];
        if let Some(place) = cpu.ring.reserve() {
            program.place = place;
            return Step::SubmitPrivate;
        }
        cpu.totals.number += 1;
        cpu.totals.privates_full += 1;
        Step::Done
    }

    fn submit_private(&mut self, cpu: usize, program: &Program) -> Step {
        let cpu = &mut self.cpus[cpu];
        let flow = &self.flows[program.slot as usize];
        let private = PrivateState {
            kind: kind::PRIVATE,
            reserved: [0; 3],
            slot: program.slot,
            number: cpu.totals.number,
            time_ns: program.now_ns,
            cookie: flow.cookie,
            sample: program.number,
            algorithm: flow.algorithm,
            bytes: [0; PRIVATE_BYTES],
        };
        cpu.totals.number += 1;
        cpu.totals.privates += 1;
        cpu.ring.submit(program.place, bytes_of(&private));
        Step::Done
    }

    fn count(&mut self, cpu: usize, program: &mut Program, disposition: usize) -> Step {
        let Cause::Packet(_, packet) = program.cause else { return Step::Done };
        let way = usize::from(packet.way);
        let every = program.asked.options.private_every;
        let totals = &mut self.cpus[cpu].totals;
        totals.dispositions[way][disposition] += 1;
        totals.segments_of_dispositions[way][disposition] += u64::from(packet.segments);
        if disposition < disposition::OF_FLOW {
            let counts = &mut self.flows[program.slot as usize].directions[way];
            program.is_private_due = disposition == disposition::LOGGED
                && every > 0
                && counts.dispositions[disposition].is_multiple_of(every.into());
            counts.dispositions[disposition] += 1;
            counts.segments_of_dispositions[disposition] += u64::from(packet.segments);
        }
        self.truth.push(Met {
            cpu: u32::try_from(cpu).unwrap_or(u32::MAX),
            cookie: if disposition < disposition::OF_FLOW { program.cookie().unwrap_or(0) } else { 0 },
            way: packet.way,
            segments: packet.segments,
            packet: program.packet,
            segment: program.segment,
            disposition,
            generation: program.asked.options.generation,
        });
        if disposition == disposition::LOGGED { Step::Submit } else { Step::Done }
    }

    /// End the flow of a destroyed socket, whether or not the event is logged.
    fn end_of(&mut self, program: &Program, now_ns: u64) {
        let Cause::Event { point: point::DESTROY, cookie, .. } = program.cause else { return };
        let place = self.places.get(&cookie);
        if let Some(&(generation, slot)) = place
            && self.flows[slot as usize].generation == generation
        {
            self.flows[slot as usize].ended_ns = now_ns;
        }
    }
}

impl Program {
    fn cookie(&self) -> Option<u64> {
        match self.cause {
            Cause::Packet(Socket::Connection { cookie, .. }, _) | Cause::Event { cookie, .. } => Some(cookie),
            Cause::Packet(..) => None,
        }
    }

    const fn is_event(&self) -> bool {
        matches!(self.cause, Cause::Event { .. })
    }

    fn sample(&self, cookie: u64) -> Sample {
        let named = Sample {
            kind: kind::SAMPLE,
            point: 0,
            detail: 0,
            slot: self.slot,
            number: self.number,
            time_ns: self.now_ns,
            cookie,
            packet: NO_PACKET,
            seq: 0,
            ack: 0,
            tcp_flags: 0,
            window: 0,
            packet_bytes: 0,
            payload_bytes: 0,
            segments: 0,
            ip_id: 0,
            tos: 0,
            reserved: [0; 7],
            state: nothing(),
        };
        match self.cause {
            Cause::Event { point, detail, state, .. } => Sample { point, detail, state, ..named },
            Cause::Packet(_, packet) => Sample {
                point: packet.way,
                packet: self.packet,
                seq: packet.seq,
                ack: packet.ack,
                tcp_flags: packet.flags,
                window: u16::MAX,
                packet_bytes: packet.packet_bytes,
                payload_bytes: packet.payload_bytes,
                segments: packet.segments,
                state: packet.state,
                ..named
            },
        }
    }
}

fn bytes_of(record: &impl Raw) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

/// Return a value with all bytes 0.
pub fn nothing<R: Raw>() -> R {
    R::take(&mut [].as_slice())
}

/// The fields that can be watched for changes, in order.
fn watched(state: &State) -> Watched {
    Watched {
        fields: [
            state.snd_cwnd.into(),
            state.snd_ssthresh.into(),
            state.ca_state.into(),
            state.state.into(),
            state.rtt_last_us.into(),
            state.rto_jiffies.into(),
            state.snd_wnd.into(),
            state.rcv_wnd.into(),
            state.total_retrans.into(),
            state.mss_cache.into(),
            state.pacing_rate,
        ],
    }
}

/// Options with logging disabled; with `enabled` set, every packet of every flow is logged in both directions.
pub const NOTHING_ASKED: Options = Options {
    generation: 0,
    enabled: 0,
    ppl: 1,
    by_segment: 0,
    points: 1 << point::IN | 1 << point::OUT,
    min_interval_ns: 0,
    changes: 0,
    private_every: 0,
    one_in_flows: 1,
    netns: 0,
    cgroup: 0,
    cgroup_level: 0,
    process: 0,
    ports: 0,
    prefixes: 0,
    port: [0; crate::layout::PORTS],
    algorithm: [0; NAME_BYTES],
    burn: 0,
    reserved: 0,
    offset_ns: 0,
};
