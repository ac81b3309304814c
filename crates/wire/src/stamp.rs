//! Test packets of STAMP, the Simple Two-Way Active Measurement Protocol (RFC 8762), with the session identifier and
//! the extra padding of RFC 8972. Big endian; bytes not listed must be zero:
//!
//! | sender | authenticated | field | reflector | authenticated |
//! |---|---|---|---|---|
//! | 0 | 0 | sequence number (4) | 0 | 0 |
//! | 4 | 16 | timestamp (8): departure of this packet | 4 | 16 |
//! | 12 | 24 | error estimate of the timestamp (2) | 12 | 24 |
//! | 14 | 26 | session identifier (2) | 14 | 26 |
//! | – | – | receive timestamp (8) | 16 | 32 |
//! | – | – | the sender's sequence number (4) | 24 | 48 |
//! | – | – | the sender's timestamp (8) | 28 | 64 |
//! | – | – | the sender's error estimate (2) | 36 | 72 |
//! | – | – | TTL or hop limit of the sender's packet on receipt (1) | 40 | 80 |
//! | – | 96 | HMAC over all bytes before it (16) | – | 96 |
//! | 44 | 112 | end of the base packet | 44 | 112 |
//!
//! TLVs follow the base packet: flags (1), type (1), length (2), value. Only extra padding is written and understood.
//! Times in the packet are UTC (NTP format) or TAI (PTP format); those of this crate are TAI.

use sojourn_time::{Nanos, Time};

use crate::auth::{Key, TAG_BYTES};

/// The length of a base packet, without and with authentication.
pub const BASE_BYTES: [usize; 2] = [44, 112];

/// The UDP port that IANA assigned to reflectors.
pub const PORT: u16 = 862;

const TLV_HEADER_BYTES: usize = 4;
const EXTRA_PADDING: u8 = 1;
/// The flag "unrecognised" of a TLV: the sender sets it, a reflector that knows the TLV clears it.
const UNRECOGNISED: u8 = 0x80;
/// The flag "malformed" of a TLV: it does not fit the packet.
const MALFORMED: u8 = 0x40;

const SECOND_NS: i64 = 1_000_000_000;
/// From 1900, the start of NTP's first era, to 1970.
const NTP_EPOCH_S: i64 = 2_208_988_800;
const ERA_S: i64 = 1 << 32;

/// The format of a timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// NTP: seconds of UTC since 1900, and units of 2⁻³² s.
    #[default]
    Ntp,
    /// PTP: seconds of TAI since 1970, and nanoseconds.
    Ptp,
}

/// A timestamp format, with the offset of TAI from UTC that conversion needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// The format.
    pub format: Format,
    /// TAI minus UTC, s.
    pub tai_offset_s: i64,
}

impl Scale {
    /// Returns the same scale with another format.
    pub const fn with(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Returns whether the offset between TAI and UTC is known: a kernel in which it was never set reports 0.
    pub const fn knows_tai(self) -> bool {
        self.tai_offset_s != 0
    }

    /// Converts a time to a timestamp.
    pub const fn write(self, time: Time) -> u64 {
        let (seconds, nanos) = (time.0.div_euclid(SECOND_NS), time.0.rem_euclid(SECOND_NS));
        match self.format {
            Format::Ptp => ((seconds as u32 as u64) << 32) | nanos as u64,
            Format::Ntp => {
                let era_seconds = (seconds - self.tai_offset_s + NTP_EPOCH_S) as u32 as u64;
                // Round up, so that reading, which rounds down, returns the same nanosecond.
                let fraction = ((nanos as u64) << 32).div_ceil(SECOND_NS as u64);
                (era_seconds << 32) | fraction
            }
        }
    }

    /// Converts a timestamp to a time: of those that its seconds may denote, the one nearest to `near`.
    pub const fn read(self, stamp: u64, near: Time) -> Time {
        let (high, low) = ((stamp >> 32) as i64, stamp & 0xFFFF_FFFF);
        let (seconds, nanos) = match self.format {
            Format::Ptp => (high, low as i64),
            Format::Ntp => (high - NTP_EPOCH_S + self.tai_offset_s, ((low * SECOND_NS as u64) >> 32) as i64),
        };
        let near_s = near.0.div_euclid(SECOND_NS);
        let eras = (near_s - seconds + ERA_S / 2).div_euclid(ERA_S);
        Time((seconds + eras * ERA_S).saturating_mul(SECOND_NS).saturating_add(nanos))
    }
}

/// The maximum error of a timestamp (RFC 4656 §4.1.2), and its format (RFC 8186 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate(u16);

impl ErrorEstimate {
    const SYNCHRONISED: u16 = 0x8000;
    const PTP: u16 = 0x4000;

