//! An emulator: arbitrary frames through its engine, and a log of unknown origin.
//!
//! Engine: a configuration, a zero byte, a configuration string for its pipes, a zero byte, and frames, each preceded
//! by how and when it arrives ([`Turn`]). Log: its events, a zero byte, and rows of 16 bytes each ([`rows_of`]).

use std::collections::HashMap;

use sojourn_emulate::config::{Config, Pipe, config_from_dummynet, pipe_from_words};
use sojourn_emulate::disposition::HEAD;
use sojourn_emulate::replay::{Change, differences, replay};
use sojourn_emulate::select::Key;
use sojourn_emulate::{Arrived, Departure, Direction, Disposition, Engine, Outcome};
use sojourn_instrument::foreign;
use sojourn_record::Packet;
use sojourn_record::packet::{CAUSES, DISPOSITIONS, Head};
use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::Target;
use crate::frames::frames;
use crate::words::harmless;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "engine", read: engine, seeds: engines },
    Target { name: "emulation-log", read: log, seeds: logs },
];

const START: Time = Time(1_000_000_000);
/// More only slow a search down.
const MOST_FRAMES: usize = 200;
const MOST_DEPARTURES: usize = 10_000;
const MEMORY_BYTES: u64 = 1 << 20;

/// Every frame is in one count, none departs before it arrived or out of order, none is modified without an impairment,
/// and replaying the log gives the same result.
fn engine(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let (asked, words, turns) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let Some(config) = asked.and_then(harmless).and_then(configured) else { return };
    let words = words.and_then(harmless).unwrap_or_default();
    let config = Config { memory_bytes: config.memory_bytes.min(MEMORY_BYTES), ..config };
    let Ok(mut engine) = Engine::new(&config, START) else { return };
    engine.keep_dispositions(true);
    let mut run = Run { engine, sent: HashMap::new(), now: START, left: START, ended: Vec::new(), changes: Vec::new() };
    turns_of(turns).into_iter().for_each(|turn| run.turn(turn, words));
    run.end(&config);
}

/// Parses lines of dummynet, or a configuration string for a pipe of both directions.
fn configured(text: &str) -> Option<Config> {
    if let Ok(pipe) = pipe_from_words(text, &Pipe { name: "both".to_owned(), ..Pipe::default() }) {
        let mut config = Config { pipes: vec![pipe], ..Config::default() };
        config.select_by_name();
        return Some(config);
    }
    config_from_dummynet(text).ok()
}

/// A frame, and the actions before its arrival.
struct Turn {
    /// Bits: backward, the frame is the given bytes alone, the next departure is refused, no departures before, the
    /// time is in ms, set pipes, start a block.
    how: u8,
    after: Nanos,
    frame: Vec<u8>,
}

