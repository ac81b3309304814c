//! A hash function that never changes: it identifies flows and dynamic pipes in logs, which may be replayed years later.
//!
//! Folded 128-bit products, as in wyhash: some nanoseconds for the header of a packet, and every bit of the input
//! changes about half of the result's bits. The hash does not resist deliberate collisions.

use sojourn_wire::MacAddress;

const FIRST: u64 = 0xA076_1D64_78BD_642F;
const SECOND: u64 = 0xE703_7ED1_A0B4_28DB;

/// The state of the hash.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(SECOND)
    }
}

impl Hash {
    /// Adds a word.
    pub fn add(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, FIRST) ^ word.rotate_left(32);
    }

    /// Adds a MAC address.
    pub fn add_mac(&mut self, MacAddress([a, b, c, d, e, f]): MacAddress) {
        self.add(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
    }

    /// Adds an IP address.
    pub fn add_address(&mut self, address: [u8; 16]) {
        let whole = u128::from_be_bytes(address);
        self.add((whole >> 64) as u64);
        self.add(whole as u64);
    }

    /// Returns the hash.
    pub fn finish(self) -> u64 {
        fold(self.0 ^ FIRST, SECOND)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_input_bit_changes_about_half_of_the_hash_bits() {
        let hash = |words: [u64; 3]| {
            let mut hash = Hash::default();
            words.into_iter().for_each(|word| hash.add(word));
            hash.finish()
        };
        for word in 0..3 {
            for bit in 0..64 {
                let mut moved = 0;
                for sample in 0..64_u64 {
                    let words = [sample.wrapping_mul(SECOND), sample, sample << 40];
                    let mut other = words;
                    other[word] ^= 1 << bit;
                    moved += (hash(words) ^ hash(other)).count_ones();
                }
                let mean = f64::from(moved) / 64.0;
                assert!((28.0..36.0).contains(&mean), "word {word}, bit {bit}: {mean}");
            }
        }
    }

    #[test]
    fn consecutive_ports_spread_evenly_over_queues() {
        let mut queues = [0_u32; 1024];
        for port in 0..65_536_u64 {
            let mut hash = Hash::default();
            hash.add(port << 48);
            queues[(hash.finish() % 1024) as usize] += 1;
        }
        // 64 each on average; the bounds are beyond seven standard deviations of Poisson's distribution.
        assert!(queues.iter().all(|count| (16..=120).contains(count)), "{queues:?}");
    }
}