    /// Returns the estimate for a clock with this maximum error; `synchronised` means synchronised to UTC by an
    /// external source. Rounds the error up to the next value that can be encoded.
    pub fn new(format: Format, synchronised: bool, error: Nanos) -> Self {
        // Units of 2⁻³² s, at least one: a multiplier of zero marks a corrupt packet.
        let mut multiplier = ((u128::from(error.0.max(0).unsigned_abs()) << 32).div_ceil(SECOND_NS as u128)).max(1);
        let mut scale = 0_u16;
        while multiplier > 0xFF {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        let flags = u16::from(synchronised) * Self::SYNCHRONISED + u16::from(format == Format::Ptp) * Self::PTP;
        Self(flags | scale << 8 | multiplier as u16)
    }

    /// Creates an estimate from its wire format.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the wire format.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Returns the format of the timestamp that precedes it.
    pub const fn format(self) -> Format {
        if self.0 & Self::PTP == 0 { Format::Ntp } else { Format::Ptp }
    }

    /// Returns whether the clock is synchronised to UTC by an external source.
    pub const fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// Returns the maximum error of the clock; the largest [`Nanos`] if it is larger.
    pub fn error(self) -> Nanos {
        let (scale, multiplier) = (u32::from(self.0 >> 8 & 0x3F), u128::from(self.0 & 0xFF));
        let nanos = ((multiplier << scale) * SECOND_NS as u128) >> 32;
        Nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

/// A packet of a session-sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The sequence number within the session.
    pub seq: u32,
    /// The departure timestamp, in wire format.
    pub timestamp: u64,
    /// The error of the timestamp, and its format.
    pub error: ErrorEstimate,
    /// The session's identifier; 0 where it has none.
    pub ssid: u16,
}

/// A packet of a session-reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflected {
    /// The sequence number: the sender's where the reflector is stateless, else its own.
    pub seq: u32,
    /// The departure timestamp, in wire format.
    pub timestamp: u64,
    /// The error of the reflector's timestamps, and their format.
    pub error: ErrorEstimate,
    /// The session's identifier.
    pub ssid: u16,
    /// The receive timestamp of the sender's packet.
    pub receive: u64,
    /// The sender's packet.
    pub sender: Sent,
    /// TTL or hop limit of the sender's packet on receipt.
    pub ttl: u8,
}

/// The offsets of fields, without and with authentication.
#[derive(Clone, Copy)]
struct Layout {
    timestamp: usize,
    receive: usize,
    sender_seq: usize,
    sender_timestamp: usize,
    sender_error: usize,
    ttl: usize,
    base: usize,
}

const OPEN: Layout = Layout {
    timestamp: 4,
    receive: 16,
    sender_seq: 24,
    sender_timestamp: 28,
    sender_error: 36,
    ttl: 40,
    base: BASE_BYTES[0],
};

const AUTHENTICATED: Layout = Layout {
    timestamp: 16,
    receive: 32,
    sender_seq: 48,
    sender_timestamp: 64,
    sender_error: 72,
    ttl: 80,
    base: BASE_BYTES[1],
};

/// Why a packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is shorter than a base packet.
    Short,
    /// Its HMAC does not match the key.
    Unauthenticated,
}

impl Sent {
    /// Parses the base packet; with a key, verifies its HMAC.
    ///
    /// # Errors
    /// When it is too short, or not authentic.
    pub fn read(payload: &[u8], key: Option<&Key>) -> Result<Self, Unread> {
        let (layout, bytes) = base(payload, key)?;
        Ok(Self::at(bytes, 0, layout.timestamp, layout.timestamp + 8, u16_at(bytes, layout.timestamp + 10)))
    }

    /// Writes the packet over the whole of `payload`: bytes after the base packet become extra padding. Leaves a
    /// payload shorter than the base packet unchanged.
    pub fn write(self, payload: &mut [u8], key: Option<&Key>) {
        let layout = layout(key);
        if payload.len() < layout.base {
            return;
        }
        payload.fill(0);
        self.put(payload, layout);
        pad(&mut payload[layout.base..]);
        authenticate(payload, layout, key);
    }

    fn at(bytes: &[u8], seq: usize, timestamp: usize, error: usize, ssid: u16) -> Self {
        Self {
            seq: u32_at(bytes, seq),
            timestamp: u64_at(bytes, timestamp),
            error: ErrorEstimate(u16_at(bytes, error)),
            ssid,
        }
    }

