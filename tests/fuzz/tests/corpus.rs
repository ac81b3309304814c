//! Every file that `scripts/make_corpus.py` wrote for a target passes its reader's first checks, so that a search
//! starts behind them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::Path;

use sojourn_clock::Limits;
use sojourn_clock::simulate::Truth;
use sojourn_emulate::config::files::{distribution, pattern, profile, trace};
use sojourn_emulate::config::{Pipe, config_from_dummynet, load, pipe_from_words, units};
use sojourn_fuzz::{
    is_answer, is_engine, is_heard, is_in_ring, is_log, is_probe_answered, is_reply, is_slice, is_stamp_answered,
    is_tap_counts, is_told, targets,
};
use sojourn_instrument::foreign;
use sojourn_port::pcap::{Capture, Frames, unpacked};
use sojourn_record::{PacketReader, TapReader};
use sojourn_tcplog::private::btf::Btf;
use sojourn_tcplog::spool::{Arriving, Ending, Reader};
use sojourn_time::text;
use sojourn_wire::digest::{Key, digest_within};
use sojourn_wire::icmp::{Echo, Version};
use sojourn_wire::stream::{GREETING_BYTES, is_intact};
use sojourn_wire::{Layers, ProbeHeader, StreamHeader, segment, stamp};

#[test]
fn generated_seeds_are_valid_input() {
    let mut not_understood = Vec::new();
    for target in targets() {
        let made = made(target.name);
        assert!(!made.is_empty(), "{}: python -m scripts.make_corpus", target.name);
        let refused = made.iter().filter(|(_, bytes)| !is_understood(target.name, bytes));
        not_understood.extend(refused.map(|(name, _)| format!("{}/{name}", target.name)));
    }
    assert_eq!(not_understood, [""; 0]);
}

/// Returns the generated files of a target with their names, in order.
fn made(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    let mut made: Vec<_> = named.filter(|(name, _)| name.starts_with("made-")).collect();
    made.sort();
    made
}

