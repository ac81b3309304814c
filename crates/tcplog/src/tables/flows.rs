//! The flows of a log: by the cookies of their sockets, numbered as [`Numbers`] has it.
//!
//! A flow whose last word was said is given up for good when its number is released: what is held does not grow with how many
//! flows there were.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sojourn_record::tcp;
use sojourn_time::Time;

use super::text_of;
use crate::account::{Both, Counters, Disposition, Tally, add_both, leave_out};
use crate::layout::Flow;
use crate::numbers::Numbers;

const AF_INET: u16 = 2;

/// How many flows are found without a search, by the last bits of their slots.
const CACHED: usize = 1024;

#[derive(Default)]
pub(super) struct Flows {
    /// By cookie: the place in `seen`.
    places: HashMap<u64, usize>,
    seen: Vec<Seen>,
    free: Vec<usize>,
    cache: Vec<usize>,
    numbers: Numbers,
    /// Flows whose numbers are released.
    over: VecDeque<u64>,
    logged: [Tally; 2],
}

/// What is known of a flow.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) cookie: u64,
    /// 0: it has no sample yet.
    pub(super) number: i32,
    first_ns: u64,
    last_ns: u64,
    /// By its samples.
    pub(super) logged: [Tally; 2],
    left_out: Vec<(Disposition, [Tally; 2])>,
    /// The last on each flow that the kernel saw: a socket that is used again is another one.
    words: Vec<Word>,
}

#[derive(Clone)]
struct Word {
    slot: u32,
    flow: Flow,
    is_last: bool,
}

impl Flows {
    /// Takes a sample of a flow, of a packet with so many segments one way or of none; returns the flow's number.
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

    /// Keeps a word on a flow, instead of an earlier one.
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

    /// Adds packets of a flow that were left out.
    pub(super) fn leave_out(&mut self, cookie: u64, disposition: Disposition, tallies: [Tally; 2]) {
        let place = self.place(cookie);
        self.seen[place].left_out.push((disposition, tallies));
    }

    /// Gives up a flow that ended long ago.
    pub(super) fn give_up(&mut self) -> Option<Seen> {
        let place = self.places.remove(&self.over.pop_front()?)?;
        self.free.push(place);
        Some(std::mem::take(&mut self.seen[place]))
    }

    /// Gives up all that are left, in the order of their numbers; those without a sample get theirs last.
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

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.seen.len()
    }

    /// What was logged of all flows, by their samples.
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
    /// Whether nothing more is to be said of it.
    pub(super) fn is_over(&self) -> bool {
        self.words.iter().all(|word| word.is_last)
    }

    /// What the kernel counted of it, less what was left out; `None`: nothing was said of it.
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

    /// Adds what was left out of it.
    pub(super) fn add_left_out(&self, sums: &mut Vec<(Disposition, [Tally; 2])>) {
        for (disposition, tallies) in &self.left_out {
            match sums.iter_mut().find(|(known, _)| known == disposition) {
                Some((_, sum)) => add_both(sum, *tallies),
                None => sums.push((*disposition, *tallies)),
            }
        }
    }

    /// Its row.
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

/// Returns an address of the kernel's, an IPv4 one as such even in a socket of IPv6.
fn address(family: u16, bytes: [u8; 16]) -> IpAddr {
    if family == AF_INET {
        let [a, b, c, d, ..] = bytes;
        return Ipv4Addr::new(a, b, c, d).into();
    }
    IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
}

/// Returns a flow as SIFTR lists it.
pub(super) fn endpoints(flow: &tcp::Flow) -> String {
    let tcp::Flow { local_address, local_port, remote_address, remote_port, .. } = flow;
    format!("{local_address};{local_port}-{remote_address};{remote_port}")
}