/// Six bytes give the actions, the time, the frame's template, where it is changed and by how many following bytes; or
/// the frame is these bytes alone.
fn turns_of(mut bytes: &[u8]) -> Vec<Turn> {
    let templates = frames();
    let mut turns = Vec::new();
    while let Some(([how, s0, s1, template, at, length], rest)) = bytes.split_first_chunk::<6>()
        && turns.len() < MOST_FRAMES
    {
        let (patch, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        let span = i64::from(u16::from_be_bytes([*s0, *s1]));
        let after = if how & 16 == 0 { Nanos(span * 100) } else { Nanos::millis(span & 0xFF) };
        let mut frame = templates[usize::from(*template) % templates.len()].clone();
        if how & 2 == 0 {
            frame.iter_mut().skip((*at).into()).zip(patch).for_each(|(byte, new)| *byte = *new);
        } else {
            frame = patch.to_vec();
        }
        turns.push(Turn { how: *how, after, frame });
        bytes = rest;
    }
    turns
}

struct Run {
    engine: Engine,
    /// The arrival and the contents of each frame.
    sent: HashMap<u64, (Time, Vec<u8>)>,
    now: Time,
    /// The latest departure so far.
    left: Time,
    ended: Vec<Disposition>,
    changes: Vec<Change>,
}

impl Run {
    fn turn(&mut self, Turn { how, after, frame }: Turn, words: &str) {
        self.now = self.now + after;
        if how & 8 == 0 {
            self.leave(self.now, how & 4 != 0);
        }
        if how & 32 != 0 {
            self.set(words);
        }
        if how & 64 != 0 {
            self.engine.begin();
        }
        let number = self.engine.next_number();
        let direction = if how & 1 == 0 { Direction::Forward } else { Direction::Backward };
        let arrived = self.engine.arrive(direction, &frame, self.now);
        assert!(number < self.engine.next_number());
        self.sent.insert(number, (self.now, frame));
        self.take_ended();
        let is_over = self.ended.last().is_some_and(|last| last.number == number);
        match arrived {
            Arrived::Unmatched => {
                assert!(is_over && self.ended.last().is_some_and(|last| last.outcome == Outcome::Unmatched))
            }
            Arrived::Lost => assert!(is_over),
            Arrived::Kept => {}
        }
    }

    fn leave(&mut self, until: Time, mut is_refused: bool) {
        for _ in 0..MOST_DEPARTURES {
            let Some(departure) = self.engine.due(until) else { break };
            assert!(
                self.left <= departure.intended && departure.intended <= until,
                "{departure:?} after {:?}",
                self.left
            );
            self.left = departure.intended;
            let whole = self.engine.frame(&departure).to_vec();
            if std::mem::take(&mut is_refused) {
                self.engine.refused(departure);
            } else {
                self.engine.departed(departure, until);
            }
            self.take_ended();
            self.look_at(&departure, &whole);
        }
    }

    /// The departed frame equals the arrived one: the same length, and the same bytes unless it was to be modified.
    fn look_at(&self, departure: &Departure, whole: &[u8]) {
        let Some(last) = self.ended.last() else { return };
        assert_eq!((last.number, last.intended), (departure.number, Some(departure.intended)));
        let (came, frame) = &self.sent[&self.original(last)];
        assert!(departure.intended >= *came && last.entered >= *came, "{departure:?} before it came, {came:?}");
        assert_eq!(whole.len(), frame.len());
        assert!(last.is_marked || last.flipped > 0 || whole == frame);
        assert_eq!(last.head(), &frame[..frame.len().min(HEAD)]);
    }

    /// Returns the number of the original frame of a copy.
    fn original(&self, of: &Disposition) -> u64 {
        of.copy_of.unwrap_or(of.number)
    }

    fn take_ended(&mut self) {
        self.ended.extend(self.engine.dispositions());
    }

    fn set(&mut self, words: &str) {
        for pipe in self.engine.config().pipes.clone() {
            let Ok(to) = pipe_from_words(words, &pipe) else { return };
            let number = self.engine.next_number();
            if let Ok(from) = self.engine.set(&pipe.name, &to, self.now) {
                assert!(from >= self.now);
                self.changes.push((number, from, pipe.name, to));
            }
            self.take_ended();
        }
    }

    fn end(mut self, config: &Config) {
        self.now = self.now + Nanos::seconds(1);
        self.leave(self.now, false);
        self.conserves();
        self.engine.end();
        self.take_ended();
        self.conserves();
        let report = self.engine.report();
        assert_eq!((report.memory.held_frames, report.memory.held_bytes), (0, 0));
        let copies: u64 = report.pipes.iter().map(|pipe| pipe.counts.duplicated).sum();
        assert_eq!(self.ended.len() as u64, self.sent.len() as u64 + copies);
        let mut numbers: Vec<u64> = self.ended.iter().map(|one| one.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..self.ended.len() as u64));
        // A log holds the first bytes of each frame, which determine its flow unless headers continue after them.
        let is_known = |frame: &Vec<u8>| {
            let mut head = frame[..frame.len().min(HEAD)].to_vec();
            head.resize(frame.len(), 0);
            Key::of(&head) == Key::of(frame)
        };
        if self.sent.values().all(|(_, frame)| is_known(frame)) {
            let replayed = replay(config, START, &self.changes, &self.ended).expect("it held before");
            let found = differences(&self.ended, &replayed);
            assert!(found.is_identical(), "{found:?}");
        }
    }

    /// Every frame is in one count.
    fn conserves(&self) {
        let report = self.engine.report();
        let mut arrived = report.unmatched.forward + report.unmatched.backward + report.lost_by_rules;
        let mut held = 0;
        for pipe in &report.pipes {
            let counts = &pipe.counts;
            let lost: u64 = sojourn_emulate::Cause::ALL.iter().map(|cause| counts.lost[*cause]).sum();
            assert_eq!(counts.arrived + counts.duplicated, counts.sent + lost + pipe.held, "{pipe:?}");
            arrived += counts.arrived;
            held += pipe.held;
        }
        assert_eq!((arrived, held), (self.sent.len() as u64, report.memory.held_frames));
    }
}

/// Whether an input of `engine` starts with a valid configuration, followed by frames.
pub fn is_engine(bytes: &[u8]) -> bool {
    let parts: Vec<&[u8]> = bytes.splitn(3, |byte| *byte == 0).collect();
    parts.len() == 3 && harmless(parts[0]).and_then(configured).is_some() && !turns_of(parts[2]).is_empty()
}

fn log(bytes: &[u8]) {
    is_log(bytes);
}

/// Replays the events and rows of a log and checks the report; returns whether it can be replayed.
pub fn is_log(bytes: &[u8]) -> bool {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (events, rows) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    foreign::emulation_log(events, &rows_of(rows))
}

