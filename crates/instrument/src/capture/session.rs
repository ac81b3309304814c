//! A capture session: taps on interfaces, from attach to packet accounting.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::vec::Drain;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sojourn_capture::{Account, AnyTap, Tap};
use sojourn_port::PortError;
use sojourn_port::kernel::Counters;
use sojourn_record::tap::Tapped;
use sojourn_record::{Finding, RecordError};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};

use super::files::{Ending, Files, Of, plain};
use super::tap::OpenTap;
pub use super::tap::Wanted;
use crate::failure::WrongRequest;
use crate::stream::findings::Findings;
use crate::stream::host::{Meter, Took};

/// The maximum time until a detached tap's ring is read to the end: the kernel retires blocks after 20 ms.
const LAST_BLOCKS: Nanos = Nanos::millis(500);
const LOOK_AGAIN: Nanos = Nanos::millis(2);
/// The maximum sleep, so that a request to stop is noticed soon.
const LONGEST_SLEEP: Nanos = Nanos::seconds(1);
const MOST_TAPS: usize = 64;

/// The limits at which a session ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The number of frames seen.
    pub count: Option<u64>,
    /// The total size of the files.
    pub budget: Option<u64>,
    /// At the size limit, remove the oldest files instead of ending.
    pub remove_oldest: bool,
}

/// Taps that are open.
pub struct Session {
    taps: Vec<OpenTap>,
    meter: Meter,
    limits: Limits,
    /// Completed files, the oldest first.
    ended: VecDeque<Ending>,
    /// The number of files removed.
    removed: u64,
    /// The number of frames seen so far, shared with other threads.
    progress: Arc<AtomicU64>,
    /// The time of the next check that the interfaces still exist.
    look_at: Time,
}

/// Why a capture ended.
#[derive(Debug)]
pub enum Why {
    /// The requested duration is over.
    Time,
    /// The requested number of frames was captured.
    Count,
    /// The files have reached the size limit.
    Budget,
    /// A signal arrived, or the requester stopped it.
    Asked,
    /// An interface has disappeared.
    Gone(PortError),
    /// Captured data could not be written.
    Unwritten(RecordError),
}

impl Why {
    /// Returns its name in answers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Count => "count",
            Self::Budget => "budget",
            Self::Asked => "asked",
            Self::Gone(_) => "gone",
            Self::Unwritten(_) => "unwritten",
        }
    }
}

/// A capture that is over.
pub struct Ended {
    /// Why it ended.
    pub why: Why,
    /// The resources that it used.
    pub took: Took,
    /// The results of each tap.
    pub taps: Vec<TapEnded>,
    /// The names of the files, the oldest first.
    pub files: Vec<String>,
    /// The number of files removed.
    pub removed: u64,
}

/// The results of one tap.
pub struct TapEnded {
    pub wanted: Wanted,
    pub counts: sojourn_capture::Counts,
    pub account: Account,
    pub counters: Option<(Counters, Counters)>,
    pub source: Source,
    pub ring_bytes: usize,
}

impl Session {
    /// Opens taps that deliver no frames yet.
    ///
    /// # Errors
    /// If a tap cannot be opened.
    pub fn open(wanted: Vec<Wanted>, limits: Limits) -> anyhow::Result<Self> {
        check(&wanted)?;
        let taps = wanted.into_iter().map(OpenTap::open).collect::<anyhow::Result<_>>()?;
        let (ended, removed) = (VecDeque::new(), 0);
        Ok(Self { taps, meter: Meter::start(), limits, ended, removed, progress: Arc::default(), look_at: Time(0) })
    }

    /// Creates the files of all taps.
    ///
    /// # Errors
    /// If a file exists already, or cannot be created.
    pub fn write_to(&mut self, folder: &Path) -> Result<(), RecordError> {
        for tapped in &mut self.taps {
            let Wanted { name, interface, options } = tapped.wanted.clone();
            let of = Of { name, interface, source: tapped.tap.source().name(), options };
            tapped.files = Some(Files::create(folder, of)?);
        }
        Ok(())
    }

