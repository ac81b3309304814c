//! What a receiver says after its reply to a synchronisation: when that reply left by its driver, which is known only once it
//! has left. Pure; as PTP's two-step clocks (IEEE 1588, `Follow_Up`).

use std::collections::VecDeque;

use sojourn_port::{Sent, StampKind, TxTimestamp};
use sojourn_wire::StreamHeader;
use sojourn_wire::stream::{Kind, SyncTail};

use crate::Auth;

/// How many replies may wait for their stamps; of more the oldest has no follow-up.
const MOST_DUE: usize = 64;

/// An Ethernet header with its VLAN tag, a reply and the tag of its authentication: 18 + 50 + 16 bytes.
const LONGEST_BYTES: usize = 84;

/// Replies that promised a follow-up, until their stamps come.
#[derive(Debug)]
pub(crate) struct FollowUps {
    due: VecDeque<Due>,
    auth: Auth,
}

#[derive(Debug)]
struct Due {
    port: usize,
    number: u32,
    head_bytes: usize,
    length: usize,
    /// The reply, which the follow-up repeats but for its kind and its departure.
    reply: [u8; LONGEST_BYTES],
}

impl FollowUps {
    /// Awaits stamps of replies with such tags.
    pub fn new(auth: Auth) -> Self {
        Self { due: VecDeque::new(), auth }
    }

    /// Awaits the stamp of a reply, where it promises a follow-up.
    pub fn promise(&mut self, port: usize, frame: &[u8], head_bytes: usize, sent: Sent) {
        let Some(payload) = frame.get(head_bytes..) else { return };
        let is_reply = StreamHeader::read(payload).is_ok_and(|header| header.kind == Kind::SyncReply);
        let promises = is_reply && SyncTail::read(payload).is_some_and(|tail| tail.follows_up);
        let mut reply = [0; LONGEST_BYTES];
        let Some(room) = reply.get_mut(..frame.len()).filter(|_| promises) else { return };
        room.copy_from_slice(frame);
        if self.due.len() == MOST_DUE {
            self.due.pop_front();
        }
        self.due.push_back(Due { port, number: sent.number, head_bytes, length: frame.len(), reply });
    }

    /// Writes the follow-up of the reply that a stamp is of; `None` where it is of none.
    pub fn on_stamp(&mut self, port: usize, stamp: &TxTimestamp, room: &mut [u8]) -> Option<usize> {
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
        Some(due.length)
    }
}
