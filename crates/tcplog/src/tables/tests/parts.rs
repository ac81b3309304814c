//! Logs of several parts, of which the oldest are removed, or some are cut or missing.

use std::time::Duration;

use super::*;
use crate::spool::{Step, steps};

/// Begin a part of a log without entries of flows.
fn begin(spool: &mut Spool, totals: &[Totals]) -> Result<(), SpoolError> {
    spool.begin_part(totals, &mut |_| ())
}

/// Write a log of several parts, of which the oldest are removed meanwhile; return its folder.
fn in_parts(name: &str, remove: usize, ends: bool) -> (PathBuf, Made) {
    let folder = folder(name);
    let mut made = made();
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    for (place, sample) in made.samples.iter().enumerate() {
        if place > 0 && place % 250 == 0 {
            begin(&mut spool, &[]).unwrap();
        }
        spool.event((place % 3) as u32, &bytes(sample));
    }
    assert_eq!(spool.parts(), [4, 0]);
    spool.flush().unwrap();
    let on_disk = || spool::files(&folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    assert_eq!((spool.total(), spool::files(&folder).len()), (on_disk(), 4));
    (0..remove).for_each(|_| assert!(spool.remove_oldest().unwrap()));
    assert_eq!((spool.parts(), spool::files(&folder).len()), ([4, remove as u64], 4 - remove));
    assert_eq!(spool.total(), on_disk());
    assert!(spool::is_held(&folder));
    let mut account = Account::default();
    account.add_totals(&made.totals);
    made.flows.iter_mut().for_each(|flow| account.add_flow(flow));
    if ends {
        (0..).zip(&made.flows).for_each(|(slot, flow)| spool.gone(slot, flow, [Tally::default(); 2]));
        spool.totals(&[made.totals]);
        spool.account(&account);
        spool.end().unwrap();
    } else {
        (0..).zip(&made.flows).for_each(|(slot, flow)| spool.flow(slot, flow));
        spool.totals(&[made.totals]);
        spool.flush().unwrap();
    }
    (folder, made)
}

#[test]
fn a_log_of_several_parts_is_one_log() {
    let (folder, made) = in_parts("parts", 0, true);
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!((converted.records, converted.removed), (made.samples.len() as u64, 0));
    assert_eq!(converted.problems, Vec::<String>::new());
    assert!(converted.is_conserved && converted.is_whole && spool::files(&folder).is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn records_of_removed_parts_are_counted() {
    for (ends, name) in [(true, "oldest"), (false, "oldest-killed")] {
        let (folder, _) = in_parts(name, 2, ends);
        let converted = recover(&folder, &Origin::default()).unwrap();
        assert_eq!((converted.records, converted.is_conserved), (500, ends));
        assert_eq!([converted.parts, converted.removed], [4, 2]);
        assert_eq!([Disposition::Logged, Disposition::Forgotten].map(|one| total(&converted, Some(one))), [500, 500]);
        assert_eq!((converted.problems.is_empty(), converted.is_whole), (ends, ends), "{:?}", converted.problems);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn part_removed_or_truncated_by_others_is_detected() {
    let (folder, _) = in_parts("missing-part", 0, true);
    fs::remove_file(&spool::files(&folder)[1]).unwrap();
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert!(
        !converted.is_conserved && converted.problems.iter().any(|one| one.contains("part 1 of the log is missing"))
    );
    fs::remove_dir_all(folder).unwrap();
    let (folder, _) = in_parts("cut-part", 0, true);
    let second = File::options().write(true).open(&spool::files(&folder)[1]).unwrap();
    second.set_len(second.metadata().unwrap().len() - 40).unwrap();
    let converted = recover(&folder, &Origin::default()).unwrap();
    let said = "of the log are not there: these packets count as broken";
    assert!(!converted.is_conserved && converted.problems.iter().any(|one| one.contains(said)));
    expect_lost(&converted, converted.records, 0);
    fs::remove_dir_all(folder).unwrap();
}

/// Of 1,000 logged packets, assert how many are present, how many were removed, and that the rest is lost; each is in
/// one count.
fn expect_lost(converted: &Converted, there: u64, removed: u64) {
    assert_eq!(converted.records, there);
    let of = |one| total(converted, Some(one));
    assert_eq!(of(Disposition::Logged), there, "{:?}", converted.problems);
    assert_eq!((of(Disposition::Forgotten), of(Disposition::Broken)), (removed, 1_000 - there - removed));
    let counted: u64 = Disposition::ALL.into_iter().map(of).sum();
    assert_eq!((counted, converted.is_conserved), (total(converted, None), false));
}

/// Change a byte of the header, so that the file cannot be read at all.
fn spoil(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes[20] ^= 1;
    fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn unreadable_part_affects_no_other_and_its_records_are_counted() {
    for (name, which, remove, ends) in [
        ("spoilt-middle", 1, 0, true),
        ("spoilt-killed", 1, 0, false),
        ("spoilt-first", 0, 0, true),
        ("spoilt-first-killed", 0, 0, false),
        ("spoilt-removed", 1, 1, true),
        ("spoilt-removed-killed", 1, 1, false),
    ] {
        let (folder, _) = in_parts(name, remove, ends);
        let spoilt = spool::files(&folder)[which].clone();
        let bytes = spoil(&spoilt);
        let converted = recover(&folder, &Origin::default()).unwrap();
        let removed = 250 * remove as u64;
        expect_lost(&converted, 750 - removed, removed);
        assert_eq!((converted.unread, converted.parts, converted.removed), (1, 4, remove as u32), "{name}");
        let kept = format!("spool-{:03}.unread", which + remove);
        assert!(converted.problems[0].contains(&kept), "{:?}", converted.problems);
        assert_eq!(fs::read(folder.join(kept)).unwrap(), bytes, "what could not be read is not lost");
        assert_eq!(spool::files(&folder).len(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn unreadable_last_part_is_reported_and_a_log_without_a_readable_part_is_kept() {
    let (folder, _) = in_parts("spoilt-last", 0, false);
    spoil(&spool::files(&folder)[3]);
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!((converted.records, converted.unread, converted.is_whole), (750, 1, false));
    fs::remove_dir_all(folder).unwrap();
    let (folder, _) = in_parts("spoilt-all", 0, false);
    spool::files(&folder).iter().for_each(|path| drop(spoil(path)));
    let error = recover(&folder, &Origin::default()).unwrap_err();
    assert!(error.to_string().contains("expected a spool of tcplog"), "{error}");
    assert_eq!(spool::files(&folder).len(), 4);
    fs::remove_dir_all(folder).unwrap();
}

/// If the removal of a converted log is killed after any step, either the whole log remains or none. A log without its
/// first parts would be converted again.
#[test]
fn spool_removal_interrupted_at_any_step_leaves_all_or_nothing() {
    for parts in [1, 4] {
        for taken in 0.. {
            let folder = folder("discarded");
            if parts == 1 {
                made().spool(&folder).end().unwrap();
            } else {
                let (of_parts, _) = in_parts("discarded-parts", 0, true);
                fs::remove_dir(&folder).unwrap();
                fs::rename(of_parts, &folder).unwrap();
            }
            let (origin, records) = (Origin::default(), folder.join("records"));
            let job = Job { folder: &folder, records: &records, who: "tcplog", part: 0, block: 0, origin: &origin };
            let (converted, spent) = convert(&job).unwrap();
            let samples = records.join("tcp_samples-tcplog-000.arrow");
            let bytes = fs::read(&samples).unwrap();
            let all = steps(&folder);
            assert!(all.len() <= parts + 2);
            if taken > all.len() {
                spent.discard();
                fs::remove_dir_all(&folder).unwrap();
                break;
            }
            all.iter().take(taken).for_each(|step| step.take().unwrap());
            drop(spent);
            assert!(!spool::is_held(&folder));
            match recover(&folder, &origin) {
                Ok(again) => assert_eq!((again, taken), (converted, 0)),
                Err(error) => {
                    assert!(matches!(error, ConvertError::Spool(SpoolError::Nothing(_))) && taken > 0, "{error}")
                }
            }
            assert_eq!(fs::read(&samples).unwrap(), bytes, "{taken} steps of {parts} parts");
            // The next removal finds the rest, and a new log can be written there.
            let mut spool = Spool::create(&folder, HEADER).unwrap();
            spool.end().unwrap();
            assert_eq!(spool::files(&folder), [folder.join(spool::NAME)]);
            spool.remove();
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the records");
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}

#[test]
fn part_that_cannot_be_removed_is_not_recovered_as_a_log() {
    let (folder, _) = in_parts("not-removed", 0, true);
    let all = steps(&folder);
    assert!(matches!(&all[0], Step::Rename(..)));
    // A folder cannot be removed like a file.
    let second = spool::files(&folder)[1].clone();
    fs::remove_file(&second).unwrap();
    fs::create_dir(&second).unwrap();
    spool::discard(&folder);
    assert!(second.exists() && spool::files(&folder).is_empty());
    fs::remove_dir(&second).unwrap();
    spool::discard(&folder);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir_all(&folder).unwrap();
}

/// End a log whose next part could not be begun: later samples are counted, and the final entries are in the last part.
fn expect_last_words(mut spool: Spool, made: &Made, late: &[Sample]) {
    late.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    let mut account = made.account();
    account.leave_out(Disposition::Broken, spool.left_out());
    spool.begin_end();
    (0..).zip(&made.flows).for_each(|(slot, flow)| spool.gone(slot, flow, [Tally::default(); 2]));
    spool.totals(&[made.totals]);
    spool.account(&account);
    spool.end().unwrap();
}

#[test]
fn size_limit_reached_at_the_start_of_a_part_keeps_flow_end_records() {
    let folder = folder("limit-at-part");
    let made = made();
    // Of the 64 KiB for events, the header takes two thirds: there is no room for another.
    let header = format!(r#"{{"hz": 250, "command": "{}"}}"#, "x".repeat(40 << 10));
    let mut spool = Spool::create(&folder, &header).unwrap().limited_to(spool::LEAST_LIMIT);
    let (early, late) = made.samples.split_at(100);
    early.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    let told = begin(&mut spool, &[made.totals]);
    assert!(matches!(told, Err(SpoolError::Limit(_))) && spool.is_broken(), "{told:?}");
    assert_eq!((spool::files(&folder).len(), spool.parts()), (1, [1, 0]));
    expect_last_words(spool, &made, late);
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved && converted.is_whole && converted.is_limited);
    assert_eq!((converted.records, total(&converted, Some(Disposition::Broken))), (100, 900));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn full_disk_at_the_start_of_a_part_keeps_flow_end_records() {
    let Some(disk) = Disk::make(folder("full-at-part"), 2 << 20) else {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let made = made();
    let mut spool = Spool::create(&disk.0, HEADER).unwrap();
    let (early, late) = made.samples.split_at(100);
    early.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    spool.flush().unwrap();
    let filler = disk.0.join("filler");
    let filled = fs::write(&filler, vec![0; 2 << 20]);
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let told = begin(&mut spool, &[made.totals]);
    assert!(matches!(told, Err(SpoolError::Full(_))) && spool.is_broken(), "{told:?}");
    assert_eq!(spool::files(&disk.0).len(), 1);
    expect_last_words(spool, &made, late);
    let (origin, records) = (Origin::default(), folder("full-at-part-records"));
    let (converted, spent) =
        convert(&Job { folder: &disk.0, records: &records, who: "a", part: 0, block: 1, origin: &origin }).unwrap();
    spent.discard();
    assert_eq!(converted.problems, [""; 0]);
    assert!(converted.is_conserved && converted.is_whole);
    assert_eq!((converted.records, total(&converted, Some(Disposition::Broken))), (100, 900));
    fs::remove_dir_all(&records).unwrap();
}

#[test]
fn a_part_begins_with_the_flows_that_are_open() {
    let folder = folder("open-flows");
    let made = made();
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    let (early, late) = made.samples.split_at(500);
    early.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    let mut show = |say: &mut dyn FnMut(u32, &Flow)| (0..).zip(&made.flows).for_each(|(slot, flow)| say(slot, flow));
    spool.begin_part(&[made.totals], &mut show).unwrap();
    assert!(spool.fresh() == 0 && spool.repeated() == spool.length() && spool.length() > 2 * Flow::BYTES as u64);
    late.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    spool.flush().unwrap();
    assert!(spool.fresh() > 0 && spool.remove_oldest().unwrap());
    // Killed before their next entries.
    drop(spool);
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!(converted.flow_list, ["::1;40000-::1;5201", "10.0.0.1;40000-10.0.0.2;5201"]);
    assert_eq!([Disposition::Logged, Disposition::Forgotten].map(|one| total(&converted, Some(one))), [500, 500]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn repeated_flow_state_of_a_part_is_at_most_a_third_of_the_budget() {
    let folder = folder("too-many-flows");
    let made = made();
    let mut spool = Spool::create(&folder, HEADER).unwrap().parts_within(1 << 20);
    made.samples.iter().for_each(|sample| spool.event(0, &bytes(sample)));
    let show = |count| move |say: &mut dyn FnMut(u32, &Flow)| (0..count).for_each(|slot| say(slot, &made.flows[0]));
    let fits = (1 << 20) / 3 / (Flow::BYTES as u32 + 16) - 2;
    spool.begin_part(&[made.totals], &mut show(fits)).unwrap();
    let told = spool.begin_part(&[made.totals], &mut show(fits + 2));
    assert!(matches!(told, Err(SpoolError::Limit(_))) && spool.is_broken(), "{told:?}");
    assert_eq!((spool.parts(), spool::files(&folder).len()), ([2, 0], 2));
    fs::remove_dir_all(&folder).unwrap();
}

/// Each part repeats a quarter of the budget, has as much new content, and is written in several pieces.
#[test]
fn all_parts_together_stay_within_the_budget_while_another_begins() {
    let folder = folder("budget");
    let made = made();
    let budget = 6 << 20;
    let mut spool = Spool::create(&folder, HEADER).unwrap().parts_within(budget);
    let on_disk = || spool::files(&folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    let flows = (budget / 4) as u32 / (Flow::BYTES as u32 + 16);
    for _ in 0..6 {
        while spool.fresh() < budget / 4 {
            made.samples.iter().for_each(|sample| spool.event(0, &bytes(sample)));
            spool.flush().unwrap();
            // As the logger does in every loop.
            while spool.total() > budget && spool.remove_oldest().unwrap() {}
        }
        let mut show = |say: &mut dyn FnMut(u32, &Flow)| {
            for slot in 0..flows {
                say(slot, &made.flows[0]);
                assert!(slot % 100 > 0 || on_disk() <= budget, "{} of {budget}", on_disk());
            }
        };
        spool.begin_part(&[made.totals], &mut show).unwrap();
        assert_eq!(spool.total(), on_disk());
        assert!(spool.total() <= budget, "{} of {budget}", spool.total());
    }
    let [begun, removed] = spool.parts();
    assert!(begun == 7 && removed >= 4, "{removed} removed");
    fs::remove_dir_all(&folder).unwrap();
}

/// Write parts of 640 KiB, with filler and the samples, until all together have `bytes` bytes.
fn fill(spool: &mut Spool, made: &Made, bytes: u64) {
    loop {
        made.samples.iter().for_each(|sample| spool.event(0, &self::bytes(sample)));
        (0..9).for_each(|_| spool.note(&"x".repeat(64 << 10)));
        spool.flush().unwrap();
        if spool.total() >= bytes {
            return;
        }
        begin(spool, &[made.totals]).unwrap();
    }
}

#[test]
fn no_part_is_removed_for_a_new_part_that_exceeds_the_budget() {
    let folder = folder("too-long-to-begin");
    let made = made();
    let budget = 6 << 20;
    let mut spool = Spool::create(&folder, HEADER).unwrap().parts_within(budget);
    fill(&mut spool, &made, budget - (512 << 10));
    let (before, total) = (spool::files(&folder), spool.total());
    // Longer than a third of the budget, and written in pieces of 1 MiB, the first of which would need room.
    let flows = (budget / 3) as u32 / (Flow::BYTES as u32 + 16) + 2;
    let mut show = |say: &mut dyn FnMut(u32, &Flow)| (0..flows).for_each(|slot| say(slot, &made.flows[0]));
    let told = spool.begin_part(&[made.totals], &mut show);
    assert!(matches!(told, Err(SpoolError::Limit(_))) && spool.is_broken(), "{told:?}");
    assert_eq!((spool::files(&folder), spool.total(), spool.parts()[1]), (before, total, 0));
    fs::remove_dir_all(&folder).unwrap();
}

/// Removing the part would free less than is missing, because the disk is full of other files. With a little more room
/// it suffices.
#[test]
fn no_part_is_removed_for_a_new_part_that_a_full_disk_cannot_hold() {
    for (name, has_room) in [("no-room-to-begin", false), ("room-to-begin", true)] {
        let Some(disk) = Disk::make(folder(name), 9 << 20) else {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
            eprintln!("skipped: no file system can be mounted here");
            return;
        };
        let made = made();
        let budget = 6 << 20;
        let mut spool = Spool::create(&disk.0, HEADER).unwrap().parts_within(budget);
        fill(&mut spool, &made, budget - (1 << 20));
        let (before, total) = (spool::files(&disk.0), spool.total());
        let flows = (1_500_u32 << 10) / (Flow::BYTES as u32 + 16);
        let filler = disk.0.join("filler");
        assert!(fs::write(&filler, vec![0; 9 << 20]).is_err(), "it is full");
        if has_room {
            let length = fs::metadata(&filler).unwrap().len();
            File::options().write(true).open(&filler).unwrap().set_len(length - (1 << 20)).unwrap();
        }
        let mut show = |say: &mut dyn FnMut(u32, &Flow)| (0..flows).for_each(|slot| say(slot, &made.flows[0]));
        let told = spool.begin_part(&[made.totals], &mut show);
        if has_room {
            told.unwrap();
            assert!(spool.parts()[1] > 0 && spool.total() <= budget && !spool.is_broken());
        } else {
            assert!(matches!(told, Err(SpoolError::Full(_))) && spool.is_broken(), "{told:?}");
            assert_eq!((spool::files(&disk.0), spool.total(), spool.parts()[1]), (before, total, 0));
        }
        fs::remove_file(&filler).unwrap();
    }
}

/// The note of an interruption must not be lost with the part in which it was written.
#[test]
fn interruption_is_reported_once_whatever_parts_are_removed() {
    for removed in [0, 2] {
        let folder = folder("interrupted");
        let made = made();
        let mut spool = made.spool_open(&folder);
        spool.lasting_note(r#"{"interrupted":{"why":"a program was detached","after_ns":1,"before_ns":2}}"#);
        for _ in 0..2 {
            begin(&mut spool, &[made.totals]).unwrap();
            spool.note("kept in its part alone");
        }
        spool.flush().unwrap();
        (0..removed).for_each(|_| assert!(spool.remove_oldest().unwrap()));
        drop(spool);
        let converted = recover(&folder, &Origin::default()).unwrap();
        let told = converted.problems.iter().filter(|one| one.contains("a program was detached: what passed"));
        assert_eq!((told.count(), converted.is_conserved), (1, false), "{:?}", converted.problems);
        let notes = converted.notes.iter().filter(|note| note.contains("a program was detached"));
        assert_eq!((notes.count(), converted.notes.len()), (1, if removed > 0 { 2 } else { 3 }));
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn idle_log_does_not_grow_and_updates_its_heartbeat() {
    let folder = folder("idle");
    let made = made();
    let mut spool = made.spool_open(&folder);
    spool.flush().unwrap();
    let (path, length) = (folder.join(spool::NAME), spool.length());
    let an_hour_ago = fs::metadata(&path).unwrap().modified().unwrap() - Duration::from_hours(1);
    File::options().write(true).open(&path).unwrap().set_modified(an_hour_ago).unwrap();
    spool.totals(&[made.totals]);
    spool.flush().unwrap();
    let about = fs::metadata(&path).unwrap();
    assert_eq!((spool.length(), about.len()), (length, length));
    assert!(about.modified().unwrap() > an_hour_ago + Duration::from_mins(30));
    let mut more = made.totals;
    more.seen[0] += 1;
    spool.totals(&[more]);
    spool.flush().unwrap();
    assert!(spool.length() > length);
    fs::remove_dir_all(&folder).unwrap();
}

/// Killed at that moment, or written to but lost in a power failure.
#[test]
fn last_part_without_a_complete_header_is_counted_and_affects_no_other() {
    for (name, length) in [("just-made", 0), ("power-lost", HEADER.len() as u64)] {
        let (folder, made) = in_parts(name, 0, false);
        let last = folder.join("spool-004.tcplog");
        fs::copy(spool::files(&folder).last().unwrap(), &last).unwrap();
        File::options().write(true).open(&last).unwrap().set_len(length).unwrap();
        let converted = recover(&folder, &Origin::default()).unwrap();
        assert_eq!((converted.records, converted.is_whole), (made.samples.len() as u64, false));
        assert_eq!((converted.unread, converted.parts, converted.is_conserved), (1, 5, false));
        let told = converted.problems.iter().filter(|one| one.contains("part 4 of the log is cut within its header"));
        assert_eq!(told.count(), 1, "{:?}", converted.problems);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the records");
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Flow 1 has ended in a part that was removed, and the flight recorder had discarded three of its packets.
#[test]
fn totals_of_a_killed_log_include_flows_that_ended_in_removed_parts() {
    let folder = folder("gone-part");
    let made = made();
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    let mut forgotten = 3;
    for sample in made.samples.iter().filter(|sample| sample.slot == 1) {
        if sample.point == point::IN && forgotten > 0 {
            forgotten -= 1;
            continue;
        }
        spool.event(0, &bytes(sample));
    }
    spool.gone(1, &made.flows[1], [Tally { packets: 3, segments: 6 }, Tally::default()]);
    spool.totals(&[made.totals]);
    begin(&mut spool, &[made.totals]).unwrap();
    let rest: Vec<_> = made.samples.iter().filter(|sample| sample.slot == 0).collect();
    rest.iter().for_each(|sample| spool.event(0, &bytes(*sample)));
    spool.flow(0, &made.flows[0]);
    spool.flush().unwrap();
    assert!(spool.remove_oldest().unwrap());
    assert_eq!(spool.removed().gone, 1);
    drop(spool);
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!((converted.flows, converted.flows_removed), (1, 1));
    let [seen, logged, left, decimated] =
        [None, Some(Disposition::Logged), Some(Disposition::Forgotten), Some(Disposition::Decimated)]
            .map(|one| total(&converted, one));
    assert_eq!((seen, logged), (PACKETS, rest.len() as u64));
    assert_eq!((left, decimated), ((made.samples.len() - rest.len()) as u64, PACKETS / 2));
    // The kill is the only fault.
    assert_eq!(converted.problems.len(), 2, "{:?}", converted.problems);
    fs::remove_dir_all(folder).unwrap();
}

/// A conversion may be killed after a file was set aside and before the others are removed.
#[test]
fn renamed_file_counts_as_a_part_until_the_others_are_removed() {
    let folder = folder("set-aside");
    let [aside, part] = ["spool-000.unread", "spool-001.tcplog"].map(|name| folder.join(name));
    [&aside, &part].into_iter().for_each(|path| drop(File::create(path).unwrap()));
    assert_eq!(spool::files(&folder), [aside.clone(), part.clone()]);
    spool::discard(&folder);
    assert!(aside.exists() && !part.exists());
    assert!(spool::files(&folder).is_empty(), "no log is left");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn failure_to_remove_an_old_part_ends_writing() {
    let folder = folder("stays");
    let made = made();
    let mut spool = made.spool_open(&folder);
    spool.begin_part(&[made.totals], &mut |_| ()).unwrap();
    let oldest = spool::files(&folder).remove(0);
    fs::remove_file(&oldest).unwrap();
    fs::create_dir(&oldest).unwrap();
    assert!(spool.remove_oldest().is_err() && spool.is_broken());
    fs::remove_dir_all(&folder).unwrap();
}
