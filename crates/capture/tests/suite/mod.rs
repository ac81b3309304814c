//! The suite that every tap passes: compares what the trait [`Tap`] promises with known frames.

use sojourn_capture::{Directions, Tap, Totals};
use sojourn_port::pcap::Direction;
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};

const SHOWN_WITHIN: Nanos = Nanos::seconds(10);
const FRAMES: u16 = 200;
/// More than the small tap holds.
const MANY: u32 = 30_000;

/// Passes a frame over the interface of a tap.
pub type Pass<T> = dyn FnMut(&mut T, Direction, &[u8]);

/// Opens taps and passes frames over their interfaces.
pub struct Bench<T> {
    /// Opens a tap with these directions, and a ring for all frames of a test or for few.
    pub open: Box<dyn FnMut(Directions, Room) -> T>,
    /// Passes a frame over the interface of this tap.
    pub pass: Box<Pass<T>>,
    /// The expected timestamp source.
    pub source: Source,
}

/// The size of a tap's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A mebibyte, or a thousand frames.
    Small,
    /// All frames of a test.
    Large,
}

/// A frame as delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    frame: Vec<u8>,
    length: usize,
    at: Time,
    source: Source,
    direction: Direction,
}

/// Runs the whole suite.
pub fn run<T: Tap>(mut bench: Bench<T>) {
    frames_are_shown_as_they_passed(&mut bench);
    what_passes_the_other_way_is_not_shown(&mut bench);
    what_finds_no_room_is_counted(&mut bench);
    nothing_is_shown_once_it_is_detached(&mut bench);
}

fn frames_are_shown_as_they_passed<T: Tap>(bench: &mut Bench<T>) {
    let mut tap = (bench.open)(Directions::Both, Room::Large);
    assert!(shown(&mut tap, 0).is_empty(), "nothing has passed");
    let began = HostClock.now();
    let passed: Vec<(Direction, Vec<u8>)> = (0..FRAMES).map(|number| (direction(number), frame(number))).collect();
    passed.iter().for_each(|(direction, frame)| (bench.pass)(&mut tap, *direction, frame));
    let ended = HostClock.now();
    let shown = shown(&mut tap, passed.len());
    let told: Vec<(Direction, Vec<u8>)> = shown.iter().map(|shown| (shown.direction, shown.frame.clone())).collect();
    assert_eq!(told, passed);
    for one in &shown {
        assert_eq!((one.length, one.source), (one.frame.len(), bench.source));
        let is_within = bench.source == Source::Simulated || (began <= one.at && one.at <= ended);
        assert!(is_within, "{began:?} {one:?} {ended:?}");
    }
    assert!(shown.is_sorted_by_key(|shown| shown.at), "in the order of their times");
    let count = u64::from(FRAMES);
    assert_eq!(tap.totals().expect("counts"), Totals { accepted: count, ..Totals::default() });
    assert_eq!(tap.totals().expect("counts").accepted, count, "counting again counts the same");
}

fn what_passes_the_other_way_is_not_shown<T: Tap>(bench: &mut Bench<T>) {
    let mut tap = (bench.open)(Directions::In, Room::Large);
    for number in 0..FRAMES {
        (bench.pass)(&mut tap, direction(number), &frame(number));
    }
    let shown = shown(&mut tap, usize::from(FRAMES / 2));
    assert!(shown.iter().all(|shown| shown.direction == Direction::In) && shown.len() == usize::from(FRAMES / 2));
    let totals = tap.totals().expect("counts");
    assert_eq!(totals.accepted - totals.skipped, u64::from(FRAMES / 2));
}

fn what_finds_no_room_is_counted<T: Tap>(bench: &mut Bench<T>) {
    let mut tap = (bench.open)(Directions::Both, Room::Small);
    for number in 0..MANY {
        (bench.pass)(&mut tap, Direction::In, &frame(number as u16));
    }
    tap.detach().expect("detaches");
    let shown = shown(&mut tap, usize::MAX);
    let totals = tap.totals().expect("counts");
    assert!(totals.dropped > 0 && !shown.is_empty(), "{totals:?}");
    assert_eq!(totals.accepted, u64::from(MANY));
    assert_eq!(shown.len() as u64 + totals.dropped + totals.skipped, totals.accepted);
}

fn nothing_is_shown_once_it_is_detached<T: Tap>(bench: &mut Bench<T>) {
    let mut tap = (bench.open)(Directions::Both, Room::Large);
    (bench.pass)(&mut tap, Direction::Out, &frame(1));
    tap.detach().expect("detaches");
    (bench.pass)(&mut tap, Direction::Out, &frame(2));
    let shown = shown(&mut tap, 2);
    assert_eq!(shown.iter().map(|shown| shown.frame.clone()).collect::<Vec<_>>(), [frame(1)]);
    assert_eq!(tap.totals().expect("counts").accepted, 1);
}

fn direction(number: u16) -> Direction {
    if number.is_multiple_of(2) { Direction::In } else { Direction::Out }
}

/// Builds a numbered frame of EtherType 0x88B5 (for experiments); lengths vary.
fn frame(number: u16) -> Vec<u8> {
    let mut frame = vec![0xFF; 60 + usize::from(number % 7) * 200];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame[14..16].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Takes frames until `expected` have arrived, or none arrives for a while.
fn shown<T: Tap>(tap: &mut T, expected: usize) -> Vec<Shown> {
    let mut all = Vec::new();
    let give_up = HostClock.now() + if expected == 0 { Nanos::millis(50) } else { SHOWN_WITHIN };
    let mut quiet_since = HostClock.now();
    while all.len() < expected && HostClock.now() < give_up {
        let took = tap.take(&mut |passed| {
            let (frame, length) = (passed.frame.to_vec(), passed.length);
            all.push(Shown { frame, length, at: passed.at.at, source: passed.at.source, direction: passed.direction });
        });
        let is_quiet = tap.descriptor().is_none() || HostClock.now() - quiet_since > Nanos::millis(300);
        if took.expect("takes") {
            quiet_since = HostClock.now();
        } else if is_quiet {
            break;
        } else {
            HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
        }
    }
    all
}