    /// Attaches all taps: frames are captured from now on.
    ///
    /// # Errors
    /// If an interface is down or missing.
    pub fn attach(&mut self) -> Result<(), PortError> {
        self.meter = Meter::start();
        for tapped in &mut self.taps {
            tapped.counters[0] = tapped.tap.interface().counters().ok();
            tapped.tap.attach()?;
            tapped.part.began = HostClock.now();
        }
        Ok(())
    }

    /// Returns the interfaces that are down: no frame passes them until they are up.
    pub fn down(&self) -> impl Iterator<Item = &str> {
        let interfaces = self.taps.iter().map(|tapped| tapped.tap.interface());
        interfaces.filter(|interface| !interface.up).map(|interface| interface.name.as_str())
    }

    /// Returns the counter of frames seen so far.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Keeps the records of frames in memory, for [`Self::rows`].
    pub fn keep_rows(&mut self) {
        self.taps.iter_mut().for_each(|tapped| tapped.rows = Some(Vec::new()));
    }

    /// Drains the records of each tap, in the order of the taps. The time, if any, says up to when these are all the
    /// frames that passed.
    pub fn rows(&mut self) -> impl Iterator<Item = (Drain<'_, Tapped>, Option<Time>)> {
        self.taps.iter_mut().filter_map(|tapped| {
            let now = HostClock.now();
            let shown = tapped.is_empty().then_some(now);
            Some((tapped.rows.as_mut()?.drain(..), shown))
        })
    }

    /// Returns the frames that each tap dropped, as far as its counters were read.
    pub fn dropped(&mut self) -> impl Iterator<Item = u64> {
        self.taps.iter_mut().map(|tapped| tapped.tap.totals().unwrap_or_default().dropped)
    }

    /// Returns the taps and their options, for answers.
    pub fn json(&self) -> Vec<Value> {
        let tap = |tapped: &OpenTap| {
            json!({
                "name": tapped.wanted.name, "interface": tapped.wanted.interface, "source": tapped.tap.source().name(),
                "ring_bytes": tapped.tap.ring_bytes(), "options": tapped.wanted.options,
            })
        };
        self.taps.iter().map(tap).collect()
    }

