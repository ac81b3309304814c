//! `match-slice`: reads packets of a range of digests and writes their outcomes, for a program that divides captures over machines.
//!
//! Both are little-endian records of fixed length without a header; the Python side is `sojourn.instruments.slices`.
//! The last record is followed by the slice's counters as JSON.

use std::io::{self, BufWriter, Read, Write};

use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use sojourn_matcher::{Arrival, Ends, Limits, Observed, Outcome, Slice, Tap, Way};
use sojourn_rights::table::MATCH;

use super::summary;
use crate::failure::WrongRequest;

/// A packet: at, time, digest, number; length; note, tap, way, nothing.
const EVENT: usize = 4 * 8 + 4 + 4;
/// What became of it: number, rank, time, second time, digest; length; note, second note, way, what.
const OUTCOME: usize = 5 * 8 + 4 + 4;
/// Packets that are taken at once.
const BATCH: usize = 1 << 12;
/// The matcher's own word for a packet that the other tap has not seen.
const UNTIMED: i64 = i64::MIN;
/// No number is larger: outcomes have numbers with a sign.
const MOST_NUMBER: u64 = i64::MAX.unsigned_abs();
/// Of what a packet has none of.
const NONE: i64 = -1;
const MATCHED: u8 = 0;
const AMBIGUOUS: u8 = 16;
/// What follows is the counts, so many octets as the number says.
const COUNTS: u8 = 255;

/// Match a slice: as a program asks for it.
#[derive(Debug, Args)]
pub struct MatchSlice {
    /// The terms, as JSON
    pub terms: String,
}

/// What is known of all slices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    window_ns: i64,
    ahead_ns: i64,
    memory_bytes: usize,
    ways: usize,
    last_ns: Option<i64>,
    came_first_ns: [Option<i64>; 2],
    left_last_ns: [Option<i64>; 2],
}

/// Matches what comes on the standard input, in the order of both taps.
///
/// # Errors
/// When it is no packet, or cannot be read or written.
pub fn run(asked: &MatchSlice) -> anyhow::Result<()> {
    let terms = Terms::read(asked.terms.as_bytes())?;
    MATCH.confine()?;
    matched(&terms, io::stdin().lock(), BufWriter::with_capacity(1 << 16, io::stdout().lock()))
}

impl Terms {
    /// Reads them.
    ///
    /// # Errors
    /// When they are none.
    pub fn read(text: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(text).map_err(|error| WrongRequest(format!("terms: {error}")).into())
    }
}

/// Matches packets that are read, and writes what became of each.
///
/// # Errors
/// When they are none, or cannot be read or written.
pub fn matched(terms: &Terms, mut input: impl Read, mut output: impl Write) -> anyhow::Result<()> {
    let limits = Limits { window: terms.window_ns, ahead: terms.ahead_ns, memory: terms.memory_bytes };
    let ends = Ends { last: terms.last_ns, came_first: terms.came_first_ns, left_last: terms.left_last_ns };
    let mut slice = Slice::new(limits, terms.ways);
    slice.lies_within(&ends);
    let mut octets = vec![0; BATCH * EVENT];
    // The lower limit of the next packet number of each tap and direction.
    let mut least = [[0_u64; 2]; 2];
    let (mut told, mut arrivals): (Vec<(Way, Outcome)>, Vec<Arrival>) = (Vec::new(), Vec::new());
    loop {
        let read = fill(&mut input, &mut octets).context("read packets")?;
        if read % EVENT != 0 {
            return Err(WrongRequest("the last packet is cut".to_owned()).into());
        }
        for event in octets[..read].chunks_exact(EVENT) {
            let (tap, way, seen, number) = packet(event)?;
            if seen.time == UNTIMED {
                return Err(WrongRequest(format!("packet {number} has no time")).into());
            }
            let least = &mut least[usize::from(tap == Tap::Second)][usize::from(way == Way::Backward)];
            if number > MOST_NUMBER {
                return Err(WrongRequest(format!("packet {number} has a number that no record has")).into());
            }
            if number < *least {
                return Err(WrongRequest(format!("packet {number} is not behind the one before it")).into());
            }
            *least = number + 1;
            slice.push(tap, way, &seen, number, &mut |way, outcome| told.push((way, outcome)));
        }
        if read < octets.len() {
            slice.end(&ends, &mut |way, outcome| told.push((way, outcome)));
        }
        for (way, outcome) in told.drain(..) {
            let octets = octets_of(&mut slice, way, &outcome);
            output.write_all(&octets).context("write what became of packets")?;
        }
        // The merging program has the ranks of matched packets, and needs no others.
        [Way::Forward, Way::Backward].into_iter().for_each(|way| slice.arrivals(way, &mut arrivals));
        arrivals.clear();
        if read < octets.len() {
            break;
        }
    }
    let counts = [Way::Forward, Way::Backward].map(|way| summary::of_counts(&slice.counts(way)));
    let counts = json!(counts).to_string();
    output.write_all(&record([counts.len() as i64, NONE, NONE, NONE, NONE], 0, [0, 0, 0, COUNTS]))?;
    output.write_all(counts.as_bytes())?;
    output.flush().context("write what became of packets")
}

