//! Matches packets in parallel, divided by digest over several CPUs; reports the same outcomes as a single matcher.
//!
//! Each CPU has a slice: all packets of a range of digests, in the order of both taps. Each batch goes to all slices at
//! once, with the time before which no more packets follow; the outcomes of a batch are merged in packet order. Memory
//! is that of the slices and of the batches in flight.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use sojourn_matcher::{Arrival, Counts, Ends, Limits, Observed, Outcome, Reordering, Slice, Tap, Way};

/// The number of packets in a batch, over all slices.
const BATCH: usize = 1 << 16;
/// The maximum number of batches in flight.
const UNDER_WAY: usize = 3;
const WAYS: [Way; 2] = [Way::Forward, Way::Backward];

/// A packet as passed to a slice.
struct Event {
    tap: Tap,
    way: Way,
    seen: Observed,
    number: u64,
}

/// A slice's part of a batch.
struct Job {
    events: Vec<Event>,
    /// An empty buffer for reuse.
    spare: Done,
    ends: Ends,
    is_last: bool,
}

/// The outcomes of a slice's part of a batch.
#[derive(Default)]
struct Done {
    /// An empty buffer for reuse.
    events: Vec<Event>,
    /// The outcomes of packets at ingress, in the order of their numbers.
    came: [Vec<Outcome>; 2],
    /// The outcomes of packets seen only at egress.
    strays: [Vec<Outcome>; 2],
    arrivals: [Vec<Arrival>; 2],
    counts: [Counts; 2],
}

impl Done {
    fn clear(&mut self) {
        self.came.iter_mut().chain(&mut self.strays).for_each(Vec::clear);
        self.arrivals.iter_mut().for_each(Vec::clear);
    }
}

struct Worker {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    filling: Vec<Event>,
}

/// Matches the packets of two taps on several CPUs.
pub struct Divided {
    workers: Vec<Worker>,
    held: usize,
    under_way: usize,
    spare: Vec<Done>,
    ends: Ends,
    /// The next packet numbers, by direction, at ingress and at egress.
    numbers: [[u64; 2]; 2],
    joined: [Joined; 2],
    places: Vec<u64>,
}

impl std::fmt::Debug for Divided {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Divided").field("slices", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Divided {
    /// Creates an empty matcher with so many slices. The memory is for `ways` directions.
    pub fn new(limits: Limits, ways: usize, slices: usize) -> Self {
        let limits = Limits { memory: limits.memory / slices.max(1), ..limits };
        let worker = |_| {
            let (jobs, of_worker) = sync_channel(UNDER_WAY);
            let (to_us, done) = sync_channel(UNDER_WAY + 1);
            let thread = thread::spawn(move || work(Slice::new(limits, ways), &of_worker, &to_us));
            Worker { jobs: Some(jobs), done, thread: Some(thread), filling: Vec::new() }
        };
        Self {
            workers: (0..slices.max(1)).map(worker).collect(),
            held: 0,
            under_way: 0,
            spare: Vec::new(),
            ends: Ends::default(),
            numbers: Default::default(),
            joined: Default::default(),
            places: Vec::new(),
        }
    }

    /// Adds a packet that a tap saw: see [`sojourn_matcher::Matcher::push`].
    pub fn push(&mut self, tap: Tap, way: Way, seen: &Observed, sink: &mut impl FnMut(Way, Outcome)) {
        let (of, leaves) = (place(way), (tap == Tap::First) != (way == Way::Forward));
        let number = &mut self.numbers[of][usize::from(leaves)];
        self.ends.last = Some(seen.at);
        if leaves {
            self.ends.left_last[of] = Some(seen.at);
            self.joined[of].lost_at_end = 0;
        } else {
            self.ends.came_first[of].get_or_insert(seen.at);
        }
        // The high half selects the slice, because the hash tables use the low half.
        let slice = ((seen.digest >> 32) * self.workers.len() as u64) >> 32;
        self.workers[slice as usize].filling.push(Event { tap, way, seen: *seen, number: *number });
        *number += 1;
        self.held += 1;
        if self.held == BATCH {
            self.dispatch(false);
            if self.under_way == UNDER_WAY {
                self.collect(sink);
            }
        }
    }

