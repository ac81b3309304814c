//! Captures, and the files that a pipe refers to: traces, distributions, profiles, patterns.

use std::fs;
use std::io::Write;
use std::panic;
use std::path::Path;
use std::sync::OnceLock;

use sojourn_emulate::config::files::{distribution, pattern, profile, trace};
use sojourn_port::pcap::{Capture, Frames, LONGEST_FRAME_BYTES, NgWriter, Writer, unpacked};
use sojourn_record::tap::{TapCounts, Tapped};
use sojourn_record::{Origin, TapAbout, TapFolder, TapReader};
use sojourn_time::{Source, Stamp, Time};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "capture", read: captured, seeds: all_captures },
    Target { name: "taps", read: taps, seeds: tap_files },
    Target { name: "pipe-file", read: pipe_file, seeds: pipe_files },
];

/// The two ways to read a capture, with one parser below both.
fn captured(bytes: &[u8]) {
    capture(bytes);
    frames(bytes);
}

/// Stops at the first frame that is damaged or not of Ethernet.
fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::new(bytes) else { return };
    let mut frame = Vec::new();
    // There cannot be more records than bytes.
    for _ in 0..=bytes.len() {
        match capture.next(&mut frame) {
            Ok(Some(_)) => assert!(frame.len() <= LONGEST_FRAME_BYTES as usize),
            _ => return,
        }
    }
    unreachable!("a capture of {} bytes does not end", bytes.len());
}

/// Reads as much as possible, decompressed if needed.
fn frames(bytes: &[u8]) {
    /// Decompressed data may be far longer; a limit keeps a search fast.
    const MOST: usize = 1 << 16;
    let Ok(input) = unpacked(bytes) else { return };
    let Ok(mut frames) = Frames::new(input) else { return };
    let mut frame = Vec::new();
    for _ in 0..MOST {
        let Some(taken) = frames.next(&mut frame) else { break };
        assert!(frame.len() <= LONGEST_FRAME_BYTES as usize + 14);
        assert!((taken.interface as usize) < frames.interfaces().len());
    }
}

/// The packets of a tap, and its counters, which are another file.
///
/// The reader catches arrow-ipc's panics, which a search would count as findings: the hook suppresses them.
fn taps(bytes: &[u8]) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    with_file(bytes, |path| {
        let Ok(mut reader) = TapReader::open(path) else { return };
        while let Ok(true) = reader.next(5, |row| {
            std::hint::black_box(row);
        }) {}
    });
    is_tap_counts(bytes);
    panic::set_hook(hook);
}

/// Whether these bytes, as the file of counters beside a tap's packets, say how many the tap dropped.
pub fn is_tap_counts(bytes: &[u8]) -> bool {
    let mut is_told = false;
    with_file(EMPTY_TAP.get_or_init(empty_tap), |path| {
        let (Some(folder), taps) = (path.parent(), path.with_file_name("taps-a-000.arrow")) else { return };
        let is_laid =
            fs::rename(path, &taps).is_ok() && fs::write(folder.join("tap_counts-a-000.arrow"), bytes).is_ok();
        is_told = is_laid && TapReader::open(&taps).is_ok_and(|mut reader| reader.dropped().is_some());
    });
    is_told
}

/// A tap's file without packets.
static EMPTY_TAP: OnceLock<Vec<u8>> = OnceLock::new();

fn empty_tap() -> Vec<u8> {
    written_tap(&[]).map(|[taps, _]| taps).unwrap_or_default()
}

fn pipe_file(bytes: &[u8]) {
    with_file(bytes, |path| {
        let _ = distribution::table("foreign", path);
        let _ = distribution::empirical(path);
        let _ = pattern::read(path);
        let _ = profile::read(path);
        for name in ["trace", "mahimahi", "csv"] {
            let _ = trace::read(path, name);
        }
    });
}

/// Writes the bytes to a file, in memory where there is a file system for it.
pub(crate) fn with_file(bytes: &[u8], look: impl FnOnce(&Path)) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let Ok(folder) = folder else { return };
    let path = folder.path().join("foreign");
    if fs::write(&path, bytes).is_ok() {
        look(&path);
    }
}

