//! Reads the packets of taps, from captures and from records, and adds their digests.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use sojourn_port::pcap::{self, Frames, PcapError, Skipped};
use sojourn_record::tap::Tapped;
use sojourn_record::{TapAbout, TapFiles, TapReader};

use super::packet::{Packet, Rule, Told, of_frame, of_row};
use crate::failure::{NotTrusted, WrongRequest, of_path};

/// A tap's name, and the path of its data.
#[derive(Debug)]
pub struct Name {
    pub path: PathBuf,
    pub interface: Option<String>,
    /// The title to show instead of the path.
    pub title: Option<String>,
}

impl Name {
    /// Parses `FILE` or `FILE:INTERFACE`.
    pub fn of(text: &str) -> Self {
        let whole = || Self { path: PathBuf::from(text), interface: None, title: None };
        if Path::new(text).exists() {
            return whole();
        }
        match text.rsplit_once(':') {
            Some((path, interface)) if Path::new(path).exists() && !interface.is_empty() => {
                Self { path: PathBuf::from(path), interface: Some(interface.to_owned()), title: None }
            }
            _ => whole(),
        }
    }

    /// Names a tapped interface.
    pub fn of_interface(name: &str) -> Self {
        Self { path: PathBuf::from(name), interface: None, title: None }
    }

    fn is_records(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "arrow")
    }
}

/// An open file that has not been read yet.
pub enum Opened {
    Capture(File),
    Records(TapFiles),
}

impl Opened {
    /// Opens the data of a tap.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(name: &Name) -> anyhow::Result<Self> {
        let is_folder = name.path.is_dir();
        if is_folder || !name.path.exists() {
            let why = if is_folder { "is a folder" } else { "there is no such file" };
            return Err(WrongRequest(format!("{}: {why}", name.path.display())).into());
        }
        if name.is_records() {
            if name.interface.is_some() {
                return Err(WrongRequest(format!("{}: records are of one interface", name.path.display())).into());
            }
            return Ok(Self::Records(TapFiles::open(&name.path).map_err(readable)?));
        }
        File::open(&name.path).map(Self::Capture).map_err(|error| of_path("open", &name.path, error))
    }
}

fn readable(error: sojourn_record::ReadError) -> anyhow::Error {
    match error {
        sojourn_record::ReadError::Foreign { .. } | sojourn_record::ReadError::Damaged { .. } => {
            WrongRequest(error.to_string()).into()
        }
        other => other.into(),
    }
}

/// The source of packets.
enum Origin {
    Capture {
        frames: Frames<Box<dyn BufRead + Send>>,
        chosen: Option<String>,
        frame: Vec<u8>,
        /// The packet in `frame`, read but not yet taken: a pcapng describes interfaces before their first frame.
        first: Option<pcap::Taken>,
    },
    Records {
        reader: Box<TapReader>,
    },
    /// Packets that another thread reads, and the thread, which returns the input at the end.
    Elsewhere {
        packets: Receiver<Vec<Packet>>,
        reader: Option<JoinHandle<anyhow::Result<Input>>>,
    },
    /// An open tap: packets are passed in.
    Open,
}

/// The number of packets that a thread passes on at once, and the capacity of its queue in such batches.
const HANDED_ON: usize = 1 << 14;
const WAITING: usize = 4;

/// The number of packets read at once: few enough to stay in the CPU cache until they are matched.
const AT_ONCE: usize = 1 << 8;
/// The number of rows read at once before any is matched. What is learned from the beginning depends on it.
const ROWS_AHEAD: usize = 1 << 10;

/// One tap's packets, in the order in which the tap saw them.
pub struct Input {
    pub name: String,
    pub about: Option<TapAbout>,
    pub told: Told,
    /// The resolution of timestamps. ns.
    pub resolution: i64,
    origin: Origin,
    /// Packets read ahead.
    begun: VecDeque<Packet>,
    latest: i64,
    problem: Option<String>,
    /// Whether the data is incomplete because the file is damaged.
    is_damaged: bool,
    dropped: Option<u64>,
}

impl Input {
    /// Reads the beginning.
    ///
    /// # Errors
    /// If it is not a capture, or its interface is ambiguous.
    pub fn begin(name: &Name, opened: Opened) -> anyhow::Result<Self> {
        let mut title = name.path.display().to_string();
        if let Some(interface) = &name.interface {
            title = format!("{title}:{interface}");
        }
        let title = name.title.clone().unwrap_or(title);
        let mut dropped = None;
        let (about, origin) = match opened {
            Opened::Records(files) => {
                let mut reader = Box::new(files.read().map_err(readable)?);
                dropped = reader.dropped();
                (Some(reader.about().clone()), Origin::Records { reader })
            }
            Opened::Capture(file) => {
                let wrong = |error: &dyn std::fmt::Display| WrongRequest(format!("{title}: {error}"));
                let input = pcap::unpacked(BufReader::with_capacity(1 << 16, file)).map_err(|error| wrong(&error))?;
                let mut frames = Frames::new(input).map_err(|error| wrong(&error))?;
                let mut frame = Vec::new();
                let first = frames.next(&mut frame);
                (None, Origin::Capture { frames, chosen: name.interface.clone(), frame, first })
            }
        };
        Ok(Self { dropped, ..Self::new(title, about, origin) })
    }

