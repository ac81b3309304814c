//! Read all records of a source, and count them independently of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use sojourn_tcplog::Source;
use sojourn_tcplog::account::{Account, Disposition, Tally};
use sojourn_tcplog::gaps::{Gap, Gaps};
use sojourn_tcplog::layout::{Flow, PrivateState, Sample, Totals, kind, point};

/// The records read so far.
#[derive(Default)]
pub struct Reader {
    /// All gaps so far.
    pub gaps: Vec<Gap>,
    /// The flows of freed slots, with their final counters.
    pub released: Vec<Flow>,
    found: Gaps,
    cpus: BTreeSet<u32>,
    flows: BTreeMap<u64, Read>,
    events: BTreeMap<u8, u64>,
    privates: u64,
}

/// The records of one flow.
#[derive(Default)]
struct Read {
    tallies: [Tally; 2],
    numbers: [BTreeSet<u64>; 2],
    times_ns: Vec<u64>,
}

impl Reader {
    /// Drain all rings once.
    pub fn read(&mut self, source: &mut impl Source) {
        let mut records = 0;
        let drained = source.drain(&mut |cpu, event| {
            records += 1;
            self.cpus.insert(cpu);
            self.note(cpu, event);
        });
        assert_eq!(drained.expect("drains"), records);
        for cpu in self.cpus.clone() {
            self.gaps.extend(self.found.end_batch(cpu));
        }
    }

    /// Find the open gaps, including those at the very end.
    pub fn finish(&mut self, totals: &[Totals]) {
        for (cpu, totals) in (0..).zip(totals) {
            self.gaps.extend(self.found.finish(cpu, totals.number));
        }
    }

    /// Free the slots of all ended flows.
    pub fn release_ended(&mut self, source: &mut impl Source) {
        let mut ended = Vec::new();
        source.ended_flows(&mut |slot, _| ended.push(slot));
        for slot in ended {
            self.released.extend(source.release(slot).expect("it has ended"));
        }
    }

    /// Return the counters of released flows.
    pub fn account_of_released(&self) -> Account {
        let mut account = Account::default();
        self.released.iter().for_each(|flow| account.add_flow(flow));
        account
    }

    /// Return the number of samples of packets.
    pub fn packets(&self) -> u64 {
        self.flows.values().flat_map(|read| read.tallies).map(|tally| tally.packets).sum()
    }

    /// Return the number of samples at this event.
    pub fn events(&self, point: u8) -> u64 {
        self.events.get(&point).copied().unwrap_or(0)
    }

    /// Return the number of private states.
    pub fn privates(&self) -> u64 {
        self.privates
    }

    /// Return the number of records.
    pub fn records(&self) -> u64 {
        self.packets() + self.privates + self.events.values().sum::<u64>()
    }

    /// Return the numbers of a flow's logged packets in one direction.
    pub fn numbers(&self, cookie: u64, way: usize) -> BTreeSet<u64> {
        self.flows.get(&cookie).map(|read| read.numbers[way].clone()).unwrap_or_default()
    }

    /// Return the times of each flow's logged packets.
    #[allow(dead_code, reason = "each test program uses a part of it")]
    pub fn times_of_packets(&self) -> Vec<Vec<u64>> {
        self.flows.values().map(|read| read.times_ns.clone()).collect()
    }

    /// Return the number of records missing in the gaps.
    pub fn missing(&self) -> u64 {
        assert_eq!(self.found.missing(), self.gaps.iter().map(|gap| gap.missing).sum::<u64>());
        self.found.missing()
    }

    /// Return the number of records that arrived twice or after their gap was returned.
    pub fn unexpected(&self) -> u64 {
        self.found.unexpected()
    }

    /// Assert that each flow's records equal the packets and segments counted as logged, in each direction.
    pub fn agrees_with(&self, account: &Account) {
        for (cookie, both) in &account.flows {
            let read = self.flows.get(cookie).map_or([Tally::default(); 2], |read| read.tallies);
            assert_eq!(
                read,
                [both[0].of(Disposition::Logged), both[1].of(Disposition::Logged)],
                "flow {cookie}: in and out"
            );
        }
        assert!(self.flows.keys().all(|cookie| account.flows.contains_key(cookie)), "no record without a flow");
        assert_eq!(self.unexpected(), 0, "no number came twice");
        let records = self.records() + self.missing();
        assert_eq!(records, account.numbers, "each number came, or is missing");
    }

    fn note(&mut self, cpu: u32, event: &[u8]) {
        let word = |at: usize| u64::from_ne_bytes(event[at..at + 8].try_into().expect("eight bytes"));
        if event[0] == kind::PRIVATE {
            assert!(event.len() >= size_of::<PrivateState>());
            self.privates += 1;
            return self.found.note(
                cpu,
                word(offset_of!(PrivateState, number)),
                word(offset_of!(PrivateState, time_ns)),
            );
        }
        assert_eq!(event[0], kind::SAMPLE);
        assert!(event.len() >= size_of::<Sample>());
        self.found.note(cpu, word(offset_of!(Sample, number)), word(offset_of!(Sample, time_ns)));
        let at = event[offset_of!(Sample, point)];
        let packet = word(offset_of!(Sample, packet));
        if !matches!(at, point::IN | point::OUT) {
            assert_eq!(packet, u64::MAX, "it belongs to no packet");
            *self.events.entry(at).or_default() += 1;
            return;
        }
        let place = offset_of!(Sample, segments);
        let segments = u16::from_ne_bytes([event[place], event[place + 1]]);
        assert!(segments > 0);
        let read = self.flows.entry(word(offset_of!(Sample, cookie))).or_default();
        read.tallies[usize::from(at)].add(Tally { packets: 1, segments: segments.into() });
        read.times_ns.push(word(offset_of!(Sample, time_ns)));
        assert!(read.numbers[usize::from(at)].insert(packet), "packet {packet} was logged twice");
    }
}
