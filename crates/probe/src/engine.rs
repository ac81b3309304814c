//! One block of probes: when each departs, and its outcome. Pure: frames and times in, frames and records out.
//!
//! An open loop never waits for an answer, so a stall of the path affects every probe scheduled during it. A closed
//! loop waits, and is labelled as such. Every sent probe is in exactly one of `received` and `lost`.

use sojourn_port::{Capabilities, Received, Sent, TxTimestamp};
use sojourn_record::{Counts, Probe, Reply};
use sojourn_time::{Clock, Nanos, Source, Time};

use crate::codec::Codec;
use crate::departures::Departures;
use crate::driver::Host;
use crate::far::FarEnd;
use crate::{Request, Schedule};

/// How long to wait at a block's end for outstanding TX timestamps.
const STAMP_PATIENCE: Nanos = Nanos::millis(20);

/// The longest wait for outstanding replies after a stop.
const STOP_PATIENCE: Nanos = Nanos::millis(200);

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the next probe's frame at this time, or at once if it has passed.
    Depart(Time),
    /// Wait for a frame until this time; nothing to send.
    Await(Time),
    /// The block is over.
    Done,
}

/// A running block of probes.
#[derive(Debug)]
pub struct Engine {
    codec: Codec,
    departures: Departures,
    is_closed_loop: bool,
    count: u32,
    warmup: u32,
    timeout: Nanos,
    /// The frame of the next probe.
    frame: Vec<u8>,
    rows: Vec<Probe>,
    counts: Counts,
    /// The port's number of the first probe.
    first_number: Option<u32>,
    /// The number of outstanding TX timestamps; `None` when the port provides none.
    stamps_due: Option<u64>,
    /// The sequence number after the highest that was answered: `NextExp` of RFC 4737.
    next_expected: u32,
    last_departure: Time,
    /// When the last first reply to any probe arrived.
    last_first_reply: Time,
    largest_rtt: Nanos,
    /// Closed loop: the earliest departure of the next probe.
    free_at: Option<Time>,
    is_stopped: bool,
    /// The properties of a STAMP session-reflector.
    far: Option<FarEnd>,
}

impl Engine {
    /// Prepares a checked request. Allocates all memory of the block; [`Self::begin`] then sets its start.
    pub fn new(request: &Request, port: &Capabilities, host: &Host) -> Self {
        let codec = Codec::new(request, port.framing, host);
        let shape = &request.shape;
        let mut engine = Self {
            frame: vec![0; codec.frame_bytes()],
            codec,
            departures: Departures::new(shape.schedule, shape.interval, shape.seed),
            is_closed_loop: shape.schedule == Schedule::ClosedLoop,
            count: shape.count,
            warmup: shape.warmup,
            timeout: shape.timeout,
            rows: touched(shape.count as usize),
            counts: Counts::default(),
            first_number: None,
            stamps_due: port.tx_timestamps.then_some(0),
            next_expected: 0,
            last_departure: Time::NEVER,
            last_first_reply: Time::NEVER,
            largest_rtt: Nanos::ZERO,
            free_at: None,
            is_stopped: false,
            far: None,
        };
        engine.write_frame();
        engine
    }

    /// Schedules the first probe for `start`.
    pub fn begin(&mut self, start: Time) {
        self.departures.begin(start);
        self.last_departure = start;
        self.last_first_reply = start;
        self.free_at = Some(start);
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Time) -> Step {
        if self.is_stopped || self.sent() + self.counts.local_drops >= u64::from(self.count) {
            return self.poll_end(now);
        }
        if !self.is_closed_loop {
            return Step::Depart(self.departures.next());
        }
        let given_up = self.last_departure + self.timeout;
        match self.free_at {
            None if now < given_up => Step::Await(given_up),
            free_at => {
                let free_at = *self.free_at.insert(free_at.unwrap_or(given_up));
                Step::Depart(self.departures.next().max(free_at))
            }
        }
    }

    /// Returns the frame of the next probe.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Writes the departure time into the next probe's frame, where the protocol carries it.
    pub fn stamp(&mut self, clock: &impl Clock) {
        if self.codec.says_when() {
            self.codec.stamp(self.rows.len() as u32, clock.now(), &mut self.frame);
        }
    }

    /// Records that the next probe, intended for `intended`, was passed to the port.
    pub fn departed(&mut self, intended: Time, sent: Sent) {
        let seq = self.rows.len() as u32;
        self.rows.push(Probe::new(seq, seq < self.warmup, intended, sent.called));
        self.first_number.get_or_insert(sent.number);
        if let Some(due) = &mut self.stamps_due {
            *due += 1;
        }
        self.last_departure = sent.called;
        self.free_at = None;
        self.departures.advance(intended);
        self.write_frame();
    }

