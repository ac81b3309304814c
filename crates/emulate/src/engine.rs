//! The engine: frames and times in, intended departures out.
//!
//! Its time is virtual. [`Engine::arrive`] and [`Engine::advance`] let it pass; [`Engine::due`] gives what leaves. When these are
//! called changes nothing of what is intended, as long as no frame comes later than its own stamp says: then it enters
//! its pipe where the pipe is, and its disposition says so (`entered`).
//!
//! A packet goes through one pipe, and pipes know nothing of each other.

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

/// What became of a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It is to be bridged now; the engine keeps nothing of it.
    Unmatched,
    /// The engine copied it.
    Kept,
    /// It is lost.
    Lost,
}

/// A frame that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When.
    pub intended: Time,
    /// Which way.
    pub direction: Direction,
    /// The packet's number.
    pub number: u64,
    /// The pipe that it leaves, by its place in the configuration.
    pub pipe: u16,
    slot: u32,
}

impl Engine {
    /// Makes an engine whose traces and outages begin at `start`.
    ///
    /// # Errors
    /// Names what contradicts itself in what is asked.
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

    /// Takes a frame that arrives at `at` in simulated time, from its destination address on, without FCS.
    pub fn arrive(&mut self, direction: Direction, frame: &[u8], at: Time) -> Arrived {
        self.arrive_stamped(direction, frame, Stamp { at, source: Source::Simulated })
    }

    /// Takes a frame that arrived as its timestamp says, from its destination address on, without FCS.
    pub fn arrive_stamped(&mut self, direction: Direction, frame: &[u8], stamp: Stamp) -> Arrived {
        self.arrive_late(direction, frame, stamp, stamp.at)
    }

    /// Takes a frame of which only the first `known` bytes are known, as [`Engine::arrive`] does.
    pub fn arrive_cut(&mut self, direction: Direction, frame: &[u8], known: usize, at: Time) -> Arrived {
        self.take_in(direction, frame, known, Stamp { at, source: Source::Simulated }, at)
    }

    /// Takes a frame that enters its pipe at `entered`, where that was later than its arrival.
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

    /// Says when [`Engine::due`] has something to do next: [`Time::NEVER`] if nothing.
    pub fn next(&self) -> Time {
        self.paths.needed().next().min(self.next_departure())
    }

    /// Says when a link does something next.
    pub fn next_event(&self) -> Time {
        self.paths.events().next()
    }

    /// Says when the next packet leaves a delay line, of those that are known to.
    pub fn next_departure(&self) -> Time {
        self.paths.exits().next()
    }

    /// Lets virtual time pass until `now`. Never goes back.
    pub fn advance(&mut self, now: Time) {
        let now = now.min(Time(Time::NEVER.0 - 1));
        while let Some((at, path)) = self.paths.events().first().filter(|(at, _)| *at <= now) {
            self.paths.serve(path, at, &mut self.accounting);
        }
    }

    /// Returns the next frame whose intended departure is not after `until`, in the order of intended departures.
    ///
    /// Nobody has to call [`Engine::advance`] before: links are asked for what can leave until then, and for no more, so that
    /// frames whose stamps are older than `until` still find their place behind a pipe with a delay.
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

    /// Returns as much of a departure's frame as is known: all, unless it came by [`Engine::arrive_cut`].
    pub fn known(&self, departure: &Departure) -> &[u8] {
        let known = self.accounting.store.packet(departure.slot).arrival.known;
        &self.frame(departure)[..known as usize]
    }

    /// Notes that a frame has left at `actual`.
    pub fn departed(&mut self, departure: Departure, actual: Time) {
        self.accounting.sent(departure.slot, departure.intended, actual);
    }

    /// Notes that the port could not take a frame: it is lost.
    pub fn refused(&mut self, departure: Departure) {
        self.accounting.lose(departure.slot, Cause::Port);
    }

    /// Counts frames that no rule could select and that went on unseen.
    pub fn passed(&mut self, direction: Direction, frames: u64) {
        self.accounting.passed(direction, frames);
    }

    /// Gives a pipe other parameters, at once for all of its flows; what waits stays, except where a smaller queue has no room for it.
    /// Returns the time from which they hold: `now`, or later where the pipe has already gone further.
    ///
    /// # Errors
    /// Says what contradicts itself; then nothing has changed.
    pub fn set(&mut self, pipe: &str, to: &config::Pipe, now: Time) -> Result<Time, ConfigError> {
        let to = config::Pipe { name: pipe.to_owned(), ..to.clone() };
        Ok(self.set_all(std::slice::from_ref(&to), now)?.first().copied().unwrap_or(now))
    }

    /// Gives several pipes, told by their names, other parameters in one step. Returns the time from which each of them holds.
    ///
    /// # Errors
    /// Says what contradicts itself when all of them have changed; then none has.
    pub fn set_all(&mut self, pipes: &[config::Pipe], now: Time) -> Result<Vec<Time>, ConfigError> {
        let config = self.paths.changed(pipes)?;
        check(&config)?;
        let places = pipes.iter().map(|pipe| self.paths.place_of(&pipe.name)).collect::<Result<Vec<_>, _>>()?;
        for place in &places {
            // What was checked names no class that there is not.
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

    /// Keeps dispositions from now on, or no more.
    pub fn keep_dispositions(&mut self, keeps: bool) {
        if keeps && !self.accounting.keeps_dispositions {
            self.accounting.store.keep_heads();
        }
        self.accounting.keeps_dispositions = keeps;
    }

    /// Gives the dispositions of packets that have ended since the last call, in the order in which they ended.
    pub fn dispositions(&mut self) -> std::vec::Drain<'_, Disposition> {
        self.accounting.dispositions.drain(..)
    }

    /// Returns the number that the next arrival will get.
    pub fn next_number(&self) -> u64 {
        self.accounting.numbers.next()
    }

    /// Returns what is asked now.
    pub fn config(&self) -> &Config {
        self.paths.config()
    }

    /// Says what became of everything so far.
    pub fn report(&self) -> Report {
        self.told(false)
    }

    /// Ends a block and begins the next: says what became of everything since the last call.
    pub fn begin(&mut self) -> Report {
        let report = self.told(true);
        self.accounting.begin();
        report
    }

    /// Ends it: what still waits is lost.
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
