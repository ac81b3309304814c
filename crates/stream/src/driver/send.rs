//! The sender's loop over its ports.
//!
//! It sleeps until shortly before a departure, then polls for received frames, and spins on the clock alone for the
//! last few microseconds ([`Pacer`]). Deadlines are absolute: a late departure does not delay later ones. It allocates
//! nothing between the first packet and the last.

use std::sync::atomic::{AtomicBool, Ordering};

use sojourn_port::{Batch, Capabilities, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Nanos, Next, Pace, Pacer, Seconds, Time, Watch};

use super::transmit;
use crate::sender::Step;
use crate::{Ears, Exchange, Heard, Keep, Phase, SendOutcome, SendRequest, Sender, Unexpected};

/// How long before a departure the driver reads only the clock: the duration of one poll. At high rates it is a quarter
/// of the mean interval, but not less than the minimum.
const QUIET: Nanos = Nanos::micros(10);
const LEAST_QUIET: Nanos = Nanos::micros(2);

/// Maximum time that a time exchange may occupy the sender.
const SYNC_ROOM: Nanos = Nanos::micros(40);

/// How long to wait for the answer to a time request before and after the stream.
const SYNC_PATIENCE: Nanos = Nanos::millis(20);

/// Upper limit of the wake-up time that is reserved between the driver's start and the first packet.
const LEAD: Nanos = Nanos::micros(100);

/// Length of a sleep if frames may arrive at any of several ports.
const SHORT_NAP: Nanos = Nanos::micros(200);

/// How many TX timestamps to read before the next check for due packets, and how long one takes.
const STAMPS_AT_ONCE: usize = 8;
const STAMP_COST: Nanos = Nanos::micros(2);

/// How many packets that are due may be sent before anything else is done.
const LEAVING_AT_ONCE: usize = 32;

/// How long to wait at the end for TX timestamps.
const STAMP_PATIENCE: Nanos = Nanos::millis(20);

/// How long to wait at the end for answers, at most.
const ANSWER_PATIENCE: Nanos = Nanos::millis(500);

/// More frames than a socket holds.
const ALL_FRAMES: usize = 1 << 12;

/// Sends the streams of a request. Ends early, cleanly, once `stop` is set.
///
/// # Errors
/// If the request cannot be carried out over these ports, or a port fails for another reason than a full queue.
pub fn send(
    request: &SendRequest,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    pace: Pace,
    stop: &AtomicBool,
) -> Result<SendOutcome, PortError> {
    let called = clock.now();
    let capabilities: Vec<_> = ports.iter().map(|port| port.capabilities()).collect();
    let longest: Vec<_> = capabilities.iter().map(|port| port.max_frame).collect();
    request.check(&longest).map_err(|error| {
        let problem = error.to_string();
        PortError::Wrong { object: format!("block {}", request.block), problem }
    })?;
    let mut driver = Driver::new(request, ports, capabilities, clock, pace);
    driver.drain()?;
    driver.synchronise(request, Phase::Before, stop)?;
    let started = (called + request.start_in).max(clock.now() + driver.pacer.wake.min(LEAD));
    driver.sender.begin(started);
    driver.run(stop)?;
    driver.linger(request)?;
    driver.synchronise(request, Phase::After, stop)?;
    Ok(driver.finish(started))
}

/// Exchanges times with the receivers of a request, before or after streams that are not sent by [`send`]. Also returns
/// the counts of replies with another key.
///
/// # Errors
/// If a port fails for another reason than a full queue.
pub fn exchange(
    request: &SendRequest,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    pace: Pace,
    phase: Phase,
    stop: &AtomicBool,
) -> Result<(Vec<Exchange>, Unexpected), PortError> {
    let capabilities: Vec<_> = ports.iter().map(|port| port.capabilities()).collect();
    // Rows need no memory here.
    let request = SendRequest { keep: Keep::Histograms, ..request.clone() };
    let mut driver = Driver::new(&request, ports, capabilities, clock, pace);
    driver.drain()?;
    driver.synchronise(&request, phase, stop)?;
    let heard = driver.ears.finish(&[], &[]);
    Ok((heard.exchanges, heard.unexpected))
}

struct Driver<'a, 'p> {
    sender: Sender,
    ears: Ears,
    ports: &'a mut [&'p mut dyn Batch],
    capabilities: Vec<Capabilities>,
    /// Local drops of each port before the block.
    dropped: Vec<u64>,
    clock: &'a dyn Clock,
    pacer: Pacer,
    watch: Watch,
    seconds: Seconds,
}

