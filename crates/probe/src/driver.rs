//! The loop over a port and a clock that carries one block of probes out.
//!
//! It sleeps in the port until shortly before a departure, polls, and spins on the clock alone for the last few
//! microseconds. It allocates nothing between the first probe and the last. Under `SCHED_FIFO` it never keeps a processor
//! so long that the kernel's real-time throttle bites (50 ms in each second by default).

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use sojourn_port::{Port, PortError};
use sojourn_record::{Counts, Probe};
use sojourn_time::{Clock, Nanos, Time, rest_of};

use crate::codec::{Codec, Identity};
use crate::engine::{Engine, Step};
use crate::{Request, Schedule};

/// How long before a departure sleeping ends: a sleeping thread wakes up to 100 µs late.
const SPIN: Nanos = Nanos::micros(100);

/// How long before a departure the driver looks at nothing but the clock: as long as one look for frames may take.
const QUIET: Nanos = Nanos::micros(10);

/// How long after a departure to poll for the reply before sleeping: over a short path it comes sooner than a sleeper
/// wakes.
const BRIEF: Nanos = Nanos::micros(50);

/// How long to sleep at a stretch, so that a signal that came just before is noticed.
const NAP: Nanos = Nanos::millis(100);

/// Under `SCHED_FIFO`: how long to go on before it is asked how much of that was slept, and how much must have been.
const BUSY: Nanos = Nanos::millis(400);
const REST: Nanos = rest_of(BUSY);

/// How many frames to take before it is asked whether a probe is due: a burst of them must not make it late.
const FRAMES_AT_ONCE: usize = 8;

/// More than a socket holds.
const ALL_FRAMES: usize = 1 << 16;

/// A clock that goes back by so much has been set. What was to come would come hours later or never.
const SET_BACK: Nanos = Nanos::seconds(1);

/// When the first probe leaves, after the driver has begun.
const LEAD: Nanos = Nanos::micros(300);

/// How to wait for the next departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Poll all the time: a processor is given to it.
    Spin,
    /// Sleep until shortly before, then poll and spin.
    #[default]
    SleepThenSpin,
    /// Sleep only. Departures are late by the wake-up; right for simulated time, where nobody is late.
    Sleep,
}

impl Wait {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::SleepThenSpin => "sleep-then-spin",
            Self::Sleep => "sleep",
        }
    }
}

/// How the driver uses its processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How to wait.
    pub wait: Wait,
    /// Whether the thread runs under `SCHED_FIFO`.
    pub is_real_time: bool,
}

/// Carries out a checked request. Ends early, cleanly, once `stop` is set.
///
/// # Errors
/// When the port refuses for another reason than a full queue.
pub fn run<P: Port, C: Clock>(
    request: &Request,
    port: &mut P,
    clock: &C,
    (pace, identity): (Pace, Identity),
    stop: &AtomicBool,
) -> Result<(Vec<Probe>, Counts), PortError> {
    let capabilities = port.capabilities();
    let codec = Codec::new(request, capabilities.framing, identity);
    let needed = codec.frame_bytes();
    if needed > capabilities.max_frame {
        return Err(PortError::Wrong {
            object: request.to.to_string(),
            problem: format!(
                "a probe of {} payload bytes does not fit: its frame of {needed} bytes is longer than the {} that can \
                 be sent; raise the MTU or ask for less",
                request.request_payload_bytes, capabilities.max_frame
            ),
        });
    }
    // One byte more than any reply, so that a longer frame shows as foreign.
    let mut buffer = vec![0; codec.reply_frame_bytes().max(needed) + 1];
    let mut engine = Engine::new(request, &capabilities, identity);
    drain(port, &mut buffer)?;
    let own_drops = port.own_drops();
    // Not before: the memory of a large block is milliseconds in coming.
    let now = clock.now();
    engine.begin(now + LEAD);
    let spin = spin(request, pace);
    let share = Nanos(request.interval.0 / 5);
    let mut driver = Driver { engine, port, clock, pace, spin, share, buffer, asked: now, slept: Nanos::ZERO };
    driver.run(stop)?;
    let own_drops = driver.port.own_drops().saturating_sub(own_drops);
    Ok(driver.engine.finish(own_drops))
}

/// Returns how long before a departure to be awake. Under `SCHED_FIFO` two fifths of each interval are left
/// for sleep and for what a probe costs.
fn spin(request: &Request, pace: Pace) -> Nanos {
    let most = Nanos(request.interval.0 / 5 * 3).min(BUSY);
    match pace.wait {
        Wait::Sleep => Nanos::ZERO,
        Wait::SleepThenSpin if pace.is_real_time && request.schedule != Schedule::ClosedLoop => SPIN.min(most),
        Wait::SleepThenSpin => SPIN,
        Wait::Spin if pace.is_real_time => most,
        Wait::Spin => Nanos(i64::MAX),
    }
}

