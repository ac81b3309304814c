//! The engine: takes frames and arrival times, returns intended departures.
//!
//! Its time is virtual. [`Engine::arrive`] and [`Engine::advance`] advance it; [`Engine::due`] returns departures.
//! Intended departures do not depend on when these are called, as long as no frame is handed over later than its
//! timestamp says. A late frame enters its pipe at the pipe's current time, and its disposition records that
//! (`entered`).
//!
//! A packet passes one pipe; pipes are independent of each other.

pub(crate) mod accounting;
mod agenda;
mod numbers;
mod paths;

use sojourn_time::{Source, Stamp, Time};

use crate::accuracy::Report;
use crate::config::check::{ConfigError, check};
use crate::config::{self, Config, Direction};
use crate::disposition::{Arrival, Cause, Disposition, Packet};
use crate::select::rules::Selected;
use crate::select::{Key, Rules};

use accounting::Accounting;
pub(crate) use numbers::{Numbers, Told};
use paths::Paths;

/// The emulator, without ports and clocks.
#[derive(Debug)]
pub struct Engine {
    rules: Rules,
    paths: Paths,
    accounting: Accounting,
}

/// What the engine did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Not for a pipe: bridge it now. The engine keeps no copy.
    Unmatched,
    /// Entered a pipe: the engine copied it.
    Kept,
    /// Lost.
    Lost,
}

/// A frame that is due for departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The intended departure.
    pub intended: Time,
    /// The direction.
    pub direction: Direction,
    /// The packet's number.
    pub number: u64,
    /// The pipe that it leaves, as an index into the configuration.
    pub pipe: u16,
    slot: u32,
}

impl Engine {
    /// Creates an engine whose traces and outages begin at `start`.
    ///
    /// # Errors
    /// Names the contradiction in the configuration.
    pub fn new(config: &Config, start: Time) -> Result<Self, ConfigError> {
        Self::numbered(config, start, Numbers::Counted(0))
    }

    pub(crate) fn numbered(config: &Config, start: Time, numbers: Numbers) -> Result<Self, ConfigError> {
        check(config)?;
        Ok(Self {
            rules: Rules::new(config)?,
            paths: Paths::new(config, start),
            accounting: Accounting::new(config.memory_bytes, config.budget, config.pipes.len(), numbers),
        })
    }

    /// Accepts a frame at the simulated time `at`. The frame begins with its destination MAC address and has no FCS.
    pub fn arrive(&mut self, direction: Direction, frame: &[u8], at: Time) -> Arrived {
        self.arrive_stamped(direction, frame, Stamp { at, source: Source::Simulated })
    }

    /// Accepts a frame with the timestamp of its arrival. The frame begins with its destination MAC address and has no FCS.
    pub fn arrive_stamped(&mut self, direction: Direction, frame: &[u8], stamp: Stamp) -> Arrived {
        self.arrive_late(direction, frame, stamp, stamp.at)
    }

    /// Accepts a frame of which only the first `known` bytes are known; otherwise as [`Engine::arrive`].
    pub fn arrive_cut(&mut self, direction: Direction, frame: &[u8], known: usize, at: Time) -> Arrived {
        self.take_in(direction, frame, known, Stamp { at, source: Source::Simulated }, at)
    }

    /// Accepts a frame that enters its pipe at `entered`, which may be later than its arrival.
    pub(crate) fn arrive_late(&mut self, direction: Direction, frame: &[u8], stamp: Stamp, entered: Time) -> Arrived {
        self.take_in(direction, frame, frame.len(), stamp, entered)
    }

    fn take_in(&mut self, direction: Direction, frame: &[u8], known: usize, stamp: Stamp, entered: Time) -> Arrived {
        let [bytes, known] =
            [frame.len(), known.min(frame.len())].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let number = self.accounting.numbers.of_arrival();
        let arrival = Arrival { number, direction, bytes, known, key: Key::of(frame), stamp, entered };
        match self.rules.select(&arrival.key, direction, bytes) {
            Selected::Pass => {
                self.accounting.unmatched(&arrival, frame);
                Arrived::Unmatched
            }
            Selected::Drop => {
                self.accounting.lost_by_rule(&arrival, frame);
                Arrived::Lost
            }
            Selected::Pipe { pipe, class } => {
                let packet = Packet::new(arrival, pipe, class);
                let Some(slot) = self.accounting.take(packet, frame) else { return Arrived::Lost };
                self.paths.enter(slot, pipe, &arrival.key, entered, &mut self.accounting);
                Arrived::Kept
            }
        }
    }

    /// Returns the time at which [`Engine::due`] next has work: [`Time::NEVER`] if none.
    pub fn next(&self) -> Time {
        self.paths.needed().next().min(self.next_departure())
    }

    /// Returns the time of the next event of a link.
    pub fn next_event(&self) -> Time {
        self.paths.events().next()
    }

    /// Returns the next departure from a delay line, among the departures known so far.
    pub fn next_departure(&self) -> Time {
        self.paths.exits().next()
    }

    /// Advances virtual time to `now`. Time never goes back.
    pub fn advance(&mut self, now: Time) {
        let now = now.min(Time(Time::NEVER.0 - 1));
        while let Some((at, path)) = self.paths.events().first().filter(|(at, _)| *at <= now) {
            self.paths.serve(path, at, &mut self.accounting);
        }
    }

