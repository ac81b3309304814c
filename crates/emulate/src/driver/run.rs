//! The loop itself.

use sojourn_port::PortError;
use sojourn_time::{Ahead, Clock, Nanos, Next, Pace, Pacer, Stamp, Time, Wait};

use super::backlog::{Backlog, MOST_WAIT};
use super::pace::{Cost, Guard, Look};
use super::shared::is_shared;
use super::warnings::Warnings;
use super::way::{Way, outlet};
use super::{Calibration, Flow, PortReport, Ports, Running, Surroundings};
use crate::ConfigError;
use crate::accuracy::Report;
use crate::config::units::time_text;
use crate::config::{Config, Direction, Pipe};
use crate::engine::{Arrived, Departure, Engine};

/// Frames that one look at a port takes in, so that departures get their turn.
const MOST_IN: usize = 64;
/// Departures that are handed to the kernel together: the first waits for the last.
pub const MOST_OUT: usize = 32;
/// How often requests and records get their turn, and how long departures may keep requests from it.
const LOOK_UP: Nanos = Nanos::millis(1);
const PATIENCE: Nanos = Nanos::millis(50);
/// Requests get their turn where the next departure is further away than that.
const PAUSE: Nanos = Nanos::micros(300);
/// A wait at the end of which only the clock is looked at.
const SPIN: Nanos = Nanos(i64::MAX);

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// An engine between two ports.
pub struct Driver<C> {
    engine: Engine,
    ways: [Way; 2],
    backlogs: [Backlog; 2],
    ports: Ports,
    clock: C,
    pacer: Pacer,
    cost: Cost,
    /// The delay of the path outside: before the RX timestamp, and behind the call that sends.
    compensation: Nanos,
    /// When waiting ended, and whether the departure after it is one to learn from.
    left_off: Time,
    is_learning: bool,
    guard: Guard,
    look: Look,
    is_shared: bool,
    /// Frames of both ports until they are put in order, and where each lies.
    arrivals: (Vec<u8>, Vec<Waiting>),
    start: Time,
    /// What has come up meanwhile.
    warnings: Warnings,
    /// When others last had their turn.
    kept: Time,
    looked_up: Time,
    slept: Nanos,
    /// Frames that had come in when it was last asked whether it is busy.
    seen: u64,
    /// By how much `CLOCK_TAI` is ahead of the driver's clock.
    tai: Ahead,
}

/// A frame that waits to be put in order.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    stamp: Stamp,
    way: usize,
    from: usize,
    to: usize,
}

