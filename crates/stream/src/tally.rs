//! The account of one stream at one port.

use sojourn_port::Received;
use sojourn_time::Time;
use sojourn_wire::StreamHeader;

use crate::accounting::Counting;
use crate::outcome::{Arrival, FlowReceived};
use crate::window::Window;
use crate::{ReceivedCounts, Spread};

/// What is known of how many packets of a stream were sent to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// So many.
    Sent {
        /// How many.
        sent: u64,
        /// The number after the highest that one of them can have.
        next: u64,
    },
    /// None: it was sent to other ports.
    Elsewhere,
    /// Not known: as many as the highest number that arrived tells.
    Nothing,
}

/// The account of one stream at one port.
#[derive(Debug)]
pub struct Tally {
    received: FlowReceived,
    window: Window,
    /// Frames that were damaged beyond recognition.
    damaged: u64,
    /// Number and delay of the packet that arrived last.
    previous: Option<(u64, i64)>,
}

impl Tally {
    pub fn new(flow: u16, port: usize, node: u8) -> Self {
        let received = FlowReceived {
            flow,
            port,
            node,
            counts: ReceivedCounts::default(),
            payload_bytes: 0,
            first_arrival: None,
            last_arrival: None,
            delay: Spread::default(),
            ipdv: Spread::default(),
            inter_arrival: Spread::default(),
            loss_run: Spread::default(),
            gap_run: Spread::default(),
        };
        Self { received, window: Window::default(), damaged: 0, previous: None }
    }

    pub const fn flow(&self) -> u16 {
        self.received.flow
    }

    pub const fn port(&self) -> usize {
        self.received.port
    }

    pub const fn node(&self) -> u8 {
        self.received.node
    }

    pub const fn set_node(&mut self, node: u8) {
        self.received.node = node;
    }

    pub const fn is_empty(&self) -> bool {
        self.received.counts.frames() == 0
    }

    /// Takes one of the stream's packets, and returns its row.
    pub fn take(
        &mut self,
        header: &StreamHeader,
        received: &Received,
        is_whole: bool,
        bytes: usize,
        counting: &Counting,
    ) -> Arrival {
        let place = self.window.mark(header.seq);
        let delay = received.arrived.at - header.sent - counting.clock_offset;
        let is_first = is_whole && !place.is_duplicate;
        let row = Arrival {
            is_duplicate: place.is_duplicate,
            is_reordered: place.is_reordered && is_first,
            is_late: is_first && delay > counting.late_after,
            is_corrupted: !is_whole,
            ..self.row(header, received)
        };
        let counts = &mut self.received.counts;
        counts.duplicated += u64::from(place.is_duplicate);
        counts.corrupted += u64::from(!is_whole && !place.is_duplicate);
        counts.first += u64::from(is_first);
        counts.reordered += u64::from(row.is_reordered);
        counts.late += u64::from(row.is_late);
        if is_first {
            self.received.payload_bytes += bytes as u64;
            self.time(header.seq, delay.0, received.arrived.at);
        }
        row
    }

    /// Takes a frame that was damaged beyond recognition.
    pub const fn on_damaged(&mut self) {
        self.damaged += 1;
    }

    /// Accounts for what did not arrive of what was sent.
    pub fn finish(self, told: Told) -> FlowReceived {
        let Self { mut received, window, damaged, .. } = self;
        let (sent, next) = match told {
            Told::Sent { sent, next } => (sent, next),
            Told::Elsewhere => (0, 0),
            Told::Nothing => (window.next(), window.next()),
        };
        let counts = &mut received.counts;
        let arrived = counts.first + counts.corrupted;
        let missing = sent.checked_sub(arrived).unwrap_or_else(|| {
            counts.excess = arrived - sent;
            0
        });
        // A number that was never sent is one too many, though as many others are missing.
        counts.excess = counts.excess.max(u64::from(window.next() > next));
        if told == Told::Elsewhere {
            counts.excess = 0;
        }
        // What was damaged beyond recognition is some of what is missing; were there more of it, the others were
        // copies.
        let corrupted = damaged.min(missing);
        counts.corrupted += corrupted;
        counts.duplicated += damaged - corrupted;
        counts.lost = missing - corrupted;
        // Which of the missing numbers were refused and which were lost is not known: then there are no runs to tell.
        if next <= sent {
            let runs = window.finish(sent);
            (received.loss_run, received.gap_run) = (runs.losses, runs.gaps);
        }
        received
    }

    fn time(&mut self, seq: u64, delay_ns: i64, at: Time) {
        let received = &mut self.received;
        received.delay.record(delay_ns);
        if let Some((before, delay_before)) = self.previous.replace((seq, delay_ns))
            && before.wrapping_add(1) == seq
        {
            received.ipdv.record(delay_ns.saturating_sub(delay_before));
        }
        if let Some(last) = received.last_arrival {
            received.inter_arrival.record((at - last).0);
        }
        received.first_arrival.get_or_insert(at);
        received.last_arrival = Some(at);
    }

    fn row(&self, header: &StreamHeader, received: &Received) -> Arrival {
        Arrival {
            port: self.received.port as u16,
            flow: header.flow,
            node: header.node,
            seq: header.seq,
            intended: header.intended,
            sent: header.sent,
            arrival: received.arrived,
            receive_call: received.returned,
            ..Arrival::NONE
        }
    }
}