/// Takes away what came between blocks: it answers nothing of this one.
fn drain<P: Port>(port: &mut P, buffer: &mut [u8]) -> Result<(), PortError> {
    for _ in 0..ALL_FRAMES {
        match port.receive(buffer) {
            Ok(None) => break,
            Ok(Some(_)) | Err(PortError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    while port.transmit_stamp()?.is_some() {}
    Ok(())
}

struct Driver<'a, P, C> {
    engine: Engine,
    port: &'a mut P,
    clock: &'a C,
    pace: Pace,
    spin: Nanos,
    /// Under `SCHED_FIFO`: how much of each interval is slept, if need be at the cost of not polling for the reply.
    share: Nanos,
    buffer: Vec<u8>,
    /// Under `SCHED_FIFO`: when it was last asked how much was slept.
    asked: Time,
    /// How much was slept since.
    slept: Nanos,
}

impl<P: Port, C: Clock> Driver<'_, P, C> {
    fn run(&mut self, stop: &AtomicBool) -> Result<(), PortError> {
        let mut latest = self.asked;
        loop {
            self.collect(FRAMES_AT_ONCE)?;
            if stop.load(Ordering::Relaxed) {
                self.engine.stop();
            }
            let now = self.clock.now();
            if latest - now >= SET_BACK {
                return Ok(());
            }
            latest = latest.max(now);
            match self.engine.poll(now) {
                Step::Depart(intended) if self.is_near(now, intended) => self.depart(intended)?,
                Step::Depart(intended) => self.idle(now, intended - self.spin)?,
                Step::Await(until) => self.idle(now, until)?,
                Step::Done => {
                    // What came while this thread was kept from looking is not lost.
                    self.collect(ALL_FRAMES)?;
                    if self.engine.poll(self.clock.now()) == Step::Done {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes the frames and the transmit stamps that are there, so many of each at most.
    fn collect(&mut self, most: usize) -> Result<(), PortError> {
        for _ in 0..most {
            match self.port.receive(&mut self.buffer) {
                Ok(Some(received)) => self.engine.on_frame(&self.buffer[..received.length], &received),
                Ok(None) => break,
                // A peer that has answered and no longer does loses probes; the others stay measured.
                Err(PortError::Refused(_)) if self.engine.has_answers() => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..most {
            let Some(stamp) = self.port.transmit_stamp()? else { break };
            self.engine.on_stamp(&stamp);
        }
        Ok(())
    }

    fn is_near(&self, now: Time, intended: Time) -> bool {
        let quiet = if self.pace.wait == Wait::Sleep { Nanos::ZERO } else { QUIET };
        now >= intended - quiet
    }

    fn depart(&mut self, intended: Time) -> Result<(), PortError> {
        self.clock.wait_until(intended, QUIET);
        let mut result = self.port.transmit(self.engine.frame());
        while matches!(result, Err(PortError::Refused(_))) && self.engine.has_answers() {
            // The kernel told of an earlier probe, and sent nothing.
            result = self.port.transmit(self.engine.frame());
        }
        match result {
            Ok(sent) => self.engine.departed(intended, sent),
            Err(error) if error.is_full_queue() => self.engine.refused(intended),
            Err(error) => return Err(error),
        }
        if self.pace.is_real_time && self.clock.now() - self.asked > BUSY {
            self.rest();
        }
        Ok(())
    }

    /// Passes time until a frame comes or `until` does: polls while a reply may come any moment, sleeps otherwise.
    fn idle(&mut self, now: Time, until: Time) -> Result<(), PortError> {
        if now >= until || self.polls(now, until) {
            return Ok(());
        }
        self.port.wait(until.min(now + NAP))?;
        self.slept += self.clock.now() - now;
        Ok(())
    }

    fn polls(&self, now: Time, until: Time) -> bool {
        match self.pace.wait {
            Wait::Sleep => false,
            Wait::Spin if !self.pace.is_real_time => true,
            _ if self.pace.is_real_time && now >= until - self.share => false,
            _ => self.engine.is_awaiting_reply() && now < self.engine.last_departure() + BRIEF,
        }
    }

    /// Gives the processor back for what was slept too little. A closed loop moves its next probe; an open one is late by
    /// it, as the kernel's throttle would make it, and later.
    fn rest(&mut self) {
        if self.slept < REST {
            let until = self.clock.now() + (REST - self.slept);
            self.clock.wait_until(until, Nanos::ZERO);
            self.engine.rest_until(until);
        }
        self.asked = self.clock.now();
        self.slept = Nanos::ZERO;
    }
}

#[cfg(test)]
mod tests;
