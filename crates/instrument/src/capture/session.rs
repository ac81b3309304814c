//! Taps on some interfaces, from attaching to the account of what they saw.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sojourn_capture::headers::Anonymiser;
use sojourn_capture::{Account, Asked, Observer, Opening, RingTap, Tap, filter};
use sojourn_port::PortError;
use sojourn_port::kernel::{Counters, Interface};
use sojourn_record::{Finding, RecordError};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};

use super::arguments::TapOptions;
use super::files::{Counted, Ending, Files, Of, plain};
use crate::failure::WrongRequest;
use crate::secret;
use crate::stream::findings::Findings;
use crate::stream::host::{Meter, Took};

/// What is in a ring when its tap is detached is shown within this: blocks are handed over when they are 20 ms old.
const LAST_BLOCKS: Nanos = Nanos::millis(500);
const LOOK_AGAIN: Nanos = Nanos::millis(2);
/// However long it is to go on, it looks so often whether somebody wants it to end.
const LONGEST_SLEEP: Nanos = Nanos::seconds(1);
const MOST_TAPS: usize = 64;

/// One interface that is to be captured.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name in files and answers.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// How.
    pub options: TapOptions,
}

/// When a session ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// When so many frames were seen.
    pub count: Option<u64>,
    /// When its files are so large together.
    pub budget: Option<u64>,
    /// Instead, the oldest files are removed then.
    pub remove_oldest: bool,
}

/// Taps that are open.
pub struct Session {
    taps: Vec<Tapped>,
    meter: Meter,
    limits: Limits,
    /// Files that are ended, the oldest first.
    ended: VecDeque<Ending>,
    /// How many were removed.
    removed: u64,
    /// How many frames were seen so far, for who asks beside.
    progress: Arc<AtomicU64>,
}

struct Tapped {
    wanted: Wanted,
    tap: RingTap,
    observer: Observer,
    files: Option<Files>,
    before: Option<Counters>,
    failed: Option<RecordError>,
    part: Part,
}

/// What had been counted when a part began.
#[derive(Clone, Copy, Default)]
struct Part {
    began: Time,
    seen: u64,
    without_key: u64,
    dropped: u64,
}

/// Why a capture ended.
#[derive(Debug)]
pub enum Why {
    /// Its time was over.
    Time,
    /// So many frames were captured.
    Count,
    /// Its files are as large as they were to be.
    Budget,
    /// A signal came, or who asked for it wanted it.
    Asked,
    /// An interface is gone.
    Gone(PortError),
    /// What came could not be written.
    Unwritten(RecordError),
}

impl Why {
    /// Its name in answers.
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
    /// Why.
    pub why: Why,
    /// What it took.
    pub took: Took,
    /// What each tap saw.
    pub taps: Vec<TapEnded>,
    /// The names of the files, the oldest first.
    pub files: Vec<String>,
    /// How many files were removed.
    pub removed: u64,
}

/// What one tap saw.
pub struct TapEnded {
    pub wanted: Wanted,
    pub counts: sojourn_capture::Counts,
    pub account: Account,
    pub counters: Option<(Counters, Counters)>,
    pub source: Source,
    pub ring_bytes: usize,
}

impl Session {
    /// Opens taps that show nothing yet.
    ///
    /// # Errors
    /// When one cannot be had.
    pub fn open(wanted: Vec<Wanted>, limits: Limits) -> anyhow::Result<Self> {
        check(&wanted)?;
        let open = |wanted: Wanted| {
            let tap = RingTap::open(&wanted.interface, &opening(&wanted)?)?;
            let key = wanted.options.format.has_records().then_some(wanted.options.key);
            let asked = Asked { key, snap: wanted.options.kept() as usize, headers_only: wanted.options.headers };
            let mut observer = Observer::new(asked);
            if let Some(path) = &wanted.options.anonymise {
                observer.anonymise(anonymiser(path)?);
            }
            let part = Part::default();
            Ok(Tapped { wanted, tap, observer, files: None, before: None, failed: None, part })
        };
        let taps = wanted.into_iter().map(open).collect::<anyhow::Result<_>>()?;
        let (ended, removed) = (VecDeque::new(), 0);
        Ok(Self { taps, meter: Meter::start(), limits, ended, removed, progress: Arc::default() })
    }

