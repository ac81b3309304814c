//! Logs of several parts, of which the oldest are removed, cut or missing.

use super::*;

/// Writes a log of several parts, of which the oldest are removed while it is written; what is left of it.
fn in_parts(name: &str, remove: usize, ends: bool) -> (PathBuf, Made) {
    let folder = folder(name);
    let mut made = made();
    let mut spool = Spool::create(&folder, HEADER).unwrap();
    for (place, sample) in made.samples.iter().enumerate() {
        if place > 0 && place % 250 == 0 {
            spool.begin_part(&[]).unwrap();
        }
        spool.event((place % 3) as u32, &bytes(sample));
    }
    assert_eq!(spool.parts(), [4, 0]);
    spool.flush().unwrap();
    let total = spool.total();
    let on_disk = spool::files(&folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    assert_eq!((total, spool::files(&folder).len()), (on_disk, 4));
    (0..remove).for_each(|_| assert!(spool.remove_oldest().unwrap()));
    assert_eq!((spool.parts(), spool::files(&folder).len()), ([4, remove as u64], 4 - remove));
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
fn what_the_oldest_parts_had_is_counted_when_they_are_removed() {
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
fn a_part_that_somebody_else_removed_or_cut_is_found() {
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
    assert!(!converted.is_conserved && converted.problems.iter().any(|one| one.contains("part 1 of the log lacks")));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_part_that_was_only_just_made_when_the_log_was_killed_takes_nothing_away() {
    let (folder, made) = in_parts("just-made", 0, false);
    File::create(folder.join("spool-004.tcplog")).unwrap();
    let converted = recover(&folder, &Origin::default()).unwrap();
    assert_eq!((converted.records, converted.is_whole), (made.samples.len() as u64, false));
    fs::remove_dir_all(folder).unwrap();
}

/// Flow 1 has ended in a part that was removed, and the flight recorder had forgotten three of its packets.
#[test]
fn flows_that_ended_in_a_removed_part_stay_in_the_totals_of_a_killed_log() {
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
    spool.begin_part(&[made.totals]).unwrap();
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
    // Nothing is odd but that it was killed.
    assert_eq!(converted.problems.len(), 2, "{:?}", converted.problems);
    fs::remove_dir_all(folder).unwrap();
}
