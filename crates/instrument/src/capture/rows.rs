//! What is recorded of a frame, and what the records of a tap say of it. Whoever takes them writes them, or matches them at once.

use std::fs;
use std::path::Path;

use sojourn_capture::{Passed, Seen};
use sojourn_port::pcap::Direction;
use sojourn_record::TapAbout;
use sojourn_record::tap::Tapped;
use sojourn_wire::digest::Key;

use crate::stream::host;

const KERNEL: &str = "/proc/sys/kernel";

/// Returns what is recorded of a frame.
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

/// Returns what the records of a tap say of it.
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

/// Returns what the kernel says of this host; nothing where it does not.
pub fn kernel(file: &str) -> String {
    fs::read_to_string(Path::new(KERNEL).join(file)).unwrap_or_default().trim().to_owned()
}