    /// Creates the files of all taps.
    ///
    /// # Errors
    /// When one is there already, or cannot be made.
    pub fn write_to(&mut self, folder: &Path) -> Result<(), RecordError> {
        for tapped in &mut self.taps {
            let Wanted { name, interface, options } = tapped.wanted.clone();
            let of = Of { name, interface, source: tapped.tap.source().name(), options };
            tapped.files = Some(Files::create(folder, of)?);
        }
        Ok(())
    }

    /// Lets frames in, from now on.
    ///
    /// # Errors
    /// When an interface is down or gone.
    pub fn attach(&mut self) -> Result<(), PortError> {
        self.meter = Meter::start();
        for tapped in &mut self.taps {
            tapped.before = tapped.tap.interface().counters().ok();
            tapped.tap.attach()?;
            tapped.part.began = HostClock.now();
        }
        Ok(())
    }

    /// The interfaces that are down: they show nothing until they are up.
    pub fn down(&self) -> impl Iterator<Item = &str> {
        let interfaces = self.taps.iter().map(|tapped| tapped.tap.interface());
        interfaces.filter(|interface| !interface.up).map(|interface| interface.name.as_str())
    }

    /// How many frames were seen so far.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// What is captured and how, for answers.
    pub fn json(&self) -> Vec<Value> {
        let tap = |tapped: &Tapped| {
            json!({
                "name": tapped.wanted.name, "interface": tapped.wanted.interface, "source": tapped.tap.source().name(),
                "ring_bytes": tapped.tap.ring_bytes(), "options": tapped.wanted.options,
            })
        };
        self.taps.iter().map(tap).collect()
    }

    /// Captures until `until`, until `stop` is set, which `wake` tells by being readable, or until it must end.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(&mut self, until: Time, stop: &AtomicBool, wake: BorrowedFd<'_>) -> anyhow::Result<Why> {
        let mut look_at = Time(0);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(Why::Asked);
            }
            let now = HostClock.now();
            if now >= until {
                return Ok(Why::Time);
            }
            if now >= look_at {
                // Nobody is told when an interface that is down is deleted.
                look_at = now + LONGEST_SLEEP;
                // The kernel counts in 32 bits, from zero each time that its counts are read.
                let look = |tap: &mut RingTap| tap.look().and_then(|()| tap.totals());
                if let Some(gone) = self.taps.iter_mut().find_map(|tapped| look(&mut tapped.tap).err()) {
                    return Ok(Why::Gone(gone));
                }
                let mut files = self.taps.iter_mut().filter_map(|tapped| tapped.files.as_mut());
                if let Err(error) = files.try_for_each(Files::flush) {
                    return Ok(Why::Unwritten(error));
                }
            }
            match self.take_some() {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(gone) = self.sleep(until.min(look_at) - now, wake)? {
                        return Ok(Why::Gone(gone));
                    }
                }
                Err(why) => return Ok(why),
            }
        }
    }

    /// Takes what there is from each tap, at most a block of each; returns whether there was anything.
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

    /// Begins new files where that is due, and keeps all of them within the budget.
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

    /// Sleeps until something comes or the time is over; returns what is wrong with an interface that is gone.
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

    /// Lets no more frames in, takes what is in, ends the files, and says what was seen, and whether the files could be ended.
    pub fn end(mut self, mut why: Why) -> (Ended, Result<(), RecordError>) {
        for tapped in &mut self.taps {
            // An interface that is gone shows nothing more.
            let _ = tapped.tap.detach();
        }
        let is_counted = matches!(why, Why::Count | Why::Budget);
        let give_up = HostClock.now() + LAST_BLOCKS;
        let afters: Vec<Option<Counters>> =
            self.taps.iter().map(|tapped| tapped.tap.interface().counters().ok()).collect();
        while !is_counted && !matches!(why, Why::Unwritten(_)) && !self.is_empty() && HostClock.now() < give_up {
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
        let took = self.meter.stop();
        let is_counted = matches!(why, Why::Count | Why::Budget);
        let mut taps = Vec::new();
        for (mut tapped, after) in self.taps.into_iter().zip(afters) {
            let counts = *tapped.observer.counts();
            let totals = tapped.tap.totals().unwrap_or_default();
            let options = &tapped.wanted.options;
            let kinds = [!options.filter.is_empty(), is_counted];
            let account = Account::of(&counts, totals, (tapped.before, after), options.direction, kinds);
            let mut counted = tapped.counted(totals.dropped);
            counted.interface = account.interface.filter(|_| !tapped.wanted.options.rotates());
            self.ended.extend(tapped.files.as_mut().map(|files| files.end(counted)));
            taps.push(TapEnded {
                counts,
                account,
                counters: tapped.before.zip(after),
                source: tapped.tap.source(),
                ring_bytes: tapped.tap.ring_bytes(),
                wanted: tapped.wanted,
            });
        }
        let files = self.ended.iter().flat_map(Ending::names).collect();
        let written = self.ended.iter_mut().map(Ending::wait).fold(Ok(()), Result::and);
        (Ended { why, took, taps, files, removed: self.removed }, written)
    }

    /// Whether every frame that was let in was seen.
    fn is_empty(&mut self) -> bool {
        self.taps.iter_mut().all(|tapped| {
            let totals = tapped.tap.totals().unwrap_or_default();
            tapped.observer.counts().seen() + totals.dropped + totals.skipped >= totals.accepted
        })
    }
}

