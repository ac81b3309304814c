//! The frames that arrive at a sender: replies of time exchanges, answers, and messages that are not meant for it. Pure.

use sojourn_port::{Capabilities, Framing, Received, Sent};
use sojourn_time::{Nanos, Time};
use sojourn_wire::stream::Kind;
use sojourn_wire::{SessionKey, StreamHeader};

use crate::accounting::{Accounting, Counting};
use crate::frame::split;
use crate::sync::Syncer;
use crate::{Auth, Exchange, ReceiveOutcome, SendRequest, SentCount, Unexpected};

/// Processes the frames that arrive at a sender.
#[derive(Debug)]
pub struct Ears {
    /// The time exchanges, if any are requested.
    pub(crate) sync: Option<Syncer>,
    answers: Option<Accounting>,
    key: SessionKey,
    auth: Auth,
    unexpected: Unexpected,
}

/// What arrived at a sender.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The time exchanges.
    pub exchanges: Vec<Exchange>,
    /// The answers, if receivers answer.
    pub answers: Option<ReceiveOutcome>,
    /// Messages with another key, and forged ones; over UDP also all that is not meant for a sender.
    pub unexpected: Unexpected,
}

impl Ears {
    /// Prepares for the replies and answers of a checked request, at ports with these capabilities.
    pub fn new(request: &SendRequest, ports: &[Capabilities]) -> Self {
        let has_stamps: Vec<_> = ports.iter().map(|port| port.tx_timestamps).collect();
        let flows: Vec<_> = request.flows.iter().map(|flow| flow.flow).collect();
        let counting = |late_after| Counting { keep: request.keep, late_after, clock_offset: Nanos::ZERO };
        let account = |late_after| Accounting::new(counting(late_after), &flows, ports.len(), Some(request.key));
        Self {
            sync: Syncer::new(request, &has_stamps),
            answers: request.answers_late_after.map(account),
            key: request.key,
            auth: request.auth.clone(),
            unexpected: Unexpected::default(),
        }
    }

    /// Returns whether anything is expected to arrive.
    pub const fn listens(&self) -> bool {
        self.sync.is_some() || self.answers.is_some()
    }

    /// Returns whether a time exchange is not complete.
    pub fn is_exchanging(&self) -> bool {
        self.sync.as_ref().is_some_and(Syncer::is_waiting)
    }

    /// Returns whether a frame may arrive at any time.
    pub fn is_waiting(&self) -> bool {
        self.is_exchanging() || self.answers.is_some()
    }

    /// Returns the port and the frame of the next time request; `None` if no exchanges are requested.
    pub fn request(&mut self, now: Time) -> Option<(usize, &[u8])> {
        self.sync.as_mut().map(|sync| sync.request(now))
    }

    /// Records that the time request was sent.
    pub fn asked(&mut self, sent: Sent) {
        if let Some(sync) = &mut self.sync {
            sync.asked(sent);
        }
    }

    /// Records that our own kernel refused the time request.
    pub(crate) fn refused(&mut self, now: Time) {
        if let Some(sync) = &mut self.sync {
            sync.refused(now);
        }
    }

    /// Processes a frame that arrived at the port with this index and these capabilities.
    pub fn on_frame(&mut self, (index, port): (usize, &Capabilities), frame: &[u8], received: &Received) {
        // A raw port also gets the frames of other streams at its interface, which their own receivers count.
        let is_ours_alone = port.framing == Framing::Udp;
        let header =
            split(port.framing, frame).and_then(|(_, payload)| Some((StreamHeader::read(payload).ok()?, payload)));
        let Some((header, payload)) = header else {
            if is_ours_alone {
                self.unexpected.note(None);
            }
            return;
        };
        match header.kind {
            // Messages of receivers with another key, and forged ones.
            Kind::Answer | Kind::SyncReply | Kind::SyncFollowUp | Kind::EndAck | Kind::GreetingReply
                if header.key != self.key =>
            {
                self.unexpected.note(Some(header.kind));
            }
            Kind::SyncReply | Kind::SyncFollowUp => match (&mut self.sync, self.auth.open(payload)) {
                (_, None) => self.unexpected.note(Some(header.kind)),
                (Some(sync), Some(said)) if header.kind == Kind::SyncReply => sync.on_reply(&header, said, received),
                (Some(sync), Some(said)) => sync.on_follow_up(&header, said),
                (None, Some(_)) => self.unexpected.note(Some(header.kind)),
            },
            Kind::Answer => {
                if let Some(answers) = &mut self.answers {
                    answers.on_packet(index, &header, payload, received);
                }
            }
            // Another receiver's, or a repeated one.
            Kind::EndAck | Kind::GreetingReply => {}
            Kind::Data | Kind::Live | Kind::SyncRequest | Kind::End | Kind::Greeting => {
                if is_ours_alone {
                    self.unexpected.note(Some(header.kind));
                }
            }
        }
    }

    /// Returns what has arrived, given the numbers of packets that were sent and the ports' drops.
    pub fn finish(self, sent: &[SentCount], local_drops: &[u64]) -> Heard {
        Heard {
            exchanges: self.sync.map(Syncer::finish).unwrap_or_default(),
            answers: self.answers.map(|answers| answers.finish(sent, local_drops)),
            unexpected: self.unexpected,
        }
    }
}

#[cfg(test)]
mod tests;
