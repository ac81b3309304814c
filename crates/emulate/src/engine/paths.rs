//! All running pipes, and the times of their next events.

use sojourn_time::Time;

use super::accounting::Accounting;
use super::agenda::Agenda;
use crate::config::check::ConfigError;
use crate::config::{self, Config};
use crate::pipe::Path;
use crate::pipe::flows::{Flows, SHARED};
use crate::select::Key;
use sojourn_time::near::did_you_mean;

/// The pipes of a configuration, with their instances for single flows.
#[derive(Debug)]
pub(super) struct Paths {
    /// By pipe of the configuration.
    ways: Vec<Way>,
    pool: Pool,
}

/// How a packet finds its path (the instance of a pipe).
#[derive(Debug)]
enum Way {
    Only(u32),
    ByFlow(Box<Flows>),
}

/// All paths of all pipes.
#[derive(Debug)]
struct Pool {
    config: Config,
    start: Time,
    paths: Vec<Path>,
    /// Paths without a flow; they are reused when they are empty.
    left: Vec<u32>,
    /// Number of paths ever made.
    made: u64,
    /// Next events of links.
    events: Agenda,
    /// Latest times to process these events so that no departure is late: later by the minimum delay.
    needed: Agenda,
    /// Next departures from delay lines.
    exits: Agenda,
}

impl Paths {
    pub fn new(config: &Config, start: Time) -> Self {
        let mut pool = Pool {
            config: config.clone(),
            start,
            paths: Vec::new(),
            left: Vec::new(),
            made: 0,
            events: Agenda::default(),
            needed: Agenda::default(),
            exits: Agenda::default(),
        };
        let ways = (0..config.pipes.len()).map(|place| pool.way(place as u16)).collect();
        Self { ways, pool }
    }

    /// Returns the next events of links.
    pub fn events(&self) -> &Agenda {
        &self.pool.events
    }

    /// Returns the latest times to process these events so that no departure is late.
    pub fn needed(&self) -> &Agenda {
        &self.pool.needed
    }

    /// Returns the next departures from delay lines.
    pub fn exits(&self) -> &Agenda {
        &self.pool.exits
    }

    pub fn config(&self) -> &Config {
        &self.pool.config
    }

    /// Returns each pipe's name, and its number of paths.
    pub fn names(&self) -> impl Iterator<Item = (String, u64)> {
        self.pool.config.pipes.iter().zip(&self.ways).map(|(pipe, way)| {
            let flows = match way {
                Way::Only(_) => 1,
                Way::ByFlow(flows) => flows.len(),
            };
            (pipe.name.clone(), flows)
        })
    }

    /// Returns the index of a pipe by its name.
    pub fn place_of(&self, name: &str) -> Result<u16, ConfigError> {
        let names: Vec<_> = self.pool.config.pipes.iter().map(|pipe| pipe.name.as_str()).collect();
        let place = names.iter().position(|known| *known == name);
        place.map(|place| place as u16).ok_or_else(|| ConfigError {
            place: format!("pipe `{name}`"),
            problem: format!("there is none{}; there are {}", did_you_mean(name, &names), self.all_names()),
        })
    }

    /// Returns the configuration with `pipes` in place of the pipes of the same names.
    pub fn changed(&self, pipes: &[config::Pipe]) -> Result<Config, ConfigError> {
        let mut config = self.pool.config.clone();
        for pipe in pipes {
            config.pipes[usize::from(self.place_of(&pipe.name)?)].clone_from(pipe);
        }
        Ok(config)
    }

    /// Passes a packet to a pipe.
    pub fn enter(&mut self, slot: u32, pipe: u16, key: &Key, at: Time, accounting: &mut Accounting) {
        match &mut self.ways[usize::from(pipe)] {
            Way::Only(path) => {
                self.pool.enter(*path, slot, at, accounting);
            }
            Way::ByFlow(flows) => {
                let (path, at) = self.pool.of_flow(flows, pipe, key, at, accounting);
                let at = self.pool.enter(path, slot, at, accounting);
                if flows.shared != Some(path) {
                    flows.note(at);
                }
            }
        }
    }

    /// Returns the time of the next event of a path's link.
    pub fn next_event(&self, path: u32) -> Time {
        self.pool.paths[path as usize].next_event()
    }

    /// Processes the events of a path's link until `until`.
    pub fn serve(&mut self, path: u32, until: Time, accounting: &mut Accounting) {
        self.pool.paths[path as usize].serve(until, accounting);
        self.pool.ask(path);
    }

    /// Takes the next packet out of its delay line.
    pub fn leave(&mut self) -> Option<(u32, Time)> {
        let (_, path) = self.pool.exits.first()?;
        let left = self.pool.paths[path as usize].line.pop();
        self.pool.ask(path);
        left
    }

    /// Changes the parameters of all paths of a pipe; returns the time from which they hold.
    pub fn set(&mut self, place: u16, to: &config::Pipe, now: Time, accounting: &mut Accounting) -> Time {
        let old_mask = self.pool.config.pipes[usize::from(place)].mask;
        let now = self.pool.set(place, to, now, accounting);
        if old_mask != to.mask {
            self.leave_flows(place);
        }
        now
    }