/// Returns whether a target's reader accepts these bytes as a valid input.
fn is_understood(target: &str, bytes: &[u8]) -> bool {
    let frame = |skipped: usize| bytes.get(skipped..).unwrap_or_default();
    match target {
        "frame" => {
            let (frame, is_short) = (frame(6), bytes.len() < 1_520);
            let is_split = segment::split(frame, 1_500, &mut Vec::new(), &mut |_| ()).is_some();
            Layers::of(frame).network >= 14 && (is_short || is_split)
        }
        "digest" => frame(4).len() >= 60 && (carries_no_ip(frame(4)) || has_digest(frame(4))),
        "icmp" => {
            let is_echo = [Version::V4, Version::V6].into_iter().any(|one| Echo::split(one, bytes).is_some());
            is_echo || bytes.first() == Some(&3)
        }
        "headers" => frame(3).len() >= 60 && sojourn_capture::headers::length(frame(3)) >= 14,
        "kernel-answers" => is_answer(bytes),
        "rings" => is_in_ring(bytes),
        "tool-answers" => is_told(bytes),
        "engine" => is_engine(bytes),
        "emulation-log" => is_log(bytes),
        "match-slice" => is_slice(bytes),
        "serve-request" => foreign::taps(bytes) || foreign::logs_of_blocks(bytes) || foreign::ends_of_tcp(bytes),
        "capture" => frames_of(bytes) >= 2,
        "taps" if is_tap_counts(bytes) => true,
        "taps" => with_file(bytes, |path| TapReader::open(path).unwrap().next(usize::MAX, |_| ()).is_ok()),
        "packet-log" => with_file(bytes, |path| {
            let mut rows = Vec::new();
            let mut reader = PacketReader::open(path, vec!["both".to_owned()]).unwrap();
            reader.next(&mut rows).unwrap() && !rows.is_empty()
        }),
        "pipe-file" => with_file(bytes, |path| {
            let is_trace = ["trace", "mahimahi", "csv"].into_iter().any(|name| trace::read(path, name).is_ok());
            let is_delays = distribution::table("foreign", path).is_ok() || distribution::empirical(path).is_ok();
            is_trace || is_delays || pattern::read(path).is_ok() || profile::read(path).is_ok()
        }),
        "spool" => with_file(bytes, |path| frames_of_spool(path) >= 2),
        "log-stream" => Arriving::begin(bytes).is_ok_and(|mut log| log.next_frame().is_ok_and(|frame| frame.is_some())),
        "btf" => Btf::parse(bytes.to_vec(), None).unwrap().members("bictcp", 64).is_some_and(|all| !all.is_empty()),
        "stream-control" => bytes.len() >= GREETING_BYTES || serde_json::from_slice::<serde_json::Value>(bytes).is_ok(),
        "tcp-request" => {
            let is_send = serde_json::from_slice::<sojourn_tcp::Send>(bytes).is_ok_and(|one| one.check().is_ok());
            is_send || serde_json::from_slice::<sojourn_tcp::Receive>(bytes).is_ok_and(|one| one.check().is_ok())
        }
        "clock-truth" => {
            serde_json::from_slice::<Truth>(bytes).is_ok() || serde_json::from_slice::<Limits>(bytes).is_ok()
        }
        "probe-header" => ProbeHeader::read(bytes).is_some(),
        "stamp" => stamp::Sent::read(bytes, None).is_ok(),
        "probe-reply" => is_reply(bytes),
        "stream-reply" => is_heard(bytes),
        "responder" => is_probe_answered(bytes),
        "reflector" => is_stamp_answered(bytes),
        "stream-header" => StreamHeader::read(bytes).is_ok() || is_intact(bytes),
        "probe-request" => foreign::block_of_probes(bytes),
        "stream-request" => foreign::streams(bytes),
        "emulator-request" => foreign::emulator(bytes),
        "tcplog-request" => foreign::log_of_tcp(bytes),
        "key-file" => foreign::key(bytes),
        "departures" => foreign::departures(bytes),
        "log-ends" => foreign::ends_of_log(bytes),
        "pipe-words" => pipe_from_words(as_text(bytes), &Pipe { name: "both".to_owned(), ..Pipe::default() }).is_ok(),
        "configuration" => config_from_dummynet(as_text(bytes)).is_ok() || with_file(bytes, |path| load(path).is_ok()),
        "units" => is_unit(as_text(bytes)),
        other => panic!("{other}: say here what it understands"),
    }
}

fn carries_no_ip(frame: &[u8]) -> bool {
    Layers::of(frame).transport.is_none()
}

fn has_digest(frame: &[u8]) -> bool {
    Key::ALL.into_iter().any(|key| digest_within(key, frame, frame.len(), None).is_some())
}

fn frames_of(bytes: &[u8]) -> usize {
    let mut frame = Vec::new();
    let mut frames = Frames::new(unpacked(bytes).unwrap()).unwrap();
    let counted = std::iter::from_fn(|| frames.next(&mut frame)).count();
    assert!(frames.end().is_none(), "{:?}", frames.end());
    if let Ok(mut capture) = Capture::new(bytes) {
        while let Ok(Some(_)) = capture.next(&mut frame) {}
    }
    counted
}

fn frames_of_spool(path: &Path) -> usize {
    let mut reader = Reader::open(path).unwrap();
    let counted = std::iter::from_fn(|| reader.next_frame().unwrap().map(drop)).count();
    assert!(matches!(reader.ending(), Some(Ending::Whole | Ending::Torn(_))), "{:?}", reader.ending());
    counted
}

fn is_unit(said: &str) -> bool {
    let is_number = units::percentage(said).is_ok() || units::fraction(said).is_ok();
    text::time(said).is_ok() || units::rate(said).is_ok() || units::size(said).is_ok() || is_number
}

fn as_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn with_file(bytes: &[u8], look: impl FnOnce(&Path) -> bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    fs::write(&path, bytes).unwrap();
    look(&path)
}
