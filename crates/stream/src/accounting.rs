//! Counts each arriving frame of the streams in exactly one place. Pure; allocates all memory at the start.

use sojourn_port::Received;
use sojourn_time::{Nanos, Time};
use sojourn_wire::stream::is_intact;
use sojourn_wire::stream::{Kind, Unread};
use sojourn_wire::{SessionKey, StreamHeader};

use crate::outcome::{Arrival, FlowReceived, PortReceived, ReceiveOutcome, SentCount};
use crate::request::Keep;
use crate::tally::{Tally, Told};

/// Initial room for answers, in answering nodes per flow.
const NODES_AT_FIRST: usize = 8;

/// How packets are counted.
#[derive(Clone, Copy, Debug)]
pub struct Counting {
    /// Which data to keep of each packet.
    pub keep: Keep,
    /// The delay above which a packet counts as late.
    pub late_after: Nanos,
    /// The clock offset subtracted from each delay.
    pub clock_offset: Nanos,
}

/// Whose frames are counted as those of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// There is no such flow.
    NotCounted,
    /// No sender's yet.
    Nobody,
    /// Those of the sender with this key.
    Of(SessionKey),
}

/// The counters of all streams at all ports.
#[derive(Debug)]
pub struct Accounting {
    counting: Counting,
    /// Index into `flows` by flow number; `NOWHERE` for unknown flows.
    places: Box<[u16]>,
    flows: Vec<u16>,
    /// The key of each flow, in the order of `flows`; frames with another key are unexpected.
    keys: Vec<Option<SessionKey>>,
    /// By port and flow, in that order; followed by those of further answering nodes.
    tallies: Vec<Tally>,
    ports: Vec<PortReceived>,
    rows: Vec<Arrival>,
    not_kept: u64,
    arrived: u64,
    last_arrival: Option<Time>,
}

const NOWHERE: u16 = u16::MAX;

impl Accounting {
    /// Creates counters for flows at a number of ports; `key`: the key of their frames, if known.
    pub fn new(counting: Counting, flows: &[u16], ports: usize, key: Option<SessionKey>) -> Self {
        let mut places = vec![NOWHERE; usize::from(u16::MAX) + 1].into_boxed_slice();
        for (place, flow) in flows.iter().enumerate().take(usize::from(NOWHERE)) {
            places[usize::from(*flow)] = place as u16;
        }
        let each = (0..ports).flat_map(|port| flows.iter().map(move |flow| Tally::new(*flow, port, 0)));
        let mut tallies: Vec<_> = each.collect();
        tallies.reserve(NODES_AT_FIRST * flows.len());
        let rows = match counting.keep {
            Keep::Packets { room } => crate::request::touched(room, Arrival::NONE),
            Keep::Histograms => Vec::new(),
        };
        let ports = vec![PortReceived::default(); ports];
        let (flows, keys) = (flows.to_vec(), vec![key; flows.len()]);
        Self { counting, places, flows, keys, tallies, ports, rows, not_kept: 0, arrived: 0, last_arrival: None }
    }

    /// Returns whose frames are counted as those of a flow.
    pub fn whose(&self, flow: u16) -> Whose {
        match self.keys.get(usize::from(self.places[usize::from(flow)])) {
            None => Whose::NotCounted,
            Some(None) => Whose::Nobody,
            Some(Some(key)) => Whose::Of(*key),
        }
    }

    /// Sets the key of a flow from now on.
    pub fn set_key(&mut self, flow: u16, key: SessionKey) {
        if let Some(of_flow) = self.keys.get_mut(usize::from(self.places[usize::from(flow)])) {
            *of_flow = Some(key);
        }
    }

    /// Returns whether a frame belongs to one of the streams.
    pub fn is_ours(&self, header: &StreamHeader) -> bool {
        self.whose(header.flow) == Whose::Of(header.key)
    }

    /// Counts a packet. Returns whether it arrived undamaged and for the first time.
    pub fn on_packet(&mut self, port: usize, header: &StreamHeader, payload: &[u8], received: &Received) -> bool {
        let Some(place) = self.place(port, header) else {
            self.on_unexpected(port, Some(header.kind));
            return false;
        };
        self.ports[port].frames += 1;
        let is_whole = header.kind == Kind::Live || is_intact(payload);
        let tally = &mut self.tallies[place];
        let row = tally.take(header, received, is_whole, payload.len(), &self.counting);
        let is_first = is_whole && !row.is_duplicate;
        self.arrived += u64::from(is_first);
        self.last_arrival = Some(received.arrived.at);
        if let Keep::Packets { room } = self.counting.keep {
            if self.rows.len() < room { self.rows.push(row) } else { self.not_kept += 1 }
        }
        is_first
    }

    /// Counts an unexpected frame, by its apparent kind.
    pub fn on_unexpected(&mut self, port: usize, kind: Option<Kind>) {
        let counted = &mut self.ports[port];
        counted.frames += 1;
        counted.unexpected.note(kind);
    }

