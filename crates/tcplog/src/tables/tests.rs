//! The records of a spool equal what was logged, and counters that are off by one are detected.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use crate::account::LeftOut;
use crate::decode::{Raw, whole};
use crate::layout::{Flow, disposition, kind};
use crate::spool::Spool;

use super::*;

const HEADER: &str = r#"{"hz": 250, "absent": ["received_ce"], "kernel": "0.0.0"}"#;
const PACKETS: u64 = 2_000;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-tables-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn zeros<R: Raw>() -> R {
    whole(&vec![0; R::BYTES]).unwrap()
}

/// Flow 0 has cookie 100, is IPv4 and gets every third packet; flow 1 has cookie 101 and is IPv6. Every second packet
/// is logged.
struct Made {
    flows: [Flow; 2],
    totals: Totals,
    samples: Vec<Sample>,
}

fn made() -> Made {
    let mut made = Made { flows: [zeros(), zeros()], totals: zeros(), samples: Vec::new() };
    for (slot, flow) in made.flows.iter_mut().enumerate() {
        (flow.cookie, flow.first_ns, flow.verdict) = (100 + slot as u64, 1, 1);
        (flow.local_port, flow.remote_port) = (40_000, 5201);
        flow.command[..6].copy_from_slice(b"iperf3");
        flow.algorithm[..5].copy_from_slice(b"cubic");
    }
    made.flows[0].family = 2;
    made.flows[0].local[..4].copy_from_slice(&[10, 0, 0, 1]);
    made.flows[0].remote[..4].copy_from_slice(&[10, 0, 0, 2]);
    made.flows[1].family = 10;
    (made.flows[1].local[15], made.flows[1].remote[15]) = (1, 1);
    for packet in 0..PACKETS {
        made.see(packet);
    }
    made
}

impl Made {
    fn see(&mut self, packet: u64) {
        let (slot, way) = (usize::from(!packet.is_multiple_of(3)), usize::from(packet.is_multiple_of(5)));
        let disposition = if packet.is_multiple_of(2) { disposition::LOGGED } else { disposition::DECIMATED };
        let counts = &mut self.flows[slot].directions[way];
        let totals = &mut self.totals;
        (counts.seen, totals.seen[way]) = (counts.seen + 1, totals.seen[way] + 1);
        (counts.segments, totals.segments[way]) = (counts.segments + 2, totals.segments[way] + 2);
        counts.dispositions[disposition] += 1;
        counts.segments_of_dispositions[disposition] += 2;
        totals.dispositions[way][disposition] += 1;
        totals.segments_of_dispositions[way][disposition] += 2;
        if disposition == disposition::LOGGED {
            let number = totals.number;
            totals.number += 1;
            let cookie = self.flows[slot].cookie;
            let (time_ns, slot, point) = (1_000 + packet, slot as u32, way as u8);
            let sample =
                Sample { kind: kind::SAMPLE, point, slot, number, time_ns, cookie, packet, segments: 2, ..zeros() };
            self.samples.push(sample);
        }
    }

    /// Spool the samples and the flows' final entries, but no end.
    fn spool(&self, folder: &Path) -> Spool {
        let mut spool = self.spool_samples(folder);
        for (slot, flow) in (0..).zip(&self.flows) {
            spool.gone(slot, flow, [Tally::default(); 2]);
        }
        spool.totals(&[self.totals]);
        spool
    }

    /// The same for a log that continues.
    fn spool_open(&self, folder: &Path) -> Spool {
        let mut spool = self.spool_samples(folder);
        for (slot, flow) in (0..).zip(&self.flows) {
            spool.flow(slot, flow);
        }
        spool.totals(&[self.totals]);
        spool
    }

    fn spool_samples(&self, folder: &Path) -> Spool {
        let mut spool = Spool::create(folder, HEADER).unwrap();
        for (place, sample) in self.samples.iter().enumerate() {
            spool.event(0, &bytes(sample));
            if place % 100 == 0 {
                spool.flush().unwrap();
            }
        }
        spool
    }

