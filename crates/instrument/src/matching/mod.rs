//! `match`: matches the packets of two or more taps. Reads captures and records, or opens taps itself (`live`); writes
//! delays and a summary. The matching is in `sojourn-matcher`, the clocks in `sojourn-clock`.

pub mod arguments;
mod clocks;
mod divided;
mod input;
mod live;
mod packet;
mod pair;
mod show;
pub mod slice;
mod summary;

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::iter;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use sojourn_matcher::{Limits, Tap};
use sojourn_record::schema::REALTIME;
use sojourn_record::{CrossingFolder, Origin, RecordError, private};
use sojourn_rights::table::MATCH;
use sojourn_wire::digest::Key;

use crate::failure::{WrongRequest, exists, of_path};
use crate::printed::printed;
use arguments::{Engine, Match};
use input::{Input, Name, Opened};
use packet::{Packet, Rule};
use pair::{Pair, Terms};

/// The number of packets of each tap that are read before any is matched: they determine clock offsets and directions.
const AHEAD: usize = 1 << 16;
/// The number of rows written at once.
const ROWS: usize = 1 << 16;
/// The maximum length of headers before the part that a key covers: an Ethernet header and two tags; in a tunnel, the
/// outer headers.
const BEFORE_PACKET: usize = 22;
const BEFORE_INNER: usize = 130;

/// Matches the packets of taps.
///
/// # Errors
/// If the request is invalid, or a file cannot be read or written or is damaged.
pub fn run(asked: &Match) -> anyhow::Result<()> {
    if asked.live.is_asked {
        return live::run(asked);
    }
    let slices = slices(asked)?;
    let titles = asked.titles.iter().map(Some).chain(iter::repeat(None));
    let names: Vec<Name> =
        asked.taps().zip(titles).map(|(text, title)| Name { title: title.cloned(), ..Name::of(text) }).collect();
    let opened: Vec<Opened> = names.iter().map(Opened::new).collect::<anyhow::Result<_>>()?;
    let mut output = asked.output.as_deref().map(|folder| Output::create(folder, clock_of(&opened))).transpose()?;
    // All files are open and none has been read: the code that parses untrusted input has access to nothing else.
    MATCH.confine()?;
    let mut inputs: Vec<Input> =
        names.iter().zip(opened).map(|(name, opened)| Input::begin(name, opened)).collect::<anyhow::Result<_>>()?;
    let key = key(asked.key, &inputs)?;
    let rule = Rule { key, most: None, mtu: asked.mtu };
    let rule = Rule { most: most(&mut inputs, &rule)?, ..rule };
    let mut pairs = begin((asked, slices), &names, &mut inputs, &rule, output.is_some())?;
    if asked.terms {
        let told = json!({ "key": key.name(), "pairs": pairs.iter().map(Pair::terms).collect::<Vec<_>>() });
        return Ok(writeln!(printed(), "{told}")?);
    }
    if slices.is_some() {
        inputs = inputs.into_iter().map(|input| input.on_its_own(rule)).collect();
    }
    pass(&mut inputs, &mut pairs, &rule, output.as_mut())?;
    let told = summary::of(asked, key, &inputs, &pairs);
    if let Some(output) = output {
        output.finish(&told)?;
    }
    show::tell(asked, &told)?;
    inputs.iter().try_for_each(Input::judge)
}

/// Returns the clock of the captures' times; `None`: all inputs are records.
fn clock_of(opened: &[Opened]) -> Option<&'static str> {
    let is_of_records = opened.iter().all(|opened| matches!(opened, Opened::Records(_)));
    (!is_of_records).then_some(REALTIME)
}

/// Returns the number of CPUs over which packets are divided.
fn slices(asked: &Match) -> anyhow::Result<Option<usize>> {
    let here = || std::thread::available_parallelism().map_or(1, NonZero::get);
    match (asked.engine, asked.slices) {
        (Engine::One, None) => Ok(None),
        (Engine::Local, slices) => Ok(Some(slices.map_or_else(here, usize::from))),
        (Engine::One, Some(_)) => Err(WrongRequest("--slices goes with --engine local".to_owned()).into()),
        (Engine::Spark, _) => {
            Err(WrongRequest("`sojourn match` has the engine spark, this program has not".to_owned()).into())
        }
    }
}

