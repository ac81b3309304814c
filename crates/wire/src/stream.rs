//! The stream header, at the start of the user data of a stream's frames. 42 bytes, big endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic "SOJ3" |
//! | 4 | kind, see [`Kind`] |
//! | 5 | node: the endpoint that answered, else 0 |
//! | 6–7 | flow |
//! | 8–15 | session key: random, known only to the two ends of the stream, see [`SessionKey`] |
//! | 16–21 | sequence number, from 0 in each flow; of a synchronisation: the number of the exchange |
//! | 22–29 | intended departure, ns TAI of the sender; in a synchronisation reply and its follow-up: the request's arrival at the replier |
//! | 30–37 | departure as the program called to send, ns TAI of the sender; in a synchronisation reply: the call to send the reply; in the follow-up: the reply's late TX timestamp |
//! | 38–41 | CRC-32 over bytes 0–37; in frames that the kernel writes ([`Kind::Live`]): their [`parity`] |
//!
//! With an Ethernet header and a VLAN tag, the header is as long as the shortest frame without its FCS, 60 bytes. A
//! fixed pattern follows it ([`fill`]), which reveals damage; greetings ([`GreetingTail`]), synchronisation
//! ([`SyncTail`]) and the end of a stream ([`end_text`]) carry data instead.

use sojourn_time::{Source, Time};

use crate::MacAddress;
use crate::checksum::crc32;
use crate::ethernet;

/// The length of the header.
pub const HEADER_BYTES: usize = 42;

/// The EtherType of raw streams: IEEE 802 local experimental 2.
pub const STREAM_ETHERTYPE: u16 = 0x88B6;

/// The default UDP port of a stream receiver.
pub const DEFAULT_UDP_PORT: u16 = 7708;

/// The EtherTypes of VLAN tags: customer and service.
const TAG_ETHERTYPES: [u16; 2] = [0x8100, 0x88A8];

/// The length of a VLAN tag.
pub const TAG_BYTES: usize = 4;

/// The minimum user data of a synchronisation: header and [`SyncTail`].
pub const SYNC_BYTES: usize = HEADER_BYTES + SyncTail::BYTES;

/// The user data of a greeting and of its reply, which has the same length: header and [`GreetingTail`].
pub const GREETING_BYTES: usize = HEADER_BYTES + GreetingTail::BYTES;

/// The limit of sequence numbers: 48 bits are carried.
pub const SEQ_LIMIT: u64 = 1 << 48;

const MAGIC: [u8; 4] = *b"SOJ3";
const CHECKED_BYTES: usize = 38;

/// A key that the frames of one stream share: 64 random bits, new for each stream. A host that cannot see the frames
/// cannot forge frames of the stream; a host on the path can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionKey(pub u64);

impl SessionKey {
    /// Returns whether `other` differs in at most one byte, as the key of a damaged frame of this stream may.
    pub const fn is_near(self, other: Self) -> bool {
        let differing = self.0 ^ other.0;
        let first = differing.trailing_zeros() / 8 * 8;
        differing == 0 || differing & !(0xFF << first) == 0
    }
}

/// The kind of a stream's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A packet of the stream.
    Data = 1,
    /// A packet that a receiver returns to its sender.
    Answer = 2,
    /// The sender has finished; the number of frames sent follows the header.
    End = 3,
    /// The receiver's acknowledgement of the end.
    EndAck = 4,
    /// A request for the replier's time.
    SyncRequest = 5,
    /// The reply with that time.
    SyncReply = 6,
    /// A packet of the stream that the kernel numbers and timestamps: its check is a [`parity`].
    Live = 7,
    /// Follows a [`Self::SyncReply`] and reports the driver's TX timestamp of that reply (as PTP's Follow_Up). As long
    /// as the reply, at most one for each, and none unless the request asks for it.
    SyncFollowUp = 8,
    /// A sender announces the key of its stream to a receiver that does not know it.
    Greeting = 9,
    /// The receiver's reply to a greeting.
    GreetingReply = 10,
}