impl<'a, 'p> Driver<'a, 'p> {
    fn new(
        request: &SendRequest,
        ports: &'a mut [&'p mut dyn Batch],
        capabilities: Vec<Capabilities>,
        clock: &'a dyn Clock,
        pace: Pace,
    ) -> Self {
        let now = clock.now();
        Self {
            sender: Sender::new(request, &capabilities),
            ears: Ears::new(request, &capabilities),
            dropped: ports.iter_mut().map(|port| port.local_drops()).collect(),
            ports,
            capabilities,
            clock,
            pacer: Pacer::new(pace, interval(request), quiet(request), clock),
            watch: Watch::new(now),
            seconds: Seconds::new(now),
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<(), PortError> {
        let mut left_at_once = 0;
        loop {
            if stop.load(Ordering::Relaxed) {
                self.sender.stop();
            }
            let now = self.clock.now();
            if self.watch.is_set_back(now) {
                self.sender.stop();
            }
            if self.seconds.have_passed(now) {
                for port in self.ports.iter_mut() {
                    port.local_drops();
                }
            }
            match self.sender.poll(now) {
                Step::Done => return Ok(()),
                Step::Flood(place) => {
                    self.flood(place, now)?;
                    self.collect(STAMPS_AT_ONCE)?;
                }
                Step::Depart(at, place) if self.pacer.next(now, at - self.sender.lead()) == Next::Depart => {
                    self.depart(place, at)?;
                    left_at_once += 1;
                    if left_at_once < LEAVING_AT_ONCE {
                        continue;
                    }
                    self.collect(2 * LEAVING_AT_ONCE)?;
                }
                Step::Depart(at, _) | Step::Wait(at) => {
                    let most = (at - now).0 / STAMP_COST.0;
                    self.collect(most.clamp(1, STAMPS_AT_ONCE as i64) as usize)?;
                    self.idle(at)?;
                }
            }
            left_at_once = 0;
            self.pacer.rest_if_due(self.clock);
        }
    }

    fn depart(&mut self, place: usize, at: Time) -> Result<(), PortError> {
        let now = self.clock.wait_until(at - self.sender.lead(), self.pacer.quiet);
        let port = &mut *self.ports[self.sender.port(place)];
        match transmit(port, self.sender.frame(place, at, now)) {
            Ok(sent) => self.sender.departed(place, at, sent),
            Err(error) if error.is_full_queue() => self.sender.refused(place),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sends some packets of a maximum-rate stream. Packets that a full queue refuses are retried the next time.
    fn flood(&mut self, place: usize, now: Time) -> Result<(), PortError> {
        let index = self.sender.port(place);
        let port = &mut *self.ports[index];
        if self.capabilities[index].tx_timestamps {
            // TX timestamps are matched by transmission number, which a batch does not report.
            return match transmit(port, self.sender.frame(place, now, now)) {
                Ok(sent) => {
                    self.sender.departed(place, now, sent);
                    Ok(())
                }
                Err(error) if error.is_full_queue() => Ok(()),
                Err(error) => Err(error),
            };
        }
        let (frames, frame_bytes) = self.sender.frames(place, now);
        match port.transmit_batch(frames, frame_bytes) {
            Ok(taken) => self.sender.flooded(place, taken, now),
            Err(PortError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads waiting frames and TX timestamps, at most `most` timestamps per port.
    fn collect(&mut self, most: usize) -> Result<usize, PortError> {
        let mut taken = 0;
        let ears = &mut self.ears;
        for (index, port) in self.ports.iter_mut().enumerate() {
            let capabilities = &self.capabilities[index];
            if ears.listens() {
                match port.receive_batch(&mut |frame, received| ears.on_frame((index, capabilities), frame, &received))
                {
                    Ok(frames) => taken += frames,
                    Err(PortError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if !capabilities.tx_timestamps {
                continue;
            }
            for _ in 0..most {
                let Some(stamp) = port.tx_timestamp()? else { break };
                taken += 1;
                if !ears.sync.as_mut().is_some_and(|sync| sync.on_stamp(index, &stamp)) {
                    self.sender.on_stamp(index, &stamp);
                }
            }
        }
        Ok(taken)
    }

    /// Uses the time until shortly before a departure for a time exchange if one is due, otherwise for sleep.
    fn idle(&mut self, at: Time) -> Result<(), PortError> {
        let now = self.clock.now();
        if at - now > SYNC_ROOM && self.ears.sync.as_ref().is_some_and(|sync| sync.is_due(now)) {
            return self.ask();
        }
        self.pacer.sleep(now, at - self.pacer.wake).map_or(Ok(()), |until| self.sleep(until))
    }

    /// Sleeps until a time, or until a frame arrives.
    fn sleep(&mut self, until: Time) -> Result<(), PortError> {
        let listens = self.ears.is_waiting();
        match &mut *self.ports {
            // If nothing reads a port's frames, waiting for it would end at once.
            [port] if listens => port.wait(until)?,
            _ => {
                let until = if listens { until.min(self.clock.now() + SHORT_NAP) } else { until };
                self.clock.wait_until(until, Nanos::ZERO);
            }
        }
        Ok(())
    }

    /// Sends a time request.
    fn ask(&mut self) -> Result<(), PortError> {
        let now = self.clock.now();
        let Some((index, frame)) = self.ears.request(now) else { return Ok(()) };
        match transmit(&mut *self.ports[index], frame) {
            Ok(sent) => self.ears.asked(sent),
            Err(error) if error.is_full_queue() => self.ears.refused(now),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Performs the exchanges before or after the stream.
    fn synchronise(&mut self, request: &SendRequest, phase: Phase, stop: &AtomicBool) -> Result<(), PortError> {
        let (Some(asked), Some(sync)) = (&request.sync, &mut self.ears.sync) else { return Ok(()) };
        sync.enter(phase);
        let each = if phase == Phase::Before { asked.before } else { asked.after };
        let count = u64::from(each) * sync.peers() as u64;
        let start = self.clock.now();
        for number in 0..count {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.ask()?;
            self.hear(self.clock.now() + SYNC_PATIENCE, |driver| driver.ears.is_exchanging())?;
            self.hear(start + Nanos(asked.spacing.0.saturating_mul(number as i64 + 1)), |_| true)?;
        }
        if let Some(sync) = &mut self.ears.sync {
            sync.expire(self.clock.now());
            sync.enter(Phase::During);
        }
        Ok(())
    }

    /// Receives until a time, as long as something is awaited.
    fn hear(&mut self, until: Time, awaits: impl Fn(&Self) -> bool) -> Result<(), PortError> {
        loop {
            let taken = self.collect(STAMPS_AT_ONCE)?;
            let now = self.clock.now();
            if now >= until || self.watch.is_set_back(now) || !awaits(self) {
                return Ok(());
            }
            if taken == 0 {
                self.sleep(until.min(now + LONGEST_SLEEP))?;
            } else {
                self.pacer.rest_if_due(self.clock);
            }
        }
    }

    /// Waits for answers and TX timestamps of packets that have left.
    fn linger(&mut self, request: &SendRequest) -> Result<(), PortError> {
        let now = self.clock.now();
        if let Some(late_after) = request.answers_late_after {
            self.hear(now + late_after.min(ANSWER_PATIENCE), |_| true)?;
        }
        self.hear(now + STAMP_PATIENCE, |driver| driver.sender.awaits_stamps())
    }

    /// Discards what arrived earlier: it belongs to no packet of this block.
    fn drain(&mut self) -> Result<(), PortError> {
        for port in &mut *self.ports {
            for _ in 0..ALL_FRAMES {
                match port.receive_batch(&mut |_, _| {}) {
                    Ok(0) => break,
                    Ok(_) | Err(PortError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            while port.tx_timestamp()?.is_some() {}
        }
        Ok(())
    }

    fn finish(self, started: Time) -> SendOutcome {
        let ended = self.clock.now();
        let drops = self.ports.iter_mut().zip(&self.dropped);
        let local_drops: Vec<_> = drops.map(|(port, before)| port.local_drops().saturating_sub(*before)).collect();
        let counts: Vec<_> = self.sender.sent().collect();
        let Heard { exchanges, answers, unexpected } = self.ears.finish(&counts, &local_drops);
        let (flows, rows, not_kept) = self.sender.finish();
        SendOutcome { started, ended, flows, rows, not_kept, exchanges, answers, unexpected }
    }
}

/// Returns how long before a departure to read only the clock.
fn quiet(request: &SendRequest) -> Nanos {
    Nanos(interval(request).0 / 4).clamp(LEAST_QUIET, QUIET)
}

/// Returns the mean interval between departures of all streams together; without a rate, the maximum.
fn interval(request: &SendRequest) -> Nanos {
    let rate_pps: f64 = request.flows.iter().map(|flow| flow.schedule.mean_pps()).sum();
    // The cast saturates an infinite value.
    Nanos((1e9 / rate_pps) as i64)
}
