//! `show` is answered by the thread that moves packets: a report may not copy histograms there.

#![allow(unsafe_code, reason = "an allocator that counts")]

mod drive;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use drive::{START, at, one};
use sojourn_emulate::{Direction, Engine, Pipe};
use sojourn_time::Nanos;

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: what is allocated and given back is the system's affair; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
