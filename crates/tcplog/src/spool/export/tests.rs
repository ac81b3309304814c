//! Sent and skipped records together are exactly those received from the rings; a cut or forged stream ends with an
//! error.

use proptest::prelude::*;

use super::super::{ArrivalError, Arrived, Arriving, Ending, Frame, LEAST_LIMIT, NAME, Reader, SpoolError};
use super::*;
use crate::decode::whole;
use crate::layout::{Sample, kind};

const HEADER: &str = r#"{"tcplog":1,"hz":250}"#;

fn sample(slot: u32, number: u64) -> Vec<u8> {
    let mut sample: Sample = whole(&vec![0; Sample::BYTES]).unwrap();
    (sample.kind, sample.slot, sample.number, sample.cookie) = (kind::SAMPLE, slot, number, u64::from(slot) + 1);
    (sample.point, sample.segments) = ((number % 2) as u8, 3);
    sample.state.snd_cwnd = number as u32;
    let mut bytes = Vec::new();
    sample.put(&mut bytes);
    bytes
}

fn flow(cookie: u64) -> Flow {
    Flow { cookie, ..Flow::take(&mut [].as_slice()) }
}

/// Take all waiting chunks, as one stream.
fn all(outbox: &Outbox) -> Vec<u8> {
    std::iter::from_fn(|| outbox.take()).flat_map(|chunk| chunk.bytes).collect()
}

