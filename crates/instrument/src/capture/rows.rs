//! Records of frames, and the metadata of a tap's records. The caller writes them, or matches them immediately.

use std::fs;
use std::path::Path;

use sojourn_capture::{Passed, Seen};
use sojourn_port::pcap::Direction;
use sojourn_record::TapAbout;
use sojourn_record::tap::Tapped;
use sojourn_wire::digest::Key;

use crate::stream::host;

const KERNEL: &str = "/proc/sys/kernel";

/// Returns the record of a frame.
pub fn row(passed: &Passed<'_>, seen: &Seen<'_>) -> Tapped {
    Tapped {
        at: passed.at,
        digest: seen.digest.map(|digest| digest.value),
        length_bytes: u32::try_from(passed.length).unwrap_or(u32::MAX),
        direction: Some(match passed.direction {
            Direction::In => "in",
            Direction::Out => "out",
        }),
        is_fragment: seen.is_fragment,
        is_super_packet: passed.is_super,
        is_truncated: seen.digest.is_some_and(|digest| digest.is_truncated),
    }
}

/// Returns the metadata of a tap's records.
pub fn about(tap: &str, interface: &str, key: Key) -> TapAbout {
    TapAbout {
        tap: tap.to_owned(),
        interface: interface.to_owned(),
        host: kernel("hostname"),
        key: key.name().to_owned(),
        most: None,
        clock_id: host::clock_id(),
    }
}

/// Returns a value from `/proc/sys/kernel`; empty if it cannot be read.
pub fn kernel(file: &str) -> String {
    fs::read_to_string(Path::new(KERNEL).join(file)).unwrap_or_default().trim().to_owned()
}
