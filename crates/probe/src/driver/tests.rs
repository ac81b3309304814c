//! Runs the driver over a misbehaving port, in simulated time that advances with each call.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use sojourn_port::sim::{Line, Sim};
use sojourn_port::{Capabilities, Framing, Received, Sent, TxTimestamp};
use sojourn_time::{SimulatedClock, Source, Stamp};
use sojourn_wire::icmp::{Echo, Version};

use super::*;
use crate::{Kind, Shape, Simulated, To};

/// The most calls that any of these tests should need.
const PATIENCE: u32 = 3_000_000;

/// A clock that advances with each call to the port, and records how much of that was sleep.
#[derive(Clone, Default)]
struct Busy {
    time: SimulatedClock,
    slept: Rc<Cell<Nanos>>,
    /// The longest period without sleep.
    longest_busy: Rc<Cell<Nanos>>,
    woke: Rc<Cell<Time>>,
    /// From when on the clock's reading is an hour behind.
    set_back_at: Option<Time>,
}

const HOUR: Nanos = Nanos::seconds(3_600);

impl Busy {
    fn pass(&self, span: Nanos) {
        self.time.advance_to(self.time.now() + span);
    }

    fn sleep_until(&self, deadline: Time) {
        let span = deadline - self.reading();
        if span > Nanos::ZERO {
            self.longest_busy.set(self.longest_busy.get().max(self.time.now() - self.woke.get()));
            self.slept.set(self.slept.get() + span);
            self.pass(span);
            self.woke.set(self.time.now());
        }
    }

    fn reading(&self) -> Time {
        let now = self.time.now();
        if self.set_back_at.is_some_and(|at| now >= at) { now - HOUR } else { now }
    }
}

impl Clock for Busy {
    fn now(&self) -> Time {
        self.pass(Nanos(20));
        self.reading()
    }

    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
        self.sleep_until(deadline - spin);
        self.pass((deadline - self.reading()).max(Nanos::ZERO));
        self.reading()
    }

    fn thread_time(&self) -> Nanos {
        (self.time.now() - Time(0)) - self.slept.get()
    }
}

/// A peer that echoes at once, and sends other frames too.
#[derive(Default)]
struct Unruly {
    clock: Busy,
    inbox: VecDeque<Vec<u8>>,
    sent: u32,
    calls: u32,
    /// Whether each reply is repeated without end, and how many come before none is there for a moment.
    loops: bool,
    at_once: usize,
    taken: usize,
    /// The probes for which no socket listens.
    refuses: Range<u32>,
    pending_refusal: bool,
    /// How often it was asked for its local drops.
    drops_read: u32,
}

impl Unruly {
    fn call(&mut self) -> Result<(), PortError> {
        self.calls += 1;
        assert!(self.calls < PATIENCE, "it does not end");
        self.clock.pass(Nanos::micros(2));
        let refused = std::mem::take(&mut self.pending_refusal);
        if refused { Err(PortError::Refused("the peer".to_owned())) } else { Ok(()) }
    }
}

