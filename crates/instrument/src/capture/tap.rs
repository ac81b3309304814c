//! One tap of a session: opens it, records its frames, completes and begins its files. The session decides when to read it.

use std::path::Path;

use sojourn_capture::headers::Anonymiser;
use sojourn_capture::{AnyTap, Asked, Kind, Observer, Opening, Tap, filter};
use sojourn_port::PortError;
use sojourn_port::kernel::{Counters, Interface};
use sojourn_record::RecordError;
use sojourn_record::tap::Tapped;
use sojourn_time::{Clock, HostClock, Time};

use super::arguments::TapOptions;
use super::files::{Counted, Ending, Files};
use super::rows::row;
use crate::failure::WrongRequest;
use crate::secret;

/// A requested tap on one interface.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The tap's name in files and answers.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The capture options.
    pub options: TapOptions,
}

/// An open tap.
pub struct OpenTap {
    pub wanted: Wanted,
    pub tap: AnyTap,
    pub observer: Observer,
    pub files: Option<Files>,
    /// The records of its frames, if the caller takes them instead of files.
    pub rows: Option<Vec<Tapped>>,
    /// The interface's counters before and after the capture.
    pub counters: [Option<Counters>; 2],
    pub failed: Option<RecordError>,
    pub part: Part,
}

/// The counters at the start of a part.
#[derive(Clone, Copy, Default)]
pub struct Part {
    pub began: Time,
    seen: u64,
    without_key: u64,
    dropped: u64,
}

impl OpenTap {
    /// Opens a tap that delivers no frames yet.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(wanted: Wanted) -> anyhow::Result<Self> {
        let tap = AnyTap::open(wanted.options.tap, &wanted.interface, &opening(&wanted)?)?;
        let key = wanted.options.format.has_records().then_some(wanted.options.key);
        let asked = Asked { key, snap: wanted.options.kept() as usize, headers_only: wanted.options.headers };
        let mut observer = Observer::new(asked);
        if let Some(path) = &wanted.options.anonymise {
            observer.anonymise(anonymiser(path)?);
        }
        let (files, rows, failed, part) = (None, None, None, Part::default());
        Ok(Self { wanted, tap, observer, files, rows, counters: [None; 2], failed, part })
    }

    /// Whether every frame accepted so far was delivered or dropped; `false` if the kernel's counters cannot be read.
    pub fn is_empty(&mut self) -> bool {
        let seen = self.observer.counts().seen();
        self.tap.totals().is_ok_and(|totals| seen + totals.dropped + totals.skipped >= totals.accepted)
    }

    /// Reads a block, and records at most so many frames of it.
    pub fn take(&mut self, most: u64) -> Result<bool, PortError> {
        let Self { tap, observer, files, rows, failed, .. } = self;
        let mut left = most;
        tap.take(&mut |passed| {
            if left == 0 || failed.is_some() {
                return;
            }
            left -= 1;
            let seen = observer.observe(passed);
            if let Some(rows) = rows {
                rows.push(row(passed, &seen));
            }
            if let Some(Err(error)) = files.as_mut().map(|files| files.write(passed, &seen)) {
                *failed = Some(error);
            }
        })
    }

    /// Returns the counters since the part began.
    pub fn counted(&self, dropped: u64) -> Counted {
        let counts = self.observer.counts();
        Counted {
            span: [self.part.began, HostClock.now()],
            seen: counts.seen() - self.part.seen,
            dropped: dropped - self.part.dropped,
            interface: None,
            without_key: counts.without_key - self.part.without_key,
        }
    }

    /// Rotates the files if they are large or old enough; returns those to be completed, and whether new ones could be created.
    pub fn rotate_if_due(&mut self) -> Option<(Ending, Result<(), RecordError>)> {
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

fn opening(wanted: &Wanted) -> anyhow::Result<Opening> {
    let options = &wanted.options;
    // Check the interface first: libpcap's error for a missing one is less specific.
    Interface::named(&wanted.interface)?;
    let filter = match options.tap {
        Kind::Bpf => vec![],
        Kind::Ring if options.filter.is_empty() => filter::of_all(options.taken()),
        Kind::Ring => filter::compile(&wanted.interface, &options.filter, options.taken())?,
    };
    Ok(Opening {
        filter,
        directions: options.direction,
        snap: options.taken(),
        ring_bytes: usize::try_from(options.ring)?,
        is_promiscuous: !options.no_promiscuous,
        stamps: options.source.into(),
    })
}

/// Returns the anonymiser of addresses for the key in a file.
fn anonymiser(path: &Path) -> anyhow::Result<Anonymiser> {
    let key = secret::key_for("--anonymise", path)?;
    let [first, second] = [b"addresses 1", b"addresses 2"].map(|half| key.tag(&[half]));
    let mut both = [0; 32];
    both[..16].copy_from_slice(&first);
    both[16..].copy_from_slice(&second);
    Anonymiser::new(both).ok_or_else(|| WrongRequest("--anonymise: take another key".to_owned()).into())
}
