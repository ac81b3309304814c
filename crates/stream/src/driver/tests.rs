//! Tests of the sender's CPU use, over a port that accepts every frame and a clock that records sleeps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use sojourn_port::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, TxTimestamp};
use sojourn_time::{Clock, Nanos, Pace, Time, Wait};
use sojourn_wire::SessionKey;

use super::send;
use crate::{Auth, FlowRequest, Head, Keep, Pattern, Schedule, SendRequest};

/// Durations of reading the clock, of entering and leaving a sleep, and of sending a frame.
const LOOK: Nanos = Nanos(500);
const AROUND_SLEEP: Nanos = Nanos::micros(8);
const FRAME: Nanos = Nanos::micros(5);

#[derive(Clone, Debug, Default)]
struct Processor {
    now: Rc<Cell<Time>>,
    /// Intervals in which the CPU was given up.
    slept: Rc<RefCell<Vec<(Time, Time)>>>,
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
        0
    }
}

impl Batch for Processor {
    fn engine(&self) -> &str {
        "none"
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
            let flow = FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 42, schedule: schedule.clone() };
            let request = SendRequest {
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
            };
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