    /// Creates the input of an open tap.
    pub fn open(about: TapAbout) -> Self {
        Self::new(about.tap.clone(), Some(about), Origin::Open)
    }

    fn new(name: String, about: Option<TapAbout>, origin: Origin) -> Self {
        Self {
            name,
            about,
            told: Told::default(),
            resolution: 1,
            origin,
            begun: VecDeque::new(),
            latest: i64::MIN,
            problem: None,
            is_damaged: false,
            dropped: None,
        }
    }

    /// Adds a packet from an open tap; returns whether its time is earlier than `shown`, up to which the tap had
    /// delivered everything. `None` for a frame without a digest, which is not queued.
    pub fn show(&mut self, row: &Tapped, shown: i64) -> Option<bool> {
        let packet = of_row(row, &mut self.told)?;
        self.begun.push_back(packet);
        Some(packet.time < shown)
    }

    /// Sets the number of packets that an open tap has dropped.
    pub fn lost(&mut self, dropped: u64) {
        self.dropped = Some(dropped);
    }

    /// Returns the capture's snapshot length, from its header; `None`: frames are complete, or it is not a capture.
    pub fn kept_octets(&self) -> Option<usize> {
        let Origin::Capture { frames, chosen, .. } = &self.origin else { return None };
        let all = frames.interfaces();
        let of_tap = (0..all.len()).filter(|place| is_named(all, chosen.as_deref(), *place));
        let least = of_tap.map(|place| all[place].most_bytes).filter(|most| *most > 0).min()?;
        (least < 65_535).then_some(least as usize)
    }