    fn account(&self) -> Account {
        let mut account = Account::default();
        account.add_totals(&self.totals);
        self.flows.iter().for_each(|flow| account.add_flow(flow));
        account
    }
}

fn bytes(record: &impl Raw) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

fn convert_in(folder: &Path) -> Converted {
    recover(folder, &Origin::default()).unwrap()
}

/// The number of packets with a disposition in the totals.
fn total(converted: &Converted, disposition: Option<Disposition>) -> u64 {
    converted.totals.iter().filter(|entry| entry.disposition == disposition).map(|entry| entry.tally.packets).sum()
}

#[test]
fn log_is_converted_and_its_accounting_conserved() {
    let folder = folder("whole");
    let made = made();
    let mut spool = made.spool(&folder);
    spool.account(&made.account());
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved && converted.is_whole);
    assert_eq!((converted.records, converted.flows, converted.gaps), (PACKETS / 2, 2, 0));
    assert_eq!((total(&converted, None), total(&converted, Some(Disposition::Decimated))), (PACKETS, PACKETS / 2));
    assert_eq!(converted.flow_list, ["10.0.0.1;40000-10.0.0.2;5201", "::1;40000-::1;5201"]);
    assert!(!folder.join(spool::NAME).exists());
    assert!(File::open(folder.join("records/tcp_account-tcplog-000.arrow")).unwrap().metadata().unwrap().len() > 0);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn log_of_a_killed_run_is_recovered() {
    let folder = folder("killed");
    let made = made();
    let mut spool = made.spool_open(&folder);
    // After the latest entries: a sample of a known flow, and one of a flow without any entry.
    for cookie in [100, 102] {
        let late = Sample { number: PACKETS, cookie, packet: PACKETS, slot: cookie as u32 - 100, ..made.samples[0] };
        spool.event(1, &bytes(&late));
    }
    spool.flush().unwrap();
    drop(spool);
    let converted = convert_in(&folder);
    assert_eq!((converted.records, converted.flows), (PACKETS / 2 + 2, 3));
    assert!(!converted.is_conserved && !converted.is_whole);
    let problems = [
        "the log has no end: the program that wrote it was killed",
        "its last account was written before the last 2 packets were logged: they were added",
    ];
    assert_eq!(converted.problems, problems);
    assert_eq!((total(&converted, None), total(&converted, Some(Disposition::Logged))), (PACKETS + 2, PACKETS / 2 + 2));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn interrupted_conversion_is_repeated_and_a_running_log_is_refused() {
    let folder = folder("again");
    let mut spool = made().spool(&folder);
    spool.flush().unwrap();
    let busy = |error: ConvertError| matches!(error, ConvertError::Spool(SpoolError::Busy(_)));
    assert!(spool::is_held(&folder) && busy(recover(&folder, &Origin::default()).unwrap_err()));
    assert!(!folder.join("records").exists());
    drop(spool);
    assert!(!spool::is_held(&folder));
    let samples = folder.join("records/tcp_samples-tcplog-000.arrow");
    fs::create_dir(folder.join("records")).unwrap();
    fs::write(&samples, "killed in the middle").unwrap();
    assert_eq!(convert_in(&folder).records, PACKETS / 2);
    assert!(fs::metadata(&samples).unwrap().len() > 1_000);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn conversion_on_a_full_disk_leaves_no_records_and_can_be_repeated() {
    let Some(disk) = Disk::make(folder("no-room"), 64 << 10) else {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let folder = folder("no-room-spool");
    made().spool(&folder).end().unwrap();
    let origin = Origin::default();
    let job = |records| Job { folder: &folder, records, who: "a", part: 0, block: 1, origin: &origin };
    let filler = disk.0.join("filler");
    let _ = fs::write(&filler, vec![0; 40 << 10]);
    assert!(matches!(convert(&job(&disk.0)), Err(ConvertError::Records(_))));
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1, "the filler");
    let records = folder.join("elsewhere");
    assert_eq!(convert(&job(&records)).unwrap().0.records, PACKETS / 2);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn ended_flows_are_not_kept_in_memory_and_all_are_written() {
    let folder = folder("many");
    let count = 3 * crate::numbers::LINGERING as u64;
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    let (mut flow, mut totals): (Flow, Totals) = (zeros(), zeros());
    let mut account = Account::default();
    let counts = &mut flow.directions[1];
    (counts.seen, counts.segments) = (1, 1);
    (counts.dispositions[disposition::LOGGED], counts.segments_of_dispositions[disposition::LOGGED]) = (1, 1);
    for cookie in 1..=count {
        // Every third has no sample: the flight recorder discarded it.
        let is_forgotten = cookie % 3 == 0;
        let slot = (cookie % 100) as u32;
        let named = Sample { kind: kind::SAMPLE, point: point::OUT, slot, segments: 1, ..zeros() };
        if !is_forgotten {
            spool.event(0, &bytes(&Sample { cookie, time_ns: cookie, number: cookie, ..named }));
        }
        (flow.cookie, flow.generation, flow.local_port) = (cookie, cookie / 100, 80);
        let forgotten = Tally { packets: is_forgotten.into(), segments: is_forgotten.into() };
        spool.gone(slot, &flow, [Tally::default(), forgotten]);
        account.add_gone(&flow);
        let mut left_out = LeftOut::default();
        if is_forgotten {
            left_out.note(cookie, 1, 1);
        }
        account.leave_out(Disposition::Forgotten, &left_out);
    }
    (totals.seen[1], totals.segments[1], totals.number) = (count, count, count);
    (totals.dispositions[1][disposition::LOGGED], totals.segments_of_dispositions[1][disposition::LOGGED]) =
        (count, count);
    let mut all = Account::default();
    all.add_totals(&totals);
    let mut left_out = LeftOut::default();
    (0..count / 3).for_each(|_| left_out.note(1, 1, 1));
    // The packets left out of the sum of all flows were left out one by one above.
    all.leave_out(Disposition::Forgotten, &left_out);
    (all.gone, all.numbers) = (account.gone, count);
    assert_eq!(all.check(), Ok(()));
    spool.account(&all);
    spool.end().unwrap();

    let mut reader = Reader::open(&folder.join(spool::NAME)).unwrap();
    let header = Header::read(reader.header(), &folder).unwrap();
    let sink = TcpFolder::create(&folder, ("a", 0), &header.absent, &Origin::default()).unwrap();
    let mut work = Work::new(0, &header, sink);
    while let Some(frame) = reader.next_frame().unwrap() {
        work.take(frame).unwrap();
        assert!(work.flows.held() <= crate::numbers::LINGERING + 1, "{} flows are held", work.flows.held());
        assert!(work.rows_of_flows.len() <= FLOWS && work.account.len() <= 8 * FLOWS);
    }
    let converted = work.finish(reader.ending().unwrap().clone()).unwrap();
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved);
    assert_eq!((converted.flows, converted.records), (count, count - count / 3));
    assert_eq!(converted.flow_list.len() as u64, count);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn missing_sample_is_detected() {
    let folder = folder("missing");
    let mut made = made();
    made.samples.remove(500);
    let mut spool = made.spool(&folder);
    spool.account(&made.account());
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert!(!converted.is_conserved && converted.is_whole);
    assert_eq!(converted.problems.len(), 2, "{:?}", converted.problems);
    assert!(converted.problems[1].starts_with("all flows"), "{:?}", converted.problems);
    fs::remove_dir_all(&folder).unwrap();
}

/// After the limit, more flows end than can wait for the end, and more are open than the limit has room for.
#[test]
fn log_ended_by_its_size_limit_is_valid_for_its_records() {
    let folder = folder("limited");
    let limit = crate::spool::LEAST_LIMIT;
    let mut spool = Spool::create(&folder, HEADER).unwrap().limited_to(limit);
    let mut account = Account::default();
    let mut totals: Totals = zeros();
    let (ended, open) = (4_000, 1_000);
    let early = 10_000;
    let slot_of = |cookie| if cookie == early { 2 } else { 1 };
    let gone = |spool: &mut Spool, flow: &Flow| spool.gone(slot_of(flow.cookie), flow, [Tally::default(); 2]);
    let mut flow = |spool: &mut Spool, cookie: u64, packets: u64| {
        let sample = Sample {
            kind: kind::SAMPLE,
            slot: slot_of(cookie),
            number: totals.number,
            time_ns: cookie,
            cookie,
            packet: cookie,
            segments: 1,
            ..zeros()
        };
        spool.event(0, &bytes(&sample));
        let mut flow: Flow = zeros();
        (flow.cookie, flow.first_ns, flow.verdict, flow.family) = (cookie, 1, 1, 2);
        (flow.directions[0].seen, flow.directions[0].segments) = (packets, packets);
        flow.directions[0].dispositions[disposition::LOGGED] = packets;
        flow.directions[0].segments_of_dispositions[disposition::LOGGED] = packets;
        totals.number += 1;
        (totals.seen[0], totals.segments[0]) = (totals.seen[0] + 1, totals.segments[0] + 1);
        totals.dispositions[0][disposition::LOGGED] += 1;
        totals.segments_of_dispositions[0][disposition::LOGGED] += 1;
        flow
    };
    // A flow has an entry before the limit, then a sample, and no room for its final entry.
    let known = flow(&mut spool, early, 1);
    spool.flow(slot_of(early), &known);
    let known = flow(&mut spool, early, 2);
    for cookie in 1..=ended {
        let flow = flow(&mut spool, cookie, 1);
        gone(&mut spool, &flow);
        let _ = spool.flush();
        account.add_gone(&flow);
    }
    gone(&mut spool, &known);
    account.add_gone(&known);
    assert!(spool.is_broken() && spool.length() <= limit);
    let last: Vec<Flow> = (ended + 1..=ended + open).map(|cookie| flow(&mut spool, cookie, 1)).collect();
    let _ = spool.flush();
    account.add_totals(&totals);
    last.iter().for_each(|flow| account.add_flow(flow));
    account.leave_out(Disposition::Broken, spool.left_out());
    assert_eq!(account.check(), Ok(()));
    spool.begin_end();
    last.iter().for_each(|flow| gone(&mut spool, flow));
    spool.account(&account);
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved && converted.is_whole && converted.is_limited);
    assert!(converted.unrecorded > 1_000 && converted.records >= 50, "{} {}", converted.unrecorded, converted.records);
    // The early flow has an entry, but no final one.
    assert_eq!(converted.flows + converted.unrecorded, ended + open + 2, "each open flow has its last word");
    assert_eq!(total(&converted, None), ended + open + 2);
    fs::remove_dir_all(&folder).unwrap();
}

/// A log that ends as planned, with more flows open than its limit has room for, was not ended by the limit.
#[test]
fn flow_end_records_at_a_planned_end_may_exceed_the_size_limit() {
    let folder = folder("last-words");
    let mut spool = Spool::create(&folder, HEADER).unwrap().limited_to(crate::spool::LEAST_LIMIT);
    spool.begin_end();
    for cookie in 1..=2_000 {
        let flow = Flow { cookie, ..zeros() };
        spool.gone(1, &flow, [Tally::default(); 2]);
    }
    spool.account(&Account::default());
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!((converted.flows, converted.unrecorded, converted.is_limited), (2_000, 0, false));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn samples_left_out_are_counted() {
    let folder = folder("left-out");
    let mut made = made();
    let gone = made.samples.remove(500);
    let mut spool = made.spool(&folder);
    let mut account = made.account();
    let mut left_out = LeftOut::default();
    left_out.note(gone.cookie, usize::from(gone.point), gone.segments.into());
    account.leave_out(Disposition::Broken, &left_out);
    left_out.iter().for_each(|(cookie, tallies)| spool.left_out_of(cookie, Disposition::Broken, tallies));
    spool.account(&account);
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved);
    assert_eq!(total(&converted, Some(Disposition::Broken)), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn gaps_are_compared_with_the_count_of_full_rings() {
    let folder = folder("gaps");
    let mut made = made();
    made.totals.events_full = 3;
    made.totals.number += 3;
    let mut spool = made.spool(&folder);
    spool.gap(&Gap { cpu: 0, number: 4, missing: 2, after_ns: Some(3), before_ns: None });
    spool.account(&made.account());
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!(converted.gaps, 1);
    assert_eq!(converted.problems, ["gaps of 2 records where 3 had no room"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn private_states_and_unknown_flows_have_rows() {
    let folder = folder("private");
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    let mut state: PrivateState = zeros();
    (state.kind, state.cookie, state.sample) = (kind::PRIVATE, 9, 4);
    state.algorithm[..3].copy_from_slice(b"bbr");
    spool.event(1, &bytes(&state));
    spool.event(1, &[77; 5]);
    spool.end().unwrap();
    let converted = convert_in(&folder);
    assert_eq!((converted.privates, converted.flows, converted.records), (1, 1, 0));
    assert_eq!(converted.flow_list, [";0-;0"]);
    assert_eq!(converted.problems, ["decode a record: no kind is called 77"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn incomplete_header_is_refused() {
    for (header, problem) in [("", "JSON"), ("{}", "hz"), (r#"{"hz":0}"#, "hz")] {
        let folder = folder("header");
        Spool::create(&folder, header).unwrap().end().unwrap();
        let error = recover(&folder, &Origin::default()).unwrap_err();
        assert!(error.to_string().ends_with(&format!("its header has no {problem}")), "{error}");
        assert!(folder.join(spool::NAME).exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// A disk for the test, removed with it; `None` where this process may not create one.
struct Disk(PathBuf);

impl Disk {
    fn make(folder: PathBuf, bytes: usize) -> Option<Self> {
        let size = format!("size={bytes}");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&folder).output();
        made.is_ok_and(|made| made.status.success()).then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_disk_that_fills_up_loses_samples_and_counts_them() {
    let Some(disk) = Disk::make(folder("disk"), 2 << 20) else {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let records = folder("disk-records");
    let made = made();
    let mut spool = Spool::create(&disk.0, HEADER).unwrap();
    let mut told = None;
    for round in 0..100 {
        for sample in &made.samples {
            // Noise, so that packing has no effect.
            let noise =
                std::array::from_fn(|place| (place as u64 ^ sample.number).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32);
            let mut record = bytes(sample);
            record[72..]
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .zip::<[u32; 64]>(noise)
                .for_each(|(word, noise)| *word = noise.to_ne_bytes());
            spool.event(round % 2, &record);
        }
        told = told.or(spool.flush().err());
    }
    assert!(matches!(told, Some(SpoolError::Full(_))), "{told:?}");
    let (mut account, mut flows) = (Account::default(), made.flows);
    (0..100).for_each(|_| account.add_totals(&made.totals));
    for counts in flows.iter_mut().flat_map(|flow| &mut flow.directions) {
        (counts.seen, counts.segments) = (100 * counts.seen, 100 * counts.segments);
        counts.dispositions.iter_mut().chain(&mut counts.segments_of_dispositions).for_each(|count| *count *= 100);
    }
    flows.iter().for_each(|flow| account.add_flow(flow));
    account.leave_out(Disposition::Broken, spool.left_out());
    flows.iter().zip(0..).for_each(|(flow, slot)| spool.gone(slot, flow, [Tally::default(); 2]));
    spool.account(&account);
    spool.end().unwrap();

    let job = Job { folder: &disk.0, records: &records, who: "a", part: 0, block: 1, origin: &Origin::default() };
    let (converted, spent) = convert(&job).unwrap();
    assert!(disk.0.join(spool::NAME).exists(), "it is there until its caller says so");
    spent.discard();
    assert!(!disk.0.join(spool::NAME).exists());
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved && converted.is_whole);
    assert!(converted.records > 1_000 && total(&converted, Some(Disposition::Broken)) > 1_000);
    assert_eq!(converted.records + total(&converted, Some(Disposition::Broken)), 100 * PACKETS / 2);
    fs::remove_dir_all(&records).unwrap();
}

mod parts;
