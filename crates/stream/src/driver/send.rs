//! The sender's loop over its ports.
//!
//! It sleeps until shortly before a departure, then looks for what has come in, and spins on the clock alone for the
//! last few microseconds ([`Pacer`]). Deadlines are absolute: a late departure makes no other one late. It allocates nothing
//! between the first packet and the last.

use std::sync::atomic::{AtomicBool, Ordering};

use sojourn_port::{Batch, Capabilities, PortError, Received};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Nanos, Next, Pace, Pacer, Time, Watch};
use sojourn_wire::stream::Kind;
use sojourn_wire::{SessionKey, StreamHeader};

use super::transmit;
use crate::accounting::{Accounting, Counting};
use crate::frame::split;
use crate::sender::Step;
use crate::sync::Syncer;
use crate::{Auth, Exchange, Keep, Phase, SendOutcome, SendRequest, Sender, Unexpected};

/// How long before a departure the driver looks at nothing but the clock: as long as one look for frames may take. At
/// high rates there is not so much time: then it is a quarter of the mean interval, and not less than the least.
const QUIET: Nanos = Nanos::micros(10);
const LEAST_QUIET: Nanos = Nanos::micros(2);

/// How long an exchange of synchronisation may hold the sender up.
const SYNC_ROOM: Nanos = Nanos::micros(40);

/// How long to wait for the answer to a synchronisation before the stream and after it.
const SYNC_PATIENCE: Nanos = Nanos::millis(20);

/// When the first packet leaves at the earliest, after the driver has begun: there is time to sleep before it.
const LEAD: Nanos = Nanos::micros(100);

/// How long to sleep at a stretch where frames may come in by any of several ports.
const SHORT_NAP: Nanos = Nanos::micros(200);

/// How many late stamps to take before it is asked whether a packet is due, and how long one takes.
const STAMPS_AT_ONCE: usize = 8;
const STAMP_COST: Nanos = Nanos::micros(2);

/// How many packets that are due at once may leave before anything else is looked at.
const LEAVING_AT_ONCE: usize = 32;

/// How long to wait at the end for late stamps.
const STAMP_PATIENCE: Nanos = Nanos::millis(20);

/// How long to wait at the end for answers, at most.
const ANSWER_PATIENCE: Nanos = Nanos::millis(500);

/// More than a socket holds.
const ALL_FRAMES: usize = 1 << 12;

/// Sends the streams of a request. Ends early, cleanly, once `stop` is set.
///
/// # Errors
/// When the request cannot be carried out over these ports, or a port refuses for another reason than a full queue.
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

/// Exchanges times with the receivers of a request, before or after streams that something else than [`send`] sends. Returns also
/// what replies had another key.
///
/// # Errors
/// When a port refuses for another reason than a full queue.
pub fn exchange(
    request: &SendRequest,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    pace: Pace,
    phase: Phase,
    stop: &AtomicBool,
) -> Result<(Vec<Exchange>, Unexpected), PortError> {
    let capabilities: Vec<_> = ports.iter().map(|port| port.capabilities()).collect();
    // No room is taken for the streams themselves.
    let request = SendRequest { keep: Keep::Histograms, ..request.clone() };
    let mut driver = Driver::new(&request, ports, capabilities, clock, pace);
    driver.drain()?;
    driver.synchronise(&request, phase, stop)?;
    Ok((driver.sync.map(Syncer::finish).unwrap_or_default(), driver.unexpected))
}

struct Driver<'a, 'p> {
    sender: Sender,
    sync: Option<Syncer>,
    answers: Option<Accounting>,
    key: SessionKey,
    auth: Auth,
    /// Replies with another key.
    unexpected: Unexpected,
    ports: &'a mut [&'p mut dyn Batch],
    capabilities: Vec<Capabilities>,
    /// What each port had dropped before.
    dropped: Vec<u64>,
    clock: &'a dyn Clock,
    pacer: Pacer,
    watch: Watch,
}