impl<C: Clock> Driver<C> {
    /// Makes a driver; its traces and outages begin now.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(config: &Config, ports: Ports, clock: C, wait: Wait) -> Result<Self, ConfigError> {
        let (start, tai) = (clock.now(), Ahead::new(clock.tai_ahead()));
        Ok(Self {
            engine: Engine::new(config, start)?,
            ways: Default::default(),
            backlogs: [Backlog::new(start); 2],
            ports,
            pacer: Pacer::new(Pace { wait, is_real_time: false }, Nanos::ZERO, Nanos::ZERO, &clock),
            clock,
            cost: Cost::default(),
            compensation: Nanos::ZERO,
            left_off: start,
            is_learning: false,
            guard: Guard::new(wait),
            look: Look::default(),
            is_shared: is_shared(config),
            arrivals: Default::default(),
            start,
            warnings: Warnings::new(start),
            kept: start,
            looked_up: start,
            slept: Nanos::ZERO,
            seen: 0,
            tai,
        })
    }

    /// Takes off each departure what the path is known to cost outside the emulator: found out by whoever sees both sides.
    pub fn compensate(&mut self, path_delay: Nanos) {
        self.compensation = path_delay;
    }

    /// Bridges until its surroundings say stop.
    ///
    /// # Errors
    /// When a port fails.
    pub fn run(&mut self, around: &mut dyn Surroundings<C>) -> Result<(), PortError> {
        let mut is_behind = false;
        loop {
            // What comes in faster than it can leave waits in the kernel, whose room is limited, and not in our memory.
            let taken = if is_behind { 0 } else { self.receive()? };
            let left = self.depart(false)?;
            let now = self.clock.now();
            is_behind = left >= MOST_OUT && self.engine.next() <= now + self.lead();
            if self.give_turns(now, around)? == Flow::Stop {
                return Ok(());
            }
            if taken + left == 0 {
                self.idle(around)?;
            }
        }
    }

    /// Changes pipes, all in one step: none is changed where one of them cannot be. Returns the number of the first packet that
    /// they hold for, and since when each of them holds.
    ///
    /// # Errors
    /// When there is no such pipe, or the new configuration contradicts itself.
    pub fn set(&mut self, pipes: &[Pipe]) -> Result<(u64, Vec<Time>), ConfigError> {
        let times = self.engine.set_all(pipes, self.clock.now())?;
        Ok((self.engine.next_number(), times))
    }

    /// Begins a block, and returns what became of everything in the one before, and the number of the new one's first packet.
    pub fn begin(&mut self) -> (Report, u64) {
        self.count_passed();
        (self.engine.begin(), self.engine.next_number())
    }

    /// Ends what waits: its disposition is to have been there at the end.
    pub fn end(&mut self) {
        self.engine.end();
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The configuration as it is now.
    pub fn config(&self) -> &Config {
        self.engine.config()
    }

    /// By how much `CLOCK_TAI` is ahead of the clock of all its times, as it was found last.
    pub fn tai_ahead(&self) -> Nanos {
        self.tai.now()
    }

    /// When its traces and outages began.
    pub fn start(&self) -> Time {
        self.start
    }

    /// Takes what a person should know that has come up since this was last asked, a sentence each; so many a minute.
    pub fn news(&mut self, now: Time) -> Vec<String> {
        self.warnings.take(now)
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Whether anything is held, or a frame has come in since this was last asked.
    pub fn is_busy(&mut self) -> bool {
        let received = self.ways.iter().map(|way| way.received).sum();
        let has_come = std::mem::replace(&mut self.seen, received) != received;
        has_come || self.engine.next() != Time::NEVER
    }

    /// Counts what has passed within the kernel since this was last done.
    fn count_passed(&mut self) {
        for direction in DIRECTIONS {
            let (way, port) = (&mut self.ways[direction.index()], &self.ports[direction.index()]);
            let now = port.passed();
            self.engine.passed(direction, now.received.saturating_sub(way.passed.received));
            way.passed = now;
        }
    }

    /// Says how it is going.
    pub fn report(&mut self) -> Running {
        self.count_passed();
        let [forward, backward] = &self.ways;
        let ports = [(0, forward, backward), (1, backward, forward)].map(|(index, inward, outward)| {
            let port = &mut self.ports[index];
            PortReport {
                name: port.name().to_owned(),
                engine: port.engine().to_owned(),
                received: inward.received + inward.passed.received,
                sent: outward.sent + outward.passed.sent,
                refused: outward.refused + outward.passed.lost(),
                local_drops: port.local_drops() + self.backlogs[index].dropped(),
            }
        });
        let calibration = Calibration {
            cost_ns: self.cost.lead(),
            compensation_ns: self.compensation,
            guard_ns: self.guard.span(),
            wait: self.pacer.pace().wait.name(),
        };
        Running {
            start_ns: self.start,
            now_ns: self.clock.now(),
            tai_ahead_ns: self.tai.now(),
            engine: self.engine.report(),
            ports: ports.into(),
            calibration,
            said: self.warnings.last(),
        }
    }

    /// Takes in what is there.
    fn receive(&mut self) -> Result<usize, PortError> {
        let before = self.clock.now();
        let taken = if self.is_shared { self.receive_in_order()? } else { self.receive_straight()? };
        if taken == 0 {
            self.look.took(self.clock.now() - before);
        }
        Ok(taken)
    }

    /// Takes frames from their ring right to where they go.
    fn receive_straight(&mut self) -> Result<usize, PortError> {
        let mut taken = 0;
        for direction in DIRECTIONS {
            let way = &mut self.ways[direction.index()];
            let backlog = &mut self.backlogs[direction.index()];
            let before = backlog.dropped();
            let (from, mut out) = outlet(&mut self.ports, way, direction);
            let engine = &mut self.engine;
            let count = from.receive(MOST_IN, &mut |frame, received| {
                if backlog.drops(received.arrived.at, received.returned) {
                    return;
                }
                if let Arrived::Unmatched = engine.arrive_stamped(direction, frame, received.arrived) {
                    out.put(frame);
                }
            })?;
            out.flush()?;
            if count > 0 {
                way.received += count as u64 - (backlog.dropped() - before);
                taken += count;
            } else {
                backlog.is_empty();
            }
        }
        Ok(taken)
    }

    /// Takes frames of both ports, and lets them arrive in the order of their stamps.
    fn receive_in_order(&mut self) -> Result<usize, PortError> {
        let (frames, waiting) = &mut self.arrivals;
        frames.clear();
        waiting.clear();
        let mut read = 0;
        for (index, port) in self.ports.iter_mut().enumerate() {
            let backlog = &mut self.backlogs[index];
            let count = port.receive(MOST_IN, &mut |frame, received| {
                if backlog.drops(received.arrived.at, received.returned) {
                    return;
                }
                let from = frames.len();
                frames.extend_from_slice(frame);
                waiting.push(Waiting { stamp: received.arrived, way: index, from, to: frames.len() });
            })?;
            if count == 0 {
                backlog.is_empty();
            }
            read += count;
        }
        waiting.sort_by_key(|frame| frame.stamp.at);
        for frame in waiting.iter() {
            let (direction, bytes) = (DIRECTIONS[frame.way], &frames[frame.from..frame.to]);
            self.ways[frame.way].received += 1;
            if let Arrived::Unmatched = self.engine.arrive_stamped(direction, bytes, frame.stamp) {
                let mut out = outlet(&mut self.ports, &mut self.ways[frame.way], direction).1;
                out.put(bytes);
                out.failed?;
            }
        }
        for direction in DIRECTIONS {
            let (_, out) = outlet(&mut self.ports, &mut self.ways[direction.index()], direction);
            out.flush()?;
        }
        Ok(read)
    }

    /// How long before its intended departure a frame is let go.
    fn lead(&self) -> Nanos {
        self.cost.lead() + self.compensation
    }

    /// Lets go what is due. `is_awaited`: the driver has waited for the first one's time, and so can learn what it takes.
    fn depart(&mut self, is_awaited: bool) -> Result<usize, PortError> {
        let leaving = self.clock.now();
        self.retry(leaving)?;
        let mut count = 0;
        while count < MOST_OUT
            && let Some(departure) = self.engine.due(leaving + self.lead())
        {
            self.offer(departure)?;
            count += 1;
        }
        let is_single = count == 1 && self.ways.iter().all(|way| way.stuck.is_empty());
        (self.left_off, self.is_learning) = (leaving, is_awaited && is_single);
        for index in 0..2 {
            self.let_go(index)?;
        }
        Ok(count)
    }

    /// Puts a frame into its ring, behind those that wait for room.
    fn offer(&mut self, departure: Departure) -> Result<(), PortError> {
        let index = departure.direction.index();
        let (way, port) = (&mut self.ways[index], &mut self.ports[1 - index]);
        let frame = self.engine.frame(&departure);
        if way.stuck.is_empty() && port.put(frame)? {
            way.put.push(departure);
        } else if frame.len() > port.longest() {
            // Asked afterwards: a port looks whether it has become longer when it is to take what it could not.
            self.engine.refused(departure);
        } else {
            way.stuck.push_back(departure);
        }
        Ok(())
    }

    /// Tries again what found no room, until it is later than the budget allows.
    fn retry(&mut self, now: Time) -> Result<(), PortError> {
        for index in 0..2 {
            let (way, port) = (&mut self.ways[index], &mut self.ports[1 - index]);
            if way.stuck.is_empty() {
                continue;
            }
            port.flush()?;
            while let Some(departure) = way.stuck.front().copied() {
                if port.put(self.engine.frame(&departure))? {
                    way.put.push(departure);
                } else if now > departure.intended + self.engine.config().budget {
                    self.engine.refused(departure);
                } else {
                    break;
                }
                way.stuck.pop_front();
            }
        }
        Ok(())
    }

    /// Hands what is in a ring to the kernel.
    ///
    /// A frame counts as gone when the kernel is called to take it, and in a batch when its turn came. Not when the call
    /// returns: over a veth that call also carries the frame through the receiver's stack, long after it was on the wire.
    fn let_go(&mut self, index: usize) -> Result<(), PortError> {
        let way = &mut self.ways[index];
        if way.put.is_empty() {
            return Ok(());
        }
        let called = self.clock.now();
        self.ports[1 - index].flush()?;
        let count = way.put.len() as i64;
        let each = if count > 1 { Nanos((self.clock.now() - called).0 / count) } else { Nanos::ZERO };
        way.sent += count.unsigned_abs();
        for (place, departure) in way.put.drain(..).enumerate() {
            self.engine.departed(departure, called + self.compensation + Nanos(each.0 * place as i64));
        }
        if self.is_learning {
            self.cost.took(called - self.left_off);
        }
        Ok(())
    }

    /// Waits: looks again at once, or at the clock alone, or sleeps, by how long there is.
    fn idle(&mut self, around: &mut dyn Surroundings<C>) -> Result<(), PortError> {
        let now = self.clock.now();
        let due = self.engine.next() - self.lead();
        if due <= now || self.ways.iter().any(|way| !way.stuck.is_empty()) {
            return Ok(());
        }
        (self.pacer.wake, self.pacer.quiet) = (self.guard.span(), self.look.quiet());
        let until = match self.pacer.next(now, due) {
            Next::Depart => {
                self.clock.wait_until(due, SPIN);
                return self.depart(true).map(|_| ());
            }
            Next::Look => return Ok(()),
            Next::Sleep(until) => until,
        };
        let first_part = self.guard.first_part(now, until);
        let is_asked = around.sleep(&self.ports, first_part.unwrap_or(until))?;
        let woke = self.clock.now();
        self.slept += woke - now;
        if is_asked {
            self.looked_up = woke - LOOK_UP;
        }
        // Of a first part as well, where it took the second one's time and more.
        if woke >= until {
            self.guard.woke(until, woke);
        }
        Ok(())
    }

    /// Notes when somebody has set the clock of the host: no departure follows it.
    fn watch_clock(&mut self, now: Time) {
        let Self { tai, clock, .. } = self;
        let Some(step) = tai.look(now, || clock.tai_ahead()) else { return };
        let way = if step > Nanos::ZERO { "forward" } else { "back" };
        let by = time_text(Nanos(step.0.abs()));
        self.warnings.add(format!("the clock was set {way} by {by}: departures do not follow it"), now);
    }

    /// Lets others have their turn, where it is time for it.
    fn give_turns(&mut self, now: Time, around: &mut dyn Surroundings<C>) -> Result<Flow, PortError> {
        if now - self.kept >= LOOK_UP {
            self.kept = now;
            self.watch_clock(now);
            around.keep(self);
        }
        let waited = now - self.looked_up;
        let is_pause = self.engine.next() - now > PAUSE;
        if waited < LOOK_UP || !(is_pause || waited >= PATIENCE) {
            return Ok(Flow::On);
        }
        self.looked_up = now;
        for port in 0..self.ports.len() {
            while let Some(news) = self.ports[port].news()? {
                self.warnings.add(news, now);
            }
            if self.backlogs[port].news() {
                let (name, most) = (self.ports[port].name(), time_text(MOST_WAIT));
                let said = format!(
                    "overload: frames that {name} has held unread for more than {most} are dropped (local_drops)"
                );
                self.warnings.add(said, now);
            }
        }
        let rest = self.slept.0 as f64 / waited.0.max(1) as f64;
        self.slept = Nanos::ZERO;
        Ok(around.look_up(self, now, rest))
    }
}
