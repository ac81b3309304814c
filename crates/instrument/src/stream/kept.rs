//! Ports, and programs of ours in the kernel, that stay between the streams of a search.
//!
//! The kernel closes a packet socket, sets a transmit ring up and hangs a program on an interface only after every processor has
//! been quiet for a moment: some 10 to 30 ms each, and to hang a program on a veth changes the features of its other end, which is
//! a port of the device under test. A search makes hundreds of short streams over the same ports. Does not open any.

use sojourn_live::LiveSender;
use sojourn_port::bpf::Anchor;
use sojourn_port::kernel::Interface;
use sojourn_port::{Batch, PortError};

use super::ports::Open;
use super::request::{ReceivePort, StampsAsked};
use super::to::{To, Via};

/// The most frames that are thrown away of what came between two streams: more than sockets hold.
const MOST_STALE: usize = 1 << 18;

/// What was left open.
#[derive(Default)]
pub struct Kept {
    receivers: Vec<(ReceivePort, Open)>,
    senders: Vec<(To, Open)>,
    /// Each can be aimed at any interface, and hangs on none that is measured.
    live: Vec<LiveSender>,
    /// For the first of them.
    anchor: Option<Anchor>,
}

impl Kept {
    /// Begins with nothing; the first sender of live frames that is left is held by `anchor`.
    pub fn held_by(anchor: Option<Anchor>) -> Self {
        Self { anchor, ..Self::default() }
    }

    /// Closes every port: a counter takes the frames of streams from every other receiver, and none is left where another way to
    /// receive may be next.
    pub fn release(&mut self) {
        self.receivers.clear();
        self.senders.clear();
    }

    /// Returns the port that was left for this, with nothing counted and nothing waiting; closes what receives by other means
    /// at its interface. One whose interface has changed meanwhile, or which cannot be emptied, is closed: what is opened anew
    /// tells why, or works.
    pub fn take_receiver(&mut self, asked: &ReceivePort) -> Option<Open> {
        let found = self.receivers.iter().position(|(before, _)| is_same_receiver(before, asked));
        let Some(mut open) = found.map(|at| self.receivers.swap_remove(at).1) else {
            self.receivers.retain(|(before, _)| before.dev != asked.dev);
            return None;
        };
        let is_clear = open.counter.as_mut().is_none_or(|counter| counter.clear().is_ok());
        (is_clear && is_as_opened(&open) && discard(&mut *open.port).is_ok()).then_some(open)
    }

    /// Leaves a port open, for the next stream that is received in the same way.
    pub fn leave_receiver(&mut self, asked: &ReceivePort, open: Open) {
        if asked.via() != Via::Udp {
            self.receivers.push((asked.clone(), open));
        }
    }

    /// Returns the port that was left for this, with nothing waiting; closes what sends by other means at its interface, and what
    /// is no longer as it was opened.
    pub fn take_sender(&mut self, to: &To, stamps: StampsAsked) -> Option<Open> {
        let found = self.senders.iter().position(|(before, _)| is_kept(to, stamps) && is_same_sender(before, to));
        let Some(mut open) = found.map(|at| self.senders.swap_remove(at).1) else {
            self.senders.retain(|(before, _)| before.dev != to.dev);
            return None;
        };
        (is_as_opened(&open) && discard(&mut *open.port).is_ok()).then_some(open)
    }

    /// Leaves a port open, for the next stream that leaves in the same way; one that takes stamps is closed, for those of the last
    /// stream could come in the next.
    pub fn leave_sender(&mut self, to: &To, stamps: StampsAsked, open: Open) {
        if is_kept(to, stamps) {
            self.senders.push((to.clone(), open));
        }
    }

    /// Returns a sender of live frames that is loaded; the one that is held by the anchor where it is there.
    pub fn take_live(&mut self) -> Option<LiveSender> {
        let held = self.live.iter().position(LiveSender::is_held);
        held.map(|at| self.live.swap_remove(at)).or_else(|| self.live.pop())
    }

    /// Leaves a sender of live frames loaded: always, for the anchor goes with the one that it holds.
    pub fn leave_live(&mut self, mut sender: LiveSender) {
        if let Some(anchor) = self.anchor.take() {
            // Without it, streams take longer to begin and to end.
            let _ = sender.hold_by(anchor);
        }
        self.live.push(sender);
    }
}

/// Whether such a port may stay: UDP sockets cost nothing to open.
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

/// Whether its interface is the one that it was opened on, with the same address and length, and programs of ours still hang there.
fn is_as_opened(open: &Open) -> bool {
    let is_same = open.interface.as_ref().is_none_or(|then| Interface::named(&then.name).is_ok_and(|now| now == *then));
    is_same && open.port.is_attached() && open.counter.as_ref().is_none_or(|counter| counter.is_attached())
}

/// Throws away what came to a port since the last stream.
fn discard(port: &mut dyn Batch) -> Result<(), PortError> {
    let mut left = MOST_STALE;
    while left > 0 {
        let taken = port.receive_batch(&mut |_, _| {})?;
        left = if taken == 0 { 0 } else { left.saturating_sub(taken) };
    }
    while port.capabilities().tx_timestamps && port.tx_timestamp()?.is_some() {}
    Ok(())
}