/// Reads as much as there is room for, or is left.
fn fill(input: &mut impl Read, octets: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < octets.len() {
        match input.read(&mut octets[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn packet(octets: &[u8]) -> anyhow::Result<(Tap, Way, Observed, u64)> {
    let word = |place: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&octets[8 * place..8 * place + 8]);
        u64::from_le_bytes(word)
    };
    let length = u32::from_le_bytes([octets[32], octets[33], octets[34], octets[35]]);
    let (tap, way) = match (octets[37], octets[38]) {
        (tap @ (0 | 1), way @ (0 | 1)) => (tap, way),
        _ => return Err(WrongRequest("there are two taps and two directions".to_owned()).into()),
    };
    let (at, time) = (word(0).cast_signed(), word(1).cast_signed());
    let seen = Observed { at, time, digest: word(2), length, note: octets[36] };
    let way = if way == 0 { Way::Forward } else { Way::Backward };
    Ok((if tap == 0 { Tap::First } else { Tap::Second }, way, seen, word(3)))
}

fn octets_of(slice: &mut Slice, way: Way, outcome: &Outcome) -> [u8; OUTCOME] {
    let alone = |number: Option<u64>, seen: &Observed, what: u8| {
        let number = number.map_or(NONE, u64::cast_signed);
        let words = [number, NONE, seen.time, NONE, seen.digest.cast_signed()];
        record(words, seen.length, [seen.note, 0, (way == Way::Backward).into(), what])
    };
    match outcome {
        Outcome::Matched { seen, number, second, second_note, is_ambiguous, extent } => {
            let rank = slice.rank(way, *extent).cast_signed();
            let what = MATCHED + if *is_ambiguous { AMBIGUOUS } else { 0 };
            let words = [number.cast_signed(), rank, seen.time, *second, seen.digest.cast_signed()];
            record(words, seen.length, [seen.note, *second_note, (way == Way::Backward).into(), what])
        }
        Outcome::Lost { seen, number } => alone(Some(*number), seen, 1),
        Outcome::Evicted { seen, number } => alone(Some(*number), seen, 2),
        Outcome::Pending { seen, number } => alone(Some(*number), seen, 3),
        Outcome::Duplicated(seen) => alone(None, seen, 4),
        Outcome::Unexpected(seen) => alone(None, seen, 5),
    }
}

fn record(words: [i64; 5], length: u32, last: [u8; 4]) -> [u8; OUTCOME] {
    let mut octets = [0; OUTCOME];
    for (place, word) in words.into_iter().enumerate() {
        octets[8 * place..8 * place + 8].copy_from_slice(&word.to_le_bytes());
    }
    octets[40..44].copy_from_slice(&length.to_le_bytes());
    octets[44..].copy_from_slice(&last);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: &[u8] = br#"{"window_ns":9,"ahead_ns":0,"memory_bytes":0,"ways":1,"last_ns":null,"came_first_ns":[null,null],"left_last_ns":[null,null]}"#;

    fn sentence(packets: &[[i64; 4]]) -> String {
        let octets = |[at, digest, number, tap]: &[i64; 4]| {
            let words = [*at, *at, *digest, *number].into_iter().flat_map(i64::to_le_bytes);
            words.chain([60, 0, 0, 0, 0, *tap as u8, 0, 0]).collect::<Vec<u8>>()
        };
        let packets: Vec<u8> = packets.iter().flat_map(octets).collect();
        let mut written = Vec::new();
        let done = Terms::read(TERMS).and_then(|terms| matched(&terms, packets.as_slice(), &mut written));
        done.err().map_or(String::new(), |error| error.to_string())
    }

    /// They stopped the program by an overflow, or were counted nowhere.
    #[test]
    fn packets_with_decreasing_numbers_or_without_a_time_are_refused() {
        assert_eq!(sentence(&[[1, 7, 5, 0], [2, 7, 9, 1], [3, 8, 10, 1]]), "");
        assert_eq!(sentence(&[[1, 7, 0, 0], [2, 7, 9, 1], [3, 8, 3, 1]]), "packet 3 is not behind the one before it");
        assert_eq!(sentence(&[[1, 7, -1, 0]]), format!("packet {} has a number that no record has", u64::MAX));
        assert_eq!(sentence(&[[1, 7, 0, 0], [i64::MIN, 7, 0, 1]]), "packet 0 has no time");
        assert!(Terms::read(b"{}").is_err_and(|error| error.to_string().starts_with("terms: missing field")));
    }
}
