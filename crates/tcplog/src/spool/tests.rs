//! A spool is read back up to the point where it was cut; events that could not be written are counted.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use proptest::prelude::*;

use super::*;
use crate::decode::whole;
use crate::layout::{PrivateState, Sample, kind};

/// Return an empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-tcplog-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn sample(slot: u32, number: u64) -> Vec<u8> {
    let mut sample: Sample = whole(&vec![0; Sample::BYTES]).unwrap();
    sample.kind = kind::SAMPLE;
    sample.slot = slot;
    sample.number = number;
    sample.cookie = u64::from(slot) + 1;
    sample.point = (number % 2) as u8;
    sample.segments = 3;
    sample.state.snd_cwnd = number as u32;
    let mut bytes = Vec::new();
    sample.put(&mut bytes);
    bytes
}

/// A CPU, and a record of its ring.
type Record = (u32, Vec<u8>);

/// Return every record of a spool, the names of the other frames, and how it ends.
fn read(folder: &Path) -> (Vec<Record>, Vec<&'static str>, Ending) {
    let mut reader = Reader::open(&folder.join(NAME)).unwrap();
    let (mut records, mut others) = (Vec::new(), Vec::new());
    while let Some(frame) = reader.next_frame().unwrap() {
        match frame {
            Frame::Events(cpu, all) => assert!(all.each(|bytes| records.push((cpu, bytes.to_vec())))),
            Frame::Flow(..) => others.push("flow"),
            Frame::Gone(..) => others.push("gone"),
            Frame::LeftOut(..) => others.push("left out"),
            Frame::Totals(_) => others.push("totals"),
            Frame::Gap(_) => others.push("gap"),
            Frame::Note(_) => others.push("note"),
            Frame::Account(_) => others.push("account"),
            Frame::Limited(_) => others.push("limited"),
            Frame::Part(..) => others.push("part"),
            Frame::End => others.push("end"),
        }
    }
    (records, others, reader.ending().unwrap().clone())
}

