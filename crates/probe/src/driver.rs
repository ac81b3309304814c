//! Runs one block of probes over a port and a clock.
//!
//! It sleeps in the port until shortly before a departure, then polls, and only spins on the clock for the last few
//! microseconds ([`Pacer`]). It allocates nothing between the first probe and the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sojourn_port::{Port, PortError};
use sojourn_record::{Counts, Probe};
use sojourn_time::{Clock, Nanos, Next, Pace, Pacer, Seconds, Time, Wait, Watch};
use sojourn_wire::{Key, MacAddress};

use crate::codec::Codec;
use crate::engine::{Engine, Step};
use crate::far::FarEnd;
use crate::respond::ClockState;
use crate::{Request, Schedule};

/// How long before a departure the driver only reads the clock: the longest that one check for frames takes.
const QUIET: Nanos = Nanos::micros(10);

/// How long after a departure to poll for the reply before sleeping: over a short path it arrives before a sleeping
/// thread would wake.
const BRIEF: Nanos = Nanos::micros(50);

/// The most frames processed before the next departure is checked: a burst must not delay a probe.
const FRAMES_AT_ONCE: usize = 8;

/// More frames than a socket holds.
const ALL_FRAMES: usize = 1 << 16;

/// The minimum interval for pacing a closed loop: it is never late, whatever its interval.
const SHORTEST_CLOSED: Nanos = Nanos::micros(200);

/// How long a peer that has not answered yet may refuse probes: any host can forge a refusal, and only the peer answers.
const REFUSALS_FOR: Nanos = Nanos::seconds(1);

/// The time from the driver's start to the first departure.
const LEAD: Nanos = Nanos::micros(300);

/// Properties of the host that the driver runs on.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its scheduling settings.
    pub pace: Pace,
    /// The source address of its Ethernet frames.
    pub mac: MacAddress,
    /// The key of the block's session, which replies copy: random, where other hosts could send.
    pub session: u64,
    /// The key shared with the peer, if there is one.
    pub key: Option<Arc<Key>>,
    /// The state of its clock, which STAMP packets carry.
    pub clock: ClockState,
}

/// Runs a checked request. Ends early, but in order, once `stop` is set.
///
/// # Errors
/// When the port fails, unless a queue is full.
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
    // One byte longer than any reply, so that a longer frame counts as unexpected.
    let mut buffer = vec![0; codec.reply_frame_bytes().max(needed) + 1];
    let mut engine = Engine::new(request, &capabilities, &host);
    drain(port, &mut buffer)?;
    let local_drops = port.local_drops();
    // Read only now: allocating a large block takes milliseconds.
    let now = clock.now();
    engine.begin(now + LEAD);
    let shape = &request.shape;
    let interval = match shape.schedule {
        Schedule::ClosedLoop => shape.interval.max(SHORTEST_CLOSED),
        Schedule::Regular | Schedule::Poisson => shape.interval,
    };
    let pacer = Pacer::new(host.pace, interval, QUIET, clock);
    let share = Nanos(shape.interval.0 / 5);
    let mut driver = Driver { engine, port, clock, pacer, share, refusal: None, buffer };
    driver.run(now, stop)?;
    if let Some((_, error)) = driver.refusal.take()
        && !driver.engine.has_answers()
    {
        return Err(error);
    }
    let local_drops = driver.port.local_drops().saturating_sub(local_drops);
    Ok(driver.engine.finish(local_drops))
}

/// Discards frames received between blocks: they belong to none of this block's probes.
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
    /// With `SCHED_FIFO`: the share of each interval to sleep, if need be at the expense of polling for the reply.
    share: Nanos,
    /// The first refusal, and when it came.
    refusal: Option<(Time, PortError)>,
    buffer: Vec<u8>,
}

