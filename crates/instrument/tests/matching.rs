//! Tests of `match` on captures with known true values: delays, losses, duplicates, two clocks, two directions, and invalid files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_ipc::reader::StreamReader;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use sojourn_port::pcap::NgWriter;
use sojourn_record::tap::{TapCounts, Tapped};
use sojourn_record::{Origin, TapAbout, TapFolder};
use sojourn_time::{Source, Stamp, Time};

const START: i64 = 1_700_000_000_000_000_000;
const US: i64 = 1_000;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-match-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(words: &[&str], folder: &Folder) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
        .arg("match")
        .args(words)
        .current_dir(&folder.0)
        .output()
        .unwrap()
}

fn json(words: &[&str], folder: &Folder) -> Value {
    let output = run(&[words, &["--json"]].concat(), folder);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a UDP packet from one endpoint to the other.
fn frame(number: u32, is_forward: bool, length: usize) -> Vec<u8> {
    let (to, from) = if is_forward { (2, 1) } else { (1, 2) };
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0];
    let total = (length as u16 - 14).to_be_bytes();
    frame.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend([0, 7, 0, 9, 0, 0, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(length, 0);
    frame
}

fn write(path: &Path, mut frames: Vec<(i64, Vec<u8>)>) {
    frames.sort_by_key(|(at, _)| *at);
    let mut writer = NgWriter::new(Vec::new()).unwrap();
    frames.iter().for_each(|(at, frame)| writer.write(Time(*at), frame).unwrap());
    fs::write(path, writer.finish().unwrap()).unwrap();
}

/// A device between two taps, for a second: the delay in both directions is 100 µs, plus up to 50 µs, plus 8 ns per octet.
struct Truth {
    before: Vec<(i64, Vec<u8>)>,
    after: Vec<(i64, Vec<u8>)>,
    /// By direction, in the order of the first observation.
    delays: [Vec<i64>; 2],
    lost: [u64; 2],
    copies: [u64; 2],
}

fn simulate(packets: u32, clock: impl Fn(i64) -> i64, loss: f64) -> Truth {
    let mut random = StdRng::seed_from_u64(5);
    let mut truth =
        Truth { before: Vec::new(), after: Vec::new(), delays: Default::default(), lost: [0; 2], copies: [0; 2] };
    for number in 0..packets {
        for is_forward in [true, false] {
            let way = usize::from(!is_forward);
            let at = START + i64::from(number) * 100 * US + i64::from(!is_forward) * 30 * US;
            let length = [60, 590, 1_514][random.random_range(0..3)];
            let frame = frame(number, is_forward, length);
            let (here, there) =
                if is_forward { (&mut truth.before, &mut truth.after) } else { (&mut truth.after, &mut truth.before) };
            let stamp = |at: i64, is_here: bool| if is_forward == is_here { at } else { clock(at) };
            here.push((stamp(at, true), frame.clone()));
            if random.random_bool(loss) {
                truth.lost[way] += 1;
                continue;
            }
            let delay = 100 * US + random.random_range(0..50 * US) + 8 * length as i64;
            truth.delays[way].push(delay);
            there.push((stamp(at + delay, false), frame.clone()));
            if random.random_bool(loss) {
                truth.copies[way] += 1;
                there.push((stamp(at + delay + 10 * US, false), frame));
            }
        }
    }
    truth.delays.iter_mut().for_each(|delays| delays.sort_unstable());
    truth
}

fn median(sorted: &[i64]) -> i64 {
    sorted[(sorted.len() - 1) / 2]
}

#[test]
fn both_directions_are_matched_and_each_packet_is_counted_once() {
    let folder = Folder::new("both");
    let truth = simulate(5_000, |at| at, 0.02);
    write(&folder.file("a.pcapng"), truth.before);
    write(&folder.file("b.pcapng"), truth.after);
    let told = json(&["a.pcapng", "b.pcapng", "--same-clock", "--window", "10ms", "-o", "out"], &folder);
    let pair = &told["pairs"][0];
    assert_eq!((&pair["clocks"]["relation"], &pair["aligned_by_ns"]), (&"one".into(), &0.into()));
    for way in 0..2 {
        let found = &pair["directions"][way];
        let count = |name: &str| found["counts"][name].as_u64().unwrap();
        assert_eq!(count("matched"), truth.delays[way].len() as u64, "{told:#}");
        assert_eq!(count("lost") + count("pending"), truth.lost[way]);
        assert_eq!((count("duplicated"), count("unexpected")), (truth.copies[way], 0));
        assert_eq!((count("ambiguous"), count("seen_first")), (0, 5_000));
        let delay = &found["delay"];
        assert_eq!(delay["p50_ns"]["value"], median(&truth.delays[way]));
        assert_eq!(
            (&delay["min_ns"], &delay["max_ns"]),
            (&truth.delays[way][0].into(), &(*truth.delays[way].last().unwrap()).into())
        );
        let slope = &found["slope"];
        let of = |name: &str| slope[name].as_f64().unwrap();
        assert!(of("low") <= 8.0 && 8.0 <= of("high") && of("high") - of("low") < 4.0, "{slope}");
    }
    // The rows must agree with the summary.
    let file = fs::File::open(folder.file("out/crossings-match-000.arrow")).unwrap();
    let mut delays = [Vec::new(), Vec::new()];
    for batch in StreamReader::try_new(file, None).unwrap().map(Result::unwrap) {
        let column = |name: &str| batch.column_by_name(name).unwrap().clone();
        let directions = column("direction");
        let directions = directions.as_dictionary::<arrow_array::types::Int8Type>();
        for (row, delay) in column("delay_ns").as_primitive::<Int64Type>().values().iter().enumerate() {
            delays[usize::from(directions.key(row) == Some(1))].push(*delay);
        }
    }
    delays.iter_mut().for_each(|delays| delays.sort_unstable());
    assert_eq!(delays, truth.delays);
    let summary: Value = serde_json::from_slice(&fs::read(folder.file("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary, told);
    let text = run(&["a.pcapng", "b.pcapng", "--same-clock", "--window", "10ms"], &folder);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("seen first   5,000 = ") && text.contains("clocks: one for both taps"), "{text}");
}

#[test]
fn offset_of_two_clocks_is_estimated_within_the_maximum_error() {
    for (offset, ppm) in [(0, 0.0), (5_000_000_000, 40.0), (-37_000_000_000, -120.0), (80 * US, 3.0)] {
        let folder = Folder::new(&format!("clocks-{offset}"));
        let clock = |at: i64| at + offset + ((at - START) as f64 * ppm * 1e-6) as i64;
        let truth = simulate(5_000, clock, 0.01);
        write(&folder.file("a.pcapng"), truth.before);
        write(&folder.file("b.pcapng"), truth.after);
        let told = json(&["a.pcapng", "b.pcapng"], &folder);
        let (pair, clocks) = (&told["pairs"][0], &told["pairs"][0]["clocks"]);
        assert_eq!(clocks["relation"], "estimated", "{told:#}");
        let error = clocks["maximum_error_ns"].as_f64().unwrap();
        // At least half a round-trip time is unknown, and little more.
        assert!(error < 1.5e5, "{error}");
        for way in 0..2 {
            let found = &pair["directions"][way];
            assert_eq!(found["counts"]["matched"], truth.delays[way].len() as u64, "{told:#}");
            assert_eq!(found["counts"]["duplicated"], truth.copies[way]);
            let off = found["delay"]["p50_ns"]["value"].as_i64().unwrap() - median(&truth.delays[way]);
            assert!((off.abs() as f64) < error, "{offset} {ppm}: {off} {error}");
            // The 95 % error assumes symmetric delays, as they are here.
            assert!((off.abs() as f64) < 2.0 * clocks["error95_ns"].as_f64().unwrap() + 500.0, "{off} {clocks}");
        }
    }
}

#[test]
fn one_direction_with_two_clocks_reports_that_the_constant_delay_is_unknown() {
    let folder = Folder::new("one");
    let truth = simulate(2_000, |at| at + 3_000_000_000, 0.0);
    let forward = |frames: Vec<(i64, Vec<u8>)>| frames.into_iter().filter(|(_, frame)| frame[5] == 2).collect();
    write(&folder.file("a.pcapng"), forward(truth.before));
    write(&folder.file("b.pcapng"), forward(truth.after));
    let told = json(&["a.pcapng", "b.pcapng"], &folder);
    let found = &told["pairs"][0]["directions"][0];
    assert_eq!(
        (&told["pairs"][0]["clocks"]["relation"], &found["counts"]["matched"]),
        (&"unknown".into(), &2_000.into())
    );
    let spread = median(&truth.delays[0]) - truth.delays[0][0];
    assert_eq!((&found["delay"]["min_ns"], &found["delay"]["p50_ns"]["value"]), (&0.into(), &spread.into()));
    let text = String::from_utf8(run(&["a.pcapng", "b.pcapng"], &folder).stdout).unwrap();
    assert!(text.contains("delay above the least") && text.contains("clocks: unknown"), "{text}");
}

#[test]
fn captures_without_common_packets_are_reported() {
    let folder = Folder::new("apart");
    let truth = simulate(200, |at| at, 0.0);
    write(&folder.file("a.pcapng"), truth.before[..100].to_vec());
    write(&folder.file("b.pcapng"), truth.after[300..].to_vec());
    let told = json(&["a.pcapng", "b.pcapng"], &folder);
    assert_eq!(told["pairs"][0]["aligned_by_ns"], Value::Null);
    let text = String::from_utf8(run(&["a.pcapng", "b.pcapng"], &folder).stdout).unwrap();
    assert!(text.contains("have no packets in common"), "{text}");
}

#[test]
fn subtract_serialisation_removes_the_delay_per_octet() {
    let folder = Folder::new("serialisation");
    let truth = simulate(2_000, |at| at, 0.0);
    write(&folder.file("a.pcapng"), truth.before);
    write(&folder.file("b.pcapng"), truth.after);
    let words = ["a.pcapng", "b.pcapng", "--same-clock", "--subtract-serialisation", "1Gbit/s"];
    let told = json(&words, &folder);
    let slope = &told["pairs"][0]["directions"][0]["slope"];
    let of = |name: &str| slope[name].as_f64().unwrap();
    // 8 ns per octet are the serialisation time of a 1 Gbit/s link.
    assert!(of("low") <= 0.0 && 0.0 <= of("high"), "{slope}");
    let text = String::from_utf8(run(&words, &folder).stdout).unwrap();
    assert!(text.contains("without serialisation at 1Gbit/s"), "{text}");
}

#[test]
fn serialisation_is_subtracted_before_the_minimum_delay() {
    let folder = Folder::new("subtracted");
    // A store-and-forward link of 1 Gbit/s only: longer frames take longer, but equally long without serialisation.
    let lengths = [60, 1_514, 590, 60, 1_514];
    let at = |number: u32| START + i64::from(number) * 100 * US;
    let of = |number: u32| frame(number, true, lengths[number as usize % lengths.len()]);
    write(&folder.file("a.pcapng"), (0..500).map(|number| (at(number), of(number))).collect());
    let taken = |number: u32| 3_000_000_000 + 8 * (of(number).len() as i64 + 12) + i64::from(number % 7);
    write(&folder.file("b.pcapng"), (0..500).map(|number| (at(number) + taken(number), of(number))).collect());
    let told = json(&["a.pcapng", "b.pcapng", "--subtract-serialisation", "1Gbit/s"], &folder);
    let delay = &told["pairs"][0]["directions"][0]["delay"];
    assert_eq!(
        (&delay["of"], &delay["negative"], &delay["min_ns"], &delay["max_ns"]),
        (&"above the least".into(), &0.into(), &0.into(), &6.into()),
        "{delay}"
    );
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let total = words(&[12 + body.len().next_multiple_of(4) as u32]);
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    [&words(&[kind])[..], &total, body, &padding, &total].concat()
}

/// Returns a pcapng section with one interface that keeps `snap` octets of a frame, and whose times have an offset in
/// seconds; frame times in ns.
fn section(snap: u32, offset: i64, frames: &[(i64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = block(0x0A0D_0D0A, &[words(&[0x1A2B_3C4D, 1]), vec![0xFF; 8]].concat());
    let options = [words(&[9 | 1 << 16, 9, 14 | 8 << 16]), offset.to_le_bytes().to_vec(), words(&[0])].concat();
    bytes.extend(block(1, &[words(&[1, snap]), options].concat()));
    for (at, frame) in frames {
        let kept = &frame[..frame.len().min(snap as usize)];
        let head = [0, (at >> 32) as u32, *at as u32, kept.len() as u32, frame.len() as u32];
        bytes.extend(block(6, &[&words(&head)[..], kept].concat()));
    }
    bytes
}

fn pcap(snap: u32, frames: &[(i64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = words(&[0xA1B2_3C4D, 2 | 4 << 16, 0, 0, snap, 1]);
    for (at, frame) in frames {
        let kept = &frame[..frame.len().min(snap as usize)];
        let (seconds, nanos) = ((at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32);
        bytes.extend([&words(&[seconds, nanos, kept.len() as u32, frame.len() as u32])[..], kept].concat());
    }
    bytes
}

#[test]
fn captures_with_different_snap_lengths_match_in_either_format() {
    let folder = Folder::new("snap");
    let mut truth = simulate(300, |at| at, 0.0);
    [&mut truth.before, &mut truth.after].into_iter().for_each(|frames| frames.sort_by_key(|(at, _)| *at));
    fs::write(folder.file("a.pcap"), pcap(96, &truth.before)).unwrap();
    fs::write(folder.file("b.pcap"), pcap(128, &truth.after)).unwrap();
    fs::write(folder.file("a.pcapng"), section(96, 0, &truth.before)).unwrap();
    fs::write(folder.file("b.pcapng"), section(128, 0, &truth.after)).unwrap();
    for key in ["bridge", "router"] {
        let [of_pcap, of_pcapng] = [["a.pcap", "b.pcap"], ["a.pcapng", "b.pcapng"]]
            .map(|files| json(&[&files[..], &["--same-clock", "--key", key]].concat(), &folder));
        for way in 0..2 {
            let found = &of_pcapng["pairs"][0]["directions"][way];
            assert_eq!(found["counts"]["matched"], 300, "{of_pcapng:#}");
            assert_eq!(found, &of_pcap["pairs"][0]["directions"][way]);
        }
        assert_eq!(of_pcap["taps"][0]["dropped_by_capture"], Value::Null, "pcap says nothing of it");
    }
}

#[test]
fn loss_ratio_counts_only_packets_whose_window_has_ended() {
    let folder = Folder::new("share");
    let at = |number: u32| START + i64::from(number) * 1_000 * US;
    let all = |numbers: &mut dyn Iterator<Item = u32>, later: i64| {
        numbers.map(|number| (at(number) + later, frame(number, true, 60))).collect::<Vec<_>>()
    };
    write(&folder.file("a.pcapng"), all(&mut (0..500), 0));
    write(&folder.file("b.pcapng"), all(&mut (0..500).filter(|number| number % 10 != 0), 100 * US));
    let words = ["a.pcapng", "b.pcapng", "--same-clock", "--direction", "forward", "--window", "50ms"];
    let told = json(&words, &folder);
    let found = &told["pairs"][0]["directions"][0];
    assert_eq!((&found["had_window"], &found["counts"]["matched_at_end"]), (&450.into(), &45.into()), "{found:#}");
    let text = String::from_utf8(run(&words, &folder).stdout).unwrap();
    assert!(text.contains("45 lost (10.00 %") && text.contains("of 450 whose window was over"), "{text}");
}

#[test]
fn packets_that_are_evicted_early_are_reported() {
    let folder = Folder::new("early");
    let all = |later: i64| {
        (0..20_000).map(|number| (START + i64::from(number) * US + later, frame(number, true, 60))).collect::<Vec<_>>()
    };
    write(&folder.file("a.pcapng"), all(0));
    write(&folder.file("b.pcapng"), all(100));
    let words = ["a.pcapng", "b.pcapng", "--same-clock", "--direction", "forward", "--memory", "1MiB"];
    let told = json(&words, &folder);
    let counts = &told["pairs"][0]["directions"][0]["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("matched"), count("evicted")), (20_000, 0), "{counts:#}");
    assert!(count("matched_early") > 0 && count("matched_early") + count("matched_at_end") == 20_000, "{counts:#}");
    let text = String::from_utf8(run(&words, &folder).stdout).unwrap();
    assert!(text.contains("of the matches were evicted before their window was over"), "{text}");
}

#[test]
fn packets_of_endpoints_that_come_late_are_counted() {
    let folder = Folder::new("late");
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for number in 0..33_000_u32 {
        let at = START + i64::from(number) * 10 * US;
        before.extend([(at, frame(number, true, 60)), (at + 6 * US, frame(number, false, 60))]);
        after.extend([(at + US, frame(number, true, 60)), (at + 5 * US, frame(number, false, 60))]);
    }
    let words = ["a.pcapng", "b.pcapng", "--same-clock"];
    write(&folder.file("a.pcapng"), before.clone());
    write(&folder.file("b.pcapng"), after.clone());
    let told = json(&words, &folder);
    assert_eq!(told["pairs"][0]["direction_assumed"], 0, "{told:#}");
    for number in 0..10_u32 {
        let mut late = frame(number, false, 60);
        (late[5], late[11]) = (7, 8);
        let at = START + 500_000 * US + i64::from(number) * 10 * US;
        after.push((at, late.clone()));
        before.push((at + US, late));
    }
    write(&folder.file("a.pcapng"), before);
    write(&folder.file("b.pcapng"), after);
    let told = json(&words, &folder);
    assert_eq!(told["pairs"][0]["direction_assumed"], 20, "{told:#}");
    let text = String::from_utf8(run(&words, &folder).stdout).unwrap();
    assert!(
        text.contains("20 packets, of both taps, are taken to go forward") && text.contains("--direction"),
        "{text}"
    );
}

#[test]
fn impossible_timestamps_are_counted_and_those_at_the_limit_are_matched() {
    let folder = Folder::new("times");
    let truth = simulate(300, |at| at, 0.0);
    let of = |frames: &[(i64, Vec<u8>)]| {
        let mut frames: Vec<_> = frames.iter().map(|(at, frame)| (at - START + 10, frame.clone())).collect();
        frames.sort_by_key(|(at, _)| *at);
        frames
    };
    let (before, after) = (of(&truth.before), of(&truth.after));
    for (seconds, malformed) in [(9_000_000_000, 600), (4_611_686_019, 600), (4_611_686_000, 0)] {
        for sign in [1, -1] {
            fs::write(folder.file("a.pcapng"), section(4_096, -sign * seconds, &before)).unwrap();
            fs::write(folder.file("b.pcapng"), section(4_096, sign * seconds, &after)).unwrap();
            let told = json(&["a.pcapng", "b.pcapng", "a.pcapng"], &folder);
            for tap in 0..3 {
                assert_eq!(told["taps"][tap]["skipped"]["malformed"], malformed, "{told:#}");
            }
            let matched = told["pairs"][0]["directions"].as_array().unwrap().iter();
            let matched: u64 = matched.map(|way| way["counts"]["matched"].as_u64().unwrap()).sum();
            assert_eq!(matched, 600 - malformed, "{told:#}");
        }
    }
}

#[test]
fn refused_match_leaves_no_output_that_blocks_the_next() {
    let folder = Folder::new("again");
    let truth = simulate(100, |at| at, 0.0);
    write(&folder.file("a.pcapng"), truth.before);
    write(&folder.file("b.pcapng"), truth.after);
    fs::write(folder.file("text"), "no capture at all, but long enough to have a header").unwrap();
    for wrong in [["a.pcapng", "text"], ["a.pcapng", "b.pcapng:eth9"]] {
        let refused = run(&[&wrong[..], &["-o", "out"]].concat(), &folder);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    let words = ["a.pcapng", "b.pcapng", "--same-clock", "-o", "out"];
    let told = json(&words, &folder);
    let summary: Value = serde_json::from_slice(&fs::read(folder.file("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary, told);
    // Complete results are never overwritten.
    let refused = run(&words, &folder);
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(sentence.contains("give another folder") && !sentence.contains("--part"), "{sentence}");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(folder.file("out/summary.json")).unwrap()).unwrap(), told);
    // Records of another program stay.
    fs::create_dir(folder.file("other")).unwrap();
    fs::write(folder.file("other/crossings-match-000.arrow"), "mine").unwrap();
    let refused = run(&["a.pcapng", "b.pcapng", "-o", "other"], &folder);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::read(folder.file("other/crossings-match-000.arrow")).unwrap(), b"mine");
    assert!(!folder.file("other/summary.json").exists());
}

#[test]
fn tap_records_match_like_captures() {
    let folder = Folder::new("records");
    let about = |tap: &str, key: &str, clock_id| TapAbout {
        tap: tap.to_owned(),
        key: key.to_owned(),
        clock_id,
        ..TapAbout::default()
    };
    let rows = |later: i64, direction| {
        let row = move |number: u32| Tapped {
            at: Stamp { at: Time(START + i64::from(number) * 10 * US + later), source: Source::Kernel },
            digest: (!number.is_multiple_of(10)).then_some(u64::from(number) << 40 | 7),
            length_bytes: 60,
            direction: Some(direction),
            is_fragment: false,
            is_super_packet: false,
            is_truncated: false,
        };
        (0..1_000).map(row).collect::<Vec<_>>()
    };
    let write = |name: &str, about: &TapAbout, rows: &[Tapped]| {
        let mut files = TapFolder::create(&folder.0, (name, "000"), about, &Origin::default()).unwrap();
        files.write(rows).unwrap();
        files.finish(&TapCounts { dropped: 5, ..TapCounts::default() }).unwrap();
    };
    write("one", &about("one", "router", 9), &rows(0, "in"));
    write("two", &about("two", "router", 9), &rows(12 * US, "out"));
    write("other", &about("other", "nat", 9), &rows(12 * US, "out"));
    write("far", &about("far", "router", 8), &rows(25 * US, "in"));
    let told = json(&["taps-one-000.arrow", "taps-two-000.arrow", "taps-far-000.arrow"], &folder);
    assert_eq!((&told["key"], &told["taps"][0]["without_key"]), (&"router".into(), &100.into()));
    let pair = |place: usize| &told["pairs"][place];
    assert_eq!((&pair(0)["clocks"]["relation"], &pair(1)["clocks"]["relation"]), (&"one".into(), &"unknown".into()));
    for (place, matched) in [(0, 900), (1, 900)] {
        assert_eq!(pair(place)["directions"][0]["counts"]["matched"], matched, "{told:#}");
    }
    assert_eq!(pair(0)["directions"][0]["delay"]["p99_ns"]["value"], 12 * US);
    assert_eq!(told["taps"][1]["dropped_by_capture"], 5);
    fs::remove_file(folder.file("tap_counts-one-000.arrow")).unwrap();
    let words = ["taps-one-000.arrow", "taps-two-000.arrow"];
    let dropped = json(&words, &folder)["taps"].as_array().unwrap().clone();
    let dropped: Vec<&Value> = dropped.iter().map(|tap| &tap["dropped_by_capture"]).collect();
    assert_eq!(dropped, [&Value::Null, &5.into()]);
    let text = String::from_utf8(run(&words, &folder).stdout).unwrap();
    assert!(
        text.contains("dropped is not known") && text.contains("5 more the capture says that it dropped"),
        "{text}"
    );
    let refused = run(&["taps-one-000.arrow", "taps-other-000.arrow"], &folder);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("digests by the key nat, not router"));
}

/// Returns a UDP packet of 2,000 octets of payload, in fragments of at most so many octets after the IP header.
fn pieces(number: u16, most: usize) -> Vec<Vec<u8>> {
    let mut body = vec![0, 7, 0, 9, 0x07, 0xD8, 0, 0];
    body.extend(u32::from(number).to_be_bytes());
    body.resize(2_008, 3);
    let last = body.len().div_ceil(most) - 1;
    body.chunks(most)
        .enumerate()
        .map(|(place, chunk)| {
            let mut piece = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
            piece.extend((20 + chunk.len() as u16).to_be_bytes());
            piece.extend(number.to_be_bytes());
            let more = if place < last { 0x2000 } else { 0 };
            piece.extend((more | (place * most / 8) as u16).to_be_bytes());
            piece.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            piece.extend(chunk);
            piece
        })
        .collect()
}

/// Returns a TCP segment with data.
fn segment(sequence: u32, data: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((40 + data as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9]);
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(54 + data, 5);
    frame
}

/// Writes captures of both taps: the frames of one packet each millisecond, 50 µs apart between the taps, and after
/// each an identical frame at both.
fn both_taps(folder: &Folder, packets: &[[Vec<Vec<u8>>; 2]]) {
    let mut taps = [Vec::new(), Vec::new()];
    for (at, packet) in packets.iter().enumerate() {
        for (place, tap) in taps.iter_mut().enumerate() {
            let begin = START + at as i64 * 1_000 * US + place as i64 * 50 * US;
            tap.extend(packet[place].iter().enumerate().map(|(n, frame)| (begin + n as i64 * US, frame.clone())));
            tap.push((begin + 500 * US, frame(at as u32, true, 590)));
        }
    }
    let [before, after] = taps;
    write(&folder.file("a.pcapng"), before);
    write(&folder.file("b.pcapng"), after);
}

/// Returns the notes about fragments and merged packets, with a window of 10 ms and with the default one, in which all
/// packets are still pending.
fn notes(folder: &Folder, mtu: &str) -> Vec<String> {
    ["10ms", "1s"]
        .map(|window| {
            let words =
                ["a.pcapng", "b.pcapng", "--same-clock", "--direction", "forward", "--window", window, "--mtu", mtu];
            let text = String::from_utf8(run(&words, folder).stdout).unwrap();
            text.lines().filter(|line| line.contains("fragments") || line.contains("GRO")).map(str::to_owned).collect()
        })
        .into_iter()
        .inspect(|lines: &Vec<String>| assert!(lines.len() < 2, "{lines:?}"))
        .map(|lines| lines.concat())
        .collect()
}

#[test]
fn packets_segmented_or_merged_between_the_taps_are_reported() {
    for (name, before, after, fragments) in [
        ("cut", 2_008, 1_480, Some(60)),
        ("put-together", 1_480, 2_008, Some(60)),
        ("cut-differently", 1_480, 552, Some(60 + 120)),
        ("alike", 1_480, 1_480, None),
    ] {
        let folder = Folder::new(name);
        let packets: Vec<_> = (0..30).map(|number| [pieces(number, before), pieces(number, after)]).collect();
        both_taps(&folder, &packets);
        for said in notes(&folder, "9000") {
            match fragments {
                Some(count) => assert!(
                    said.contains(&format!("note: {count} fragments were seen by one tap only")),
                    "{name}: {said}"
                ),
                None => assert_eq!(said, "", "{name}"),
            }
        }
    }
    // Lost fragments count as lost, without a further note.
    let folder = Folder::new("lost-fragments");
    let packets: Vec<_> = (0..30).map(|number| [pieces(number, 1_480), Vec::new()]).collect();
    both_taps(&folder, &packets);
    assert_eq!(notes(&folder, "9000"), ["", ""]);
}

#[test]
fn segments_merged_by_the_kernel_at_one_tap_are_reported() {
    let single = |number: u32| (0..4).map(|place| segment(number * 5_840 + place * 1_460, 1_460)).collect::<Vec<_>>();
    let merged = |number: u32| vec![segment(number * 5_840, 5_840)];
    type Of<'a> = &'a dyn Fn(u32) -> Vec<Vec<u8>>;
    let cases: [(&str, Of, Of, u32); 4] = [
        ("gro-after", &single, &merged, 30),
        ("gro-before", &merged, &single, 30),
        (
            "gro-differently",
            &merged,
            &|number| vec![segment(number * 5_840, 2_920), segment(number * 5_840 + 2_920, 2_920)],
            90,
        ),
        ("no-gro", &single, &single, 0),
    ];
    for (name, before, after, long) in cases {
        let folder = Folder::new(name);
        both_taps(&folder, &(0..30).map(|number| [before(number), after(number)]).collect::<Vec<_>>());
        for said in notes(&folder, "1500") {
            let expected = format!("note: {long} unmatched packets are longer than the MTU");
            assert!(if long > 0 { said.contains(&expected) } else { said.is_empty() }, "{name}: {said}");
        }
    }
}

#[test]
fn unmatchable_input_is_refused_in_one_sentence() {
    let folder = Folder::new("refused");
    let truth = simulate(100, |at| at, 0.0);
    write(&folder.file("a.pcapng"), truth.before);
    fs::write(folder.file("text"), "no capture at all, but long enough to have a header").unwrap();
    fs::write(folder.file("empty"), "").unwrap();
    for (words, status, sentence) in [
        (vec!["a.pcapng", "none.pcapng"], 2, "there is no such file"),
        (vec!["a.pcapng", "none.arrow"], 2, "there is no such file"),
        (vec!["a.pcapng", "."], 2, "is a folder"),
        (vec!["a.pcapng", "text"], 2, "not a pcap file"),
        (vec!["a.pcapng", "empty"], 2, "the file ends"),
        (vec!["a.pcapng", "a.pcapng", "--window", "0s"], 2, "is no window"),
        (vec!["a.pcapng", "a.pcapng", "--key", "hub"], 2, "no key"),
        (vec!["a.pcapng:eth9", "a.pcapng"], 2, "no such interface"),
        (vec!["a.pcapng", "a.pcapng", "--subtract-serialisation", "0"], 2, "more than 0"),
    ] {
        let output = run(&words, &folder);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(status) && told.contains(sentence), "{words:?}: {told}");
        assert_eq!(told.trim_end().lines().count(), 1, "{told}");
    }
    // A file truncated within its last frame is read; a file damaged before that must not be trusted.
    let whole = fs::read(folder.file("a.pcapng")).unwrap();
    fs::write(folder.file("cut.pcapng"), &whole[..whole.len() - 9]).unwrap();
    let cut = run(&["a.pcapng", "cut.pcapng", "--same-clock"], &folder);
    assert!(cut.status.success() && String::from_utf8(cut.stdout).unwrap().contains("ends too early"));
    let mut damaged = whole;
    let middle = 60 + (damaged.len() - 60) / 2;
    damaged[middle..].fill(0xFF);
    fs::write(folder.file("damaged.pcapng"), damaged).unwrap();
    let damaged = run(&["a.pcapng", "damaged.pcapng", "--same-clock"], &folder);
    assert_eq!(damaged.status.code(), Some(4), "{damaged:?}");
}
