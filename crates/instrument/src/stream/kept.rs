//! Keeps ports and loaded kernel programs between the streams of a search.
//!
//! Closing a packet socket, setting up a transmit ring and attaching a program to an interface each wait for an RCU
//! grace period, some 10 to 30 ms. Attaching a program to a veth also changes the features of its peer, which is a port
//! of the device under test. A search runs hundreds of short streams over the same ports. Opens none itself.

use sojourn_live::LiveSender;
use sojourn_port::bpf::Anchor;
use sojourn_port::kernel::Interface;
use sojourn_port::{Batch, PortError};

use super::ports::Open;
use super::request::{ReceivePort, StampsAsked};
use super::to::{To, Via};

/// The maximum number of frames discarded between two streams: more than sockets hold.
const MOST_STALE: usize = 1 << 18;

/// Ports and senders kept open.
#[derive(Default)]
pub struct Kept {
    receivers: Vec<(ReceivePort, Open)>,
    senders: Vec<(To, Open)>,
    /// Senders of live frames: each can send from any interface, and is attached to no measured one.
    live: Vec<LiveSender>,
    /// The anchor for the first of them.
    anchor: Option<Anchor>,
}

impl Kept {
    /// Creates an empty set; `anchor` will hold the first sender of live frames that is kept.
    pub fn held_by(anchor: Option<Anchor>) -> Self {
        Self { anchor, ..Self::default() }
    }

    /// Closes every port. An open counter would take stream frames from any other receiver, so none may stay open where
    /// another backend may receive next.
    pub fn release(&mut self) {
        self.receivers.clear();
        self.senders.clear();
    }

    /// Returns the port kept for this request, with counters cleared and its queue empty; closes ports with another
    /// backend at the same interface. If the interface has changed since, or the port cannot be emptied, the port is
    /// closed: opening a new one works or returns the error.
    pub fn take_receiver(&mut self, asked: &ReceivePort) -> Option<Open> {
        let found = self.receivers.iter().position(|(before, _)| is_same_receiver(before, asked));
        let Some(mut open) = found.map(|at| self.receivers.swap_remove(at).1) else {
            self.receivers.retain(|(before, _)| before.dev != asked.dev);
            return None;
        };
        let is_clear = open.counter.as_mut().is_none_or(|counter| counter.clear().is_ok());
        (is_clear && is_as_opened(&open) && discard(&mut *open.port).is_ok()).then_some(open)
    }

    /// Keeps a port open for the next stream that is received in the same way.
    pub fn leave_receiver(&mut self, asked: &ReceivePort, open: Open) {
        if asked.via() != Via::Udp {
            self.receivers.push((asked.clone(), open));
        }
    }

    /// Returns the port kept for this destination, with an empty queue; closes ports with another backend at the same
    /// interface, and a port whose interface has changed.
    pub fn take_sender(&mut self, to: &To, stamps: StampsAsked) -> Option<Open> {
        let found = self.senders.iter().position(|(before, _)| is_kept(to, stamps) && is_same_sender(before, to));
        let Some(mut open) = found.map(|at| self.senders.swap_remove(at).1) else {
            self.senders.retain(|(before, _)| before.dev != to.dev);
            return None;
        };
        (is_as_opened(&open) && discard(&mut *open.port).is_ok()).then_some(open)
    }

    /// Keeps a port open for the next stream that is sent in the same way. A port with TX timestamps is closed, because
    /// late timestamps of this stream could appear in the next.
    pub fn leave_sender(&mut self, to: &To, stamps: StampsAsked, open: Open) {
        if is_kept(to, stamps) {
            self.senders.push((to.clone(), open));
        }
    }

    /// Returns a loaded sender of live frames, preferably the one that the anchor holds.
    pub fn take_live(&mut self) -> Option<LiveSender> {
        let held = self.live.iter().position(LiveSender::is_held);
        held.map(|at| self.live.swap_remove(at)).or_else(|| self.live.pop())
    }

    /// Keeps a sender of live frames loaded, in every case, because the anchor belongs to the sender that it holds.
    pub fn leave_live(&mut self, mut sender: LiveSender) {
        if let Some(anchor) = self.anchor.take() {
            // Best effort: without the anchor, streams take longer to start and to end.
            let _ = sender.hold_by(anchor);
        }
        self.live.push(sender);
    }
}

/// Whether such a port is kept: UDP sockets are cheap to open.
fn is_kept(to: &To, stamps: StampsAsked) -> bool {
    to.via() != Via::Udp && (stamps == StampsAsked::None || matches!(to.via(), Via::Live | Via::Xdp))
}

fn is_same_receiver(one: &ReceivePort, other: &ReceivePort) -> bool {
    let way = |port: &ReceivePort| (port.via(), port.dev.clone(), port.answer.is_some(), port.buffer_bytes);
    way(one) == way(other) && one.groups == other.groups
}

fn is_same_sender(one: &To, other: &To) -> bool {
    let way = |to: &To| (to.via(), to.dev.clone(), to.qdisc_bypass, to.is_tagged());
    way(one) == way(other)
}

/// Whether the interface is unchanged (the same device, address and MTU) and the port's kernel programs are still attached.
fn is_as_opened(open: &Open) -> bool {
    let is_same = open.interface.as_ref().is_none_or(|then| Interface::named(&then.name).is_ok_and(|now| now == *then));
    is_same && open.port.is_attached() && open.counter.as_ref().is_none_or(|counter| counter.is_attached())
}

/// Discards the frames that arrived at a port since the last stream.
fn discard(port: &mut dyn Batch) -> Result<(), PortError> {
    let mut left = MOST_STALE;
    while left > 0 {
        let taken = port.receive_batch(&mut |_, _| {})?;
        left = if taken == 0 { 0 } else { left.saturating_sub(taken) };
    }
    while port.capabilities().tx_timestamps && port.tx_timestamp()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use sojourn_port::{Capabilities, Framing, Port, Received, Sent, TxTimestamp};
    use sojourn_time::{Source, Stamp, Time};

    use super::*;

    /// A port at which this many frames wait.
    struct Waiting(usize);

    impl Port for Waiting {
        fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
            unreachable!("nothing is sent")
        }

        fn receive(&mut self, _: &mut [u8]) -> Result<Option<Received>, PortError> {
            let arrived = Stamp { at: Time(0), source: Source::Kernel };
            let frame = Received { length: 0, arrived, returned: Time(0), from: None, to_group: false };
            Ok(self.0.checked_sub(1).map(|left| {
                self.0 = left;
                frame
            }))
        }

        fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
            Ok(None)
        }

        fn wait(&mut self, _: Time) -> Result<(), PortError> {
            Ok(())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { framing: Framing::Udp, max_frame: 100, tx_timestamps: false }
        }

        fn local_drops(&mut self) -> u64 {
            0
        }
    }

    impl Batch for Waiting {
        fn engine(&self) -> &str {
            "none"
        }
    }

    /// Frames that never end must not keep a stream from beginning.
    #[test]
    fn frames_discarded_between_two_streams_are_bounded() {
        for (waiting, left) in [(0, 0), (1_000, 0), (MOST_STALE, 0), (usize::MAX, usize::MAX - MOST_STALE)] {
            let mut port = Waiting(waiting);
            discard(&mut port).expect("discards");
            assert_eq!(port.0, left, "{waiting}");
        }
    }
}
