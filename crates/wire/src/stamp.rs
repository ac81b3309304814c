//! Test packets of STAMP, the Simple Two-Way Active Measurement Protocol (RFC 8762), with the session identifier and the extra
//! padding of RFC 8972. Big endian; what is not named must be zero:
//!
//! | sender | authenticated | field | reflector | authenticated |
//! |---|---|---|---|---|
//! | 0 | 0 | sequence number (4) | 0 | 0 |
//! | 4 | 16 | timestamp (8): when this packet left | 4 | 16 |
//! | 12 | 24 | error estimate of that (2) | 12 | 24 |
//! | 14 | 26 | session identifier (2) | 14 | 26 |
//! | – | – | receive timestamp (8) | 16 | 32 |
//! | – | – | the sender's sequence number (4) | 24 | 48 |
//! | – | – | the sender's timestamp (8) | 28 | 64 |
//! | – | – | the sender's error estimate (2) | 36 | 72 |
//! | – | – | TTL or hop limit of the sender's packet as it came (1) | 40 | 80 |
//! | – | 96 | HMAC over what stands before it (16) | – | 96 |
//! | 44 | 112 | end of the base packet | 44 | 112 |
//!
//! Behind the base packet stand TLVs: flags (1), type (1), length (2), value. Of them only extra padding is written and understood.
//! Times in the packet are UTC (NTP format) or TAI (PTP format); ours are TAI.

use sojourn_time::{Nanos, Time};

use crate::auth::{Key, TAG_BYTES};

/// How long a base packet is, without and with authentication.
pub const BASE_BYTES: [usize; 2] = [44, 112];

/// The UDP port that IANA gives to reflectors.
pub const PORT: u16 = 862;

const TLV_HEADER_BYTES: usize = 4;
const EXTRA_PADDING: u8 = 1;
/// The flag of a TLV that the reflector does not know: the sender sets it, who knows the TLV clears it.
const UNRECOGNISED: u8 = 0x80;
/// The flag of a TLV that does not fit the packet.
const MALFORMED: u8 = 0x40;

const SECOND_NS: i64 = 1_000_000_000;
/// From 1900, when NTP's first era began, to 1970.
const NTP_EPOCH_S: i64 = 2_208_988_800;
const ERA_S: i64 = 1 << 32;

/// How a timestamp is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Seconds of UTC since 1900, and 2⁻³² of them.
    #[default]
    Ntp,
    /// Seconds of TAI since 1970, and nanoseconds.
    Ptp,
}

/// A format, and by how many seconds TAI is ahead of UTC where times are written and read.
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

    /// Returns whether times of TAI and of UTC can be distinguished: a kernel in which nobody set the difference says that there is none.
    pub const fn knows_tai(self) -> bool {
        self.tai_offset_s != 0
    }

    /// Writes a time.
    pub const fn write(self, time: Time) -> u64 {
        let (seconds, nanos) = (time.0.div_euclid(SECOND_NS), time.0.rem_euclid(SECOND_NS));
        match self.format {
            Format::Ptp => ((seconds as u32 as u64) << 32) | nanos as u64,
            Format::Ntp => {
                let era_seconds = (seconds - self.tai_offset_s + NTP_EPOCH_S) as u32 as u64;
                // Rounded up, so that reading it, which rounds down, gives the same nanosecond.
                let fraction = ((nanos as u64) << 32).div_ceil(SECOND_NS as u64);
                (era_seconds << 32) | fraction
            }
        }
    }

    /// Reads a time: of those that the seconds could mean, the one that is nearest to `near`.
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

/// How far a timestamp may be wrong (RFC 4656 §4.1.2), and how it is written (RFC 8186 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate(u16);

impl ErrorEstimate {
    const SYNCHRONISED: u16 = 0x8000;
    const PTP: u16 = 0x4000;