/// The stream header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The kind of frame.
    pub kind: Kind,
    /// The endpoint that answered, else 0.
    pub node: u8,
    /// The flow.
    pub flow: u16,
    /// The key of the stream.
    pub key: SessionKey,
    /// The sequence number, below [`SEQ_LIMIT`]; higher bits are not carried.
    pub seq: u64,
    /// The intended departure, on the sender's clock.
    pub intended: Time,
    /// When the sender called to send it, on the sender's clock.
    pub sent: Time,
}

/// Why bytes are no valid stream header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// They are no stream header.
    Foreign,
    /// A damaged stream header, with the flow and the key that it states.
    Damaged {
        /// As received; may be the damaged field.
        flow: u16,
        /// As received; may be the damaged field.
        key: SessionKey,
    },
}

impl StreamHeader {
    /// Parses the header at the start of `payload`.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn read(payload: &[u8]) -> Result<Self, Unread> {
        let bytes = payload.first_chunk::<HEADER_BYTES>().filter(|bytes| bytes[..4] == MAGIC).ok_or(Unread::Foreign)?;
        let [_, _, seq @ ..] = word(bytes, 14);
        let header = Self {
            kind: Kind::Data,
            node: bytes[5],
            flow: u16::from_be_bytes([bytes[6], bytes[7]]),
            key: SessionKey(u64::from_be_bytes(word(bytes, 8))),
            seq: seq.iter().fold(0, |seq, byte| seq << 8 | u64::from(*byte)),
            intended: Time(i64::from_be_bytes(word(bytes, 22))),
            sent: Time(i64::from_be_bytes(word(bytes, 30))),
        };
        let check = u32::from_be_bytes([bytes[38], bytes[39], bytes[40], bytes[41]]);
        let header = Kind::of(bytes[4]).map(|kind| Self { kind, ..header }).ok_or(header);
        let damaged = |header: Self| Unread::Damaged { flow: header.flow, key: header.key };
        match header {
            Ok(header) if header.check(bytes) == check => Ok(header),
            Ok(header) | Err(header) => Err(damaged(header)),
        }
    }

    /// Returns the header's bytes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.node;
        bytes[6..8].copy_from_slice(&self.flow.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[16..22].copy_from_slice(&self.seq.to_be_bytes()[2..]);
        bytes[22..30].copy_from_slice(&self.intended.0.to_be_bytes());
        bytes[30..38].copy_from_slice(&self.sent.0.to_be_bytes());
        let check = self.check(&bytes);
        bytes[CHECKED_BYTES..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// Returns the check (CRC or parity) of this header, given its bytes.
    fn check(&self, bytes: &[u8; HEADER_BYTES]) -> u32 {
        if self.kind == Kind::Live { parity(self) } else { crc32(&bytes[..CHECKED_BYTES]) }
    }

    /// Writes the header, truncated if needed, at the start of `payload`.
    pub fn write(self, payload: &mut [u8]) {
        let length = payload.len().min(HEADER_BYTES);
        payload[..length].copy_from_slice(&self.to_bytes()[..length]);
    }
}

impl Kind {
    /// Every kind, in the order of the numbers in frames, which begin at 1.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Answer,
        Self::End,
        Self::EndAck,
        Self::SyncRequest,
        Self::SyncReply,
        Self::Live,
        Self::SyncFollowUp,
        Self::Greeting,
        Self::GreetingReply,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// Returns the check of a header that the kernel writes, which has no time for a CRC: the exclusive or of its 32-bit
/// words. It detects every single-bit error.
pub const fn parity(header: &StreamHeader) -> u32 {
    let words = header.key.0 ^ header.seq ^ header.intended.0.cast_unsigned() ^ header.sent.0.cast_unsigned();
    let start = (header.kind as u32) << 24 | (header.node as u32) << 16 | header.flow as u32;
    (words >> 32) as u32 ^ words as u32 ^ start
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; 8] {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    word
}

/// The pattern: byte `i` of the user data, counted from its start. Its period is 256 bytes.
static PATTERN: [u8; PATTERN_BYTES] = pattern();

/// A whole number of periods, so that comparisons work on long slices.
const PATTERN_BYTES: usize = 1024;

const fn pattern() -> [u8; PATTERN_BYTES] {
    let mut bytes = [0; PATTERN_BYTES];
    let mut index = 0;
    while index < PATTERN_BYTES {
        bytes[index] = ((index * 167 + 13) & 0xFF) as u8;
        index += 1;
    }
    bytes
}

/// Fills the user data after the header with the pattern.
pub fn fill(payload: &mut [u8]) {
    for (index, piece) in payload.chunks_mut(PATTERN_BYTES).enumerate() {
        let skipped = if index == 0 { HEADER_BYTES.min(piece.len()) } else { 0 };
        let end = piece.len();
        piece[skipped..].copy_from_slice(&PATTERN[skipped..end]);
    }
}

/// Returns whether the user data after the header equals the pattern.
pub fn is_intact(payload: &[u8]) -> bool {
    payload.chunks(PATTERN_BYTES).enumerate().all(|(index, piece)| {
        let skipped = if index == 0 { HEADER_BYTES.min(piece.len()) } else { 0 };
        piece[skipped..] == PATTERN[skipped..piece.len()]
    })
}

/// The data after the header of a synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncTail {
    /// The clock that keeps the time: equal IDs are one clock.
    pub clock: u64,
    /// In a reply: the source of the request's RX timestamp. In a follow-up: the source of the reply's TX timestamp.
    pub source: Source,
    /// In a request: a follow-up is wanted. In a reply: a follow-up will be sent.
    pub follows_up: bool,
}

impl SyncTail {
    /// Its length: 6 bytes of clock ID, 1 of the source, 1 of flags: bit 0 follow-up, the others reserved.
    pub const BYTES: usize = 8;

    /// Parses the data after the header; `None` when it is truncated or invalid.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes = payload.get(HEADER_BYTES..)?.first_chunk::<{ Self::BYTES }>()?;
        let [a, b, c, d, e, f, source, flags] = *bytes;
        let source = match source {
            1 => Source::Hardware,
            2 => Source::Kernel,
            3 => Source::User,
            4 => Source::Simulated,
            5 => Source::Bpf,
            _ => return None,
        };
        Some(Self { clock: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), source, follows_up: flags & 1 == 1 })
    }

    /// Writes it after the header of `payload`, if it fits.
    pub fn write(self, payload: &mut [u8]) {
        let Some(place) = payload.get_mut(HEADER_BYTES..SYNC_BYTES) else { return };
        place[..6].copy_from_slice(&self.clock.to_be_bytes()[2..]);
        place[6] = match self.source {
            Source::Hardware => 1,
            Source::Kernel => 2,
            Source::User => 3,
            Source::Simulated => 4,
            Source::Bpf => 5,
        };
        place[7] = u8::from(self.follows_up);
    }
}

