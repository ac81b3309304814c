//! The main loop.

use sojourn_port::PortError;
use sojourn_time::{Ahead, Clock, Nanos, Next, Pace, Pacer, Seconds, Stamp, Time, Wait};

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

/// Frames read per poll of a port, so that departures are not delayed.
const MOST_IN: usize = 64;
/// Departures handed to the kernel in one batch: the first of them waits for the last.
pub const MOST_OUT: usize = 32;
/// Interval of calls to the surroundings; `PATIENCE`: the longest time that departures may postpone requests.
const LOOK_UP: Nanos = Nanos::millis(1);
const PATIENCE: Nanos = Nanos::millis(50);
/// Requests are handled if the next departure is further away than this.
const PAUSE: Nanos = Nanos::micros(300);
/// Spins for the whole wait: only the clock is read.
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
    /// Path delay outside the emulator: before the RX timestamp, and after the send call.
    compensation: Nanos,
    /// End of the last wait, and whether the next departure is one to learn from.
    left_off: Time,
    is_learning: bool,
    guard: Guard,
    look: Look,
    is_shared: bool,
    /// Frames of both ports to be sorted by arrival, and the position of each.
    arrivals: (Vec<u8>, Vec<Waiting>),
    start: Time,
    /// Warnings since the start.
    warnings: Warnings,
    /// When the surroundings were last called: `keep`, `look_up`.
    kept: Time,
    looked_up: Time,
    seconds: Seconds,
    slept: Nanos,
    /// Frames received when `is_busy` was last called.
    seen: u64,
    /// `CLOCK_TAI` minus the driver's clock.
    tai: Ahead,
}

/// A received frame that is to be sorted by arrival.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    stamp: Stamp,
    way: usize,
    from: usize,
    to: usize,
}

