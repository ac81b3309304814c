//! Log files of unknown origin: tcplog's spool, the kernel's type information.

use std::path::Path;
use std::sync::Arc;

use sojourn_record::Origin;
use sojourn_tcplog::account::Account;
use sojourn_tcplog::decode;
use sojourn_tcplog::private::PrivateNames;
use sojourn_tcplog::private::btf::Btf;
use sojourn_tcplog::spool::{Arrived, Arriving, Export, Frame, Outbox, Reader, Spool, greeted, kept};
use sojourn_tcplog::tables::{self, Job};

use crate::Target;
use crate::files::with_file;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "spool", read: spool, seeds: spools },
    Target { name: "log-stream", read: stream, seeds: streams },
    Target { name: "btf", read: btf, seeds: types },
];

/// A log from another host, up to its records; checksums are corrected first. What a receiver says before and after.
fn stream(bytes: &[u8]) {
    if let Some(said) = bytes.first_chunk() {
        let _ = greeted(said, "boot");
    }
    if let Some(said) = bytes.first_chunk() {
        let _ = kept(said);
    }
    let bytes = sealed(bytes);
    let Ok(mut arriving) = Arriving::begin(bytes.as_slice()) else { return };
    with_file(&[], |path| {
        let Some(folder) = path.parent() else { return };
        let Ok(mut arrived) = Arrived::create(folder, arriving.header(), bytes.len() as u64 + 1024) else { return };
        let mut kept = 0;
        while let Ok(Some(frame)) = arriving.next_frame() {
            kept += frame.len();
            arrived.put(frame).expect("there is room");
        }
        assert!(kept + arriving.header().len() + arriving.footer().len() <= bytes.len());
        assert!(arriving.records() <= bytes.len() as u64);
        arrived.close().expect("it can be closed");
        // A log without an end is converted too, but that is slow.
        if arriving.is_whole() {
            records(folder, arriving.records());
        }
    });
}

/// Converts received frames to records: no more than were received, whatever the frames state.
fn records(folder: &Path, came: u64) {
    let origin = Origin {
        instrument: String::new(),
        profile: String::new(),
        is_simulated: true,
        clock: None,
        about: Vec::new(),
    };
    let job = Job { folder, records: folder, who: "logger", part: 0, block: 0, origin: &origin };
    if let Ok((converted, _)) = tables::convert(&job) {
        assert!(converted.records + converted.privates <= came, "{converted:?} of {came}");
    }
}

fn streams() -> Vec<Vec<u8>> {
    let outbox = Arc::<Outbox>::default();
    let mut export = Export::new("{\"tcplog\":1,\"hz\":250}", Arc::clone(&outbox));
    for cpu in 0..2 {
        samples().iter().for_each(|event| export.event(cpu, event));
    }
    export.note("a note");
    export.account(&Account::default());
    export.end("{\"why\":\"signal\"}");
    vec![std::iter::from_fn(|| outbox.take()).flat_map(|chunk| chunk.bytes).collect()]
}

/// The frames' checksums are corrected first; each record of a frame, of any bytes and length, is decoded.
fn spool(bytes: &[u8]) {
    with_file(&sealed(bytes), |path| {
        let Ok(mut reader) = Reader::open(path) else { return };
        let (mut frames, mut events) = (0, 0);
        while let Ok(Some(frame)) = reader.next_frame() {
            frames += 1;
            if let Frame::Events(_, records) = frame {
                records.each(|record| {
                    let _ = decode(record);
                    events += 1;
                });
            }
        }
        assert!(frames <= bytes.len(), "{frames} frames in {} bytes", bytes.len());
        assert!(reader.ending().is_some());
    });
}

const FIXED_BYTES: usize = 16;
const FRAME_HEADER_BYTES: usize = 16;

/// Recomputes the checksums of a spool's header and of each frame, as far as the lengths are valid.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(|word| u32::from_ne_bytes(word) as usize)
    };
    let Some(length) = word(&bytes, 12) else { return bytes };
    let mut at = FIXED_BYTES + length;
    let Some(text) = bytes.get(FIXED_BYTES..at) else { return bytes };
    let sum = crc32fast::hash(text);
    let Some(place) = bytes.get_mut(at..at + 4) else { return bytes };
    place.copy_from_slice(&sum.to_ne_bytes());
    at += 4;
    while let Some(length) = word(&bytes, at + 8) {
        let end = at + FRAME_HEADER_BYTES + length;
        let Some(payload) = bytes.get(at + FRAME_HEADER_BYTES..end) else { break };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[at..at + 12]);
        hasher.update(payload);
        let sum = hasher.finalize();
        bytes[at + 12..at + 16].copy_from_slice(&sum.to_ne_bytes());
        at = end;
    }
    bytes
}

fn spools() -> Vec<Vec<u8>> {
    let written = || {
        let folder = tempfile::tempdir().ok()?;
        let mut spool = Spool::create(folder.path(), "{\"hello\":1}").ok()?;
        for cpu in 0..2 {
            for event in samples() {
                spool.event(cpu, &event);
            }
        }
        spool.note("a note");
        spool.flush().ok()?;
        spool.end().ok()?;
        std::fs::read(folder.path().join(sojourn_tcplog::spool::NAME)).ok()
    };
    written().into_iter().collect()
}

fn samples() -> Vec<Vec<u8>> {
    (1..4_u8).map(|kind| [vec![kind], vec![7; 191]].concat()).collect()
}

fn btf(bytes: &[u8]) {
    thread_local! { static FOLDER: Option<tempfile::TempDir> = tempfile::tempdir().ok(); }
    let Ok(found) = Btf::parse(bytes.to_vec(), None) else { return };
    let _ = found.members("cubictcp", 1 << 16);
    let mut names = FOLDER.with(|folder| {
        let folder = folder.as_ref().expect("there is a folder").path();
        std::fs::write(folder.join("vmlinux"), bytes).expect("it can be written");
        PrivateNames::of_folder(folder)
    });
    for algorithm in ["cubic", "bbr", "reno", "x"] {
        names.decode(algorithm.as_bytes(), &[3; sojourn_tcplog::layout::PRIVATE_BYTES], &mut |_, _| {});
    }
}

/// A structure `bictcp` of two numbers.
fn types() -> Vec<Vec<u8>> {
    let strings = b"\0u32\0bictcp\0cnt\0last_cwnd\0";
    let types: Vec<u32> = [
        [1, 1 << 24, 4, 32].to_vec(),                      // an integer of 32 bits
        [5, 4 << 24 | 2, 8, 12, 1, 0, 16, 1, 32].to_vec(), // a structure with two members
    ]
    .concat();
    let head: [u32; 5] = [24, 0, types.len() as u32 * 4, types.len() as u32 * 4, strings.len() as u32];
    let mut bytes = vec![0x9F, 0xEB, 1, 0];
    head.iter().chain(&types).for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(strings);
    vec![bytes]
}