/// The data after the header of a greeting and of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreetingTail {
    /// A random number of the receiver's process. A sender that returns it receives at its stated address: it neither
    /// forged that address nor replays a recorded greeting.
    pub cookie: u64,
    /// The message.
    pub word: GreetingWord,
}

/// The message of a greeting or of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreetingWord {
    /// Sender: this is my key. First with a cookie of no receiver, then with that of each receiver that replied.
    Greet,
    /// Receiver: greet again, with this cookie.
    Again,
    /// Receiver: frames of this flow and this key are counted.
    Accepted,
    /// Receiver: this flow already counts another sender's frames.
    Taken,
    /// Receiver: this flow is not counted.
    NoSuchFlow,
    /// Receiver: only greetings authenticated with the shared key are accepted. Sent without a tag, to a sender without
    /// the key.
    Keyed,
}

impl GreetingTail {
    /// Its length: 8 bytes of cookie, 1 of the message.
    pub const BYTES: usize = 9;

    /// Parses the data after the header; `None` when it is truncated or invalid.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (cookie, rest) = payload.get(HEADER_BYTES..)?.split_first_chunk::<8>()?;
        let word = match rest.first()? {
            0 => GreetingWord::Greet,
            1 => GreetingWord::Again,
            2 => GreetingWord::Accepted,
            3 => GreetingWord::Taken,
            4 => GreetingWord::NoSuchFlow,
            5 => GreetingWord::Keyed,
            _ => return None,
        };
        Some(Self { cookie: u64::from_be_bytes(*cookie), word })
    }

    /// Writes it after the header of `payload`, if it fits.
    pub fn write(self, payload: &mut [u8]) {
        let Some(place) = payload.get_mut(HEADER_BYTES..GREETING_BYTES) else { return };
        place[..8].copy_from_slice(&self.cookie.to_be_bytes());
        place[8] = match self.word {
            GreetingWord::Greet => 0,
            GreetingWord::Again => 1,
            GreetingWord::Accepted => 2,
            GreetingWord::Taken => 3,
            GreetingWord::NoSuchFlow => 4,
            GreetingWord::Keyed => 5,
        };
    }
}

