//! Runs each target on its seeds, on findings of searches, and on mutations of both.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::Path;

use sojourn_fuzz::{
    is_answer, is_engine, is_heard, is_in_ring, is_log, is_probe_answered, is_reply, is_slice, is_stamp_answered,
    is_tap_counts, is_told, mutated, target, targets,
};
use sojourn_instrument::foreign;
use sojourn_port::pcap::{Capture, Frames, unpacked};
use sojourn_record::{PacketReader, TapReader};
use sojourn_tcplog::private::btf::Btf;
use sojourn_tcplog::spool::{Arriving, Ending, Reader};
use sojourn_wire::{ProbeHeader, StreamHeader};

/// The number of mutations of each seed. `make proof` runs more, and `make fuzz` searches.
const FEW: u64 = 80;
const MANY: u64 = 1_000;

#[test]
fn every_target_accepts_arbitrary_input() {
    take_mutations(FEW);
}

#[test]
#[ignore = "proof: a thousand mutations of each seed"]
fn every_target_accepts_a_thousand_mutations_of_its_seeds() {
    take_mutations(MANY);
}

fn take_mutations(number: u64) {
    for target in targets() {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let found = fs::read_dir(corpus).into_iter().flatten().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        for seed in seeds.into_iter().chain(found) {
            (0..number).for_each(|number| (target.read)(&mutated(&seed, number)));
        }
    }
}

/// Each seed of a request or key is valid, so that a search starts behind the first check.
#[test]
fn seeds_of_requests_are_valid() {
    for (name, understood) in [
        ("probe-request", foreign::block_of_probes as fn(&[u8]) -> bool),
        ("stream-request", foreign::streams),
        ("emulator-request", foreign::emulator),
        ("tcplog-request", foreign::log_of_tcp),
        ("serve-request", |line| foreign::taps(line) || foreign::logs_of_blocks(line) || foreign::ends_of_tcp(line)),
        ("key-file", foreign::key),
        ("departures", foreign::departures),
        ("log-ends", foreign::ends_of_log),
    ] {
        for seed in (target(name).unwrap().seeds)() {
            assert!(understood(&seed), "{name}: {}", String::from_utf8_lossy(&seed));
            assert!(!understood(&seed[..seed.len() / 3]), "{name}");
        }
    }
}

/// Two MiB of small objects once took 199 MiB; the longest footer that the program writes is accepted.
#[test]
fn log_footer_that_needs_far_more_memory_than_its_length_is_refused() {
    let objects = vec![r#"{"":0}"#; 300_000].join(",");
    assert!(!foreign::ends_of_log(format!(r#"{{"why":"signal","flow_list":[{objects}]}}"#).as_bytes()));
    let few = vec![r#"{"":0}"#; 1_000].join(",");
    assert!(!foreign::ends_of_log(format!(r#"{{"why":"signal","flow_list":[{few}]}}"#).as_bytes()));
    let flows = vec![r#""fd00::1;40000-fd00::2;5201 [{,""#; 65_536].join(",");
    assert!(foreign::ends_of_log(format!(r#"{{"why":"signal","flow_list":[{flows}]}}"#).as_bytes()));
    let most = format!(r#"{{"seen":{0},"logged":{0},"full":{0}}}"#, u64::MAX);
    let totals = format!(r#"{{"in":{most},"out":{most},"segments":{{"in":{most},"out":{most}}}}}"#);
    assert!(foreign::ends_of_log(format!(r#"{{"why":"signal","totals":{totals},"events_full":1}}"#).as_bytes()));
}

/// Departures as times since 1970 would be fifty years after the start.
#[test]
fn departures_as_absolute_times_are_refused() {
    assert!(foreign::departures(b"0\n5\n"));
    for wrong in [&b"1795312800000000000\n"[..], b"5\n4\n", b"-1\n", b"", b"\xff"] {
        assert!(!foreign::departures(wrong), "{}", String::from_utf8_lossy(wrong));
    }
}

/// Each part of a seed with several parts is valid.
#[test]
fn seeds_in_parts_are_valid() {
    for (name, understood) in [
        ("engine", is_engine as fn(&[u8]) -> bool),
        ("kernel-answers", is_answer),
        ("rings", is_in_ring),
        ("tool-answers", is_told),
        ("emulation-log", is_log),
        ("match-slice", is_slice),
        ("probe-reply", is_reply),
        ("stream-reply", is_heard),
        ("responder", is_probe_answered),
        ("reflector", is_stamp_answered),
    ] {
        for seed in (target(name).unwrap().seeds)() {
            assert!(understood(&seed), "{name}: {}", String::from_utf8_lossy(&seed));
        }
    }
}

/// Invalid seeds would leave a search before the first check of a format.
#[test]
fn seeds_are_valid_formats() {
    for seed in (target("spool").unwrap().seeds)() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        fs::write(&path, seed).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        while reader.next_frame().unwrap().is_some() {}
        assert!(matches!(reader.ending(), Some(Ending::Whole)));
    }
    for seed in (target("log-stream").unwrap().seeds)() {
        let mut arriving = Arriving::begin(seed.as_slice()).unwrap();
        while arriving.next_frame().unwrap().is_some() {}
        assert!(arriving.is_whole() && arriving.records() == 6);
    }
    let mut of_ethernet_alone = 0;
    for seed in (target("capture").unwrap().seeds)() {
        let mut frame = Vec::new();
        if let Ok(mut capture) = Capture::new(seed.as_slice()) {
            let records = std::iter::from_fn(|| capture.next(&mut frame).ok().flatten()).count();
            of_ethernet_alone += usize::from(records == 2);
        }
        let mut frames = Frames::new(unpacked(seed.as_slice()).unwrap()).unwrap();
        let taken = std::iter::from_fn(|| frames.next(&mut frame)).count();
        assert!(taken == 2 && frames.end().is_none(), "{taken} {:?}", frames.end());
    }
    assert_eq!(of_ethernet_alone, 2, "a capture in each format");
    for seed in (target("taps").unwrap().seeds)().into_iter().filter(|seed| !is_tap_counts(seed)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taps");
        fs::write(&path, seed).unwrap();
        let mut rows = Vec::new();
        assert!(TapReader::open(&path).unwrap().next(usize::MAX, |row| rows.push(*row)).unwrap());
        assert_eq!(rows.len(), 7);
    }
    for seed in (target("packet-log").unwrap().seeds)() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets");
        fs::write(&path, seed).unwrap();
        let (mut rows, mut reader) = (Vec::new(), PacketReader::open(&path, vec!["both".to_owned()]).unwrap());
        assert!(reader.next(&mut rows).unwrap());
        assert_eq!(rows.len(), 20);
    }
    let tcp = (target("tcp-request").unwrap().seeds)();
    assert!(serde_json::from_slice::<sojourn_tcp::Send>(&tcp[0]).is_ok_and(|asked| asked.check().is_ok()));
    assert!(serde_json::from_slice::<sojourn_tcp::Receive>(&tcp[1]).is_ok_and(|asked| asked.check().is_ok()));
    for seed in (target("btf").unwrap().seeds)() {
        let found = Btf::parse(seed, None).unwrap().members("bictcp", 64).unwrap();
        assert_eq!(found.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["cnt", "last_cwnd"]);
    }
    for seed in (target("stream-header").unwrap().seeds)() {
        assert!(StreamHeader::read(&seed).is_ok());
    }
    for seed in (target("probe-header").unwrap().seeds)() {
        assert!(ProbeHeader::read(&seed).is_some());
    }
}
