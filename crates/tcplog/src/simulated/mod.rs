//! A simulated kernel: a [`Source`] over simulated connections in which the disposition of every packet is known.
//!
//! Programs run on several CPUs, interrupt each other, and pause between any two steps while user space reads. A seeded
//! generator chooses which one continues. Time is virtual. Rings are bounded and the flow table has slots, as in the
//! kernel; the decisions about packets use the kernel programs' C code.

mod draws;
mod programs;
mod ring;
mod tcp;
mod wanted;

use crate::layout::{Flow, Options, Totals, point};
use crate::source::{Prefix, Source, SourceError};
use draws::Draws;
use programs::{Cause, Kernel, Socket};
use tcp::{Connection, Happening, Packet};

pub use programs::{Met, NOTHING_ASKED};

/// The maximum nesting of programs on one CPU.
const DEEPEST: usize = 3;

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The number of CPUs.
    pub cpus: u32,
    /// The maximum size of each CPU's ring in bytes.
    pub ring_bytes: usize,
    /// The size of the flow table.
    pub slots: u32,
    /// Segments of 1000 that are lost on the path.
    pub losses_permille: u64,
    /// Packets of 1000 that have no flow or no parsable headers.
    pub strange_permille: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { cpus: 2, ring_bytes: 1 << 20, slots: 1024, losses_permille: 5, strange_permille: 30, seed: 1 }
    }
}

/// The simulated kernel and its connections.
#[derive(Debug)]
pub struct Simulated {
    setup: Setup,
    kernel: Kernel,
    connections: Vec<Socketed>,
    /// The next socket's cookie.
    cookie: u64,
    now_ns: u64,
    draws: Draws,
}

/// A connection, its socket's cookie and its next event.
#[derive(Debug)]
struct Socketed {
    cookie: u64,
    connection: Connection,
    next: Option<Happening>,
    is_closed: bool,
}

impl Simulated {
    /// Create a simulation without connections, and with logging disabled.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            kernel: Kernel::new(setup.cpus, setup.ring_bytes, setup.slots),
            connections: Vec::new(),
            cookie: 1,
            now_ns: 1_800_000_000_000_000_000,
            draws: Draws::new(setup.seed),
        }
    }

    /// Open a connection that will carry `bytes` bytes.
    pub fn connect(&mut self, bytes: u64) {
        let cookie = self.cookie;
        self.cookie += 1;
        let mut connection = Connection::new(bytes, self.setup.losses_permille, self.draws.any());
        let next = connection.next();
        self.connections.push(Socketed { cookie, connection, next, is_closed: false });
    }

    /// Advance the simulation by one step; return false where nothing is left to do.
    pub fn step(&mut self) -> bool {
        self.now_ns += 1 + self.draws.below(20_000);
        let cpu = self.draws.below(self.setup.cpus.into()) as usize;
        let may_start = !self.connections.is_empty() && self.kernel.depth(cpu) < DEEPEST;
        if may_start && (self.kernel.depth(cpu) == 0 || self.draws.happens(200)) {
            self.start(cpu);
        } else {
            self.kernel.advance(cpu, self.now_ns);
        }
        !self.connections.is_empty() || self.is_running()
    }

    /// Run all started programs to their end, without new events.
    pub fn rest(&mut self) {
        while self.is_running() {
            for cpu in 0..self.setup.cpus as usize {
                self.now_ns += 100;
                self.kernel.advance(cpu, self.now_ns);
            }
        }
    }

    /// Run until nothing is left to do.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Return the true disposition of every packet seen, in the order of the decisions.
    #[must_use]
    pub fn truth(&self) -> &[Met] {
        &self.kernel.truth
    }

    /// Return the virtual time.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_running(&self) -> bool {
        (0..self.setup.cpus as usize).any(|cpu| self.kernel.depth(cpu) > 0)
    }

    /// Start the program for the next event of a random connection.
    fn start(&mut self, cpu: usize) {
        let at = self.draws.below(self.connections.len() as u64) as usize;
        let chosen = &mut self.connections[at];
        let cookie = chosen.cookie;
        let is_last = matches!(chosen.next, Some(Happening::Destroyed(_)));
        if (is_last || chosen.is_closed) && self.kernel.is_busy(cookie) {
            // A socket is destroyed only after its last user is done.
            return;
        }
        let Some(happening) = std::mem::replace(&mut chosen.next, chosen.connection.next()) else {
            self.connections.swap_remove(at);
            return;
        };
        chosen.is_closed |= is_last;
        let is_closed = chosen.is_closed;
        let cause = match happening {
            Happening::Packet(packet) => self.packet(cookie, is_closed, packet),
            Happening::Event(point, detail, state) => Cause::Event { cookie, point, detail, state },
            Happening::Destroyed(state) => Cause::Event { cookie, point: point::DESTROY, detail: 0, state },
        };
        self.kernel.start(cpu, cause);
    }

    /// Create a packet of this connection or, sometimes, one without a flow.
    fn packet(&mut self, cookie: u64, is_closed: bool, packet: Packet) -> Cause {
        let is_strange = self.draws.happens(self.setup.strange_permille);
        let own = |is_parsed| Socket::Connection { cookie, is_parsed, is_closed };
        let socket = match self.draws.below(4) {
            _ if !is_strange => own(true),
            0 => own(false),
            1 => Socket::None,
            2 => Socket::NoState,
            _ => Socket::Control,
        };
        Cause::Packet(socket, packet)
    }
}

impl Source for Simulated {
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError> {
        let mut records = 0;
        for cpu in 0..self.setup.cpus {
            while let Some(event) = self.kernel.take(cpu as usize) {
                take(cpu, &event);
                records += 1;
            }
        }
        Ok(records)
    }

    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError> {
        self.kernel.ask(options, prefixes);
        Ok(())
    }

    fn flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.kernel.show(show);
    }

    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError> {
        self.kernel.release(slot)
    }

    fn totals(&self) -> Result<Vec<Totals>, SourceError> {
        Ok(self.kernel.totals())
    }
}
