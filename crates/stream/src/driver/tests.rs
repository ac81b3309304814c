//! Tests of the CPU use of sender and receiver, over ports that accept every frame or always have one, and a clock that
//! records sleeps.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use sojourn_port::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, TxTimestamp};
use sojourn_time::pace::REST;
use sojourn_time::{Clock, Nanos, Pace, Source, Stamp, Time, Wait};
use sojourn_wire::{MacAddress, SessionKey};

use super::{receive, send};
use crate::{
    Auth, FlowRequest, Head, Keep, Pattern, PortRequest, ReceiveRequest, Receiver, Schedule, SendRequest, Senders,
};

/// Durations of reading the clock, of entering and leaving a sleep, and of sending a frame.
const LOOK: Nanos = Nanos(500);
const AROUND_SLEEP: Nanos = Nanos::micros(8);
const FRAME: Nanos = Nanos::micros(5);

#[derive(Clone, Debug, Default)]
struct Processor {
    now: Rc<Cell<Time>>,
    /// Intervals in which the CPU was given up.
    slept: Rc<RefCell<Vec<(Time, Time)>>>,
    /// How often a port was asked for its local drops.
    drops_read: Rc<Cell<u32>>,
}

impl Processor {
    fn work(&self, span: Nanos) -> Time {
        self.now.set(self.now.get() + span);
        self.now.get()
    }

    /// Returns for how long of a span the CPU was given up.
    fn slept_within(&self, from: Time, to: Time) -> Nanos {
        let slept = self.slept.borrow();
        slept.iter().fold(Nanos::ZERO, |sum, (start, end)| sum + ((*end).min(to) - (*start).max(from)).max(Nanos::ZERO))
    }
}

impl Clock for Processor {
    fn now(&self) -> Time {
        self.work(LOOK)
    }

    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time {
        let now = self.now();
        let left = deadline - now - spin;
        if left > Nanos::ZERO {
            let asleep = (left - AROUND_SLEEP).max(Nanos::ZERO);
            self.slept.borrow_mut().push((now, now + asleep));
            self.work(asleep + AROUND_SLEEP);
        }
        self.now.set(self.now.get().max(deadline));
        self.now()
    }

    fn thread_time(&self) -> Nanos {
        (self.now() - Time(0)) - self.slept_within(Time(0), Time::NEVER)
    }
}

impl Port for Processor {
    fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
        Ok(Sent { number: 0, called: self.work(FRAME) })
    }

    fn receive(&mut self, _: &mut [u8]) -> Result<Option<Received>, PortError> {
        Ok(None)
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.wait_until(deadline, Nanos::ZERO);
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Udp, max_frame: 100, tx_timestamps: false }
    }

    fn local_drops(&mut self) -> u64 {
        self.drops_read.set(self.drops_read.get() + 1);
        0
    }
}

impl Batch for Processor {
    fn engine(&self) -> &str {
        "none"
    }
}

fn request(schedule: &Schedule) -> SendRequest {
    let flow = FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 42, schedule: schedule.clone() };
    SendRequest {
        block: 1,
        key: SessionKey(1),
        auth: Auth::default(),
        flows: vec![flow],
        keep: Keep::Histograms,
        start_in: Nanos::ZERO,
        at_most: None,
        sync: None,
        answers_late_after: None,
        clock: 1,
    }
}

/// The kernel's real-time throttling lets a real-time thread run for 950 ms of each second, and then stops it for 50 ms.
#[test]
fn in_real_time_a_twentieth_of_each_second_is_given_back_in_small_pieces() {
    let paced = |rate_pps: f64| Schedule::new(Pattern::Regular, rate_pps, (rate_pps * 1.2) as u64, 1);
    let flood = Schedule::new(Pattern::Flood, 0.0, 240_000, 1);
    for wait in [Wait::SleepThenSpin, Wait::Spin, Wait::Sleep] {
        for schedule in [flood.clone(), paced(1e3), paced(2e4), paced(5e4)] {
            let processor = Processor::default();
            let request = request(&schedule);
            let pace = Pace { wait, is_real_time: true };
            let stop = AtomicBool::new(false);
            let sent = send(&request, &mut [&mut processor.clone()], &processor, pace, &stop).unwrap();
            assert_eq!(sent.flows[0].counts.sent, schedule.count);
            for start in (0..3).map(|tenth| sent.started + Nanos::millis(100 * tenth)) {
                let slept = processor.slept_within(start, start + Nanos::seconds(1));
                assert!(slept >= Nanos::millis(50), "{schedule:?} {wait:?} {slept:?}");
            }
            let late = sent.flows[0].pacing_error.max().unwrap_or(0);
            assert!(late < 5_000_000, "{schedule:?} {wait:?}: {late} ns late");
        }
    }
}

