//! What a tap keeps of captured frames: truncated bytes, headers only, and headers with anonymised addresses.

use sojourn_capture::headers::{Anonymiser, length};
use sojourn_capture::{Asked, Observer, Passed};
use sojourn_port::pcap::Direction;
use sojourn_time::{Source, Stamp, Time};
use sojourn_wire::Layers;
use sojourn_wire::digest::Key;

use crate::Target;
use crate::frames::frames;

pub(crate) const TARGETS: &[Target] = &[Target { name: "headers", read: headers, seeds: all_frames }];

const MACS: usize = 12;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The first byte gives the anonymisation key, the next the snapshot length, the third how much longer the frame was.
fn headers(bytes: &[u8]) {
    let Some(([of, snap, more], frame)) = bytes.split_first_chunk::<3>() else { return };
    let (snap, wire) = (usize::from(*snap), frame.len() + usize::from(*more));
    let headers = length(frame);
    assert!(headers <= frame.len());
    for key in [None, Some(Key::Bridge), Some(Key::Nat)] {
        for (headers_only, hidden) in [(false, None), (true, None), (true, Anonymiser::new(octets_of(*of)))] {
            let mut observer = Observer::new(Asked { key, snap, headers_only });
            let is_hidden = hidden.is_some();
            if let Some(anonymiser) = hidden {
                observer.anonymise(anonymiser);
            }
            let at = Stamp { at: Time(5), source: Source::Kernel };
            let passed = Passed { frame, length: wire, at, realtime: at.at, direction: Direction::In, is_super: false };
            let kept = observer.observe(&passed).kept.to_vec();
            assert!(kept.len() <= snap.min(if headers_only { headers } else { frame.len() }));
            assert!(is_hidden || frame.starts_with(&kept));
            let counts = observer.counts();
            assert_eq!((counts.seen(), counts.octets_in), (1, wire as u64));
            assert_eq!(counts.cut, u64::from(kept.len() < wire));
        }
    }
    anonymised(*of, frame);
}

/// An anonymisation key with unequal halves.
fn octets_of(of: u8) -> [u8; 32] {
    let mut octets = [of; 32];
    octets[31] = !of;
    octets
}

/// Only headers remain; equal addresses stay equal everywhere, different ones stay different, and a common prefix of
/// two keeps its length.
fn anonymised(of: u8, frame: &[u8]) {
    let Some(mut anonymiser) = Anonymiser::new(octets_of(of)) else { return };
    let mut hide = |frame: &[u8]| {
        let mut to = Vec::new();
        anonymiser.headers(frame, &mut to);
        to
    };
    let to = hide(frame);
    assert_eq!(to, hide(frame));
    assert!(to.len() <= length(frame));
    let (layers, hidden) = (Layers::of(frame), Layers::of(&to));
    assert_eq!((hidden.ethertype, hidden.network, hidden.vlan), (layers.ethertype, layers.network, layers.vlan));
    if to.len() >= MACS {
        for at in [0, 6] {
            let [was, is] = [&frame[at..at + 6], &to[at..at + 6]];
            assert_eq!(was[0] & 1, is[0] & 1);
            assert!(if was == [0xFF; 6] { is == was } else { is[0] & 2 == 2 });
        }
        assert_eq!(frame[..6] == frame[6..MACS], to[..6] == to[6..MACS]);
    }
    // Bytes after the headers have no effect, unless they change whether the frame is parsed as an IP packet.
    let mut other = frame.to_vec();
    other[length(frame)..].iter_mut().for_each(|byte| *byte = !*byte);
    assert!(to == hide(&other) || Layers::of(&other).family != layers.family);
    let (at, size) = match layers.family {
        4 if to.len() >= layers.network + IPV4_BYTES => (layers.network + 12, 4),
        6 if to.len() >= layers.network + IPV6_BYTES => (layers.network + 8, 16),
        _ => return,
    };
    let pair = |octets: &[u8]| [at, at + size].map(|at| octets[at..at + size].to_vec());
    let (addresses, [from, to_whom]) = (pair(frame), pair(&to));
    assert_eq!(shared(&addresses[0], &addresses[1]), shared(&from, &to_whom));
    // The reply's addresses map to the same ones.
    let mut answer = frame.to_vec();
    answer[at..at + 2 * size].rotate_left(size);
    assert_eq!(pair(&hide(&answer)), [to_whom, from]);
    if layers.family == 4 {
        let sum: u32 = to[layers.network..layers.network + IPV4_BYTES].chunks(2).map(word).sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "the sum of the header is right");
    }
}

fn word(octets: &[u8]) -> u32 {
    u32::from(octets[0]) << 8 | u32::from(octets[1])
}

/// Returns the length of the common prefix of two addresses, in bits.
fn shared(one: &[u8], other: &[u8]) -> u32 {
    let alike = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let rest = one.get(alike).zip(other.get(alike)).map_or(0, |(one, other)| (one ^ other).leading_zeros());
    8 * alike as u32 + rest
}

fn all_frames() -> Vec<Vec<u8>> {
    frames().into_iter().map(|frame| [&[7, 96, 4][..], &frame].concat()).collect()
}