/// Returns the key that all taps have in common.
fn key(asked: Option<Key>, inputs: &[Input]) -> anyhow::Result<Key> {
    let mut key = asked;
    for about in inputs.iter().filter_map(|input| input.about.as_ref()) {
        let theirs: Key = about.key.parse().map_err(|error| WrongRequest(format!("tap {}: {error}", about.tap)))?;
        match key {
            Some(key) if key != theirs => {
                let sentence = format!("tap {} has digests by the key {theirs}, not {key}", about.tap);
                return Err(WrongRequest(sentence).into());
            }
            _ => key = Some(theirs),
        }
    }
    Ok(key.unwrap_or_default())
}

/// Returns the number of octets that digests cover, so that all taps have kept them.
fn most(inputs: &mut [Input], rule: &Rule) -> anyhow::Result<Option<usize>> {
    let before = match rule.key {
        Key::Bridge => 0,
        Key::Vlan => BEFORE_PACKET - 14,
        Key::Router | Key::Nat => BEFORE_PACKET,
        Key::Tunnel => BEFORE_INNER,
    };
    let of_captures = inputs.iter().filter_map(Input::kept_octets).min();
    let of_captures = of_captures.map(|kept| kept.saturating_sub(before));
    let mut of_records = inputs.iter().filter_map(|input| input.about.as_ref()).map(|about| about.most);
    let Some(first) = of_records.next() else { return Ok(of_captures) };
    let first = first.map(|most| most as usize);
    let captures_can = of_captures.is_none_or(|kept| first.is_some_and(|most| most <= kept));
    if of_records.any(|other| other.map(|most| most as usize) != first) || !captures_can {
        let sentence =
            "the taps' digests are of different lengths of a packet: capture with one snap length".to_owned();
        return Err(WrongRequest(sentence).into());
    }
    Ok(first)
}

/// Reads ahead, and determines clock offsets and the direction of packets.
fn begin(
    (asked, slices): (&Match, Option<usize>),
    names: &[Name],
    inputs: &mut [Input],
    rule: &Rule,
    keeps_rows: bool,
) -> anyhow::Result<Vec<Pair>> {
    for input in inputs.iter_mut() {
        input.read_ahead(AHEAD, rule)?;
    }
    let mut off = vec![0_i64; inputs.len()];
    let mut pairs = Vec::new();
    for place in 1..inputs.len() {
        let (first, second) = (&inputs[place - 1], &inputs[place]);
        let is_one_clock = asked.same_clock
            || names[place - 1].path == names[place].path
            || matches!((&first.about, &second.about), (Some(a), Some(b)) if a.clock_id == b.clock_id && a.clock_id != 0);
        let apart = if is_one_clock { Some(0) } else { pair::offset(first, second) };
        off[place] = off[place - 1].saturating_add(apart.unwrap_or(0));
        // With one clock, timestamps differ at most by their resolution.
        let rounded = first.resolution.max(second.resolution);
        let limits = Limits {
            window: asked.window.0,
            ahead: if is_one_clock { rounded } else { asked.window.0 },
            memory: usize::try_from(asked.memory).unwrap_or(usize::MAX) / (inputs.len() - 1),
        };
        let terms = Terms {
            number: pairs.len() as u32,
            limits,
            direction: asked.direction,
            aligned: (off[place - 1], off[place]),
            is_apart_known: apart.is_some(),
            is_one_clock,
            keeps_rows,
            slices,
        };
        pairs.push(Pair::new(terms, first, second));
    }
    Ok(pairs)
}

/// The time of the next packet at the end of an input.
const END: i64 = i64::MAX;