/// Builds rows as a reader of records returns them. A row gives the packet's disposition, flags, the step of its number
/// and of that of its original, its length, arrival, departure and head. Some values are extreme.
fn rows_of(bytes: &[u8]) -> Vec<Packet> {
    let templates = frames();
    let (mut number, mut now) = (0_u64, START);
    let rows = bytes.as_chunks::<16>().0.iter().take(MOST_FRAMES).map(|row| {
        let [what, how, step, copied, l0, l1, a0, a1, a2, a3, d0, d1, d2, d3, head, pipe] = *row;
        let wide = |four| i64::from(u32::from_be_bytes(four));
        let number_now = match step {
            0x7F => i64::MAX.unsigned_abs(),
            step => number.saturating_add_signed(i64::from(step.cast_signed())),
        };
        number = number_now.saturating_add(1).min(i64::MAX.unsigned_abs());
        now =
            if copied == 0xFF { Time(i64::MAX - wide([a0, a1, a2, a3])) } else { now + Nanos(wide([a0, a1, a2, a3])) };
        let later = if copied == 0xFE { Time(i64::MIN) } else { now + Nanos(wide([d0, d1, d2, d3])) };
        let cause = CAUSES[usize::from(what) % CAUSES.len()];
        let disposition = if cause.is_empty() { DISPOSITIONS[usize::from(what / 10) % 2] } else { "lost" };
        let has = |bit: u8| how & 1 << bit != 0;
        Packet {
            block: 0,
            number: number_now,
            copy_of: has(1).then(|| number_now.saturating_sub(copied.into())),
            direction: if has(0) { "backward" } else { "forward" },
            pipe: (pipe < 0xFF).then_some(pipe.into()),
            flow: pipe.into(),
            frame_bytes: u16::from_be_bytes([l0, l1]).into(),
            head: Head::of(&templates[usize::from(head) % templates.len()]),
            arrival: Stamp { at: now, source: Source::Kernel },
            entered: now,
            disposition,
            cause,
            drawn: has(5).then_some(later - now),
            link_left: has(4).then_some(later),
            intended: has(2).then_some(later),
            departure: has(3).then_some(later),
            is_marked: has(6),
            flipped: 0,
            is_reordered: has(7),
            queue_slots: 0,
            queue_bytes: 0,
            class: 0,
        }
    });
    rows.collect()
}

/// Configurations, and configuration strings that some of their pipes are set to.
fn emulations() -> [(&'static str, &'static str); 6] {
    [
        (r#"delay 3ms jitter 1ms loss 10% duplicate 20%"#, r#"delay 1ms"#),
        (r#"rate 8Mbit/s queue 5 delay 2ms reorder 10%"#, r#"rate 1Mbit/s"#),
        (r#"rate 2Mbit/s queue 20KB codel ecn corrupt 1%"#, r#"delay 9ms"#),
        (r#"rate 5Mbit/s queue 30 fq_codel loss 5%"#, r#"loss 50%"#),
        ("pipe 1 config bw 4Mbit/s delay 5 mask src-port 0xff\nadd 10 pipe 1 udp from any to any\n", r#"delay 2ms"#),
        (
            "pipe 1 config bw 1Mbit/s queue 9\nadd 10 deny tcp from any to any 9\nadd 20 pipe 1 ip from any to any forward\n",
            r#"queue 2"#,
        ),
    ]
}

fn engines() -> Vec<Vec<u8>> {
    let turn = |nth: u8| [(nth % 2) | ((nth % 7 / 6) << 5), nth, 0, nth, 20, 2, nth, 1];
    let turns: Vec<u8> = (0..40).flat_map(turn).collect();
    emulations().map(|(config, words)| [config.as_bytes(), &[0], words.as_bytes(), &[0], &turns].concat()).to_vec()
}

/// Logs of an emulator with a delay of 1 ms: three packets that depart, and one that is queued at the end.
fn logs() -> Vec<Vec<u8>> {
    let start = r#"{"event":"start","config":{"seed":1,"memory_bytes":1048576,"budget":100000,"pipes":[{"name":"both","delay":{"constant":1000000}}],"rules":[{"number":100,"on":{},"action":{"pipe":{"pipe":"both","class":null}}}]},"start_ns":1000000000,"left":"l","right":"r","engine":["sim","sim"],"wait":"spin","version":"0.2.0","profile":"release"}"#;
    let between = [
        r#"{"event":"clock","at_ns":1000000000,"tai_ahead_ns":5}"#,
        r#"{"event":"begin","block":1,"number":0,"keep":true}"#,
        r#"{"event":"set","number":2,"at_ns":1000200000,"pipe":"both","to":{"name":"both","delay":{"constant":1000000}}}"#,
        r#"{"event":"notice","at_ns":1000000007,"sentence":"a port went down"}"#,
    ]
    .join("\n");
    let end = r#"{"event":"end","written":4,"skipped":0,"not_kept":0,"report":{}}"#;
    let stopped = r#"{"event":"stopped","at_ns":1002000000,"written":4,"why":"the disk is full"}"#;
    let [after, delay] = [100_000_u32, 1_000_000].map(u32::to_be_bytes);
    let row = |what: u8| [&[what, 0b0010_1100, 0, 0, 0, 64][..], &after, &delay, &[0, 0]].concat();
    let mut rows: Vec<u8> = [10, 10, 10].into_iter().flat_map(row).collect();
    rows.extend([9, 0, 0, 0, 0, 64, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
    let whole = |last: &str| [format!("{start}\n{between}\n{last}\n").as_bytes(), &[0], &rows].concat();
    vec![whole(end), whole(stopped), whole("{\"event\":\"sto")]
}
