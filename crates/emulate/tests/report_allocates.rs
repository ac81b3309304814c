//! `show` is answered by the thread that moves packets: a report must not copy histograms there.

mod drive;
#[allow(unsafe_code, reason = "an allocator is unsafe by its nature")]
#[path = "counting/sys.rs"]
mod sys;

use std::sync::atomic::Ordering;

use drive::{START, at, one};
use sojourn_emulate::{Direction, Engine, Pipe};
use sojourn_time::Nanos;
use sys::BYTES;

#[test]
fn a_report_copies_no_histogram() {
    let mut engine = Engine::new(&one(Pipe::default()), START).expect("holds");
    for number in 0..1_000 {
        let now = at(number * 1_000);
        engine.arrive(Direction::Forward, &[0; 60], now);
        let departure = engine.due(now).expect("it leaves at once");
        // From early to half a second late: the histograms are large.
        engine.departed(departure, now + Nanos(number * 500_000 - 1_000_000));
        if number == 500 {
            engine.begin();
        }
    }
    let before = BYTES.load(Ordering::Relaxed);
    let report = engine.report();
    let taken = BYTES.load(Ordering::Relaxed) - before;
    assert_eq!(report.pipes[0].accuracy.count, 1_000);
    assert!(taken < 4_096, "{taken} bytes");
}