    /// Records that the local machine refused the next probe, intended for `intended`. It is a local drop, neither sent
    /// nor lost.
    pub fn refused(&mut self, intended: Time) {
        self.counts.local_drops += 1;
        self.departures.advance(intended);
    }

    /// Processes a received frame.
    pub fn on_frame(&mut self, frame: &[u8], received: &Received) {
        let sent = self.rows.len() as u32;
        let Some(answer) = self.codec.read(frame, sent, received.returned) else {
            self.counts.unexpected += 1;
            return;
        };
        let row = &mut self.rows[answer.seq as usize];
        row.replies += 1;
        if row.replies > 1 {
            self.counts.duplicated += 1;
            return;
        }
        if let Some(said) = answer.far {
            self.far.get_or_insert_default().take(answer.seq, said);
        }
        self.last_first_reply = self.last_first_reply.max(received.returned);
        row.reply =
            Some(Reply { arrival: received.arrived, receive_call: received.returned, responder: answer.responder });
        row.is_reordered = answer.seq < self.next_expected;
        self.next_expected = self.next_expected.max(answer.seq + 1);
        self.largest_rtt = self.largest_rtt.max(received.returned - row.send_call);
        self.counts.received += 1;
        self.counts.reordered += u64::from(row.is_reordered);
        if answer.seq + 1 == sent {
            self.free_at.get_or_insert(received.returned);
        }
    }

    /// Processes a late TX timestamp. The better of two is kept.
    pub fn on_stamp(&mut self, stamp: &TxTimestamp) {
        let Some(first) = self.first_number else { return };
        let Some(row) = self.rows.get_mut(stamp.number.wrapping_sub(first) as usize) else { return };
        let is_first = row.departure.source == Source::User;
        if is_first || stamp.left.source < row.departure.source {
            row.departure = stamp.left;
        }
        if let (Some(due), true) = (&mut self.stamps_due, is_first) {
            *due = due.saturating_sub(1);
        }
    }

    /// Sends no more probes; outstanding ones may still be answered.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Closed loop: postpones the next probe to `time` at the earliest. Open loops never wait.
    pub fn rest_until(&mut self, time: Time) {
        self.free_at = self.free_at.map(|free_at| free_at.max(time));
    }

    /// Returns whether a reply is outstanding.
    pub fn is_awaiting_reply(&self) -> bool {
        self.sent() > self.counts.received
    }

    /// Returns whether any reply has arrived.
    pub fn has_answers(&self) -> bool {
        self.counts.received > 0
    }

    /// Returns when the last probe was sent.
    pub fn last_departure(&self) -> Time {
        self.last_departure
    }

    /// Returns the record of each probe, the counts, and the properties of a STAMP session-reflector. `local_drops` is
    /// the port's count.
    pub fn finish(mut self, local_drops: u64) -> (Vec<Probe>, Counts, Option<FarEnd>) {
        for row in &mut self.rows {
            row.is_late = row.rtt().is_some_and(|rtt| rtt > self.timeout);
            self.counts.late += u64::from(row.is_late);
        }
        self.counts.sent = self.sent();
        self.counts.lost = self.counts.sent - self.counts.received;
        self.counts.local_drops += local_drops;
        (self.rows, self.counts, self.far)
    }

    /// After the last departure: waits for replies until the timeout, then for duplicates as long as the slowest reply
    /// took, then for TX timestamps.
    fn poll_end(&self, now: Time) -> Step {
        let until = if self.is_awaiting_reply() {
            let patience = if self.is_stopped { self.timeout.min(STOP_PATIENCE) } else { self.timeout };
            self.last_departure + patience
        } else {
            self.last_first_reply + self.largest_rtt.min(self.timeout)
        };
        let until = match self.stamps_due {
            Some(due) if due > 0 => until.max(self.last_departure + STAMP_PATIENCE),
            _ => until,
        };
        if now < until { Step::Await(until) } else { Step::Done }
    }

    fn sent(&self) -> u64 {
        self.rows.len() as u64
    }

    fn write_frame(&mut self) {
        self.codec.write(self.rows.len() as u32, &mut self.frame);
    }
}

/// Returns an empty vector whose pages are already mapped, so that recording a probe causes no page fault.
fn touched(capacity: usize) -> Vec<Probe> {
    let mut rows = vec![Probe::new(0, false, Time(0), Time(0)); capacity];
    rows.clear();
    rows
}

#[cfg(test)]
mod tests;
