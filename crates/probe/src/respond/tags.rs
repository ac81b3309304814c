//! The tags of the packets that were answered last. Fixed in size, and no call takes longer than another one: a pause
//! would be in the round trips that are measured.

/// The table of 1,048,576 tags: this many sets, each of the last `WAYS` tags that belong to it.
const SETS: usize = 1 << 16;
const WAYS: usize = 16;

/// A place without a tag.
const UNUSED: u64 = u64::MAX;

/// Tags of answered packets, from whichever address.
#[derive(Clone, Debug)]
pub struct Tags(Vec<[u64; WAYS]>);

impl Tags {
    /// Makes an empty table, all of its memory at once: a value that is not zero is written to each page.
    pub fn new() -> Self {
        Self(vec![[UNUSED; WAYS]; SETS])
    }

    /// Returns whether a tag is remembered.
    pub fn have(&self, tag: [u8; 16]) -> bool {
        let (set, tag) = place(tag);
        self.0[set].contains(&tag)
    }

    /// Remembers a tag in place of the oldest one of its set.
    pub fn note(&mut self, tag: [u8; 16]) {
        let (set, tag) = place(tag);
        let set = &mut self.0[set];
        set.rotate_right(1);
        set[0] = tag;
    }
}

/// Returns the set of a tag, and the 64 bits that are remembered of it. Nobody without the key chooses either.
fn place(tag: [u8; 16]) -> (usize, u64) {
    let [set @ .., _, _, _, _, _, _, _, _] = tag;
    let [_, _, _, _, _, _, _, _, kept @ ..] = tag;
    (u64::from_be_bytes(set) as usize % SETS, u64::from_be_bytes(kept).min(UNUSED - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_TAGS: u64 = (SETS * WAYS) as u64;

    /// As even as those of HMAC: the finaliser of SplitMix64.
    fn tag(number: u64) -> [u8; 16] {
        let mixed = |mut bits: u64| {
            bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            bits ^ bits >> 31
        };
        let halves = [1, 2].map(|half| mixed((number * 2 + half).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes());
        let mut tag = [0; 16];
        tag.copy_from_slice(&halves.concat());
        tag
    }

    #[test]
    fn last_tags_are_remembered_and_the_oldest_are_forgotten() {
        let mut tags = Tags::new();
        let all = 2 * MOST_TAGS;
        for number in 0..all {
            assert!(!tags.have(tag(number)), "{number}");
            tags.note(tag(number));
            assert!(tags.have(tag(number)));
        }
        let remembered = |last: u64| (all - last..all).filter(|number| tags.have(tag(*number))).count() as u64;
        assert_eq!(remembered(100_000), 100_000);
        assert!(remembered(MOST_TAGS / 2) > MOST_TAGS / 2 * 998 / 1000);
        assert!((MOST_TAGS * 99 / 100..=MOST_TAGS).contains(&remembered(all)), "the table is full");
    }

    #[test]
    fn a_tag_of_zeros_is_no_unused_place() {
        let mut tags = Tags::new();
        assert!(!tags.have([0; 16]));
        tags.note([0; 16]);
        assert!(tags.have([0; 16]));
    }
}