    /// Counts a frame to a broadcast address, or to a group that its port did not join.
    pub fn on_to_group(&mut self, port: usize) {
        self.ports[port].frames += 1;
        self.ports[port].unexpected.to_group += 1;
    }

    /// Counts a frame that belongs to a stream but is not one of its packets.
    pub fn on_control(&mut self, port: usize) {
        self.ports[port].frames += 1;
        self.ports[port].control += 1;
    }

    /// Counts a packet, which is already in another count, as not answered.
    pub fn on_unanswered(&mut self, port: usize) {
        self.ports[port].unanswered += 1;
    }

    /// Counts a frame whose header cannot be read.
    pub fn on_unread(&mut self, port: usize, unread: Unread) {
        let Unread::Damaged { flow, key } = unread else { return self.on_unexpected(port, None) };
        let is_of = |place: usize| self.keys.get(place).is_some_and(|own| own.is_some_and(|own| own.is_near(key)));
        // The flow number may be the damaged part: then the frame belongs to the first flow with this key.
        let told = Some(usize::from(self.places[usize::from(flow)])).filter(|place| is_of(*place));
        let Some(place) = told.or_else(|| (0..self.keys.len()).find(|place| is_of(*place))) else {
            return self.on_unexpected(port, None);
        };
        self.ports[port].frames += 1;
        self.tallies[port * self.flows.len() + place].on_damaged();
    }

    /// Returns how many packets have arrived, and when the last did.
    pub const fn progress(&self) -> (u64, Option<Time>) {
        (self.arrived, self.last_arrival)
    }

    /// Counts what did not arrive. A flow whose number of sent packets is not in `sent` has no losses beyond
    /// the highest number that arrived.
    pub fn finish(mut self, sent: &[SentCount], local_drops: &[u64]) -> ReceiveOutcome {
        let mut flows: Vec<FlowReceived> = Vec::with_capacity(self.tallies.len());
        for tally in self.tallies.drain(..) {
            let count =
                sent.iter().find(|count| count.flow == tally.flow() && count.port.is_none_or(|p| p == tally.port()));
            // A flow that was sent only to other ports has no losses here.
            let elsewhere = sent.iter().any(|count| count.flow == tally.flow());
            flows.push(tally.finish(match count {
                Some(count) => Told::Sent { sent: count.sent, next: count.next.unwrap_or(count.sent) },
                None if elsewhere => Told::Elsewhere,
                None => Told::Nothing,
            }));
        }
        for (port, counted) in self.ports.iter_mut().enumerate() {
            counted.local_drops = local_drops.get(port).copied().unwrap_or_default();
            share_drops(counted.local_drops, flows.iter_mut().filter(|flow| flow.port == port).collect());
            if let Some(first) = flows.iter_mut().find(|flow| flow.port == port) {
                first.counts.unexpected = counted.unexpected;
            }
        }
        flows.sort_by_key(|flow| (flow.port, self.places[usize::from(flow.flow)], flow.node));
        ReceiveOutcome { flows, ports: self.ports, rows: self.rows, not_kept: self.not_kept }
    }

    fn place(&mut self, port: usize, header: &StreamHeader) -> Option<usize> {
        let place = usize::from(self.places[usize::from(header.flow)]);
        if self.keys.get(place) != Some(&Some(header.key)) {
            return None;
        }
        let place = port * self.flows.len() + place;
        if header.kind != Kind::Answer {
            return Some(place);
        }
        // The first node that answers uses the preallocated entry; others are appended.
        let tally = &mut self.tallies[place];
        if tally.node() == header.node || tally.is_empty() {
            tally.set_node(header.node);
            return Some(place);
        }
        let behind = self.ports.len() * self.flows.len();
        let mut others = self.tallies[behind..].iter();
        let known =
            others.position(|tally| (tally.port(), tally.flow(), tally.node()) == (port, header.flow, header.node));
        known.map(|known| behind + known).or_else(|| {
            self.tallies.push(Tally::new(header.flow, port, header.node));
            Some(self.tallies.len() - 1)
        })
    }
}

/// Distributes a socket's drops over the flows with missing packets, in proportion to these.
fn share_drops(drops: u64, mut flows: Vec<&mut FlowReceived>) {
    let mut missing: u64 = flows.iter().map(|flow| flow.counts.lost).sum();
    let mut left = drops.min(missing);
    for flow in &mut flows {
        let lost = flow.counts.lost;
        if missing == 0 {
            break;
        }
        let share = (u128::from(left) * u128::from(lost)).div_ceil(u128::from(missing)) as u64;
        let share = share.min(left).min(lost);
        flow.counts.local_drops = share;
        flow.counts.lost -= share;
        missing -= lost;
        left -= share;
    }
}

#[cfg(test)]
mod tests;