    /// Captures until the time `until`, until `stop` is set (which makes `wake` readable), or until a limit or an error
    /// ends the session.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(&mut self, until: Time, stop: &AtomicBool, wake: BorrowedFd<'_>) -> anyhow::Result<Why> {
        loop {
            if let Some(why) = self.step([until, until], stop, wake)? {
                return Ok(why);
            }
        }
    }

    /// Reads what is available, or waits for it until `rest` at the latest; returns the reason once the capture ends.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn step(
        &mut self,
        [until, rest]: [Time; 2],
        stop: &AtomicBool,
        wake: BorrowedFd<'_>,
    ) -> anyhow::Result<Option<Why>> {
        let now = HostClock.now();
        if stop.load(Ordering::Relaxed) {
            return Ok(Some(Why::Asked));
        }
        if now >= until {
            return Ok(Some(Why::Time));
        }
        if now >= self.look_at {
            // The kernel sends no notification when an interface that is down is deleted.
            self.look_at = now + LONGEST_SLEEP;
            if let Some(why) = self.look() {
                return Ok(Some(why));
            }
        }
        match self.take_some() {
            Ok(true) => Ok(None),
            Ok(false) => {
                // The caller read the clock earlier: `rest` may have passed.
                let span = (until.min(rest).min(self.look_at) - now).max(Nanos::ZERO);
                Ok(self.sleep(span, wake)?.map(Why::Gone))
            }
            Err(why) => Ok(Some(why)),
        }
    }

    /// Checks that the interfaces still exist, and flushes the files; returns the reason if either fails.
    fn look(&mut self) -> Option<Why> {
        // The kernel's counters have 32 bits and restart at zero each time they are read.
        let look = |tap: &mut AnyTap| tap.look().and_then(|()| tap.totals());
        if let Some(gone) = self.taps.iter_mut().find_map(|tapped| look(&mut tapped.tap).err()) {
            return Some(Why::Gone(gone));
        }
        let mut files = self.taps.iter_mut().filter_map(|tapped| tapped.files.as_mut());
        files.try_for_each(Files::flush).err().map(Why::Unwritten)
    }

    /// Reads at most one block from each tap; returns whether there was any.
    fn take_some(&mut self) -> Result<bool, Why> {
        let mut took = false;
        let mut seen: u64 = self.taps.iter().map(|tapped| tapped.observer.counts().seen()).sum();
        for tapped in &mut self.taps {
            let before = tapped.observer.counts().seen();
            let left = self.limits.count.map_or(u64::MAX, |most| most.saturating_sub(seen));
            took |= tapped.take(left).map_err(Why::Gone)?;
            if let Some(error) = tapped.failed.take() {
                return Err(Why::Unwritten(error));
            }
            seen += tapped.observer.counts().seen() - before;
            self.progress.store(seen, Ordering::Relaxed);
            if self.limits.count.is_some_and(|most| seen >= most) {
                return Err(Why::Count);
            }
        }
        if took {
            self.keep_within_limits()?;
        }
        Ok(took)
    }

    /// Rotates files that are due, and keeps the total size within the budget.
    fn keep_within_limits(&mut self) -> Result<(), Why> {
        for tapped in self.taps.iter_mut().filter(|tapped| tapped.wanted.options.rotates()) {
            let Some((ending, begun)) = tapped.rotate_if_due() else { continue };
            self.ended.push_back(ending);
            begun.map_err(Why::Unwritten)?;
            self.ended.iter_mut().try_for_each(Ending::look).map_err(Why::Unwritten)?;
        }
        let Some(budget) = self.limits.budget else { return Ok(()) };
        let begun: u64 = self.taps.iter().filter_map(|tapped| tapped.files.as_ref()).map(Files::length).sum();
        let mut used = begun + self.ended.iter().map(Ending::bytes).sum::<u64>();
        while used > budget {
            let oldest = self.ended.front_mut().filter(|_| self.limits.remove_oldest).ok_or(Why::Budget)?;
            let before = oldest.names().count();
            let removed = oldest.remove();
            self.removed += (before - oldest.names().count()) as u64;
            removed.map_err(Why::Unwritten)?;
            used -= oldest.bytes();
            self.ended.pop_front();
        }
        Ok(())
    }

    /// Sleeps until frames arrive or the time is over; returns the error of an interface that has disappeared.
    fn sleep(&mut self, span: Nanos, wake: BorrowedFd<'_>) -> anyhow::Result<Option<PortError>> {
        let taps = self.taps.iter().filter_map(|tapped| tapped.tap.descriptor());
        let mut polled: Vec<PollFd<'_>> =
            taps.chain([wake.as_fd()]).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let span = Timespec { tv_sec: span.0 / 1_000_000_000, tv_nsec: span.0 % 1_000_000_000 };
        match poll(&mut polled, Some(&span)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_bad = polled.iter().map(|fd| fd.revents().contains(PollFlags::ERR)).collect::<Vec<_>>();
        let bad = self.taps.iter_mut().zip(is_bad).filter(|(_, is_bad)| *is_bad);
        Ok(bad.map(|(tapped, _)| tapped.tap.look()).find_map(Result::err))
    }

    /// Detaches all taps, reads their rings to the end and completes the files. Returns the results, and whether the
    /// files could be completed.
    pub fn end(mut self, why: Why) -> (Ended, Result<(), RecordError>) {
        let why = self.detach(why);
        self.finish(why)
    }

    /// Detaches all taps and reads their rings to the end, unless the session ends by its frame count or size limit or
    /// by a write error; returns the reason for the end.
    pub fn detach(&mut self, mut why: Why) -> Why {
        for tapped in &mut self.taps {
            // An interface that has disappeared delivers nothing more.
            let _ = tapped.tap.detach();
        }
        let give_up = HostClock.now() + LAST_BLOCKS;
        for tapped in &mut self.taps {
            tapped.counters[1] = tapped.tap.interface().counters().ok();
        }
        let is_over = self.is_cut(&why) || matches!(why, Why::Unwritten(_));
        while !is_over && !self.is_empty() && HostClock.now() < give_up {
            match self.take_some() {
                Ok(true) => {}
                Ok(false) => drop(HostClock.wait_until(HostClock.now() + LOOK_AGAIN, Nanos::ZERO)),
                Err(Why::Gone(_)) => break,
                Err(other) => {
                    why = other;
                    break;
                }
            }
        }
        why
    }

    /// Whether the session ends with unread frames in its rings.
    fn is_cut(&self, why: &Why) -> bool {
        matches!(why, Why::Budget) || (matches!(why, Why::Count) && self.limits.count.is_some())
    }

    /// Completes the files of detached taps. Returns the results, and whether the files could be completed.
    pub fn finish(mut self, why: Why) -> (Ended, Result<(), RecordError>) {
        let took = self.meter.stop();
        let is_cut = self.is_cut(&why);
        let mut taps = Vec::new();
        for mut tapped in self.taps {
            let counts = *tapped.observer.counts();
            let totals = tapped.tap.totals().unwrap_or_default();
            let options = &tapped.wanted.options;
            let kinds = [!options.filter.is_empty(), is_cut];
            let counters: (_, _) = tapped.counters.into();
            let account = Account::of(&counts, totals, counters, options.direction, kinds);
            let mut counted = tapped.counted(totals.dropped);
            counted.interface = account.interface.filter(|_| !tapped.wanted.options.rotates());
            self.ended.extend(tapped.files.as_mut().map(|files| files.end(counted)));
            taps.push(TapEnded {
                counts,
                account,
                counters: counters.0.zip(counters.1),
                source: tapped.tap.source(),
                ring_bytes: tapped.tap.ring_bytes(),
                wanted: tapped.wanted,
            });
        }
        let files = self.ended.iter().flat_map(Ending::names).collect();
        let written = self.ended.iter_mut().map(Ending::wait).fold(Ok(()), Result::and);
        (Ended { why, took, taps, files, removed: self.removed }, written)
    }

    /// Whether every frame that the taps accepted has been read.
    fn is_empty(&mut self) -> bool {
        self.taps.iter_mut().all(OpenTap::is_empty)
    }
}