    /// Decides all remaining packets: no more follow.
    pub fn end(&mut self, sink: &mut impl FnMut(Way, Outcome)) {
        self.dispatch(true);
        while self.under_way > 0 {
            self.collect(sink);
        }
    }

    /// Returns the counters of a direction, after the end.
    pub fn counts(&self, way: Way) -> Counts {
        self.joined[place(way)].counts
    }

    fn dispatch(&mut self, is_last: bool) {
        for worker in &mut self.workers {
            let mut spare = self.spare.pop().unwrap_or_default();
            let events = std::mem::replace(&mut worker.filling, std::mem::take(&mut spare.events));
            let job = Job { events, spare, ends: self.ends, is_last };
            if worker.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
                worker.fail();
            }
        }
        self.held = 0;
        self.under_way += 1;
    }

    /// Reports the outcomes of the oldest batch.
    fn collect(&mut self, sink: &mut impl FnMut(Way, Outcome)) {
        self.under_way -= 1;
        let receive = |worker: &mut Worker| match worker.done.recv() {
            Ok(done) => done,
            Err(_) => worker.fail(),
        };
        let mut done: Vec<Done> = self.workers.iter_mut().map(receive).collect();
        for way in WAYS {
            let joined = &mut self.joined[place(way)];
            joined.arrive(&done, place(way), &mut self.places);
            joined.tell(&done, way, self.ends.left_last[place(way)], &mut self.places, sink);
            joined.sum(done.iter().map(|done| done.counts[place(way)]));
        }
        done.iter_mut().for_each(Done::clear);
        self.spare.append(&mut done);
    }
}

impl Drop for Divided {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.jobs = None;
            while worker.done.recv().is_ok() {}
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Worker {
    /// Propagates the panic of the thread: a thread ends early only by a panic.
    fn fail(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => unreachable!("a slice ends when it is asked to"),
        }
    }
}

fn work(mut slice: Slice, jobs: &Receiver<Job>, to: &SyncSender<Done>) {
    while let Ok(Job { mut events, spare: mut done, ends, is_last }) = jobs.recv() {
        let mut sink = |way, outcome| {
            let of = if number_of(&outcome).is_some() { &mut done.came } else { &mut done.strays };
            of[place(way)].push(outcome);
        };
        slice.lies_within(&ends);
        for Event { tap, way, seen, number } in events.drain(..) {
            slice.push(tap, way, &seen, number, &mut sink);
        }
        if is_last {
            slice.end(&ends, &mut sink);
        } else if let Some(last) = ends.last {
            slice.advance(last, &mut sink);
        }
        done.events = events;
        for way in WAYS {
            slice.arrivals(way, &mut done.arrivals[place(way)]);
            done.counts[place(way)] = slice.counts(way);
        }
        if to.send(done).is_err() {
            return;
        }
    }
}

/// The merged state of one direction.
#[derive(Default)]
struct Joined {
    reordering: Reordering,
    /// The reordering extents of reordered packets that have not been reported yet, by packet number.
    extents: HashMap<u64, u32>,
    reordered: u64,
    extent_max: u32,
    lost_at_end: u64,
    next_rank: u64,
    next_number: u64,
    counts: Counts,
}

const NONE: u64 = u64::MAX;