impl<C: Clock> Driver<C> {
    /// Creates a driver; traces and outages begin now.
    ///
    /// # Errors
    /// If the configuration contradicts itself.
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
            seconds: Seconds::new(start),
            slept: Nanos::ZERO,
            seen: 0,
            tai,
        })
    }

    /// Sets the path delay outside the emulator, which is subtracted from each departure; it is measured from both sides of the path.
    pub fn compensate(&mut self, path_delay: Nanos) {
        self.compensation = path_delay;
    }

    /// Bridges until the surroundings return [`Flow::Stop`].
    ///
    /// # Errors
    /// If a port fails.
    pub fn run(&mut self, around: &mut dyn Surroundings<C>) -> Result<(), PortError> {
        let mut is_behind = false;
        loop {
            // Under overload arrivals wait in the kernel, whose buffers are limited, and not in our memory.
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

    /// Changes pipes in one step; if one of them cannot change, none does. Returns the number of the first packet to
    /// which the changes apply, and the time from which each holds.
    ///
    /// # Errors
    /// If a pipe does not exist, or the new configuration contradicts itself.
    pub fn set(&mut self, pipes: &[Pipe]) -> Result<(u64, Vec<Time>), ConfigError> {
        let times = self.engine.set_all(pipes, self.clock.now())?;
        Ok((self.engine.next_number(), times))
    }

    /// Begins a block. Returns the report of the block before, and the number of the new block's first packet.
    pub fn begin(&mut self) -> (Report, u64) {
        self.count_passed();
        (self.engine.begin(), self.engine.next_number())
    }

    /// Ends the emulation: packets that still wait are recorded as lost because it ended.
    pub fn end(&mut self) {
        self.engine.end();
    }

    /// Returns the engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns the current configuration.
    pub fn config(&self) -> &Config {
        self.engine.config()
    }

    /// Returns `CLOCK_TAI` minus the driver's clock, as last measured.
    pub fn tai_ahead(&self) -> Nanos {
        self.tai.now()
    }

    /// Returns the time at which traces and outages began.
    pub fn start(&self) -> Time {
        self.start
    }

    /// Takes the warnings since the last call, one sentence each; their number per minute is limited.
    pub fn news(&mut self, now: Time) -> Vec<String> {
        self.warnings.take(now)
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns whether any packet is held or a frame was received since the last call.
    pub fn is_busy(&mut self) -> bool {
        let received = self.ways.iter().map(|way| way.received).sum();
        let has_come = std::mem::replace(&mut self.seen, received) != received;
        has_come || self.engine.next() != Time::NEVER
    }

    /// Counts the frames that the kernel bridged itself since the last call.
    fn count_passed(&mut self) {
        for direction in DIRECTIONS {
            let (way, port) = (&mut self.ways[direction.index()], &self.ports[direction.index()]);
            let now = port.passed();
            self.engine.passed(direction, now.received.saturating_sub(way.passed.received));
            way.passed = now;
        }
    }

    /// Reports the current state.
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

    /// Receives the frames that wait at both ports.
    fn receive(&mut self) -> Result<usize, PortError> {
        let before = self.clock.now();
        let taken = if self.is_shared { self.receive_in_order()? } else { self.receive_straight()? };
        if taken == 0 {
            self.look.took(self.clock.now() - before);
        }
        Ok(taken)
    }

    /// Passes frames from their ring directly to the engine or the other port.
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

    /// Receives frames of both ports and pass them on in the order of their timestamps.
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

    /// Returns how long before its intended departure a frame is released.
    fn lead(&self) -> Nanos {
        self.cost.lead() + self.compensation
    }

    /// Sends what is due. `is_awaited`: the driver waited for the first departure, so the cost of sending can be learnt from it.
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

    /// Puts a frame into the TX ring, or behind the frames that wait for room in it.
    fn offer(&mut self, departure: Departure) -> Result<(), PortError> {
        let index = departure.direction.index();
        let (way, port) = (&mut self.ways[index], &mut self.ports[1 - index]);
        let frame = self.engine.frame(&departure);
        if way.stuck.is_empty() && port.put(frame)? {
            way.put.push(departure);
        } else if frame.len() > port.longest() {
            // Checked only now: a port re-reads its MTU when it cannot take a frame.
            self.engine.refused(departure);
        } else {
            way.stuck.push_back(departure);
        }
        Ok(())
    }

    /// Retrys frames that found the ring full, until they are later than the budget allows.
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

    /// Hands the content of a TX ring to the kernel.
    ///
    /// A frame counts as sent when the kernel is called to send it; in a batch, at its share of the call. The return of
    /// the call is no measure: over a veth the call also carries the frame through the receiver's stack, long after it
    /// was on the wire.
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

    /// Waits until the next departure: poll again, spin, or sleep, depending on the time left.
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
        // Also after a first part that lasted into the second.
        if woke >= until {
            self.guard.woke(until, woke);
        }
        Ok(())
    }

    /// Warns if the host's clock was set; departures do not depend on it.
    fn watch_clock(&mut self, now: Time) {
        let Self { tai, clock, .. } = self;
        let Some(step) = tai.look(now, || clock.tai_ahead()) else { return };
        let way = if step > Nanos::ZERO { "forward" } else { "back" };
        let by = time_text(Nanos(step.0.abs()));
        self.warnings.add(format!("the clock was set {way} by {by}: departures do not follow it"), now);
    }

    /// Calls the surroundings if it is time.
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
        if self.seconds.have_passed(now) {
            for port in &mut self.ports {
                port.local_drops();
            }
        }
        self.hear_ports(now)?;
        let rest = self.slept.0 as f64 / waited.0.max(1) as f64;
        self.slept = Nanos::ZERO;
        Ok(around.look_up(self, now, rest))
    }

    /// Turns the last news of the ports into warnings.
    ///
    /// # Errors
    /// If a port was lost.
    pub fn hear_ports_at_the_end(&mut self, now: Time) -> Result<(), PortError> {
        self.ports.iter_mut().for_each(|port| port.end());
        self.hear_ports(now)
    }

    /// Turns the news of the ports into warnings.
    ///
    /// # Errors
    /// If a port is lost.
    fn hear_ports(&mut self, now: Time) -> Result<(), PortError> {
        for (port, backlog) in self.ports.iter_mut().zip(&mut self.backlogs) {
            while let Some(news) = port.news()? {
                self.warnings.add(news, now);
            }
            if backlog.news() {
                let (name, most) = (port.name(), time_text(MOST_WAIT));
                let said = format!(
                    "overload: frames that {name} has held unread for more than {most} are dropped (local_drops)"
                );
                self.warnings.add(said, now);
            }
        }
        Ok(())
    }
}
