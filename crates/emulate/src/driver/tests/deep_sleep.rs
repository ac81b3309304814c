//! Tests of a CPU that wakes late from a long sleep, and of frames bridged by the kernel.

use sojourn_port::bridge::Passed;

use super::*;

#[test]
fn driver_that_wakes_late_from_long_sleeps_learns_to_wake_in_time() {
    // Waking takes 20 µs, and 420 µs after half a millisecond: more than the last part of a sleep and the initial guard together.
    let (wake, wake_from_deep) = (Nanos::micros(20), Nanos::micros(400));
    let processor = Processor { look: Nanos(40), wake, wake_from_deep, ..Processor::default() };
    let sides = sides(100, Nanos::millis(20));
    let ran = run(&config(Nanos::millis(7)), &sides, &processor, Wait::SleepThenSpin, None);
    for accuracy in [ran.accuracy(0), ran.accuracy(1)] {
        assert!(accuracy.count == 100 && accuracy.p50_ns < 1_000, "{accuracy:?}");
    }
    let share = processor.slept.get().0 as f64 / 2e9;
    assert!(share > 0.8, "it slept {share} of the time");
}

/// A port whose frames are bridged by the kernel: their number grows with each call.
struct Straight(Cell<Passed>, File);

impl BridgePort for Straight {
    fn receive(&mut self, _: usize, _: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        Ok(0)
    }

    fn put(&mut self, _: &[u8]) -> Result<bool, PortError> {
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn engine(&self) -> &str {
        "straight"
    }

    fn local_drops(&mut self) -> u64 {
        0
    }

    fn passed(&self) -> Passed {
        let Passed { received, sent } = self.0.get();
        let now = Passed { received: received + 10, sent: sent + 9 };
        self.0.set(now);
        now
    }

    fn longest(&self) -> usize {
        1514
    }

    fn name(&self) -> &str {
        "straight"
    }
}

#[test]
fn frames_forwarded_by_the_kernel_are_counted_in_their_block() {
    let port = || -> Box<dyn BridgePort> {
        Box::new(Straight(Cell::new(Passed::default()), File::open("/dev/null").unwrap()))
    };
    let mut driver = Driver::new(&Config::default(), [port(), port()], Processor::default(), Wait::Sleep).unwrap();
    let (block, _) = driver.begin();
    assert_eq!((block.unmatched.forward, block.unmatched.backward), (10, 10));
    let running = driver.report();
    assert_eq!((running.engine.unmatched.forward, running.engine.unmatched.backward), (20, 20), "of both blocks");
    for port in &running.ports {
        assert_eq!((port.received, port.sent, port.refused), (20, 18, 2));
    }
    let (block, _) = driver.begin();
    assert_eq!(block.unmatched.forward, 20, "since the first block ended");
}