impl Ended {
    /// Returns the findings that make the capture doubtful.
    pub fn findings(&self) -> Findings {
        let mut found = Findings::new(false);
        found.of_host(&self.took);
        for tap in &self.taps {
            let name = &tap.wanted.interface;
            let Account { dropped, accepted, full, .. } = tap.account;
            found.add_if(dropped > 0, Finding::LocalDrops, || match full {
                0 => format!("{name}: {dropped} of {accepted} frames could not be copied"),
                full => format!(
                    "{name}: {dropped} of {accepted} frames were not recorded, and the ring was full {full} times: give \
                     --ring more, or --snap less"
                ),
            });
            found.add_if(!tap.account.conserved && dropped == 0, Finding::CountsContradict, || {
                format!("{name}: the kernel let {accepted} frames in, and {} were seen", tap.account.seen)
            });
            let user = tap.counts.stamped_by(Source::Hardware);
            found.add_if(user > 0 && user < tap.counts.seen(), Finding::MixedTimestamps, || {
                format!("{name}: {user} frames were stamped by the interface, the others by the kernel")
            });
        }
        found
    }
}

pub fn check(wanted: &[Wanted]) -> Result<(), WrongRequest> {
    let wrong = |problem: String| Err(WrongRequest(problem));
    if wanted.is_empty() || wanted.len() > MOST_TAPS {
        return wrong(format!("{} interfaces: expected 1 to {MOST_TAPS}", wanted.len()));
    }
    let mut names = HashSet::new();
    if let Some(twice) = wanted.iter().find(|wanted| !names.insert(plain(&wanted.name))) {
        return wrong(format!("{}: named twice, as far as files can tell", twice.name));
    }
    match wanted.iter().find_map(|wanted| wanted.options.problem()) {
        Some(problem) => wrong(problem),
        None => Ok(()),
    }
}