fn captures() -> Vec<Vec<u8>> {
    let at = Time(1_700_000_000_000_000_000);
    let old = Writer::new(Vec::new()).and_then(|mut writer| {
        writer.write(at, &[1; 60])?;
        writer.write(at, &[2; 90])?;
        writer.finish()
    });
    let new = NgWriter::new(Vec::new()).and_then(|mut writer| {
        writer.write(at, &[1; 60])?;
        writer.write_cut(at, &[2; 61], 1514)?;
        writer.finish()
    });
    old.into_iter().chain(new).collect()
}

/// Plain captures, one with two interfaces of other link types and all options, and each of them compressed.
fn all_captures() -> Vec<Vec<u8>> {
    let block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let total = (12 + padded as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &total, body, &vec![0; padded - body.len()], &total].concat()
    };
    let several = [
        block(0x0A0D_0D0A, &[&[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0][..], &[0xFF; 8]].concat()),
        block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, b'e', b't', b'h', 0, 9, 0, 1, 0, 9, 0, 0, 0, 13, 0, 1, 0, 4]),
        block(1, &[20, 1, 0, 0, 0, 0, 0, 0, 14, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        block(6, &[&[0; 12][..], &[8, 0, 0, 0, 8, 0, 0, 0], &[7; 8], &[2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]].concat()),
        block(6, &[&[1, 0, 0, 0][..], &[0; 8], &[24, 0, 0, 0, 24, 0, 0, 0], &[8, 0], &[4; 22]].concat()),
        block(5, &[&[0; 12][..], &[5, 0, 8, 0], &[9; 8], &[0; 4]].concat()),
        block(3, &[1, 0, 0, 0, 9, 0, 0, 0]),
    ];
    let plain: Vec<Vec<u8>> = captures().into_iter().chain([several.concat()]).collect();
    let packed = plain.iter().flat_map(|bytes| [gzip(bytes), zstd(bytes), lz4(bytes)]);
    packed.flatten().chain(plain.iter().cloned()).collect()
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest))
}

fn lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn tap_files() -> Vec<Vec<u8>> {
    let row = |number: u32| Tapped {
        at: Stamp { at: Time(number.into()), source: Source::Kernel },
        digest: (number > 2).then_some(number.into()),
        length_bytes: number,
        direction: [None, Some("in"), Some("out")][number as usize % 3],
        is_fragment: number == 3,
        is_super_packet: number == 4,
        is_truncated: number == 5,
    };
    written_tap(&(0..7).map(row).collect::<Vec<_>>()).into_iter().flatten().collect()
}

/// The files of a tap: its packets and its counters.
fn written_tap(rows: &[Tapped]) -> Option<[Vec<u8>; 2]> {
    let folder = tempfile::tempdir().ok()?;
    let about = TapAbout { key: "bridge".to_owned(), ..TapAbout::default() };
    let mut files = TapFolder::create(folder.path(), ("a", "000"), &about, &Origin::default()).ok()?;
    files.write(rows).ok()?;
    files.finish(&TapCounts { seen: 9, dropped: 2, ..TapCounts::default() }).ok()?;
    let [taps, counts] = ["taps", "tap_counts"].map(|name| fs::read(folder.path().join(format!("{name}-a-000.arrow"))));
    Some([taps.ok()?, counts.ok()?])
}

fn pipe_files() -> Vec<Vec<u8>> {
    [
        "# mean sigma\n-32768 0 17 8192\n32767\n",
        "0.0 1ms\n0.5 2ms\n1.0 9ms\n",
        "0\n12\n12\n25\n",
        "time rate\n0s 10Mbit/s\n1.5s 3Mbit/s\n",
        "0,1000000\n250,2000000\n",
        "name lte\nsamples 3\nbw 10Mbit/s\nloss-level 0.9\nprob delay\n0.0 0.1\n0.5 0.2\n1.0 0.8\n",
        "0101 1110\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