    fn put(self, bytes: &mut [u8], layout: Layout) {
        bytes[..4].copy_from_slice(&self.seq.to_be_bytes());
        put(bytes, layout.timestamp, &self.timestamp.to_be_bytes());
        put(bytes, layout.timestamp + 8, &self.error.0.to_be_bytes());
        put(bytes, layout.timestamp + 10, &self.ssid.to_be_bytes());
    }
}

impl Reflected {
    /// Parses the base packet; with a key, verifies its HMAC.
    ///
    /// # Errors
    /// When it is too short, or not authentic.
    pub fn read(payload: &[u8], key: Option<&Key>) -> Result<Self, Unread> {
        let (layout, bytes) = base(payload, key)?;
        let ssid = u16_at(bytes, layout.timestamp + 10);
        let own = Sent::at(bytes, 0, layout.timestamp, layout.timestamp + 8, ssid);
        let Sent { seq, timestamp, error, .. } = own;
        let sender = Sent::at(bytes, layout.sender_seq, layout.sender_timestamp, layout.sender_error, ssid);
        Ok(Self { seq, timestamp, error, ssid, receive: u64_at(bytes, layout.receive), sender, ttl: bytes[layout.ttl] })
    }

    /// Writes the packet over the start of `payload`, which holds a copy of the sender's. The length stays; bytes after
    /// the base packet are returned, with the flag of known TLVs cleared.
    pub fn write(self, payload: &mut [u8], key: Option<&Key>) {
        let layout = layout(key);
        if payload.len() < layout.base {
            return;
        }
        payload[..layout.base].fill(0);
        let Self { seq, timestamp, error, ssid, .. } = self;
        Sent { seq, timestamp, error, ssid }.put(payload, layout);
        put(payload, layout.receive, &self.receive.to_be_bytes());
        put(payload, layout.sender_seq, &self.sender.seq.to_be_bytes());
        put(payload, layout.sender_timestamp, &self.sender.timestamp.to_be_bytes());
        put(payload, layout.sender_error, &self.sender.error.0.to_be_bytes());
        payload[layout.ttl] = self.ttl;
        reflect_tlvs(&mut payload[layout.base..]);
        authenticate(payload, layout, key);
    }
}

/// The largest difference of a reflector's two times, in s: no reflector holds a packet that long.
const LONGEST_STAY_S: u32 = 60;

/// Whether a packet may be a reflected one: where a sender has zeros or padding, it has a receive time close to its own
/// timestamp (both of the reflector's clock). Random padding satisfies this in one of 30 million packets.
pub fn is_reflected(payload: &[u8], key: Option<&Key>) -> bool {
    let layout = layout(key);
    if payload.len() < layout.base {
        return false;
    }
    let receive = u64_at(payload, layout.receive);
    // In both formats the seconds come first.
    let stay_s = u32_at(payload, layout.timestamp).wrapping_sub((receive >> 32) as u32);
    receive != 0 && (stay_s <= LONGEST_STAY_S || stay_s.wrapping_neg() <= LONGEST_STAY_S)
}

/// Returns the HMAC of an authenticated packet, without verifying it; `None`: it is too short.
pub fn tag_of(payload: &[u8]) -> Option<[u8; TAG_BYTES]> {
    payload.get(..AUTHENTICATED.base)?.last_chunk().copied()
}

fn layout(key: Option<&Key>) -> Layout {
    if key.is_some() { AUTHENTICATED } else { OPEN }
}

/// Returns the layout and the bytes of a complete base packet with a valid HMAC.
fn base<'a>(payload: &'a [u8], key: Option<&Key>) -> Result<(Layout, &'a [u8]), Unread> {
    let layout = layout(key);
    let bytes = payload.get(..layout.base).ok_or(Unread::Short)?;
    if let Some(key) = key {
        let (covered, tag) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(Unread::Short)?;
        if !key.verifies(&[covered], tag) {
            return Err(Unread::Unauthenticated);
        }
    }
    Ok((layout, bytes))
}

fn authenticate(payload: &mut [u8], layout: Layout, key: Option<&Key>) {
    let Some(key) = key else { return };
    let (covered, rest) = payload.split_at_mut(layout.base - TAG_BYTES);
    rest[..TAG_BYTES].copy_from_slice(&key.tag(&[covered]));
}

/// Writes an extra-padding TLV of zeros; a remainder shorter than a TLV stays zero.
fn pad(rest: &mut [u8]) {
    let Some(value_bytes) = rest.len().checked_sub(TLV_HEADER_BYTES) else { return };
    // A UDP payload is shorter than 65,536 bytes.
    let [high, low] = (value_bytes as u16).to_be_bytes();
    rest[..TLV_HEADER_BYTES].copy_from_slice(&[UNRECOGNISED, EXTRA_PADDING, high, low]);
}

fn reflect_tlvs(mut rest: &mut [u8]) {
    while rest.len() >= TLV_HEADER_BYTES {
        let length = TLV_HEADER_BYTES + usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if length > rest.len() {
            rest[0] |= MALFORMED;
            return;
        }
        if rest[1] == EXTRA_PADDING {
            rest[0] &= !UNRECOGNISED;
        } else {
            rest[0] |= UNRECOGNISED;
        }
        rest = &mut rest[length..];
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests;