/// A socket at which a frame arrives in each `interval`.
struct Flooded {
    processor: Processor,
    interval: Nanos,
    taken: i64,
    most_waiting: i64,
}

impl Port for Flooded {
    fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
        unreachable!("nothing is answered")
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let waiting = (self.processor.work(LOOK) - Time(0)).0 / self.interval.0 - self.taken;
        self.most_waiting = self.most_waiting.max(waiting);
        if waiting == 0 {
            return Ok(None);
        }
        self.taken += 1;
        buffer.fill(0);
        let returned = self.processor.now();
        let arrived = Stamp { at: returned, source: Source::Kernel };
        Ok(Some(Received { length: buffer.len(), arrived, returned, from: None, to_group: false }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, _: Time) -> Result<(), PortError> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Udp, max_frame: 100, tx_timestamps: false }
    }

    fn local_drops(&mut self) -> u64 {
        self.processor.local_drops()
    }
}

impl Batch for Flooded {
    fn engine(&self) -> &str {
        "none"
    }
}

/// Receives for some seconds; returns the socket, and the number of unexpected frames.
fn receive_for(seconds: i64, interval: Nanos, pace: Pace) -> (Flooded, u64) {
    let ports =
        vec![PortRequest { framing: Framing::Udp, mac: MacAddress::default(), answer: None, tx_timestamps: false }];
    let mut receiver = Receiver::new(&ReceiveRequest {
        senders: Senders::Known(SessionKey(1)),
        allowed: Vec::new(),
        seed: 1,
        auth: Auth::default(),
        ports,
        flows: vec![1],
        keep: Keep::Histograms,
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 1,
    });
    let processor = Processor::default();
    let mut port = Flooded { processor: processor.clone(), interval, taken: 0, most_waiting: 0 };
    let mut is_over = |_: &Receiver| processor.now.get() >= Time(0) + Nanos::seconds(seconds);
    // A waker that is readable ends each sleep at once, so that the test does not last.
    let waker = File::open("/dev/null").unwrap();
    receive(&mut receiver, &mut [&mut port], &processor, pace, &[waker.as_fd()], &mut is_over).unwrap();
    let unexpected = receiver.finish(&[], &[0]).ports[0].unexpected.total();
    (port, unexpected)
}

/// A real-time thread that never sleeps takes a core for ever, where the kernel's throttling is switched off.
#[test]
fn real_time_receiver_rests_under_a_flood_and_counts_every_frame() {
    for wait in [Wait::Sleep, Wait::Spin] {
        let slept = |is_real_time| {
            let (port, unexpected) = receive_for(1, Nanos(500), Pace { wait, is_real_time });
            assert_eq!(unexpected, port.taken as u64, "{wait:?}");
            assert!(port.taken > 500_000, "{wait:?}: {}", port.taken);
            port.processor.slept_within(Time(0), Time(0) + Nanos::seconds(1))
        };
        assert!(slept(true) >= Nanos::millis(60), "{wait:?}");
        assert_eq!(slept(false), Nanos::ZERO, "{wait:?}: the kernel takes the CPU from an ordinary thread");
    }
}

/// Frames that arrive during a rest wait in their socket, which holds far more.
#[test]
fn frames_that_arrive_during_a_rest_are_received_after_it() {
    let interval = Nanos(1_500);
    let pace = Pace { wait: Wait::Spin, is_real_time: true };
    let (port, unexpected) = receive_for(1, interval, pace);
    assert!(port.processor.slept_within(Time(0), Time(0) + Nanos::seconds(1)) >= Nanos::millis(60));
    assert_eq!(unexpected, port.taken as u64);
    let in_a_rest = REST.0 / interval.0;
    assert!(port.most_waiting <= in_a_rest + 100, "{} waited, {in_a_rest} arrive in a rest", port.most_waiting);
    assert!(port.taken >= 600_000, "{} of 666,666", port.taken);
}

#[test]
fn receiver_and_sender_read_the_drops_of_their_ports_once_a_second() {
    let (port, _) = receive_for(3, Nanos::micros(1), Pace { wait: Wait::Spin, is_real_time: false });
    let read = port.processor.drops_read.get();
    assert!((2..=3).contains(&read), "{read}");
    let processor = Processor::default();
    let schedule = Schedule::new(Pattern::Regular, 1e3, 4_000, 1);
    let request = request(&schedule);
    let stop = AtomicBool::new(false);
    send(&request, &mut [&mut processor.clone()], &processor, Pace::default(), &stop).unwrap();
    // Two more reads are before the first packet and after the last.
    let read = processor.drops_read.get();
    assert!((3 + 2..=4 + 2).contains(&read), "{read}");
}
