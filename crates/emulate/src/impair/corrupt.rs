//! Bit errors.
//!
//! One value is drawn for each packet, lost or not; it seeds the damage of that packet. Losses and lengths of other
//! packets therefore do not change which bits of a packet are flipped.

use rand::{RngCore, SeedableRng};

use crate::config::Corruption;
use crate::random::{Chance, Random, uniform};

/// EtherTypes of VLAN tags, which are not damaged, nor are the MAC addresses: 802.1Q, 802.1ad, and its predecessor.
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];

#[derive(Debug)]
pub(super) struct Corruptor {
    how: Option<Corruption>,
    stream: Random,
    seed: u64,
}

impl Corruptor {
    pub(super) fn new(stream: Random) -> Self {
        Self { how: None, stream, seed: 0 }
    }

    pub(super) fn set(&mut self, how: Option<Corruption>) {
        self.how = how;
    }

    /// Draws the seed for the next packet.
    pub(super) fn turn(&mut self) {
        if self.how.is_some() {
            self.seed = self.stream.next_u64();
        }
    }

    /// Flips bits after the Ethernet header, and returns how many.
    pub(super) fn damage(&mut self, frame: &mut [u8]) -> u32 {
        let Some(how) = self.how else { return 0 };
        let header = header_bytes(frame);
        let body = frame.get_mut(header..).unwrap_or_default();
        let mut random = Random::seed_from_u64(self.seed);
        match how {
            Corruption::OneBit(probability) => flip_one(body, probability, &mut random),
            Corruption::BitErrorRate(rate) => flip_each(body, rate, &mut random),
        }
    }
}

fn header_bytes(frame: &[u8]) -> usize {
    let mut at = 12;
    while frame.get(at..at + 2).is_some_and(|kind| TAGS.iter().any(|tag| tag == kind)) {
        at += 4;
    }
    at + 2
}

fn flip_one(body: &mut [u8], probability: f64, random: &mut Random) -> u32 {
    if !Chance::of(probability).happens(random) || body.is_empty() {
        return 0;
    }
    // Multiply-shift instead of a division (Lemire 2019): its bias is below 2^-47 for any frame.
    let bits = body.len() as u128 * 8;
    flip(body, ((u128::from(random.next_u64()) * bits) >> 64) as usize);
    1
}

/// Flips bits independently: the distance to the next flipped bit is geometric, so the cost is per flipped bit.
fn flip_each(body: &mut [u8], rate: f64, random: &mut Random) -> u32 {
    let bits = body.len() * 8;
    let kept = libm::log1p(-rate.clamp(0.0, 1.0));
    let mut flipped = 0;
    let mut at = 0;
    while at < bits && kept < 0.0 {
        // At a rate of 1 the distance is 0; a distance longer than any frame saturates at `usize::MAX`.
        at = at.saturating_add((libm::log(uniform(random)) / kept) as usize);
        if at < bits {
            flip(body, at);
            flipped += 1;
        }
        at = at.saturating_add(1);
    }
    flipped
}

fn flip(body: &mut [u8], bit: usize) {
    body[bit / 8] ^= 1 << (bit % 8);
}