impl Joined {
    /// Merges the arrivals of all slices, in arrival order.
    fn arrive(&mut self, done: &[Done], way: usize, places: &mut Vec<u64>) {
        let all = || done.iter().flat_map(|done| &done.arrivals[way]);
        let count = done.iter().map(|done| done.arrivals[way].len()).sum();
        let placed = all().map(|one| (one.rank, one.number.unwrap_or(NONE)));
        if !scatter(places, self.next_rank, count, placed) {
            // A slice with full memory has decided packets early, out of order.
            let mut sorted: Vec<&Arrival> = all().collect();
            sorted.sort_unstable_by_key(|one| one.rank);
            places.clear();
            places.extend(sorted.iter().map(|one| one.number.unwrap_or(NONE)));
        }
        self.next_rank += count as u64;
        for number in places.iter().copied().filter(|number| *number != NONE) {
            let extent = self.reordering.arrive(number);
            if extent > 0 {
                self.extents.insert(number, extent);
                self.reordered += 1;
                self.extent_max = self.extent_max.max(extent);
            }
        }
    }

    /// Reports the outcomes of packets in ingress order, then the unexpected ones.
    fn tell(
        &mut self,
        done: &[Done],
        way: Way,
        left_last: Option<i64>,
        places: &mut Vec<u64>,
        sink: &mut impl FnMut(Way, Outcome),
    ) {
        let of = place(way);
        let name = |slice: usize, at: usize| (slice as u64) << 32 | at as u64;
        let all = || {
            done.iter().enumerate().flat_map(move |(slice, done)| {
                let told = done.came[of].iter().enumerate();
                told.map(move |(at, outcome)| (number_of(outcome).unwrap_or(NONE), name(slice, at)))
            })
        };
        let count = done.iter().map(|done| done.came[of].len()).sum();
        if !scatter(places, self.next_number, count, all()) {
            let mut sorted: Vec<(u64, u64)> = all().collect();
            sorted.sort_unstable();
            places.clear();
            places.extend(sorted.iter().map(|(_, name)| *name));
        }
        self.next_number += count as u64;
        for told in places.iter() {
            let mut outcome = done[(told >> 32) as usize].came[of][*told as u32 as usize];
            match &mut outcome {
                Outcome::Matched { number, extent, .. } => {
                    *extent = if self.extents.is_empty() { 0 } else { self.extents.remove(number).unwrap_or(0) };
                    self.reordering.discard(*number);
                }
                Outcome::Lost { seen, .. } => {
                    self.lost_at_end += u64::from(left_last.is_none_or(|last| seen.at > last));
                }
                _ => {}
            }
            sink(way, outcome);
        }
        let mut strays: Vec<Outcome> = done.iter().flat_map(|done| &done.strays[of]).copied().collect();
        strays.sort_by_key(|outcome| match outcome {
            Outcome::Duplicated(seen) | Outcome::Unexpected(seen) => seen.at,
            _ => 0,
        });
        strays.into_iter().for_each(|outcome| sink(way, outcome));
    }

    fn sum(&mut self, all: impl Iterator<Item = Counts>) {
        self.counts = all.fold(Counts::default(), |sum, more| sum + more);
        self.counts.reordered = self.reordered;
        self.counts.reordering_extent_max = self.extent_max;
        self.counts.lost_at_end = self.lost_at_end;
    }
}

/// Stores values by their rank, counted from `first`; returns whether every place got a value.
fn scatter(places: &mut Vec<u64>, first: u64, count: usize, all: impl Iterator<Item = (u64, u64)>) -> bool {
    places.clear();
    places.resize(count, NONE);
    for (at, value) in all {
        let Some(place) = usize::try_from(at.wrapping_sub(first)).ok().and_then(|at| places.get_mut(at)) else {
            return false;
        };
        *place = value;
    }
    true
}

fn number_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Matched { number, .. }
        | Outcome::Lost { number, .. }
        | Outcome::Evicted { number, .. }
        | Outcome::Pending { number, .. } => Some(*number),
        Outcome::Duplicated(_) | Outcome::Unexpected(_) => None,
    }
}

const fn place(way: Way) -> usize {
    match way {
        Way::Forward => 0,
        Way::Backward => 1,
    }
}