impl Port for Unruly {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        let called = self.clock.now();
        self.call()?;
        let number = self.sent;
        self.sent += 1;
        self.pending_refusal = self.refuses.contains(&number);
        if !self.pending_refusal {
            let (echo, _) = Echo::split(Version::V4, frame).unwrap();
            let mut reply = frame.to_vec();
            Echo { is_reply: true, ..echo }.write(Version::V4, &mut reply);
            self.inbox.push_back(reply);
        }
        Ok(Sent { number, called })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        self.call()?;
        if self.loops && self.taken == self.at_once {
            self.taken = 0;
            return Ok(None);
        }
        let Some(frame) = self.inbox.pop_front() else { return Ok(None) };
        self.taken += 1;
        buffer[..frame.len()].copy_from_slice(&frame);
        let returned = self.clock.now();
        let length = frame.len();
        if self.loops {
            self.inbox.push_back(frame);
        }
        Ok(Some(Received {
            length,
            arrived: Stamp { at: returned, source: Source::Kernel },
            returned,
            from: None,
            to_group: false,
        }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.call()?;
        if self.inbox.is_empty() {
            self.clock.sleep_until(deadline);
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Icmp4, max_frame: 1_500, tx_timestamps: false }
    }

    fn local_drops(&mut self) -> u64 {
        self.drops_read += 1;
        0
    }
}

fn unruly() -> Unruly {
    Unruly { at_once: usize::MAX, ..Unruly::default() }
}

fn request(count: u32, interval: Nanos) -> Request {
    let to = To::Sim(Simulated { line: Box::new(Line::constant(0, 0)), carries: None });
    Request::new(1, to, Kind::Icmp, 56, Shape::regular(count, interval, Nanos::millis(200)))
}

fn measure(request: &Request, port: &mut Unruly, pace: Pace) -> Result<(Vec<Probe>, Counts), PortError> {
    let clock = port.clock.clone();
    let (probes, counts, _) = run(request, port, &clock, Host { pace, ..Host::default() }, &AtomicBool::new(false))?;
    Ok((probes, counts))
}

#[test]
fn a_burst_of_frames_makes_no_probe_late() {
    let mut port = Unruly { loops: true, ..unruly() };
    let (rows, counts) = measure(&request(20, Nanos::millis(1)), &mut port, Pace::default()).unwrap();
    assert!(counts.duplicated > 1_000, "{counts:?}");
    // One iteration: its frames at 2 µs each, plus the cost of reading the clock.
    let latest = rows.iter().map(Probe::pacing_error).max().unwrap();
    assert!(latest < Nanos::micros(25), "{latest:?}");
}

#[test]
fn endless_replies_do_not_prevent_the_end_of_a_block() {
    let mut port = Unruly { loops: true, ..unruly() };
    let (_, counts) = measure(&request(5, Nanos::millis(1)), &mut port, Pace::default()).unwrap();
    assert_eq!((counts.sent, counts.received, counts.lost), (5, 5, 0));
}

#[test]
fn peer_that_stops_listening_loses_only_later_probes() {
    let mut port = Unruly { refuses: 6..u32::MAX, ..unruly() };
    let (rows, counts) = measure(&request(10, Nanos::millis(1)), &mut port, Pace::default()).unwrap();
    assert_eq!((counts.sent, counts.received, counts.lost), (10, 6, 4));
    assert!(rows[..6].iter().all(|row| row.replies == 1));
}

#[test]
fn refusals_before_the_first_reply_lose_only_their_probes() {
    let mut port = Unruly { refuses: 0..4, ..unruly() };
    let (_, counts) = measure(&request(10, Nanos::millis(1)), &mut port, Pace::default()).unwrap();
    assert_eq!((counts.sent, counts.received, counts.lost), (10, 6, 4));
}

#[test]
fn peer_that_never_listens_is_an_error_at_the_end_of_a_block_or_after_a_second() {
    for (count, most) in [(10, Nanos::millis(300)), (5_000, Nanos::millis(1_200))] {
        let mut port = Unruly { refuses: 0..u32::MAX, ..unruly() };
        let refused = measure(&request(count, Nanos::millis(1)), &mut port, Pace::default());
        assert!(matches!(refused, Err(PortError::Refused(_))), "{refused:?}");
        let took = port.clock.time.now() - Time(0);
        assert!(took < most, "{count} probes: {took:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_ends_the_block() {
    let clock = Busy { set_back_at: Some(Time(5_600_000)), ..Busy::default() };
    let mut port = Unruly { clock, ..unruly() };
    let (_, counts) = measure(&request(100, Nanos::millis(1)), &mut port, Pace::default()).unwrap();
    assert!(port.clock.time.now() < Time(0) + HOUR, "it waited for an hour");
    assert_eq!((counts.sent, counts.received, counts.lost), (6, 6, 0));
}

/// The kernel throttles a real-time thread that is busy for more than 950 ms of a second.
#[test]
fn real_time_thread_sleeps_enough_for_any_request() {
    for (interval, wait, schedule, count) in [
        (Nanos::micros(15), Wait::SleepThenSpin, Schedule::Regular, 80_000),
        (Nanos::micros(50), Wait::SleepThenSpin, Schedule::Poisson, 20_000),
        (Nanos::ZERO, Wait::SleepThenSpin, Schedule::ClosedLoop, 150_000),
        (Nanos::micros(100), Wait::Spin, Schedule::Regular, 10_000),
        (Nanos::seconds(3), Wait::Spin, Schedule::Regular, 2),
    ] {
        let mut port = unruly();
        let mut request = request(count, interval);
        request.shape.schedule = schedule;
        let (_, counts) = measure(&request, &mut port, Pace { wait, is_real_time: true }).unwrap();
        assert_eq!(counts.lost, 0);
        let (slept, all) = (port.clock.slept.get().0, port.clock.time.now().0);
        let case = format!("{interval:?} {wait:?} {schedule:?}");
        assert!(slept * 100 >= all * 5, "{case}: {slept} ns of {all} slept");
        assert!(port.clock.longest_busy.get() < Nanos::millis(500), "{case}: {:?}", port.clock.longest_busy);
    }
}

/// Frames that never end leave nothing to wait for between two departures.
#[test]
fn real_time_thread_rests_between_departures_under_a_flood() {
    for at_once in [usize::MAX, 1] {
        let mut port = Unruly { loops: true, at_once, ..unruly() };
        let pace = Pace { wait: Wait::SleepThenSpin, is_real_time: true };
        let (rows, counts) = measure(&request(3, Nanos::millis(500)), &mut port, pace).unwrap();
        assert_eq!((counts.sent, counts.received, counts.lost), (3, 3, 0));
        let (slept, all) = (port.clock.slept.get().0, port.clock.time.now().0);
        assert!(all > 1_000_000_000 && slept * 100 >= all * 6, "{slept} ns of {all} slept");
        assert!(port.clock.longest_busy.get() < Nanos::millis(41), "{:?}", port.clock.longest_busy);
        let latest = rows.iter().map(Probe::pacing_error).max().unwrap();
        assert!(latest < Nanos::millis(4), "{latest:?}");
    }
}

#[test]
fn replies_received_while_the_thread_was_descheduled_are_not_lost() {
    /// A clock that advances by half a second once, between two readings.
    struct Away(SimulatedClock, Cell<u32>);
    impl Clock for Away {
        fn now(&self) -> Time {
            self.1.set(self.1.get() + 1);
            if self.1.get() == 12 {
                self.0.advance_to(self.0.now() + Nanos::millis(500));
            }
            self.0.now()
        }

        fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
            self.0.wait_until(deadline, spin)
        }
    }
    let pace = Pace { wait: Wait::Sleep, is_real_time: false };
    for looks in 0..12 {
        let truth = SimulatedClock::default();
        let request = request(1, Nanos::millis(1));
        let mut sim = Sim::new(&truth, &Line::constant(50_000, 50_000), request.carrier()).unwrap();
        let away = Away(truth, Cell::new(looks));
        let (_, counts, _) =
            run(&request, &mut sim, &away, Host { pace, ..Host::default() }, &AtomicBool::new(false)).unwrap();
        assert_eq!((counts.sent, counts.received), (1, 1), "{looks}");
    }
}

#[test]
fn real_time_thread_that_sleeps_between_probes_needs_no_extra_rest() {
    let mut port = unruly();
    let pace = Pace { wait: Wait::SleepThenSpin, is_real_time: true };
    let (rows, _) = measure(&request(20_000, Nanos::micros(40)), &mut port, pace).unwrap();
    let latest = rows.iter().map(Probe::pacing_error).max().unwrap();
    assert!(latest < Nanos::micros(10), "{latest:?}");
}

#[test]
fn local_drops_are_read_once_a_second() {
    let mut port = unruly();
    measure(&request(40, Nanos::millis(100)), &mut port, Pace::default()).unwrap();
    // Two more reads are before the first probe and after the last.
    assert!((3 + 2..=4 + 2).contains(&port.drops_read), "{}", port.drops_read);
}
