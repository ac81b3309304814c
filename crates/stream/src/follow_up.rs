//! Follow-ups to time replies: they carry the departure of the reply by its driver, which is known only after
//! it has left. Pure; as two-step clocks of PTP (IEEE 1588, `Follow_Up`).

use std::collections::VecDeque;
use std::net::SocketAddr;

use sojourn_port::{Sent, StampKind, TxTimestamp};
use sojourn_wire::StreamHeader;
use sojourn_wire::stream::{Kind, SyncTail};

use crate::Auth;

/// Maximum number of replies that wait for their TX timestamps; beyond, the oldest gets no follow-up.
const MOST_DUE: usize = 64;

/// The maximum length of a reply: an Ethernet header with VLAN tag, a reply and its authentication tag: 18 + 50 + 16 bytes.
const LONGEST_BYTES: usize = 84;

/// A follow-up that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowUp {
    /// Its length in bytes.
    pub length: usize,
    /// Where a socket sent the reply, and must send this; `None`: to the address that it carries.
    pub to: Option<SocketAddr>,
}

/// Replies that promised a follow-up and wait for their TX timestamps.
#[derive(Debug)]
pub(crate) struct FollowUps {
    due: VecDeque<Due>,
    auth: Auth,
}

#[derive(Debug)]
struct Due {
    port: usize,
    to: Option<SocketAddr>,
    number: u32,
    head_bytes: usize,
    length: usize,
    /// The reply, which the follow-up repeats except for its kind and its departure.
    reply: [u8; LONGEST_BYTES],
}

impl FollowUps {
    /// Creates an empty list for replies with tags of `auth`.
    pub fn new(auth: Auth) -> Self {
        Self { due: VecDeque::new(), auth }
    }

    /// Adds a reply that left by a port to a peer, if it promises a follow-up.
    pub fn promise(&mut self, (port, to): (usize, Option<SocketAddr>), frame: &[u8], head_bytes: usize, sent: Sent) {
        let Some(payload) = frame.get(head_bytes..) else { return };
        let is_reply = StreamHeader::read(payload).is_ok_and(|header| header.kind == Kind::SyncReply);
        let promises = is_reply && SyncTail::read(payload).is_some_and(|tail| tail.follows_up);
        let mut reply = [0; LONGEST_BYTES];
        let Some(room) = reply.get_mut(..frame.len()).filter(|_| promises) else { return };
        room.copy_from_slice(frame);
        if self.due.len() == MOST_DUE {
            self.due.pop_front();
        }
        self.due.push_back(Due { port, to, number: sent.number, head_bytes, length: frame.len(), reply });
    }

    /// Writes the follow-up to the reply that a TX timestamp belongs to; `None` if there is none.
    pub fn on_stamp(&mut self, port: usize, stamp: &TxTimestamp, room: &mut [u8]) -> Option<FollowUp> {
        let is_of = |due: &Due| (due.port, due.number) == (port, stamp.number);
        let place = self.due.iter().position(is_of).filter(|_| stamp.kind == StampKind::Left)?;
        let due = self.due.remove(place)?;
        let room = room.get_mut(..due.length)?;
        room.copy_from_slice(&due.reply[..due.length]);
        let payload = &mut room[due.head_bytes..];
        let (header, tail) = (StreamHeader::read(payload).ok()?, SyncTail::read(payload)?);
        StreamHeader { kind: Kind::SyncFollowUp, sent: stamp.left.at, ..header }.write(payload);
        SyncTail { source: stamp.left.source, follows_up: false, ..tail }.write(payload);
        self.auth.seal(payload);
        Some(FollowUp { length: due.length, to: due.to })
    }
}
