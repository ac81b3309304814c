//! Mutations for tests that run without a search.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const NUMBERS: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, b'9', b'-', b'['];

/// Returns a seed with up to eight changes; the same for the same `number`.
#[must_use]
pub fn mutated(seed: &[u8], number: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(number);
    let mut bytes = seed.to_vec();
    for _ in 0..random.random_range(0..=8) {
        let at = random.random_range(0..=bytes.len());
        let until = bytes.len().min(at + random.random_range(1..=16));
        match random.random_range(0..6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..until)),
            2 => bytes[at..until].fill(NUMBERS[random.random_range(0..NUMBERS.len())]),
            3 => bytes[at..until].iter_mut().for_each(|byte| *byte = random.random()),
            4 => {
                let piece = bytes[at..until].to_vec();
                let to = random.random_range(0..=bytes.len());
                bytes.splice(to..to, piece);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            _ => bytes.push(random.random()),
        }
    }
    bytes
}
