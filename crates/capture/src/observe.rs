//! Selects what is recorded of each frame that passed, and counts. Pure.

use sojourn_port::pcap::Direction;
use sojourn_time::{Source, Time};
use sojourn_wire::Layers;
use sojourn_wire::digest::{Digest, Key, digest};

use crate::Passed;
use crate::headers::{self, Anonymiser};

/// The options of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The key of the digests; `None`: no digests.
    pub key: Option<Key>,
    /// The snapshot length: the most bytes kept of a frame.
    pub snap: usize,
    /// Whether only headers are kept.
    pub headers_only: bool,
}

/// The record of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Its digest, where the key applies to it.
    pub digest: Option<Digest>,
    /// Whether it is an IP fragment.
    pub is_fragment: bool,
    /// The bytes that are kept.
    pub kept: &'a [u8],
}

/// The counts of a tap's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Received frames.
    pub frames_in: u64,
    /// Sent frames.
    pub frames_out: u64,
    /// Octets of the received frames, without FCS.
    pub octets_in: u64,
    /// Octets of the sent frames, without FCS.
    pub octets_out: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Super-frames, which stand for several frames on the wire (GRO, GSO).
    pub super_frames: u64,
    /// Truncated frames.
    pub cut: u64,
    /// Frames to which the digest key does not apply.
    pub without_key: u64,
    /// The number of frames timestamped by each source, in the order of [`Source`].
    pub sources: [u64; Source::ALL.len()],
    /// When the first frame passed.
    pub first: Option<Time>,
    /// When the last frame passed.
    pub last: Option<Time>,
}

impl Counts {
    /// Returns the number of frames seen.
    pub fn seen(&self) -> u64 {
        self.frames_in + self.frames_out
    }

    /// Returns the number of frames that a source timestamped.
    pub fn stamped_by(&self, source: Source) -> u64 {
        self.sources[source as usize]
    }
}

/// Records the frames of one tap.
#[derive(Debug)]
pub struct Observer {
    asked: Asked,
    anonymiser: Option<Anonymiser>,
    counts: Counts,
    scratch: Vec<u8>,
}

impl Observer {
    /// Creates an observer with all counts at 0.
    pub fn new(asked: Asked) -> Self {
        Self { asked, anonymiser: None, counts: Counts::default(), scratch: Vec::new() }
    }

    /// Keeps only headers, with anonymised addresses.
    pub fn anonymise(&mut self, anonymiser: Anonymiser) {
        self.anonymiser = Some(anonymiser);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts a frame and returns its record.
    pub fn observe<'a>(&'a mut self, passed: &Passed<'a>) -> Seen<'a> {
        let digest = self.asked.key.map(|key| digest(key, passed.frame, passed.length));
        let whole = match &mut self.anonymiser {
            Some(anonymiser) => {
                anonymiser.headers(passed.frame, &mut self.scratch);
                &self.scratch
            }
            None if self.asked.headers_only => &passed.frame[..headers::length(passed.frame)],
            None => passed.frame,
        };
        let kept = &whole[..whole.len().min(self.asked.snap)];
        let is_fragment = match digest {
            Some(Some(digest)) => digest.is_fragment,
            _ => Layers::of(passed.frame).is_fragment,
        };
        let counts = &mut self.counts;
        let octets = passed.length as u64;
        match passed.direction {
            Direction::In => (counts.frames_in, counts.octets_in) = (counts.frames_in + 1, counts.octets_in + octets),
            Direction::Out => {
                (counts.frames_out, counts.octets_out) = (counts.frames_out + 1, counts.octets_out + octets)
            }
        }
        counts.fragments += u64::from(is_fragment);
        counts.super_frames += u64::from(passed.is_super);
        counts.cut += u64::from(kept.len() < passed.length);
        counts.without_key += u64::from(digest == Some(None));
        counts.sources[passed.at.source as usize] += 1;
        counts.first = counts.first.or(Some(passed.at.at));
        counts.last = Some(passed.at.at);
        Seen { digest: digest.flatten(), is_fragment, kept }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_time::Stamp;

    use super::*;
    use crate::{Directions, Simulated, SimulatedTap, Tap};

    fn passed<'a>(frame: &'a [u8], length: usize, direction: Direction, at: i64) -> Passed<'a> {
        let at = Stamp { at: Time(at), source: Source::Simulated };
        Passed { frame, length, at, realtime: at.at, direction, is_super: false }
    }

    proptest! {
        #[test]
        fn every_frame_is_counted_once_and_has_the_digest_of_its_content(
            frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 14..200), any::<bool>()), 0..200),
            room in 1..300_usize,
            snap in 14..100_usize,
        ) {
            let mut tap = SimulatedTap::new(room, Directions::Both);
            for (nth, (frame, is_in)) in frames.iter().enumerate() {
                let direction = if *is_in { Direction::In } else { Direction::Out };
                tap.pass(Simulated { frame: frame.clone(), at: Time(nth as i64), direction, is_super: nth % 3 == 0 });
            }
            tap.detach().expect("detaches");
            let mut observer = Observer::new(Asked { key: Some(Key::Bridge), snap, headers_only: false });
            let mut nth = 0;
            while tap.take(&mut |passed| {
                let seen = observer.observe(passed);
                let (frame, _) = &frames[nth];
                assert_eq!(seen.kept, &frame[..frame.len().min(snap)]);
                assert_eq!(seen.digest, digest(Key::Bridge, frame, frame.len()));
                nth += 1;
            }).expect("takes") {}
            let (counts, totals) = (observer.counts(), tap.totals().expect("counts"));
            prop_assert_eq!(counts.seen(), frames.len().min(room) as u64);
            prop_assert_eq!(counts.seen() + totals.dropped, frames.len() as u64);
            let shown = &frames[..nth];
            prop_assert_eq!(counts.frames_in, shown.iter().filter(|(_, is_in)| *is_in).count() as u64);
            prop_assert_eq!(counts.octets_in + counts.octets_out, shown.iter().map(|(frame, _)| frame.len() as u64).sum::<u64>());
            prop_assert_eq!(counts.cut, shown.iter().filter(|(frame, _)| frame.len() > snap).count() as u64);
            prop_assert_eq!(counts.super_frames, nth.div_ceil(3) as u64);
            prop_assert_eq!((counts.first, counts.stamped_by(Source::Simulated)), ((nth > 0).then_some(Time(0)), nth as u64));
        }
    }

    #[test]
    fn frames_without_a_key_are_counted_and_get_no_digest() {
        let mut observer = Observer::new(Asked { key: Some(Key::Router), snap: usize::MAX, headers_only: false });
        let arp = [&[0xFF; 12][..], &[0x08, 0x06], &[0; 46]].concat();
        assert_eq!(observer.observe(&passed(&arp, 60, Direction::In, 1)).digest, None);
        assert_eq!(observer.counts().without_key, 1);
        let mut observer = Observer::new(Asked { key: None, snap: usize::MAX, headers_only: false });
        assert_eq!(observer.observe(&passed(&arp, 60, Direction::In, 1)).digest, None);
        assert_eq!(observer.counts().without_key, 0);
    }
}