/// Returns the text after the header of an end, without zero padding; `None` when it is not valid UTF-8.
pub fn end_text(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload.get(HEADER_BYTES..)?).ok()?;
    Some(text.trim_end_matches('\0'))
}

/// A VLAN tag (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The VLAN identifier, 12 bits; 0: priority only.
    pub vlan: u16,
    /// Priority code point, 3 bits.
    pub priority: u8,
}

/// The Ethernet header of a raw stream's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The destination address.
    pub destination: MacAddress,
    /// The source address.
    pub source: MacAddress,
    /// The VLAN tag; of two, the inner one.
    pub tag: Option<Tag>,
}

impl Link {
    /// Splits a frame into header and user data; `None` when it is too short or not a stream's frame.
    pub fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, mut payload) = ethernet::Header::split(frame)?;
        let mut ethertype = header.ethertype;
        let mut tag = None;
        for _ in 0..2 {
            if !TAG_ETHERTYPES.contains(&ethertype) {
                break;
            }
            let (bytes, rest) = payload.split_first_chunk::<TAG_BYTES>()?;
            let control = u16::from_be_bytes([bytes[0], bytes[1]]);
            tag = Some(Tag { vlan: control & 0x0FFF, priority: (control >> 13) as u8 });
            ethertype = u16::from_be_bytes([bytes[2], bytes[3]]);
            payload = rest;
        }
        let link = Self { destination: header.destination, source: header.source, tag };
        (ethertype == STREAM_ETHERTYPE).then_some((link, payload))
    }

    /// Returns the length of the header with its tag.
    pub const fn header_bytes(self) -> usize {
        ethernet::HEADER_BYTES + if self.tag.is_some() { TAG_BYTES } else { 0 }
    }

    /// Writes the header at the start of `frame`, if it fits.
    pub fn write(self, frame: &mut [u8]) {
        let Some(place) = frame.get_mut(..self.header_bytes()) else { return };
        place[..6].copy_from_slice(&self.destination.0);
        place[6..12].copy_from_slice(&self.source.0);
        if let Some(Tag { vlan, priority }) = self.tag {
            let control = (vlan & 0x0FFF) | u16::from(priority & 7) << 13;
            place[12..14].copy_from_slice(&TAG_ETHERTYPES[0].to_be_bytes());
            place[14..16].copy_from_slice(&control.to_be_bytes());
        }
        let end = place.len();
        place[end - 2..].copy_from_slice(&STREAM_ETHERTYPE.to_be_bytes());
    }

    /// Returns the header of an answer: to the frame's source, from the address `own`.
    pub const fn back(self, own: MacAddress) -> Self {
        Self { destination: self.source, source: own, tag: self.tag }
    }
}

#[cfg(test)]
mod tests;