    /// Reads so many packets ahead.
    ///
    /// # Errors
    /// If an interface was not named, or is missing.
    pub fn read_ahead(&mut self, count: usize, rule: &Rule) -> anyhow::Result<()> {
        if matches!(self.origin, Origin::Elsewhere { .. }) {
            return self.take_over();
        }
        while self.begun.len() < count {
            if matches!(self.origin, Origin::Records { .. }) {
                if !self.read_rows(count.min(ROWS_AHEAD)) {
                    break;
                }
            } else if let Some(packet) = self.read(rule)? {
                self.begun.push_back(packet);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Reads at most `most` rows of records; `false` at the end.
    fn read_rows(&mut self, most: usize) -> bool {
        let Origin::Records { reader } = &mut self.origin else { return false };
        if self.is_damaged {
            return false; // nothing is read after the damage
        }
        let (told, begun) = (&mut self.told, &mut self.begun);
        let take = |row: &Tapped| {
            if let Some(packet) = of_row(row, told) {
                begun.push_back(packet);
            }
        };
        reader.next(most, take).unwrap_or_else(|error| {
            (self.problem, self.is_damaged) = (Some(error.to_string()), true);
            false
        })
    }

    /// Moves the rest of the reading to a separate thread.
    pub fn on_its_own(mut self, rule: Rule) -> Self {
        let (to_us, packets) = sync_channel(WAITING);
        let (name, about, begun) = (self.name.clone(), self.about.clone(), std::mem::take(&mut self.begun));
        let (resolution, latest) = (self.resolution, self.latest);
        let reader = thread::spawn(move || {
            loop {
                let mut packets = Vec::with_capacity(HANDED_ON);
                while let Some(packet) = self.read(&rule)? {
                    packets.push(packet);
                    if packets.len() == HANDED_ON {
                        break;
                    }
                }
                if packets.is_empty() || to_us.send(packets).is_err() {
                    return Ok(self);
                }
            }
        });
        let origin = Origin::Elsewhere { packets, reader: Some(reader) };
        Self { resolution, begun, latest, ..Self::new(name, about, origin) }
    }

    /// Takes packets that another thread has read and, at the end, its counters.
    fn take_over(&mut self) -> anyhow::Result<()> {
        let Origin::Elsewhere { packets, reader } = &mut self.origin else { return Ok(()) };
        if let Ok(packets) = packets.recv() {
            if self.begun.is_empty() {
                self.begun = packets.into();
            } else {
                self.begun.extend(packets);
            }
            return Ok(());
        }
        let read = match reader.take().map(JoinHandle::join) {
            Some(Ok(read)) => read?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => return Ok(()),
        };
        let told = Told { stepped_back: self.told.stepped_back, ..read.told };
        *self = Self { told, begun: std::mem::take(&mut self.begun), latest: self.latest, ..read };
        Ok(())
    }

    /// Returns the packets read ahead.
    pub fn begun(&self) -> &VecDeque<Packet> {
        &self.begun
    }

    /// Returns the time of the next packet, not earlier than that of any packet before it; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::read_ahead`].
    pub fn peek(&mut self, rule: &Rule) -> anyhow::Result<Option<i64>> {
        if self.begun.is_empty() {
            self.begin_anew();
            self.read_ahead(AT_ONCE, rule)?;
        }
        Ok(self.next_at())
    }

    /// Resets an empty queue to its start and shrinks it, so that its memory stays in the CPU cache.
    fn begin_anew(&mut self) {
        self.begun.clear();
        if matches!(self.origin, Origin::Records { .. }) {
            self.begun.shrink_to(AT_ONCE);
        }
    }

    /// Returns the time of the next packet read ahead, not earlier than that of any packet before it.
    #[inline]
    pub fn next_at(&self) -> Option<i64> {
        self.begun.front().map(|packet| packet.time.max(self.latest))
    }

    /// Passes the next packet, if any, to `hand_on`, and removes it.
    #[inline]
    pub fn take(&mut self, hand_on: impl FnOnce(&Packet)) {
        let Some(packet) = self.begun.front_mut() else { return };
        self.told.stepped_back += u64::from(packet.time < self.latest);
        self.latest = self.latest.max(packet.time);
        packet.at = self.latest;
        hand_on(packet);
        self.begun.pop_front();
    }

    fn read(&mut self, rule: &Rule) -> anyhow::Result<Option<Packet>> {
        if matches!(self.origin, Origin::Records { .. }) {
            while self.begun.is_empty() && self.read_rows(AT_ONCE) {}
            return Ok(self.begun.pop_front());
        }
        loop {
            let packet = match &mut self.origin {
                Origin::Elsewhere { .. } | Origin::Open | Origin::Records { .. } => return Ok(None),
                Origin::Capture { frames, chosen, frame, first } => {
                    let Some(taken) = first.take().or_else(|| frames.next(frame)) else {
                        if let (Some(end), None) = (frames.end(), &self.problem) {
                            self.is_damaged = !matches!(end, PcapError::Truncated { .. });
                            self.problem = Some(end.to_string());
                        }
                        return Ok(None);
                    };
                    if !is_chosen(&self.name, frames, chosen.as_deref(), taken.interface, &mut self.told)? {
                        continue;
                    }
                    if let Some(interface) = frames.interfaces().get(taken.interface as usize) {
                        let resolution = 1_000_000_000 / interface.per_second.max(1);
                        self.resolution = self.resolution.max(resolution.cast_signed());
                    }
                    of_frame(frame, &taken, rule, &mut self.told)
                }
            };
            if let Some(packet) = packet {
                return Ok(Some(packet));
            }
        }
    }

    /// Returns the counters of skipped packets.
    pub fn skipped(&self) -> Skipped {
        let skipped = match &self.origin {
            Origin::Capture { frames, .. } => frames.skipped(),
            _ => Skipped::default(),
        };
        Skipped { malformed: skipped.malformed + self.told.malformed, ..skipped }
    }

    /// Returns the number of packets that the capture reports as dropped; `None`: it reports none.
    pub fn dropped(&self) -> Option<u64> {
        match &self.origin {
            Origin::Capture { frames, .. } => frames.dropped(),
            _ => self.dropped,
        }
    }

    /// Returns why the input ended too early.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Refuses to treat incomplete input as complete.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn judge(&self) -> anyhow::Result<()> {
        match &self.problem {
            Some(problem) if self.is_damaged => {
                let sentence = format!("{}: {problem}; only what was before it has been matched", self.name);
                Err(NotTrusted(sentence).into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a frame belongs to the tap's interface.
fn is_chosen(
    title: &str,
    frames: &Frames<Box<dyn BufRead + Send>>,
    chosen: Option<&str>,
    interface: u32,
    told: &mut Told,
) -> anyhow::Result<bool> {
    let all = frames.interfaces();
    let names = || {
        let name = |(place, interface): (usize, &pcap::Interface)| {
            if interface.name.is_empty() { place.to_string() } else { interface.name.clone() }
        };
        all.iter().enumerate().map(name).collect::<Vec<_>>().join(", ")
    };
    let Some(chosen) = chosen else {
        if all.len() == 1 {
            return Ok(true);
        }
        let sentence = format!("{title}: it has the interfaces {}: say which, as {title}:{}", names(), interface);
        return Err(WrongRequest(sentence).into());
    };
    let is_it = |place: usize| is_named(all, Some(chosen), place);
    if is_it(interface as usize) {
        return Ok(true);
    }
    if told.keyed == 0 && told.without_key == 0 && !(0..all.len()).any(is_it) {
        return Err(WrongRequest(format!("{title}: no such interface; it has {}", names())).into());
    }
    told.of_other_interfaces += 1;
    Ok(false)
}

/// Whether an interface is the chosen one, by name or else by index; every interface is if none was chosen.
fn is_named(all: &[pcap::Interface], chosen: Option<&str>, place: usize) -> bool {
    let Some(chosen) = chosen else { return true };
    all.get(place).is_some_and(|found| found.name == chosen)
        || (chosen.parse() == Ok(place) && all.iter().all(|found| found.name != chosen))
}
