//! Everything beside the forwarding of a running emulator: the control socket, the log, the end, the scheduling class.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_emulate::Pipe;
use sojourn_emulate::config::pipe_from_words;
use sojourn_emulate::driver::{Flow, Ports, Surroundings};
use sojourn_port::PortError;
use sojourn_port::bridge::Detour;
use sojourn_time::pace::{REST, STRETCH};
use sojourn_time::{Clock, Nanos, SteadyClock, Time};

use super::Bridge;
use super::compensate::Compensated;
use super::events::Event;
use super::idle::Idle;
use super::log::Log;
use crate::aside::say;
use crate::control::{Control, MOST_CLIENTS};
use crate::failure;
use crate::place;
use crate::sys::{self, STOP};

/// The ports, the signal, the listening socket and its clients.
const MOST_POLLED: usize = 2 + 1 + 1 + MOST_CLIENTS;
/// The poll interval while a port is down: its descriptor would wake the poll immediately.
const DOWN_NAP: Nanos = Nanos::millis(1);
/// The wait before the next answer to a client that sent several requests at once.
const PENDING_NAP: Nanos = Nanos::millis(1);
/// The interval after which the scheduling class is re-evaluated.
const JUDGED: Nanos = Nanos::millis(100);
/// A real-time program that sleeps less than this share is demoted to SCHED_OTHER. The share is four times what
/// [`REST`] leaves to the kernel, because the program also starves the receivers.
const TOO_BUSY: f64 = 4.0 * REST.0 as f64 / STRETCH.0 as f64;
/// A program that sleeps more than this share returns to SCHED_FIFO; twice the other threshold gives hysteresis.
const AT_REST: f64 = 2.0 * TOO_BUSY;

/// The state beside the bridge.
pub struct Live {
    pub signal: BorrowedFd<'static>,
    pub control: Option<Control>,
    pub log: Option<Log>,
    pub clock: SteadyClock,
    /// The end time.
    pub until: Time,
    pub urgency: Urgency,
    pub idle: Idle,
    pub compensated: Compensated,
    /// A client has requested the end.
    pub is_stopped: bool,
    /// The number of the current block.
    pub block: i32,
    /// The names of the left and the right port.
    pub ports: [String; 2],
    /// The detour of an interface's frames through the ports.
    pub detour: Option<Detour>,
    /// The error that ended the emulator.
    pub failed: Option<PortError>,
}

/// The scheduling class, which depends on load.
#[derive(Clone, Copy, Debug)]
pub struct Urgency {
    /// Whether real-time scheduling is requested.
    pub is_wanted: bool,
    /// Whether the thread runs under SCHED_FIFO now.
    pub is_real_time: bool,
    /// The number of demotions to SCHED_OTHER.
    pub demotions: u64,
    since: Time,
    rested: f64,
    judged: f64,
}

/// A request from a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    Show {},
    Set {
        #[serde(default)]
        pipe: String,
        #[serde(default)]
        all: bool,
        words: String,
        #[serde(default)]
        replace: bool,
    },
    Begin {
        block: i32,
        #[serde(default = "yes")]
        keep: bool,
    },
    Stop {},
}

const fn yes() -> bool {
    true
}

/// Parses a client's request.
fn request(line: &[u8]) -> anyhow::Result<Request> {
    Ok(serde_json::from_slice(line)?)
}

/// Checks that a client's request and its configuration strings can be parsed.
///
/// # Errors
/// If one is invalid.
pub fn understood(line: &[u8]) -> anyhow::Result<()> {
    if let Request::Set { pipe, words, .. } = request(line)? {
        pipe_from_words(&words, &named(&pipe))?;
    }
    Ok(())
}

