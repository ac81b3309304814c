//! Taps on some interfaces, from attaching to the account of what they saw.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sojourn_capture::{Account, Asked, Observer, Opening, RingTap, Tap, filter};
use sojourn_port::PortError;
use sojourn_port::kernel::Counters;
use sojourn_record::{Finding, RecordError};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};

use super::arguments::TapOptions;
use super::files::{Counted, Files, Of, plain};
use crate::failure::WrongRequest;
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

/// Taps that are open.
pub struct Session {
    taps: Vec<Tapped>,
    meter: Meter,
    count: Option<u64>,
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
}

/// Why a capture ended.
#[derive(Debug)]
pub enum Why {
    /// Its time was over.
    Time,
    /// So many frames were captured.
    Count,
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
}

/// What one tap saw.
pub struct TapEnded {
    pub wanted: Wanted,
    pub counts: sojourn_capture::Counts,
    pub account: Account,
    pub counters: Option<(Counters, Counters)>,
    pub source: Source,
    pub ring_bytes: usize,
    pub files: Vec<String>,
}

impl Session {
    /// Opens taps that show nothing yet.
    ///
    /// # Errors
    /// When one cannot be had.
    pub fn open(wanted: Vec<Wanted>, count: Option<u64>) -> anyhow::Result<Self> {
        check(&wanted)?;
        let open = |wanted: Wanted| {
            let tap = RingTap::open(&wanted.interface, &opening(&wanted)?)?;
            let key = wanted.options.format.has_records().then_some(wanted.options.key);
            let observer = Observer::new(Asked { key, snap: wanted.options.kept() as usize });
            Ok(Tapped { wanted, tap, observer, files: None, before: None, failed: None })
        };
        let taps = wanted.into_iter().map(open).collect::<anyhow::Result<_>>()?;
        Ok(Self { taps, meter: Meter::start(), count, progress: Arc::default() })
    }

    /// Creates the files of all taps.
    ///
    /// # Errors
    /// When one is there already, or cannot be made.
    pub fn write_to(&mut self, folder: &Path) -> Result<(), RecordError> {
        for tapped in &mut self.taps {
            let Wanted { name, interface, options } = &tapped.wanted;
            let of = Of { name, interface, source: tapped.tap.source().name(), options };
            tapped.files = Some(Files::create(folder, &of)?);
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
        }
        Ok(())
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
                if let Some(gone) = self.taps.iter_mut().find_map(|tapped| tapped.tap.look().err()) {
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
            let left = self.count.map_or(u64::MAX, |most| most.saturating_sub(seen));
            took |= tapped.take(left).map_err(Why::Gone)?;
            if let Some(error) = tapped.failed.take() {
                return Err(Why::Unwritten(error));
            }
            seen += tapped.observer.counts().seen() - before;
            self.progress.store(seen, Ordering::Relaxed);
            if self.count.is_some_and(|most| seen >= most) {
                return Err(Why::Count);
            }
        }
        Ok(took)
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
        let is_counted = matches!(why, Why::Count);
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
        let is_counted = matches!(why, Why::Count);
        let mut written = Ok(());
        let mut taps = Vec::new();
        for (mut tapped, after) in self.taps.into_iter().zip(afters) {
            let counts = *tapped.observer.counts();
            let totals = tapped.tap.totals().unwrap_or_default();
            let options = &tapped.wanted.options;
            let kinds = [!options.filter.is_empty(), is_counted];
            let account = Account::of(&counts, totals, (tapped.before, after), options.direction, kinds);
            if let Some(files) = &mut tapped.files {
                written = written.and(files.finish(&Counted { took, account, without_key: counts.without_key }));
            }
            taps.push(TapEnded {
                counts,
                account,
                counters: tapped.before.zip(after),
                source: tapped.tap.source(),
                ring_bytes: tapped.tap.ring_bytes(),
                files: tapped.files.map_or_else(Vec::new, |files| files.names()),
                wanted: tapped.wanted,
            });
        }
        (Ended { why, took, taps }, written)
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