    /// Returns the estimate of a clock that is `synchronised` to UTC by something outside, and at most `error` wrong. The least
    /// that can be written that is not smaller.
    pub fn new(format: Format, synchronised: bool, error: Nanos) -> Self {
        // Units of 2⁻³² s, at least one: a multiplier of zero says that the packet is corrupt.
        let mut multiplier = ((u128::from(error.0.max(0).unsigned_abs()) << 32).div_ceil(SECOND_NS as u128)).max(1);
        let mut scale = 0_u16;
        while multiplier > 0xFF {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        let flags = u16::from(synchronised) * Self::SYNCHRONISED + u16::from(format == Format::Ptp) * Self::PTP;
        Self(flags | scale << 8 | multiplier as u16)
    }

    /// Reads one.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns it as it goes over the wire.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Returns the format of the timestamp before it.
    pub const fn format(self) -> Format {
        if self.0 & Self::PTP == 0 { Format::Ntp } else { Format::Ptp }
    }

    /// Returns whether the clock is synchronised to UTC by something outside.
    pub const fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// Returns how far the clock may be wrong; the largest time where that is longer than we can say.
    pub fn error(self) -> Nanos {
        let (scale, multiplier) = (u32::from(self.0 >> 8 & 0x3F), u128::from(self.0 & 0xFF));
        let nanos = ((multiplier << scale) * SECOND_NS as u128) >> 32;
        Nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

/// What a session-sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number in the session.
    pub seq: u32,
    /// When it left, as written.
    pub timestamp: u64,
    /// How far that may be wrong, and its format.
    pub error: ErrorEstimate,
    /// The session's identifier; 0 where it has none.
    pub ssid: u16,
}

/// What a session-reflector sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflected {
    /// Its number: the sender's where the reflector is stateless, else its own.
    pub seq: u32,
    /// When it left, as written.
    pub timestamp: u64,
    /// How far the reflector's times may be wrong, and their format.
    pub error: ErrorEstimate,
    /// The session's identifier.
    pub ssid: u16,
    /// When the sender's packet came.
    pub receive: u64,
    /// The sender's packet.
    pub sender: Sent,
    /// Its TTL or hop limit as it came.
    pub ttl: u8,
}

/// Where fields stand: without and with authentication.
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

/// Why a packet was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is shorter than a packet.
    Short,
    /// It has another HMAC than the key gives.
    Unauthenticated,
}

impl Sent {
    /// Reads the base packet, which has an HMAC where there is a key.
    ///
    /// # Errors
    /// When it is too short, or not authenticated.
    pub fn read(payload: &[u8], key: Option<&Key>) -> Result<Self, Unread> {
        let (layout, bytes) = base(payload, key)?;
        Ok(Self::at(bytes, 0, layout.timestamp, layout.timestamp + 8, u16_at(bytes, layout.timestamp + 10)))
    }

    /// Writes the packet over the whole of `payload`: what is longer than the base packet becomes extra padding. A payload that is
    /// shorter than the base packet is left alone.
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
    /// Reads the base packet, which has an HMAC where there is a key.
    ///
    /// # Errors
    /// When it is too short, or not authenticated.
    pub fn read(payload: &[u8], key: Option<&Key>) -> Result<Self, Unread> {
        let (layout, bytes) = base(payload, key)?;
        let ssid = u16_at(bytes, layout.timestamp + 10);
        let own = Sent::at(bytes, 0, layout.timestamp, layout.timestamp + 8, ssid);
        let Sent { seq, timestamp, error, .. } = own;
        let sender = Sent::at(bytes, layout.sender_seq, layout.sender_timestamp, layout.sender_error, ssid);
        Ok(Self { seq, timestamp, error, ssid, receive: u64_at(bytes, layout.receive), sender, ttl: bytes[layout.ttl] })
    }

    /// Writes the packet over the beginning of `payload`, which holds a copy of the sender's: it is as long as that, and what
    /// stands behind the base packet goes back, TLVs that are known here with their flag cleared.
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

/// How far apart a reflector's two times can be, s: longer than it keeps a packet.
const LONGEST_STAY_S: u32 = 60;

/// Whether a packet can be a reflected one: where a sender has zeros or padding, there stands a time that is about the packet's own.
/// Both are of one clock, whatever that shows. Of random padding so much is expected once in 30 million packets.
pub fn is_reflected(payload: &[u8], key: Option<&Key>) -> bool {
    let layout = layout(key);
    if payload.len() < layout.base {
        return false;
    }
    let receive = u64_at(payload, layout.receive);
    // In both formats the seconds stand first.
    let stay_s = u32_at(payload, layout.timestamp).wrapping_sub((receive >> 32) as u32);
    receive != 0 && (stay_s <= LONGEST_STAY_S || stay_s.wrapping_neg() <= LONGEST_STAY_S)
}

fn layout(key: Option<&Key>) -> Layout {
    if key.is_some() { AUTHENTICATED } else { OPEN }
}

/// The layout and the bytes of a base packet that is whole and whose HMAC is right.
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

/// Makes extra padding of zeros; fewer bytes than a TLV has stay zero.
fn pad(rest: &mut [u8]) {
    let Some(value_bytes) = rest.len().checked_sub(TLV_HEADER_BYTES) else { return };
    // A UDP payload is shorter than what two bytes can say.
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