impl Surroundings<SteadyClock> for Live {
    fn sleep(&mut self, ports: &Ports, until: Time) -> Result<bool, PortError> {
        let signal = self.signal;
        let mut polled: [PollFd<'_>; MOST_POLLED] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(signal, PollFlags::IN));
        let asked = self.control.iter().flat_map(Control::descriptors);
        let all = ports.iter().map(|port| port.descriptor()).chain([signal]).chain(asked);
        let mut count = 0;
        for (slot, descriptor) in polled.iter_mut().zip(all) {
            *slot = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
            count += 1;
        }
        // Requests that arrived together with an answered one are already buffered: no descriptor would wake the poll.
        let is_pending = self.control.as_ref().is_some_and(Control::is_pending);
        let until = if is_pending { until.min(self.clock.now() + PENDING_NAP) } else { until };
        let left = (until - self.clock.now()).max(Nanos::ZERO);
        match poll(&mut polled[..count], Some(&timespec(left))) {
            Ok(0) => return Ok(is_pending),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let bad = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if polled[..2].iter().any(|port| port.revents().intersects(bad)) {
            self.clock.wait_until(until.min(self.clock.now() + DOWN_NAP), Nanos::ZERO);
        }
        Ok(is_pending || polled[2..count].iter().any(|asked| !asked.revents().is_empty()))
    }

    fn keep(&mut self, bridge: &mut Bridge) {
        if let Some(log) = &mut self.log {
            let now = bridge.clock().now();
            log.keep(bridge, now);
        }
    }

    fn look_up(&mut self, bridge: &mut Bridge, now: Time, rest: f64) -> Flow {
        self.urgency.judge(now, rest);
        self.idle.follow(bridge.is_busy(), now);
        self.note(bridge, now);
        if let Some(mut control) = self.control.take() {
            control.serve(&mut |line| self.answer(bridge, line));
            self.control = Some(control);
        }
        self.failed = self.detour.as_ref().and_then(|detour| detour.heed().err());
        let is_over = self.failed.is_some() || self.is_stopped || now >= self.until || STOP.load(Ordering::Relaxed);
        if is_over { Flow::Stop } else { Flow::On }
    }
}

impl Live {
    /// Returns the report of the running emulator.
    pub fn report(&self, bridge: &mut Bridge) -> Value {
        let mut report = json!(bridge.report());
        report["urgency"] = json!({
            "fifo": self.urgency.is_real_time,
            "demotions": self.urgency.demotions,
            "idle": if self.idle.polls() { "poll" } else { "sleep" },
        });
        report["compensated"] = json!(self.compensated);
        if let Some(log) = &self.log {
            report["log"] = log.told();
        }
        report
    }

    /// Reports and logs the last news of the ports.
    ///
    /// # Errors
    /// If a port was lost.
    pub fn last_news(&mut self, bridge: &mut Bridge) -> Result<(), PortError> {
        let now = self.clock.now();
        let heard = bridge.hear_ports_at_the_end(now).and_then(|()| self.detour.as_ref().map_or(Ok(()), Detour::heed));
        self.note(bridge, now);
        heard
    }

    /// Reports and logs news.
    fn note(&mut self, bridge: &mut Bridge, now: Time) {
        if let Some(why) = self.log.as_mut().and_then(Log::has_stopped) {
            say(&format!("the log has ended, and the emulator goes on: {why}"));
        }
        self.log.iter_mut().for_each(|log| log.note_clock(now, bridge.tai_ahead()));
        for sentence in bridge.news(now) {
            say(&sentence);
            self.log.iter_mut().for_each(|log| log.note(Event::Notice { at_ns: now, sentence: sentence.clone() }));
        }
    }

    /// Answers a request.
    fn answer(&mut self, bridge: &mut Bridge, line: &[u8]) -> Value {
        match request(line).and_then(|request| self.carry_out(bridge, request)) {
            Ok(answer) => answer,
            Err(error) => json!({ "error": failure::sentence(&error), "status": failure::status(&error) }),
        }
    }

    fn carry_out(&mut self, bridge: &mut Bridge, request: Request) -> anyhow::Result<Value> {
        match request {
            Request::Show {} => Ok(json!({ "ok": true, "report": self.report(bridge), "config": bridge.config() })),
            Request::Set { pipe, all, words, replace } => self.set(bridge, &pipe, all, &words, replace),
            Request::Begin { block, keep } => Ok(self.begin(bridge, block, keep)),
            Request::Stop {} => {
                self.is_stopped = true;
                Ok(json!({ "ok": true }))
            }
        }
    }

    fn set(
        &mut self,
        bridge: &mut Bridge,
        name: &str,
        is_all: bool,
        words: &str,
        replace: bool,
    ) -> anyhow::Result<Value> {
        let chosen: Vec<Pipe> = match is_all {
            true => bridge.config().pipes.clone(),
            false => bridge.config().pipes.iter().filter(|pipe| pipe.name == name).cloned().collect(),
        };
        // An unknown pipe: the driver's error lists the existing ones.
        let chosen = if chosen.is_empty() { vec![named(name)] } else { chosen };
        let change = |pipe: &Pipe| pipe_from_words(words, &if replace { idle(pipe) } else { pipe.clone() });
        let pipes = chosen.iter().map(change).collect::<Result<Vec<_>, _>>()?;
        let (number, times) = bridge.set(&pipes)?;
        for (pipe, at_ns) in pipes.iter().zip(&times) {
            let event = Event::Set { number, at_ns: *at_ns, pipe: pipe.name.clone(), to: Box::new(pipe.clone()) };
            self.log.iter_mut().for_each(|log| log.note(event.clone()));
        }
        let at_ns = times.iter().max();
        Ok(
            json!({ "ok": true, "ports": self.ports, "number": number, "at_ns": at_ns, "to": pipes.first(), "pipes": pipes }),
        )
    }

    fn begin(&mut self, bridge: &mut Bridge, block: i32, keep: bool) -> Value {
        let (summary, number) = bridge.begin();
        if let Some(log) = &mut self.log {
            log.note(Event::Begin { block, number, keep });
        }
        let finished = std::mem::replace(&mut self.block, block);
        json!({ "ok": true, "block": finished, "number": number, "summary": summary })
    }
}

fn named(name: &str) -> Pipe {
    Pipe { name: name.to_owned(), ..Pipe::default() }
}

/// Returns a pipe of the same name and mask without any effect.
fn idle(pipe: &Pipe) -> Pipe {
    Pipe { mask: pipe.mask, ..named(&pipe.name) }
}

impl Urgency {
    /// Starts with the requested scheduling class.
    pub fn new(is_wanted: bool, now: Time) -> Self {
        Self { is_wanted, is_real_time: is_wanted, demotions: 0, since: now, rested: 0.0, judged: 0.0 }
    }

    /// Demotes or restores the scheduling class according to the share of time slept.
    fn judge(&mut self, now: Time, rest: f64) {
        self.rested += rest;
        self.judged += 1.0;
        if !self.is_wanted || now - self.since < JUDGED {
            return;
        }
        let share = self.rested / self.judged;
        (self.since, self.rested, self.judged) = (now, 0.0, 0.0);
        if self.is_real_time && share < TOO_BUSY {
            self.is_real_time = sys::run_ordinarily().is_err();
            self.demotions += 1;
            place::raise_priority();
        } else if !self.is_real_time && share > AT_REST {
            self.is_real_time = sys::run_real_time(place::PRIORITY).is_ok();
        }
    }
}

fn timespec(span: Nanos) -> Timespec {
    Timespec { tv_sec: span.0 / 1_000_000_000, tv_nsec: span.0 % 1_000_000_000 }
}

fn failed(error: rustix::io::Errno) -> PortError {
    PortError::System { operation: "wait for", object: "frames".to_owned(), source: error.into() }
}
