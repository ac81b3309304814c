//! The flows of a log by socket cookie, numbered by [`Numbers`].
//!
//! A flow is dropped when its number is released after its final entry, so memory does not grow with the number of
//! flows.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sojourn_record::tcp;
use sojourn_time::Time;

use super::text_of;
use crate::account::{Both, Counters, Disposition, Tally, add_both, leave_out};
use crate::layout::Flow;
use crate::numbers::Numbers;

const AF_INET: u16 = 2;

/// The number of cache entries, by the last bits of the slot.
const CACHED: usize = 1024;

#[derive(Default)]
pub(super) struct Flows {
    /// Index into `seen` by cookie.
    places: HashMap<u64, usize>,
    seen: Vec<Seen>,
    free: Vec<usize>,
    cache: Vec<usize>,
    numbers: Numbers,
    /// Flows whose numbers have been released.
    over: VecDeque<u64>,
    logged: [Tally; 2],
}

/// The data collected about a flow.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) cookie: u64,
    /// 0: no sample yet.
    pub(super) number: i32,
    first_ns: u64,
    last_ns: u64,
    /// The packets with samples.
    pub(super) logged: [Tally; 2],
    left_out: Vec<(Disposition, [Tally; 2])>,
    /// The latest entry of each flow of the kernel: a reused socket has several.
    words: Vec<Word>,
}

#[derive(Clone)]
struct Word {
    slot: u32,
    flow: Flow,
    is_last: bool,
}

impl Flows {
    /// Handle a sample of a flow; `packet` is its direction and number of segments, if any. Return the flow's number.
    pub(super) fn take(&mut self, cookie: u64, slot: u32, time_ns: u64, packet: Option<(usize, u64)>) -> i32 {
        if self.cache.is_empty() {
            self.cache = vec![usize::MAX; CACHED];
        }
        let at = slot as usize % CACHED;
        let is_known = |seen: &Seen| seen.cookie == cookie && seen.number != 0;
        if !self.seen.get(self.cache[at]).is_some_and(is_known) {
            let place = self.place(cookie);
            self.seen[place].number = self.numbers.sample(cookie, slot);
            self.cache[at] = place;
        }
        let seen = &mut self.seen[self.cache[at]];
        if seen.first_ns == 0 {
            seen.first_ns = time_ns;
        }
        seen.last_ns = seen.last_ns.max(time_ns);
        if let Some((direction, segments)) = packet {
            let one = Tally { packets: 1, segments };
            seen.logged[direction].add(one);
            self.logged[direction].add(one);
        }
        seen.number
    }

    /// Store an entry of a flow, replacing an earlier one.
    pub(super) fn tell(&mut self, slot: u32, flow: &Flow, is_last: bool) {
        let place = self.place(flow.cookie);
        let words = &mut self.seen[place].words;
        match words.iter_mut().find(|word| word.slot == slot && word.flow.generation == flow.generation) {
            Some(word) => (word.flow, word.is_last) = (*flow, word.is_last || is_last),
            None => words.push(Word { slot, flow: *flow, is_last }),
        }
        if let Some((cookie, number)) = self.numbers.word(flow.cookie, slot, is_last) {
            let place = self.place(cookie);
            self.seen[place].number = number;
            self.over.push_back(cookie);
        }
    }

    /// Add packets of a flow that were left out.
    pub(super) fn leave_out(&mut self, cookie: u64, disposition: Disposition, tallies: [Tally; 2]) {
        let place = self.place(cookie);
        self.seen[place].left_out.push((disposition, tallies));
    }

    /// Remove and return a flow that ended long ago.
    pub(super) fn give_up(&mut self) -> Option<Seen> {
        let place = self.places.remove(&self.over.pop_front()?)?;
        self.free.push(place);
        Some(std::mem::take(&mut self.seen[place]))
    }

    /// Remove and return all flows in the order of their numbers; those without a sample get theirs last.
    pub(super) fn give_up_all(&mut self) -> Vec<Seen> {
        let mut cookies: Vec<_> = self.places.drain().collect();
        cookies.sort_unstable();
        let mut all = Vec::with_capacity(cookies.len());
        for (cookie, place) in cookies {
            let seen = std::mem::take(&mut self.seen[place]);
            all.push(Seen { number: self.numbers.number(cookie), ..seen });
        }
        all.sort_unstable_by_key(|seen| seen.number);
        all
    }