    /// Returns the next frame whose intended departure is not after `until`, in the order of intended departures.
    ///
    /// A call of [`Engine::advance`] is not needed before. Links advance only as far as departures until then require,
    /// so that frames with timestamps older than `until` still enter a pipe with a delay at their proper time.
    pub fn due(&mut self, until: Time) -> Option<Departure> {
        while let Some((_, path)) = self.paths.needed().first().filter(|(at, _)| *at <= until) {
            let event = self.paths.next_event(path);
            self.paths.serve(path, event, &mut self.accounting);
        }
        self.paths.exits().first().filter(|(at, _)| *at <= until)?;
        let (slot, intended) = self.paths.leave()?;
        Some(self.departure(slot, intended))
    }

    /// Returns the frame of a departure.
    pub fn frame(&self, departure: &Departure) -> &[u8] {
        self.accounting.store.frame(departure.slot)
    }

    /// Returns the known part of a departure's frame: all of it, unless it was accepted by [`Engine::arrive_cut`].
    pub fn known(&self, departure: &Departure) -> &[u8] {
        let known = self.accounting.store.packet(departure.slot).arrival.known;
        &self.frame(departure)[..known as usize]
    }

    /// Records that a frame was sent at `actual`.
    pub fn departed(&mut self, departure: Departure, actual: Time) {
        self.accounting.sent(departure.slot, departure.intended, actual);
    }

    /// Records that the port refused a frame: it is lost.
    pub fn refused(&mut self, departure: Departure) {
        self.accounting.lose(departure.slot, Cause::Port);
    }

    /// Counts frames that were bridged without the engine because no rule could select them.
    pub fn passed(&mut self, direction: Direction, frames: u64) {
        self.accounting.passed(direction, frames);
    }

    /// Changes the parameters of a pipe and of all its flows at once. Packets in it stay, except those that a smaller
    /// queue cannot hold. Returns the time from which the parameters hold: `now`, or later if the pipe is already past
    /// it.
    ///
    /// # Errors
    /// Names the contradiction; then nothing has changed.
    pub fn set(&mut self, pipe: &str, to: &config::Pipe, now: Time) -> Result<Time, ConfigError> {
        let to = config::Pipe { name: pipe.to_owned(), ..to.clone() };
        Ok(self.set_all(std::slice::from_ref(&to), now)?.first().copied().unwrap_or(now))
    }

    /// Changes the parameters of several pipes, identified by name, in one step. Returns the time from which each change holds.
    ///
    /// # Errors
    /// Names the contradiction in the resulting configuration; then no pipe has changed.
    pub fn set_all(&mut self, pipes: &[config::Pipe], now: Time) -> Result<Vec<Time>, ConfigError> {
        let config = self.paths.changed(pipes)?;
        check(&config)?;
        let places = pipes.iter().map(|pipe| self.paths.place_of(&pipe.name)).collect::<Result<Vec<_>, _>>()?;
        for place in &places {
            // Cannot fail halfway: the check has found that every class exists.
            self.rules.set(*place, &config.pipes[usize::from(*place)])?;
        }
        let mut times = Vec::with_capacity(places.len());
        for place in places {
            let since = self.paths.set(place, &config.pipes[usize::from(place)], now, &mut self.accounting);
            self.accounting.changed(place, since);
            times.push(since);
        }
        Ok(times)
    }

    /// Turns the recording of dispositions on or off.
    pub fn keep_dispositions(&mut self, keeps: bool) {
        if keeps && !self.accounting.keeps_dispositions {
            self.accounting.store.keep_heads();
        }
        self.accounting.keeps_dispositions = keeps;
    }

    /// Drains the dispositions recorded since the last call, in the order in which packets ended.
    pub fn dispositions(&mut self) -> std::vec::Drain<'_, Disposition> {
        self.accounting.dispositions.drain(..)
    }

    /// Returns the number that the next arrival will get.
    pub fn next_number(&self) -> u64 {
        self.accounting.numbers.next()
    }

    /// Returns the current configuration.
    pub fn config(&self) -> &Config {
        self.paths.config()
    }

    /// Reports everything since the start.
    pub fn report(&self) -> Report {
        self.told(false)
    }

    /// Ends a block and begins the next: reports everything since the last call.
    pub fn begin(&mut self) -> Report {
        let report = self.told(true);
        self.accounting.begin();
        report
    }

    /// Ends the emulation: packets that still wait are lost.
    pub fn end(&mut self) {
        let mut slots: Vec<u32> = self.accounting.store.slots().collect();
        slots.sort_unstable_by_key(|slot| self.accounting.store.packet(*slot).arrival.number);
        slots.into_iter().for_each(|slot| self.accounting.lose(slot, Cause::Ended));
        self.paths.clear();
    }

    pub(crate) fn numbers(&mut self) -> &mut Numbers {
        &mut self.accounting.numbers
    }

    fn told(&self, is_block: bool) -> Report {
        let rules = self.rules.counters().collect();
        Report { rules, ..self.accounting.report(is_block, self.paths.names()) }
    }

    fn departure(&mut self, slot: u32, intended: Time) -> Departure {
        let packet = self.accounting.store.packet_mut(slot);
        packet.intended = Some(intended);
        Departure {
            intended,
            direction: packet.arrival.direction,
            number: packet.arrival.number,
            pipe: packet.pipe,
            slot,
        }
    }
}