impl<P: Port, C: Clock> Driver<'_, P, C> {
    fn run(&mut self, started: Time, stop: &AtomicBool) -> Result<(), PortError> {
        let (mut watch, mut seconds) = (Watch::new(started), Seconds::new(started));
        loop {
            let is_busy = self.collect(FRAMES_AT_ONCE)? > 0;
            if stop.load(Ordering::Relaxed) {
                self.engine.stop();
            }
            let now = self.clock.now();
            if watch.is_set_back(now) {
                return Ok(());
            }
            if seconds.have_passed(now) {
                self.port.local_drops();
            }
            match self.engine.poll(now) {
                Step::Depart(intended) if self.pacer.next(now, intended) == Next::Depart => self.depart(intended)?,
                // Frames that never end would end each sleep until the next departure at once.
                Step::Depart(_) | Step::Await(_) if is_busy && self.pacer.pace().is_real_time => self.rest(),
                Step::Depart(intended) => self.idle(now, intended - self.pacer.wake)?,
                Step::Await(until) => self.idle(now, until)?,
                Step::Done => {
                    // Collect what arrived while this thread was not scheduled.
                    self.collect(ALL_FRAMES)?;
                    if self.engine.poll(self.clock.now()) == Step::Done {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Processes waiting frames and TX timestamps, at most `most` of each. Returns the number of frames and refusals.
    fn collect(&mut self, most: usize) -> Result<usize, PortError> {
        let mut taken = 0;
        for _ in 0..most {
            match self.port.receive(&mut self.buffer) {
                Ok(Some(received)) => self.engine.on_frame(&self.buffer[..received.length], &received),
                Ok(None) => break,
                Err(error @ PortError::Refused(_)) => self.refused(error)?,
                Err(error) => return Err(error),
            }
            taken += 1;
        }
        for _ in 0..most {
            let Some(stamp) = self.port.tx_timestamp()? else { break };
            self.engine.on_stamp(&stamp);
        }
        Ok(taken)
    }

    fn depart(&mut self, intended: Time) -> Result<(), PortError> {
        self.clock.wait_until(intended, QUIET);
        self.engine.stamp(self.clock);
        let mut result = self.port.transmit(self.engine.frame());
        while let Err(error @ PortError::Refused(_)) = result {
            // The kernel reported an error of an earlier probe, and sent nothing.
            self.refused(error)?;
            result = self.port.transmit(self.engine.frame());
        }
        match result {
            Ok(sent) => self.engine.departed(intended, sent),
            Err(error) if error.is_full_queue() => self.engine.refused(intended),
            Err(error) => return Err(error),
        }
        self.rest();
        Ok(())
    }

    /// After the first reply, a refusal only loses probes. Before it, it ends the block once it has lasted.
    fn refused(&mut self, error: PortError) -> Result<(), PortError> {
        if self.engine.has_answers() {
            return Ok(());
        }
        let now = self.clock.now();
        if self.refusal.as_ref().is_some_and(|(since, _)| now - *since > REFUSALS_FOR) {
            return Err(error);
        }
        self.refusal.get_or_insert((now, error));
        Ok(())
    }

    /// Rests if that is due. A closed loop postpones its next probe; an open one becomes late, as real-time throttling
    /// would also make it, but later.
    fn rest(&mut self) {
        if let Some(until) = self.pacer.rest_if_due(self.clock) {
            self.engine.rest_until(until);
        }
    }

    /// Sleeps until a frame arrives or until `until`; does not sleep while a reply is imminent.
    fn idle(&mut self, now: Time, until: Time) -> Result<(), PortError> {
        match self.pacer.sleep(now, until) {
            Some(woken) if !self.polls(now, until) => self.port.wait(woken),
            _ => Ok(()),
        }
    }

    /// Whether a reply may arrive before a sleeping thread would wake.
    fn polls(&self, now: Time, until: Time) -> bool {
        let pace = self.pacer.pace();
        let has_time = pace.wait != Wait::Sleep && !(pace.is_real_time && now >= until - self.share);
        has_time && self.engine.is_awaiting_reply() && now < self.engine.last_departure() + BRIEF
    }
}

#[cfg(test)]
mod tests;