    /// Return how many flows are in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.seen.len()
    }

    /// Return the packets with samples, of all flows.
    pub(super) fn logged(&self) -> [Tally; 2] {
        self.logged
    }

    fn place(&mut self, cookie: u64) -> usize {
        if let Some(place) = self.places.get(&cookie) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.seen.push(Seen::default());
            self.seen.len() - 1
        });
        self.seen[place].cookie = cookie;
        self.places.insert(cookie, place);
        place
    }
}

impl Seen {
    /// Whether all of its entries are final.
    pub(super) fn is_over(&self) -> bool {
        self.words.iter().all(|word| word.is_last)
    }

    /// Return the kernel's counters without what was left out; `None`: there was no entry.
    pub(super) fn counted(&self) -> Option<Both> {
        let mut both = Both::default();
        for word in &self.words {
            both.iter_mut()
                .zip(&word.flow.directions)
                .for_each(|(counters, counts)| counters.add(&Counters::from(counts)));
        }
        self.left_out.iter().for_each(|(disposition, tallies)| leave_out(&mut both, *disposition, *tallies));
        (!self.words.is_empty()).then_some(both)
    }

    /// Add its packets that were left out to the sums.
    pub(super) fn add_left_out(&self, sums: &mut Vec<(Disposition, [Tally; 2])>) {
        for (disposition, tallies) in &self.left_out {
            match sums.iter_mut().find(|(known, _)| known == disposition) {
                Some((_, sum)) => add_both(sum, *tallies),
                None => sums.push((*disposition, *tallies)),
            }
        }
    }

    /// Return its row.
    pub(super) fn row(&self, block: i32) -> tcp::Flow {
        of(block, self.number, self, self.words.last().map(|word| &word.flow))
    }
}

fn of(block: i32, number: i32, seen: &Seen, told: Option<&Flow>) -> tcp::Flow {
    let first = told.map(|flow| flow.first_ns).filter(|time| *time != 0).unwrap_or(seen.first_ns);
    let last = told.map_or(0, Flow::last_ns).max(seen.last_ns);
    let local = told.map(|flow| address(flow.family, flow.local));
    let remote = told.map(|flow| address(flow.family, flow.remote));
    let text = |address: Option<IpAddr>| address.map(|address| address.to_string()).unwrap_or_default();
    tcp::Flow {
        block,
        flow: number,
        socket_cookie: seen.cookie,
        netns_cookie: told.map_or(0, |flow| flow.netns),
        cgroup: told.map(|flow| flow.cgroup).filter(|cgroup| *cgroup != 0),
        process: told.map(|flow| flow.process).filter(|process| *process != 0),
        command: told.map(|flow| text_of(&flow.command)).filter(|command| !command.is_empty()),
        local_address: text(local),
        local_port: told.map_or(0, |flow| flow.local_port),
        remote_address: text(remote),
        remote_port: told.map_or(0, |flow| flow.remote_port),
        algorithm: told.map(|flow| text_of(&flow.algorithm)).unwrap_or_default(),
        first: Time(first.cast_signed()),
        last: Time(last.max(first).cast_signed()),
        ended: told.map(|flow| flow.ended_ns).filter(|time| *time != 0).map(|time| Time(time.cast_signed())),
        is_wanted: told.is_none_or(|flow| flow.verdict & 1 == 1),
    }
}

/// Convert an address of the kernel; IPv4 in IPv6 becomes IPv4.
fn address(family: u16, bytes: [u8; 16]) -> IpAddr {
    if family == AF_INET {
        let [a, b, c, d, ..] = bytes;
        return Ipv4Addr::new(a, b, c, d).into();
    }
    IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
}

/// Return a flow in SIFTR's format.
pub(super) fn endpoints(flow: &tcp::Flow) -> String {
    let tcp::Flow { local_address, local_port, remote_address, remote_port, .. } = flow;
    format!("{local_address};{local_port}-{remote_address};{remote_port}")
}