impl<'a, 'p> Driver<'a, 'p> {
    fn new(
        request: &SendRequest,
        ports: &'a mut [&'p mut dyn Batch],
        capabilities: Vec<Capabilities>,
        clock: &'a dyn Clock,
        pace: Pace,
    ) -> Self {
        let has_stamps: Vec<_> = capabilities.iter().map(|port| port.tx_timestamps).collect();
        let flows: Vec<_> = request.flows.iter().map(|flow| flow.flow).collect();
        let counting = |late_after| Counting { keep: request.keep, late_after, clock_offset: Nanos::ZERO };
        let account = |late_after| Accounting::new(counting(late_after), &flows, ports.len(), Some(request.key));
        Self {
            sender: Sender::new(request, &capabilities),
            sync: Syncer::new(request, &has_stamps),
            answers: request.answers_late_after.map(account),
            key: request.key,
            auth: request.auth.clone(),
            unexpected: Unexpected::default(),
            dropped: ports.iter_mut().map(|port| port.local_drops()).collect(),
            ports,
            capabilities,
            clock,
            pacer: Pacer::new(pace, interval(request), quiet(request), clock),
            watch: Watch::new(clock.now()),
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

    /// Sends some packets of a flood. What a full queue does not take is tried again the next time.
    fn flood(&mut self, place: usize, now: Time) -> Result<(), PortError> {
        let index = self.sender.port(place);
        let port = &mut *self.ports[index];
        if self.capabilities[index].tx_timestamps {
            // Late stamps are known by the number of their transmission, which a batch does not tell.
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

    /// Takes the frames and the late stamps that are there, so many stamps at most.
    fn collect(&mut self, most: usize) -> Result<usize, PortError> {
        let mut taken = 0;
        let listens = self.sync.is_some() || self.answers.is_some();
        for (index, port) in self.ports.iter_mut().enumerate() {
            if listens {
                let framing = self.capabilities[index].framing;
                let (key, auth, unexpected) = (self.key, &self.auth, &mut self.unexpected);
                let mut ears =
                    Ears { sync: self.sync.as_mut(), answers: self.answers.as_mut(), key, auth, unexpected, index };
                match port
                    .receive_batch(&mut |frame, received| ears.on_frame(split(framing, frame).map(|s| s.1), &received))
                {
                    Ok(frames) => taken += frames,
                    Err(PortError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if !self.capabilities[index].tx_timestamps {
                continue;
            }
            for _ in 0..most {
                let Some(stamp) = port.tx_timestamp()? else { break };
                taken += 1;
                if !self.sync.as_mut().is_some_and(|sync| sync.on_stamp(index, &stamp)) {
                    self.sender.on_stamp(index, &stamp);
                }
            }
        }
        Ok(taken)
    }

    /// Uses the time until shortly before a departure: for synchronisation when it is due, else for sleep.
    fn idle(&mut self, at: Time) -> Result<(), PortError> {
        let now = self.clock.now();
        if at - now > SYNC_ROOM && self.sync.as_ref().is_some_and(|sync| sync.is_due(now)) {
            return self.ask();
        }
        self.pacer.sleep(now, at - self.pacer.wake).map_or(Ok(()), |until| self.sleep(until))
    }

    /// Sleeps until then, or until something comes in.
    fn sleep(&mut self, until: Time) -> Result<(), PortError> {
        let listens = self.sync.as_ref().is_some_and(Syncer::is_waiting) || self.answers.is_some();
        match &mut *self.ports {
            // A port where nobody takes in what comes would end each sleep at once.
            [port] if listens => port.wait(until)?,
            _ => {
                let until = if listens { until.min(self.clock.now() + SHORT_NAP) } else { until };
                self.clock.wait_until(until, Nanos::ZERO);
            }
        }
        Ok(())
    }

    /// Sends a request for a receiver's time.
    fn ask(&mut self) -> Result<(), PortError> {
        let Some(sync) = &mut self.sync else { return Ok(()) };
        let now = self.clock.now();
        let (index, frame) = sync.request(now);
        match transmit(&mut *self.ports[index], frame) {
            Ok(sent) => sync.asked(sent),
            Err(error) if error.is_full_queue() => sync.refused(now),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Carries out the exchanges before the stream or after it.
    fn synchronise(&mut self, request: &SendRequest, phase: Phase, stop: &AtomicBool) -> Result<(), PortError> {
        let (Some(asked), Some(sync)) = (&request.sync, &mut self.sync) else { return Ok(()) };
        sync.enter(phase);
        let each = if phase == Phase::Before { asked.before } else { asked.after };
        let count = u64::from(each) * sync.peers() as u64;
        let start = self.clock.now();
        for number in 0..count {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.ask()?;
            self.hear(self.clock.now() + SYNC_PATIENCE, |driver| driver.sync.as_ref().is_some_and(Syncer::is_waiting))?;
            self.hear(start + Nanos(asked.spacing.0.saturating_mul(number as i64 + 1)), |_| true)?;
        }
        if let Some(sync) = &mut self.sync {
            sync.expire(self.clock.now());
            sync.enter(Phase::During);
        }
        Ok(())
    }

    /// Takes what comes in, until then at most and as long as something is awaited.
    fn hear(&mut self, until: Time, awaits: impl Fn(&Self) -> bool) -> Result<(), PortError> {
        loop {
            let taken = self.collect(STAMPS_AT_ONCE)?;
            let now = self.clock.now();
            if now >= until || self.watch.is_set_back(now) || !awaits(self) {
                return Ok(());
            }
            if taken == 0 {
                self.sleep(until.min(now + LONGEST_SLEEP))?;
            }
        }
    }

    /// Waits for what belongs to packets that have left.
    fn linger(&mut self, request: &SendRequest) -> Result<(), PortError> {
        let now = self.clock.now();
        if let Some(late_after) = request.answers_late_after {
            self.hear(now + late_after.min(ANSWER_PATIENCE), |_| true)?;
        }
        self.hear(now + STAMP_PATIENCE, |driver| driver.sender.awaits_stamps())
    }

    /// Takes away what came before: it belongs to no packet of this block.
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
        let exchanges = self.sync.map(Syncer::finish).unwrap_or_default();
        let answers = self.answers.map(|answers| answers.finish(&counts, &local_drops));
        let (flows, rows, not_kept) = self.sender.finish();
        SendOutcome { started, ended, flows, rows, not_kept, exchanges, answers, unexpected: self.unexpected }
    }
}

/// What hears frames that come in while sending.
struct Ears<'a> {
    sync: Option<&'a mut Syncer>,
    answers: Option<&'a mut Accounting>,
    key: SessionKey,
    auth: &'a Auth,
    unexpected: &'a mut Unexpected,
    index: usize,
}

impl Ears<'_> {
    fn on_frame(&mut self, payload: Option<&[u8]>, received: &Received) {
        let Some((header, payload)) = payload.and_then(|bytes| Some((StreamHeader::read(bytes).ok()?, bytes))) else {
            return;
        };
        match header.kind {
            // What receivers with another key send, and what others make up.
            Kind::Answer | Kind::SyncReply | Kind::SyncFollowUp | Kind::EndAck | Kind::GreetingReply
                if header.key != self.key =>
            {
                self.unexpected.note(Some(header.kind));
            }
            Kind::SyncReply | Kind::SyncFollowUp => match (&mut self.sync, self.auth.open(payload)) {
                (_, None) => self.unexpected.note(Some(header.kind)),
                (Some(sync), Some(said)) if header.kind == Kind::SyncReply => sync.on_reply(&header, said, received),
                (Some(sync), Some(said)) => sync.on_follow_up(&header, said),
                (None, Some(_)) => {}
            },
            Kind::Answer => {
                if let Some(answers) = &mut self.answers {
                    answers.on_packet(self.index, &header, payload, received);
                }
            }
            _ => {}
        }
    }
}

/// Returns how long before a departure to look at nothing but the clock.
fn quiet(request: &SendRequest) -> Nanos {
    Nanos(interval(request).0 / 4).clamp(LEAST_QUIET, QUIET)
}

/// Returns the mean interval between departures, all streams together; without a rate, no end of it.
fn interval(request: &SendRequest) -> Nanos {
    let rate_pps: f64 = request.flows.iter().map(|flow| flow.schedule.mean_pps()).sum();
    // The cast takes care of the infinite one.
    Nanos((1e9 / rate_pps) as i64)
}
