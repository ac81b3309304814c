//! Puts each arriving frame of some streams in exactly one count. Pure; takes all its memory at the start.

use sojourn_port::Received;
use sojourn_time::{Nanos, Time};
use sojourn_wire::stream::is_intact;
use sojourn_wire::stream::{Kind, Unread};
use sojourn_wire::{SessionKey, StreamHeader};

use crate::outcome::{Arrival, FlowReceived, PortReceived, ReceiveOutcome, SentCount};
use crate::request::Keep;
use crate::tally::{Tally, Told};

/// The least room for what answers, in answering nodes of each flow, that is there from the start.
const NODES_AT_FIRST: usize = 8;

/// What is counted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Counting {
    /// What to keep of each packet.
    pub keep: Keep,
    /// After how long a packet is late.
    pub late_after: Nanos,
    /// Taken off each delay.
    pub clock_offset: Nanos,
}

/// Whose frames are counted as those of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// There is no such flow.
    NotCounted,
    /// Nobody's yet.
    Nobody,
    /// Those of the sender with this key.
    Of(SessionKey),
}

/// The accounts of all streams at all ports.
#[derive(Debug)]
pub struct Accounting {
    counting: Counting,
    /// The place of each flow in `flows`, by its number; `NOWHERE` for those that are none of ours.
    places: Box<[u16]>,
    flows: Vec<u16>,
    /// The key of each flow, in that order; frames with another are unexpected.
    keys: Vec<Option<SessionKey>>,
    /// For each port and flow, in that order; behind them those of nodes that answered.
    tallies: Vec<Tally>,
    ports: Vec<PortReceived>,
    rows: Vec<Arrival>,
    not_kept: u64,
    arrived: u64,
    last_arrival: Option<Time>,
}

const NOWHERE: u16 = u16::MAX;

impl Accounting {
    /// Opens accounts for these flows at so many ports: for frames of this key, or of none yet.
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

    /// Counts frames of this key as those of a flow from now on.
    pub fn set_key(&mut self, flow: u16, key: SessionKey) {
        if let Some(of_flow) = self.keys.get_mut(usize::from(self.places[usize::from(flow)])) {
            *of_flow = Some(key);
        }
    }

    /// Tells whether a frame is of one of the streams.
    pub fn is_ours(&self, header: &StreamHeader) -> bool {
        self.whose(header.flow) == Whose::Of(header.key)
    }

    /// Takes one of the streams' packets. Returns whether it arrived whole and for the first time.
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

    /// Takes a frame that is none of ours; of which kind it seems to be, if of any.
    pub fn on_unexpected(&mut self, port: usize, kind: Option<Kind>) {
        let counted = &mut self.ports[port];
        counted.frames += 1;
        counted.unexpected.note(kind);
    }

    /// Takes a frame that belongs to a stream, but is none of its packets.
    pub fn on_control(&mut self, port: usize) {
        self.ports[port].frames += 1;
        self.ports[port].control += 1;
    }

    /// Takes a frame whose header cannot be read.
    pub fn on_unread(&mut self, port: usize, unread: Unread) {
        let Unread::Damaged { flow, key } = unread else { return self.on_unexpected(port, None) };
        let is_of = |place: usize| self.keys.get(place).is_some_and(|own| own.is_some_and(|own| own.is_near(key)));
        // The number of its flow may be what is damaged: then it is the first one's that has the key.
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

    /// Accounts for what did not arrive. A flow of which `sent` does not say how many there were has lost none beyond
    /// the highest number that arrived.
    pub fn finish(mut self, sent: &[SentCount], local_drops: &[u64]) -> ReceiveOutcome {
        let mut flows: Vec<FlowReceived> = Vec::with_capacity(self.tallies.len());
        for tally in self.tallies.drain(..) {
            let count =
                sent.iter().find(|count| count.flow == tally.flow() && count.port.is_none_or(|p| p == tally.port()));
            // A flow that was sent to other ports than this one has not lost anything here.
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
        // The first node that answers takes the place that is there; the others come behind.
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

/// Shares the frames that a socket dropped out among the flows that miss some, in proportion to how many they miss.
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