impl Tapped {
    /// Takes a block, and at most so many frames of it.
    fn take(&mut self, most: u64) -> Result<bool, PortError> {
        let Self { tap, observer, files, failed, .. } = self;
        let mut left = most;
        tap.take(&mut |passed| {
            if left == 0 || failed.is_some() {
                return;
            }
            left -= 1;
            let seen = observer.observe(passed);
            if let Some(Err(error)) = files.as_mut().map(|files| files.write(passed, &seen)) {
                *failed = Some(error);
            }
        })
    }
}

impl Tapped {
    /// What was counted since the part began.
    fn counted(&self, dropped: u64) -> Counted {
        let counts = self.observer.counts();
        Counted {
            span: [self.part.began, HostClock.now()],
            seen: counts.seen() - self.part.seen,
            dropped: dropped - self.part.dropped,
            interface: None,
            without_key: counts.without_key - self.part.without_key,
        }
    }

    /// Begins new files if those that are being written are so large or so old; returns these, and whether new ones could be made.
    fn rotate_if_due(&mut self) -> Option<(Ending, Result<(), RecordError>)> {
        let options = &self.wanted.options;
        let length = self.files.as_ref().map(Files::length)?;
        let now = HostClock.now();
        if !options.rotation().is_due(length, now - self.part.began) {
            return None;
        }
        let dropped = self.tap.totals().unwrap_or_default().dropped;
        let counted = self.counted(dropped);
        let counts = self.observer.counts();
        self.part = Part { began: now, seen: counts.seen(), without_key: counts.without_key, dropped };
        self.files.as_mut().map(|files| files.rotate(counted))
    }
}

impl Ended {
    /// What makes it doubtful.
    pub fn findings(&self) -> Findings {
        let mut found = Findings::new(false);
        found.of_host(&self.took);
        for tap in &self.taps {
            let name = &tap.wanted.interface;
            let Account { dropped, accepted, .. } = tap.account;
            found.add_if(dropped > 0, Finding::LocalDrops, || {
                format!(
                    "{name}: the ring was full for {dropped} of {accepted} frames: give --ring more, or --snap less"
                )
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

fn opening(wanted: &Wanted) -> anyhow::Result<Opening> {
    let options = &wanted.options;
    // Of an interface that is not there, libpcap says less.
    Interface::named(&wanted.interface)?;
    let filter = if options.filter.is_empty() {
        filter::of_all(options.taken())
    } else {
        filter::compile(&wanted.interface, &options.filter, options.taken())?
    };
    Ok(Opening {
        filter,
        directions: options.direction,
        ring_bytes: usize::try_from(options.ring)?,
        is_promiscuous: !options.no_promiscuous,
        stamps: options.source.into(),
    })
}

/// Makes what replaces addresses by the key in a file.
fn anonymiser(path: &Path) -> anyhow::Result<Anonymiser> {
    let key = secret::key_for("--anonymise", path)?;
    let [first, second] = [b"addresses 1", b"addresses 2"].map(|half| key.tag(&[half]));
    let mut both = [0; 32];
    both[..16].copy_from_slice(&first);
    both[16..].copy_from_slice(&second);
    Anonymiser::new(both).ok_or_else(|| WrongRequest("--anonymise: take another key".to_owned()).into())
}

fn check(wanted: &[Wanted]) -> Result<(), WrongRequest> {
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
