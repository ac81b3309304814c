//! The loop over a port and a clock that carries one block of probes out.
//!
//! It sleeps in the port until shortly before a departure, polls, and spins on the clock alone for the last few
//! microseconds ([`Pacer`]). It allocates nothing between the first probe and the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sojourn_port::{Port, PortError};
use sojourn_record::{Counts, Probe};
use sojourn_time::{Clock, Nanos, Next, Pace, Pacer, Time, Wait, Watch};
use sojourn_wire::{Key, MacAddress};

use crate::codec::Codec;
use crate::engine::{Engine, Step};
use crate::far::FarEnd;
use crate::respond::ClockState;
use crate::{Request, Schedule};

/// How long before a departure the driver looks at nothing but the clock: as long as one look for frames may take.
const QUIET: Nanos = Nanos::micros(10);

/// How long after a departure to poll for the reply before sleeping: over a short path it comes sooner than a sleeper
/// wakes.
const BRIEF: Nanos = Nanos::micros(50);

/// How many frames to take before it is asked whether a probe is due: a burst of them must not make it late.
const FRAMES_AT_ONCE: usize = 8;

/// More than a socket holds.
const ALL_FRAMES: usize = 1 << 16;

/// The shortest interval that a closed loop is paced for: it is not late, whatever its interval.
const SHORTEST_CLOSED: Nanos = Nanos::micros(200);

/// When the first probe leaves, after the driver has begun.
const LEAD: Nanos = Nanos::micros(300);

/// What the driver knows of the host that it runs on.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// How it uses its processor.
    pub pace: Pace,
    /// The source address of its Ethernet frames.
    pub mac: MacAddress,
    /// The key of the block's session, which replies repeat: random, where others could send.
    pub session: u64,
    /// The secret that it shares with the peer, where it does.
    pub key: Option<Arc<Key>>,
    /// What it knows of its clock: STAMP's packets say it.
    pub clock: ClockState,
}

/// Carries out a checked request. Ends early, cleanly, once `stop` is set.
///
/// # Errors
/// When the port refuses for another reason than a full queue.
pub fn run<P: Port, C: Clock>(
    request: &Request,
    port: &mut P,
    clock: &C,
    host: Host,
    stop: &AtomicBool,
) -> Result<(Vec<Probe>, Counts, Option<FarEnd>), PortError> {
    let capabilities = port.capabilities();
    let codec = Codec::new(request, capabilities.framing, &host);
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
    // One byte more than any reply, so that a longer frame shows as unexpected.
    let mut buffer = vec![0; codec.reply_frame_bytes().max(needed) + 1];
    let mut engine = Engine::new(request, &capabilities, &host);
    drain(port, &mut buffer)?;
    let local_drops = port.local_drops();
    // Not before: the memory of a large block is milliseconds in coming.
    let now = clock.now();
    engine.begin(now + LEAD);
    let shape = &request.shape;
    let interval = match shape.schedule {
        Schedule::ClosedLoop => shape.interval.max(SHORTEST_CLOSED),
        Schedule::Regular | Schedule::Poisson => shape.interval,
    };
    let pacer = Pacer::new(host.pace, interval, QUIET, clock);
    let share = Nanos(shape.interval.0 / 5);
    let mut driver = Driver { engine, port, clock, pacer, share, buffer };
    driver.run(Watch::new(now), stop)?;
    let local_drops = driver.port.local_drops().saturating_sub(local_drops);
    Ok(driver.engine.finish(local_drops))
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
    while port.tx_timestamp()?.is_some() {}
    Ok(())
}

struct Driver<'a, P, C> {
    engine: Engine,
    port: &'a mut P,
    clock: &'a C,
    pacer: Pacer,
    /// Under `SCHED_FIFO`: how much of each interval is slept, if need be at the cost of not polling for the reply.
    share: Nanos,
    buffer: Vec<u8>,
}

impl<P: Port, C: Clock> Driver<'_, P, C> {
    fn run(&mut self, mut watch: Watch, stop: &AtomicBool) -> Result<(), PortError> {
        loop {
            self.collect(FRAMES_AT_ONCE)?;
            if stop.load(Ordering::Relaxed) {
                self.engine.stop();
            }
            let now = self.clock.now();
            if watch.is_set_back(now) {
                return Ok(());
            }
            match self.engine.poll(now) {
                Step::Depart(intended) if self.pacer.next(now, intended) == Next::Depart => self.depart(intended)?,
                Step::Depart(intended) => self.idle(now, intended - self.pacer.wake)?,
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

    /// Takes the frames and the TX timestamps that are there, so many of each at most.
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
            let Some(stamp) = self.port.tx_timestamp()? else { break };
            self.engine.on_stamp(&stamp);
        }
        Ok(())
    }

    fn depart(&mut self, intended: Time) -> Result<(), PortError> {
        self.clock.wait_until(intended, QUIET);
        self.engine.stamp(self.clock);
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
        // A closed loop moves its next probe; an open one is late by the rest, as the kernel's throttle would make it, and later.
        if let Some(until) = self.pacer.rest_if_due(self.clock) {
            self.engine.rest_until(until);
        }
        Ok(())
    }

    /// Sleeps until a frame comes or `until` does; not at all while a reply may come any moment.
    fn idle(&mut self, now: Time, until: Time) -> Result<(), PortError> {
        match self.pacer.sleep(now, until) {
            Some(woken) if !self.polls(now, until) => self.port.wait(woken),
            _ => Ok(()),
        }
    }

    /// Whether a reply may come before a sleeper wakes.
    fn polls(&self, now: Time, until: Time) -> bool {
        let pace = self.pacer.pace();
        let has_time = pace.wait != Wait::Sleep && !(pace.is_real_time && now >= until - self.share);
        has_time && self.engine.is_awaiting_reply() && now < self.engine.last_departure() + BRIEF
    }
}

#[cfg(test)]
mod tests;
