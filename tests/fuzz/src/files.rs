//! Captures, and the files that a pipe names: traces, distributions, profiles, patterns.

use std::fs;
use std::path::Path;

use sojourn_emulate::config::files::{distribution, pattern, profile, trace};
use sojourn_port::pcap::{Capture, LONGEST_FRAME_BYTES, NgWriter, Writer};
use sojourn_time::Time;

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "capture", read: capture, seeds: captures },
    Target { name: "pipe-file", read: pipe_file, seeds: pipe_files },
];

fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::new(bytes) else { return };
    let mut frame = Vec::new();
    // As many records as there are bytes can there not be.
    for _ in 0..=bytes.len() {
        match capture.next(&mut frame) {
            Ok(Some(_)) => assert!(frame.len() <= LONGEST_FRAME_BYTES as usize),
            _ => return,
        }
    }
    unreachable!("a capture of {} bytes does not end", bytes.len());
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

/// These bytes as a file, in memory where there is a file system for it.
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
