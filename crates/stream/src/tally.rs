//! The counters of one stream at one port.

use sojourn_port::Received;
use sojourn_time::Time;
use sojourn_wire::StreamHeader;

use crate::accounting::Counting;
use crate::outcome::{Arrival, FlowReceived};
use crate::window::Window;
use crate::{ReceivedCounts, Spread};

/// What is known about the number of packets of a stream that were sent to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The number is known.
    Sent {
        /// The number of packets.
        sent: u64,
        /// The highest sequence number plus one.
        next: u64,
    },
    /// None: the stream was sent to other ports.
    Elsewhere,
    /// Unknown: the highest number that arrived plus one is assumed.
    Nothing,
}

/// The counters of one stream at one port.
#[derive(Debug)]
pub struct Tally {
    received: FlowReceived,
    window: Window,
    /// Frames with a damaged header.
    damaged: u64,
    /// Sequence number and delay of the packet that arrived last.
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

    /// Counts a packet of the stream, and returns its row.
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

    /// Counts a frame with a damaged header.
    pub const fn on_damaged(&mut self) {
        self.damaged += 1;
    }

    /// Counts what did not arrive of what was sent.
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
        // A number that was never sent is an excess of one, even if as many others are missing.
        counts.excess = counts.excess.max(u64::from(window.next() > next));
        if told == Told::Elsewhere {
            counts.excess = 0;
        }
        // Frames with a damaged header are some of the missing packets; if there are more of them, the rest were duplicates.
        let corrupted = damaged.min(missing);
        counts.corrupted += corrupted;
        counts.duplicated += damaged - corrupted;
        counts.lost = missing - corrupted;
        // It is not known which of the missing numbers were refused and which were lost: then no runs can be reported.
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