    /// Discards all packets.
    pub fn clear(&mut self) {
        self.pool.clear();
    }

    fn all_names(&self) -> String {
        let names: Vec<_> = self.pool.config.pipes.iter().map(|pipe| format!("`{}`", pipe.name)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// Starts new flows for a pipe; packets in its old paths still leave by them.
    fn leave_flows(&mut self, place: u16) {
        let new = self.pool.way(place);
        match std::mem::replace(&mut self.ways[usize::from(place)], new) {
            Way::Only(path) => self.pool.left.push(path),
            Way::ByFlow(flows) => self.pool.left.extend(flows.paths()),
        }
    }
}

impl Pool {
    /// Passes a packet to a path; returns its actual entry time.
    fn enter(&mut self, path: u32, slot: u32, at: Time, accounting: &mut Accounting) -> Time {
        let at = self.paths[path as usize].enter(slot, at, accounting);
        self.ask(path);
        at
    }

    fn set(&mut self, place: u16, to: &config::Pipe, now: Time, accounting: &mut Accounting) -> Time {
        self.config.pipes[usize::from(place)].clone_from(to);
        let of_pipe = |path: &&mut Path| path.pipe == place;
        let now = self.paths.iter_mut().filter(of_pipe).map(|path| path.earliest()).fold(now, Time::max);
        for path in self.paths.iter_mut().filter(of_pipe) {
            path.set(to, self.start, now, accounting);
        }
        for path in 0..self.paths.len() as u32 {
            self.ask(path);
        }
        now
    }

    fn clear(&mut self) {
        for (index, path) in self.paths.iter_mut().enumerate() {
            let pipe = &self.config.pipes[usize::from(path.pipe)];
            *path = Path::new(path.pipe, pipe, path.flow, self.config.seed, self.start);
            for agenda in [&mut self.events, &mut self.needed, &mut self.exits] {
                agenda.set(index as u32, Time::NEVER);
            }
        }
    }

    /// Updates a path's next events.
    fn ask(&mut self, path: u32) {
        let asked = &self.paths[path as usize];
        self.events.set(path, asked.next_event());
        self.needed.set(path, asked.needed());
        self.exits.set(path, asked.line.next());
    }

    fn way(&mut self, place: u16) -> Way {
        match self.config.pipes[usize::from(place)].mask {
            Some(mask) => Way::ByFlow(Box::new(Flows::new(mask))),
            None => Way::Only(self.make(place, 0)),
        }
    }

    /// Makes a path, in place of an unused one if possible.
    fn make(&mut self, place: u16, flow: u64) -> u32 {
        let path = Path::new(place, &self.config.pipes[usize::from(place)], flow, self.config.seed, self.start);
        let unused = self.left.iter().position(|left| self.paths[*left as usize].is_unused());
        let index = match unused {
            Some(unused) => {
                let index = self.left.swap_remove(unused);
                self.paths[index as usize] = path;
                index
            }
            None => {
                self.paths.push(path);
                self.paths.len() as u32 - 1
            }
        };
        // At equal times the older path is first: the index of a path depends on when departures were fetched.
        self.made += 1;
        for agenda in [&mut self.events, &mut self.needed, &mut self.exits] {
            agenda.set(index, Time::NEVER);
            agenda.rank(index, self.made);
        }
        index
    }

    /// Finds or makes the path of a packet's flow; beyond the limit on flows, returns the shared path. Also returns the
    /// entry time: whether another flow's path is reclaimed is decided at a time at which the packet could also enter
    /// the shared path, so that a replay decides the same from that time.
    fn of_flow(
        &mut self,
        flows: &mut Flows,
        pipe: u16,
        key: &Key,
        at: Time,
        accounting: &mut Accounting,
    ) -> (u32, Time) {
        let flow = flows.of(key);
        if let Some(path) = flows.touch(flow) {
            return (path, at);
        }
        let mut at = at;
        if flows.is_full() {
            at = flows.shared.map_or(at, |shared| at.max(self.paths[shared as usize].earliest()));
            if !self.reclaim(flows, at, accounting) {
                accounting.counts(pipe).over_flow_limit += 1;
                return (*flows.shared.get_or_insert_with(|| self.make(pipe, SHARED)), at);
            }
        }
        let path = self.make(pipe, flow);
        flows.insert(flow, path, at);
        (path, at)
    }

    /// Reclaims the path of the least recently used flow, if that flow is idle.
    fn reclaim(&mut self, flows: &mut Flows, at: Time, accounting: &mut Accounting) -> bool {
        let Some(path) = flows.idle(at) else { return false };
        self.paths[path as usize].serve(at, accounting);
        let is_idle = self.paths[path as usize].is_idle(at);
        if is_idle {
            flows.evict();
            self.left.push(path);
        }
        self.ask(path);
        is_idle
    }
}