/// Generate a record and its CPU.
fn record() -> impl Strategy<Value = Record> {
    let noise = proptest::collection::vec(any::<u8>(), 0..2 * Sample::BYTES);
    let samples = (0..200_u32, any::<u64>()).prop_map(|(slot, number)| sample(slot, number));
    let strange = proptest::collection::vec(any::<u8>(), Sample::BYTES);
    (0..3_u32, prop_oneof![1 => noise, 8 => samples, 1 => strange])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn records_round_trip(records in proptest::collection::vec(record(), 0..300), rhythm in 1..50_usize) {
        let folder = folder("round");
        let mut spool = Spool::create(&folder, "{}").unwrap();
        for (place, (cpu, bytes)) in records.iter().enumerate() {
            spool.event(*cpu, bytes);
            if place % rhythm == 0 {
                spool.flush().unwrap();
            }
        }
        spool.end().unwrap();
        let (found, _, ending) = read(&folder);
        prop_assert_eq!(found, records);
        prop_assert_eq!(ending, Ending::Whole);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn truncated_or_damaged_spool_is_read_up_to_the_damage(
        records in proptest::collection::vec(record(), 1..60),
        place in any::<prop::sample::Index>(),
        damage: Option<u8>,
    ) {
        let folder = folder("cut");
        let mut spool = Spool::create(&folder, "{\"hz\":250}").unwrap();
        for (cpu, bytes) in &records {
            spool.event(*cpu, bytes);
            spool.flush().unwrap();
        }
        let path = folder.join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        let start = 16 + "{\"hz\":250}".len() + 4;
        let at = start + place.index(bytes.len() - start);
        match damage {
            Some(bit) => bytes[at] ^= 1 << (bit % 8),
            None => bytes.truncate(at),
        }
        fs::write(&path, bytes).unwrap();
        let (found, _, ending) = read(&folder);
        prop_assert_eq!(&found[..], &records[..found.len()]);
        prop_assert!(ending != Ending::Whole);
        prop_assert!(found.len() < records.len());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, has_header: bool) {
        let folder = folder("noise");
        let mut spool = Spool::create(&folder, "{}").unwrap();
        spool.flush().unwrap();
        let mut file = if has_header { fs::read(folder.join(NAME)).unwrap() } else { Vec::new() };
        // Frames with valid checksums and invalid payloads.
        for kind in 0..12_u32 {
            let header = [kind, 0, bytes.len() as u32].map(u32::to_ne_bytes).concat();
            file.extend_from_slice(&header);
            file.extend_from_slice(&checksum(&header, &bytes).to_ne_bytes());
            file.extend_from_slice(&bytes);
        }
        fs::write(folder.join(NAME), file).unwrap();
        if let Ok(mut reader) = Reader::open(&folder.join(NAME)) {
            while let Some(frame) = reader.next_frame().unwrap() {
                if let Frame::Events(_, records) = frame {
                    records.each(|_| ());
                }
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn all_other_record_kinds_round_trip() {
    let folder = folder("others");
    let mut spool = Spool::create(&folder, "{\"hz\":250}").unwrap();
    let mut flow: Flow = whole(&vec![0; Flow::BYTES]).unwrap();
    flow.cookie = 7;
    spool.flow(3, &flow);
    let forgotten = [Tally { packets: 2, segments: 4 }, Tally::default()];
    spool.gone(3, &flow, forgotten);
    let mut totals: Totals = whole(&vec![0; Totals::BYTES]).unwrap();
    totals.seen = [5, 0];
    spool.totals(&[totals, totals]);
    let gap = Gap { cpu: 1, number: 4, missing: 2, after_ns: None, before_ns: Some(9) };
    spool.gap(&gap);
    spool.note("ring of CPU 1 was full");
    let mut account = Account::default();
    account.add_totals(&totals);
    spool.account(&account);
    spool.end().unwrap();

    let mut reader = Reader::open(&folder.join(NAME)).unwrap();
    assert_eq!(reader.header(), "{\"hz\":250}");
    let mut seen = 0;
    while let Some(frame) = reader.next_frame().unwrap() {
        seen += 1;
        match frame {
            Frame::Flow(slot, found) => assert_eq!((slot, *found), (3, flow)),
            Frame::Gone(slot, found) => assert_eq!((slot, *found), (3, flow)),
            Frame::LeftOut(cookie, disposition, found) => {
                assert_eq!((cookie, disposition, found), (7, Disposition::Forgotten, forgotten))
            }
            Frame::Totals(found) => assert_eq!(found, [totals, totals]),
            Frame::Gap(found) => assert_eq!(found, gap),
            Frame::Note(text) => assert_eq!(text, "ring of CPU 1 was full"),
            Frame::Account(counted) => {
                assert_eq!(counted.entries, account.totals().collect::<Vec<_>>());
                assert!(counted.breach.contains("seen"), "{}", counted.breach);
            }
            Frame::End => {}
            Frame::Events(..) | Frame::Limited(..) | Frame::Part(..) => panic!("there were none"),
        }
    }
    assert_eq!(seen, 8);
    assert!(!folder.join(RESERVE_NAME).exists());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn samples_of_a_flow_are_stored_compactly() {
    let folder = folder("packed");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    for number in 0..10_000 {
        spool.event(0, &sample((number % 50) as u32, number));
    }
    spool.flush().unwrap();
    assert!(spool.length() < 10_000 * 40, "{}", spool.length());
    assert!(spool.buffer.capacity() < 4 << 20, "{}", spool.buffer.capacity());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn full_disk_ends_the_events_but_not_the_accounting() {
    let folder = folder("full");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    spool.event(0, &sample(1, 0));
    spool.flush().unwrap();
    // A device that is always full replaces the disk.
    let file = std::mem::replace(&mut spool.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
    for number in 1..10 {
        spool.event(0, &sample(1, number));
    }
    spool.note("kept");
    let error = spool.flush().unwrap_err();
    assert!(matches!(&error, SpoolError::Full(_)), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert!(spool.is_broken() && folder.join(RESERVE_NAME).exists(), "it is for the end");
    spool.flush().unwrap();
    spool.file = file;
    spool.event(0, &sample(1, 10));
    let mut private = [0; PrivateState::BYTES];
    private[0] = kind::PRIVATE;
    spool.event(0, &private);
    spool.totals(&[]);
    spool.end().unwrap();

    let left_out: Vec<_> = spool.left_out().iter().collect();
    assert_eq!(left_out.len(), 1);
    let (cookie, [into, out]) = left_out[0];
    assert_eq!((cookie, into.packets, out.packets, into.segments), (2, 5, 5, 15));
    assert_eq!((spool.events_left_out(), spool.privates_left_out()), (0, 1));
    assert!(!folder.join(RESERVE_NAME).exists());
    let (records, others, ending) = read(&folder);
    assert_eq!((records.len(), others, ending), (1, vec!["note", "end"], Ending::Whole));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn spool_stays_within_its_limit_and_every_packet_is_in_one_counter() {
    for (limit, flows) in [(LEAST_LIMIT, 40), (LEAST_LIMIT, 5_000), (3 << 20, 20_000)] {
        let folder = folder("limited");
        let mut spool = Spool::create(&folder, "{}").unwrap().limited_to(limit);
        let (mut events, mut told) = (0, None);
        for number in 0..120_000 {
            spool.event(0, &sample((number % 50) as u32, number));
            events += 1;
            if number % 100 == 0 {
                told = spool.flush().err().or(told);
            }
            assert!(spool.length() <= limit, "{limit}: {}", spool.length());
        }
        assert!(matches!(told, Some(SpoolError::Limit(_))) && spool.is_broken(), "{told:?}");
        // Flows that end afterwards have final entries as far as there is room.
        let flow: Flow = whole(&vec![0; Flow::BYTES]).unwrap();
        (0..flows).for_each(|slot| spool.gone(slot, &flow, [Tally::default(); 2]));
        spool.totals(&[]);
        spool.account(&Account::default());
        let left_out: u64 = spool.left_out().sum().iter().map(|tally| tally.packets).sum();
        let lost = left_out + spool.events_left_out();
        let unrecorded = spool.unrecorded;
        spool.end().unwrap();
        let length = fs::metadata(folder.join(NAME)).unwrap().len();
        assert!(length <= limit && length > limit / 8, "{limit}: {length}");
        let (records, others, ending) = read(&folder);
        assert_eq!(records.len() as u64 + lost, events, "{limit}");
        let gone = others.iter().filter(|kind| **kind == "gone").count() as u64;
        assert_eq!((gone + unrecorded, ending), (u64::from(flows), Ending::Whole), "{limit}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn spool_of_an_earlier_version_is_reported_and_kept() {
    let folder = folder("earlier");
    Spool::create(&folder, "{}").unwrap().end().unwrap();
    let mut bytes = fs::read(folder.join(NAME)).unwrap();
    // Version 3 had samples that were eight bytes longer.
    for version in [1_u32, 3] {
        bytes[8..12].copy_from_slice(&version.to_ne_bytes());
        fs::write(folder.join(NAME), &bytes).unwrap();
        let error = crate::tables::recover(&folder, &sojourn_record::Origin::default()).unwrap_err().to_string();
        let told = format!("a spool of version {version}, not {VERSION}: recover it with the Sojourn that wrote it");
        assert!(error.ends_with(&told), "{error}");
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), bytes);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn flow_end_records_on_a_full_disk_leave_room_for_the_accounting() {
    let folder = folder("last-words");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    spool.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let flow: Flow = whole(&vec![0; Flow::BYTES]).unwrap();
    while !spool.is_broken() {
        spool.gone(0, &flow, [Tally { packets: 1, segments: 1 }; 2]);
    }
    assert!(spool.buffer.len() >= BUFFER, "all of them are kept");
    spool.gone(0, &flow, [Tally::default(); 2]);
    assert_eq!(spool.unrecorded, 1);
    spool.account(&Account::default());
    spool.end().unwrap_err();
    assert!(spool.buffer.len() <= RESERVE, "{} bytes wait", spool.buffer.len());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn memory_for_flows_that_end_on_a_full_disk_is_bounded_by_the_reserve() {
    let folder = folder("waiting");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    let file = std::mem::replace(&mut spool.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
    let mut flow: Flow = whole(&vec![0; Flow::BYTES]).unwrap();
    let told = 10 * WAITING / Flow::BYTES;
    for cookie in 1..=told as u64 {
        spool.event(0, &sample(cookie as u32 - 1, cookie));
        spool.event(0, &sample(cookie as u32 - 1, cookie + 1));
        let _ = spool.flush();
        flow.cookie = cookie;
        spool.gone(0, &flow, [Tally::default(); 2]);
        assert!(
            spool.buffer.len() < RESERVE && spool.left_out.iter().count() <= 1,
            "nothing is held of flows that are gone"
        );
    }
    assert_eq!(spool.left_out().sum().map(|tally| tally.packets), [told as u64; 2]);
    spool.account(&Account::default());
    spool.file = file;
    spool.end().unwrap();
    let mut reader = Reader::open(&folder.join(NAME)).unwrap();
    let (mut gone, mut unrecorded) = (0, 0);
    while let Some(frame) = reader.next_frame().unwrap() {
        match frame {
            Frame::Gone(..) => gone += 1,
            Frame::Account(counted) => unrecorded = counted.unrecorded,
            _ => {}
        }
    }
    assert!(gone > 500 && gone + unrecorded == told as u64, "{gone} of {told} found room, {unrecorded} did not");
    assert_eq!(reader.ending(), Some(&Ending::Whole));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn removed_log_file_is_detected() {
    let folder = folder("gone");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    spool.event(0, &sample(1, 0));
    fs::remove_file(folder.join(NAME)).unwrap();
    let error = spool.flush().unwrap_err();
    assert!(matches!(error, SpoolError::Gone(_)), "{error}");
    assert!(error.to_string().contains("was removed"));
    spool.event(0, &sample(1, 1));
    spool.end().unwrap();
    assert!(!folder.join(NAME).exists());
    let left_out = spool.left_out().sum();
    assert_eq!(left_out.map(|tally| tally.packets), [1, 1]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn replaced_log_file_is_detected() {
    let folder = folder("replaced");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    fs::rename(folder.join(NAME), folder.join("elsewhere")).unwrap();
    let other = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(NAME));
    drop(other.unwrap());
    spool.event(0, &sample(1, 0));
    assert!(matches!(spool.flush(), Err(SpoolError::Gone(_))));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_spool_that_is_there_is_not_overwritten() {
    let folder = folder("exists");
    let mut spool = Spool::create(&folder, "{}").unwrap();
    assert!(matches!(Spool::create(&folder, "{}"), Err(SpoolError::Exists(_))));
    spool.remove();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn symbolic_link_at_the_place_of_a_spool_file_is_not_followed() {
    let folder = folder("link");
    let theirs = folder.join("theirs");
    fs::write(&theirs, "theirs").unwrap();
    std::os::unix::fs::symlink(&theirs, folder.join(RESERVE_NAME)).unwrap();
    let spool = Spool::create(&folder, "{}").unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(fs::symlink_metadata(folder.join(RESERVE_NAME)).unwrap().len(), RESERVE as u64);
    drop(spool);
    fs::remove_dir_all(&folder).unwrap();
}