/// Passes all packets to the pairs, in time order.
fn pass(inputs: &mut [Input], pairs: &mut [Pair], rule: &Rule, mut output: Option<&mut Output>) -> anyhow::Result<()> {
    let off: Vec<i64> = iter::once(0)
        .chain(pairs.iter().scan(0, |sum, pair| {
            *sum = i64::saturating_add(*sum, pair.alignment());
            Some(*sum)
        }))
        .collect();
    let next_of = |input: &mut Input, off: i64| {
        let at = input.next_at().map_or_else(|| input.peek(rule), |at| Ok(Some(at)))?;
        anyhow::Ok(at.map_or(END, |time| time.saturating_sub(off).min(END - 1)))
    };
    let mut next = Vec::with_capacity(inputs.len());
    for (input, off) in inputs.iter_mut().zip(&off) {
        next.push(next_of(input, *off)?);
    }
    loop {
        let (place, first) = earliest(&next);
        if first == END {
            break;
        }
        inputs[place].take(|packet| hand_on(pairs, place, packet));
        next[place] = next_of(&mut inputs[place], off[place])?;
        if let Some(output) = output.as_mut() {
            output.write(pairs, ROWS)?;
        }
    }
    pairs.iter_mut().for_each(Pair::end);
    output.map_or(Ok(()), |output| output.write(pairs, 1))
}

/// Returns the index of the earliest time, the first of equal ones, and that time.
#[inline]
fn earliest(next: &[i64]) -> (usize, i64) {
    // Fast path for two taps, the usual case.
    if let [one, other] = *next {
        return if other < one { (1, other) } else { (0, one) };
    }
    next.iter().copied().enumerate().min_by_key(|(_, time)| *time).unwrap_or((0, END))
}

/// Passes a tap's packet to the pairs that the tap belongs to.
#[inline]
fn hand_on(pairs: &mut [Pair], place: usize, packet: &Packet) {
    if place > 0 {
        pairs[place - 1].push(Tap::Second, packet);
    }
    if let Some(pair) = pairs.get_mut(place) {
        pair.push(Tap::First, packet);
    }
}

/// The file name of the summary. It is written last: while it is empty, the other files are incomplete.
const SUMMARY: &str = "summary.json";
const UNFINISHED: [&str; 2] = ["crossings-match-000.arrow", "unmatched-match-000.arrow"];

/// The folder of delays and the summary. It is created before privileges are dropped, and thus before captures are read.
struct Output {
    records: CrossingFolder,
    /// Locked while it is written.
    summary: File,
}

impl Output {
    /// Creates the folder, for times of this clock; `None`: of the records' clock.
    fn create(folder: &Path, clock: Option<&'static str>) -> anyhow::Result<Self> {
        private::create_folder(folder).map_err(|error| of_path("create", folder, error))?;
        let path = folder.join(SUMMARY);
        remove_unfinished(folder, &path)?;
        let summary = private::create_file(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(RecordError::Exists(path.clone())),
            _ => anyhow::Error::new(error).context(format!("create {}", path.display())),
        })?;
        // Best effort: without file locks, a concurrent run is not detected.
        let _ = summary.try_lock();
        let records = CrossingFolder::create(folder, ("match", 0), &Origin { clock, ..crate::origin(false) });
        let records = records.inspect_err(|_| drop(fs::remove_file(&path))).map_err(exists)?;
        Ok(Self { records, summary })
    }

    /// Writes the rows of every pair that has at least so many.
    fn write(&mut self, pairs: &mut [Pair], least: usize) -> anyhow::Result<()> {
        for pair in pairs {
            if pair.crossings.len().max(pair.unmatched.len()) >= least {
                self.records.write(&pair.crossings, &pair.unmatched)?;
                pair.crossings.clear();
                pair.unmatched.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self, told: &serde_json::Value) -> anyhow::Result<()> {
        self.records.finish()?;
        // A single write: a process killed meanwhile leaves all of it or nothing.
        let written = self.summary.write_all(format!("{told:#}\n").as_bytes());
        written.and_then(|()| self.summary.sync_all()).context("write summary.json")
    }
}

/// Removes the files of a match that was refused or killed.
fn remove_unfinished(folder: &Path, summary: &Path) -> anyhow::Result<()> {
    let is_empty = fs::symlink_metadata(summary).is_ok_and(|about| about.is_file() && about.len() == 0);
    let runs = || File::open(summary).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    if !is_empty || runs() {
        return Ok(());
    }
    for path in UNFINISHED.map(|name| folder.join(name)).iter().map(PathBuf::as_path).chain([summary]) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}