fn received(stream: &[u8]) -> (Vec<Vec<u8>>, Result<Vec<u8>, ArrivalError>, u64) {
    let mut arriving = match Arriving::begin(stream) {
        Ok(arriving) => arriving,
        Err(error) => return (Vec::new(), Err(error), 0),
    };
    let mut frames = Vec::new();
    let outcome = loop {
        match arriving.next_frame() {
            Ok(Some(frame)) => frames.push(frame.to_vec()),
            Ok(None) => break Ok(arriving.footer().to_vec()),
            Err(error) => break Err(error),
        }
    };
    let records = arriving.records();
    (frames, outcome, records)
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-tcplog-export-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Return the records in a spool of these frames, the number of packets left out by its entries, and how it ends.
fn kept(name: &str, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, u64, Ending) {
    let folder = folder(name);
    let mut arrived = Arrived::create(&folder, HEADER, u64::MAX).unwrap();
    frames.iter().for_each(|frame| arrived.put(frame).unwrap());
    arrived.close().unwrap();
    let mut reader = Reader::open(&folder.join(NAME)).unwrap();
    assert_eq!(reader.header(), HEADER);
    let (mut records, mut left_out) = (Vec::new(), 0);
    while let Some(frame) = reader.next_frame().unwrap() {
        match frame {
            Frame::Events(_, all) => assert!(all.each(|bytes| records.push(bytes.to_vec()))),
            Frame::LeftOut(_, Disposition::Broken, tallies) => {
                left_out += tallies.iter().map(|tally| tally.packets).sum::<u64>();
            }
            _ => {}
        }
    }
    let ending = reader.ending().unwrap().clone();
    std::fs::remove_dir_all(folder).unwrap();
    (records, left_out, ending)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    /// The receiver reads occasionally or never: `taken` chunks after each flush.
    #[test]
    fn every_record_is_exported_or_counted_as_skipped(
        count in 0..2_000_u64, rhythm in 1..60_u64, taken in 0..2_usize, room in 1_u32..64, at_once in any::<bool>(),
    ) {
        let outbox = Arc::<Outbox>::default();
        let mut export = Export::new(HEADER, Arc::clone(&outbox)).with_room(room as usize * 1024);
        let mut stream = Vec::new();
        for number in 0..count {
            export.event((number % 3) as u32, &sample((number % 7) as u32, number));
            if number % rhythm == 0 {
                export.flush();
                (0..taken).filter_map(|_| outbox.take()).for_each(|chunk| stream.extend(chunk.bytes));
                prop_assert!(outbox.waiting().unwrap() <= room as usize * 1024 + HEADER.len() + 64);
            }
            if at_once && number == count / 2 {
                stream.extend(all(&outbox));
                export.flush();
            }
        }
        (0..7).for_each(|slot| export.gone(slot, &flow(u64::from(slot) + 1), [Tally::default(); 2]));
        export.account(&Account::default());
        export.end(r#"{"why":"signal"}"#);
        stream.extend(all(&outbox));
        prop_assert!(outbox.is_spent());
        let (frames, footer, records) = received(&stream);
        prop_assert_eq!(footer.unwrap(), br#"{"why":"signal"}"#);
        let skipped = export.skipped();
        prop_assert_eq!(export.sent() + skipped.full, count, "{:?}", skipped);
        prop_assert_eq!((records, skipped.lost, skipped.events), (export.sent(), 0, 0));
        let (records, left_out, ending) = kept("exact", &frames);
        prop_assert_eq!((records.len() as u64, left_out, ending), (export.sent(), skipped.full, Ending::Whole));
    }

    #[test]
    fn truncated_or_forged_stream_ends_with_one_sentence(cut in 0.0..1.0_f64, at in 0.0..1.0_f64, bits in 1..=255_u8) {
        let outbox = Arc::<Outbox>::default();
        let mut export = Export::new(HEADER, Arc::clone(&outbox));
        (0..50).for_each(|number| export.event(0, &sample(1, number)));
        export.note("a note");
        export.end("{}");
        let whole = all(&outbox);
        let (frames, ..) = received(&whole);
        let short = &whole[..(whole.len() as f64 * cut) as usize];
        let (kept, outcome, _) = received(short);
        prop_assert!(matches!(outcome, Err(ArrivalError::Cut(_))), "{:?}", outcome);
        prop_assert!(kept.len() < frames.len() && frames.starts_with(&kept));
        let mut forged = whole.clone();
        let at = (whole.len() as f64 * at) as usize;
        forged[at] ^= bits;
        let (kept, outcome, _) = received(&forged);
        prop_assert!(outcome.is_err() && frames.starts_with(&kept), "{at}: {outcome:?}");
    }
}

#[test]
fn all_records_are_received_unchanged() {
    let outbox = Arc::<Outbox>::default();
    let mut export = Export::new(HEADER, Arc::clone(&outbox));
    let records: Vec<_> = (0..3_000).map(|number| sample((number % 5) as u32, number)).collect();
    records.iter().for_each(|record| export.event(1, record));
    export.end("{}");
    let (frames, outcome, _) = received(&all(&outbox));
    outcome.unwrap();
    let (there, left_out, ending) = kept("as-it-was", &frames);
    assert_eq!((there, left_out, ending), (records, 0, Ending::Whole));
}

#[test]
fn records_queued_at_or_after_connection_loss_are_skipped() {
    let outbox = Arc::<Outbox>::default();
    let mut export = Export::new(HEADER, Arc::clone(&outbox));
    let send = |export: &mut Export, from: u64| {
        (from..from + 10).for_each(|number| export.event(0, &sample(1, number)));
        export.flush();
    };
    send(&mut export, 0);
    let handed = all(&outbox);
    send(&mut export, 10);
    outbox.lose("broken pipe");
    outbox.lose("another");
    send(&mut export, 20);
    send(&mut export, 30);
    export.account(&Account::default());
    export.end("{}");
    let skipped = export.skipped();
    assert_eq!((export.sent(), skipped.full, skipped.lost), (10, 0, 30));
    assert_eq!((outbox.lost().as_deref(), outbox.is_spent()), (Some("broken pipe"), true));
    let (_, outcome, records) = received(&handed);
    assert!(matches!(outcome, Err(ArrivalError::Cut(1))), "{outcome:?}");
    assert_eq!(records, 10);
}

/// Totals alone are not sent: their packet would be counted and change the next totals.
#[test]
fn no_export_without_new_records() {
    let outbox = Arc::<Outbox>::default();
    let mut export = Export::new(HEADER, Arc::clone(&outbox));
    let totals = |number| [Totals { number, ..Totals::take(&mut [].as_slice()) }];
    export.totals(&totals(1));
    export.flush();
    assert!(!all(&outbox).is_empty());
    export.totals(&totals(2));
    export.flush();
    assert!(all(&outbox).is_empty());
    export.event(0, &sample(1, 1));
    export.totals(&totals(3));
    export.flush();
    assert!(!all(&outbox).is_empty());
}

/// A stalled receiver must not fill memory with ended flows.
#[test]
fn queued_flow_end_records_are_bounded_and_dropped_ones_counted() {
    let outbox = Arc::<Outbox>::default();
    let mut export = Export::new(HEADER, Arc::clone(&outbox)).with_room(64 << 10);
    for slot in 0..20_000 {
        export.gone(slot, &flow(u64::from(slot) + 1), [Tally::default(); 2]);
        export.flush();
    }
    assert!(outbox.waiting().unwrap() <= (64 << 10) + LAST_WORDS + 2 * RECORD);
    assert!(export.unrecorded > 10_000, "{}", export.unrecorded);
}

#[test]
fn claimed_length_allocates_no_memory_and_too_long_frames_are_refused() {
    let outbox = Arc::<Outbox>::default();
    drop(Export::new(HEADER, Arc::clone(&outbox)));
    let beginning = all(&outbox);
    for (length, sentence) in [(u32::MAX, "a frame is longer than any"), (8 << 20, "the log has no end")] {
        let mut stream = beginning.clone();
        [frame::NOTE, 0, length, 0].put(&mut stream);
        let (_, outcome, _) = received(&stream);
        let told = outcome.unwrap_err().to_string();
        assert!(told.contains(sentence), "{told}");
    }
    let mut long = beginning;
    long[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert!(received(&long).1.unwrap_err().to_string().contains("header is longer"));
}

#[test]
fn received_spool_stays_within_its_limit() {
    let folder = folder("limit");
    let mut arrived = Arrived::create(&folder, HEADER, LEAST_LIMIT).unwrap();
    let refused = std::iter::repeat_with(|| arrived.put(&[7; 1_000])).find_map(Result::err).unwrap();
    assert!(matches!(refused, SpoolError::Limit(_)), "{refused}");
    assert!(std::fs::metadata(folder.join(NAME)).unwrap().len() <= LEAST_LIMIT);
    std::fs::remove_dir_all(folder).unwrap();
}
