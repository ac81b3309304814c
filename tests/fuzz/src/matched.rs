//! Packets of two taps as `match-slice` reads them: its parameters as JSON, a zero byte, and packets.
//!
//! The byte after the zero selects the format of the rest: 0, packets as on the standard input; else turns of 8 bytes
//! each, from which packets are built ([`packets_of`]).

use serde_json::Value;
use sojourn_instrument::foreign;

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[Target { name: "match-slice", read: slice, seeds: slices }];

const EVENT: usize = 40;
const OUTCOME: usize = 48;
const COUNTS: u8 = 255;
const AMBIGUOUS: u8 = 16;
/// The names of outcomes among the counts; the last two belong to the tap at egress.
const NAMES: [&str; 6] = ["matched", "lost", "evicted", "pending", "duplicated", "unexpected"];

fn slice(bytes: &[u8]) {
    is_slice(bytes);
}

/// Checks that every packet has one outcome, and that the outcomes add up to the counts. Returns whether there were
/// packets.
pub fn is_slice(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else { return false };
    let (terms, rest) = (&bytes[..at], &bytes[at + 1..]);
    let packets = match rest.split_first() {
        Some((0, raw)) => raw.to_vec(),
        Some((_, turns)) => packets_of(turns),
        None => Vec::new(),
    };
    let Some(written) = foreign::slice(terms, &packets) else { return false };
    let mut told = [[0_u64; NAMES.len()]; 2];
    let mut rest = written.as_slice();
    let counts: Value = loop {
        let (outcome, behind) = rest.split_at(OUTCOME);
        let [_, _, way, what] = outcome[44..] else { unreachable!("four bytes are left") };
        if what == COUNTS {
            break serde_json::from_slice(behind).expect("counts as JSON");
        }
        told[usize::from(way)][usize::from(what & !AMBIGUOUS)] += 1;
        rest = behind;
    };
    for (way, told) in told.into_iter().enumerate() {
        let of = |name: &str| counts[way][name].as_u64().expect("a count");
        assert_eq!(told, NAMES.map(of), "{counts}");
        let came =
            |tap: u8| packets.chunks_exact(EVENT).filter(|one| (one[37], usize::from(one[38])) == (tap, way)).count();
        // Forward, packets enter at the first tap; backward, at the second.
        let [first, second] = [way as u8, 1 - way as u8].map(|tap| came(tap) as u64);
        assert_eq!(told[..4].iter().sum::<u64>(), first, "{counts}");
        assert_eq!(told[0] + told[4] + told[5], second, "{counts}");
    }
    !packets.is_empty()
}

/// Builds packets. A turn gives the tap, the direction and extreme values; the time since the last packet; how much
/// earlier its timestamp is; its digest; the number of packets without digest before it; and its length.
fn packets_of(turns: &[u8]) -> Vec<u8> {
    let mut numbers = [[0_i64; 2]; 2];
    let mut now = 0_i64;
    let packet = |turn: &[u8; 8]| {
        let [how, t0, t1, early, digest, skipped, length, note] = *turn;
        let (tap, way) = (how & 1, how >> 1 & 1);
        now += i64::from(u16::from_be_bytes([t0, t1]));
        let number = &mut numbers[usize::from(tap)][usize::from(way)];
        *number += 1 + i64::from(skipped);
        let (at, number) = match how >> 2 {
            1 => (i64::MAX, *number),
            2 => (i64::MIN + i64::from(early) + i64::from(note), *number),
            3 => (now, i64::from(skipped)),
            4 => (now, -1),
            5 => (now, *number + (1 << 40)),
            _ => (now, *number),
        };
        let words = [at, at.saturating_sub(i64::from(early)), i64::from(digest & 7), number];
        let octets = words.into_iter().flat_map(i64::to_le_bytes);
        octets.chain(u32::from(length).to_le_bytes()).chain([note, tap, way, 0]).collect::<Vec<u8>>()
    };
    turns.as_chunks::<8>().0.iter().flat_map(packet).collect()
}

fn slices() -> Vec<Vec<u8>> {
    let packets = |nth: u8| [nth % 4, 0, 90, nth % 3, nth / 4 + nth % 5 / 4, nth % 2, 60, 1];
    let packets: Vec<u8> = (0..60).flat_map(packets).collect();
    terms().map(|terms| [terms.as_bytes(), &[0, 1], &packets].concat()).to_vec()
}

fn terms() -> [&'static str; 3] {
    [
        r#"{"window_ns":1000,"ahead_ns":0,"memory_bytes":1000000,"ways":1,"last_ns":9000,"came_first_ns":[0,5],"left_last_ns":[9000,null]}"#,
        r#"{"window_ns":500,"ahead_ns":200,"memory_bytes":600,"ways":2,"last_ns":null,"came_first_ns":[null,null],"left_last_ns":[null,null]}"#,
        r#"{"window_ns":100000,"ahead_ns":5000,"memory_bytes":0,"ways":0,"last_ns":1,"came_first_ns":[7,7],"left_last_ns":[0,0]}"#,
    ]
}
