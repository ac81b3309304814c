//! The flows of a log: by the cookies of their sockets, numbered from 1 in order of their first sample.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sojourn_record::tcp;
use sojourn_time::Time;

use super::text_of;
use crate::account::{Entry, Fate, Tally};
use crate::layout::Flow;

const AF_INET: u16 = 2;

/// How many flows are found without a search, by the last bits of their slots.
const QUICK: usize = 1024;

#[derive(Default)]
pub(super) struct Flows {
    numbers: HashMap<u64, i32>,
    /// By number, less one.
    seen: Vec<Seen>,
    quick: Vec<(u64, i32)>,
    /// The last word on each, by cookie, slot and generation: a socket that is used again is another flow for the kernel.
    told: BTreeMap<(u64, u32, u64), Flow>,
}

/// What samples say of a flow.
#[derive(Clone, Copy, Default)]
struct Seen {
    cookie: u64,
    first_ns: u64,
    last_ns: u64,
    logged: [Tally; 2],
}

impl Flows {
    /// Returns the number of the flow of a sample.
    pub(super) fn number(&mut self, cookie: u64, slot: u32, time_ns: u64) -> i32 {
        if self.quick.is_empty() {
            self.quick = vec![(u64::MAX, 0); QUICK];
        }
        let quick = slot as usize % QUICK;
        if self.quick[quick].0 != cookie || self.quick[quick].1 == 0 {
            self.mention(cookie);
            self.quick[quick] = (cookie, self.numbers[&cookie]);
        }
        let number = self.quick[quick].1;
        let seen = &mut self.seen[number as usize - 1];
        if seen.first_ns == 0 {
            seen.first_ns = time_ns;
        }
        seen.last_ns = seen.last_ns.max(time_ns);
        number
    }

    /// Counts a packet's sample.
    pub(super) fn log(&mut self, flow: i32, direction: usize, segments: u64) {
        self.seen[flow as usize - 1].logged[direction].add(Tally { packets: 1, segments });
    }

    /// Gives a flow a number, if it has none.
    pub(super) fn mention(&mut self, cookie: u64) {
        if !self.numbers.contains_key(&cookie) {
            self.seen.push(Seen { cookie, ..Seen::default() });
            self.numbers.insert(cookie, i32::try_from(self.seen.len()).unwrap_or(i32::MAX));
        }
    }

    pub(super) fn known(&self, cookie: u64) -> Option<i32> {
        self.numbers.get(&cookie).copied()
    }

    /// Keeps a word on a flow, instead of an earlier one.
    pub(super) fn tell(&mut self, slot: u32, flow: &Flow) {
        self.told.insert((flow.cookie, slot, flow.generation), *flow);
    }

    /// The last words.
    pub(super) fn told(&self) -> impl Iterator<Item = &Flow> {
        self.told.values()
    }

    /// What was logged of each flow; `None`: of all.
    pub(super) fn logged(&self) -> HashMap<Option<i32>, [Tally; 2]> {
        let mut all = [Tally::default(); 2];
        let mut logged = HashMap::new();
        for (seen, number) in self.seen.iter().zip(1..) {
            logged.insert(Some(number), seen.logged);
            all.iter_mut().zip(seen.logged).for_each(|(sum, one)| sum.add(one));
        }
        logged.insert(None, all);
        logged
    }

    /// Adds samples that an account does not know of yet to what was seen and logged; returns how many.
    pub(super) fn amend(&self, entries: &mut Vec<Entry>) -> u64 {
        let mut said: HashMap<(Option<u64>, usize), Tally> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.fate == Some(Fate::Logged)) {
            said.insert((entry.cookie, entry.direction), entry.tally);
        }
        let mut missing = HashMap::new();
        for (flow, both) in self.logged() {
            let cookie = flow.map(|flow| self.seen[flow as usize - 1].cookie);
            for (direction, found) in both.into_iter().enumerate() {
                let said = said.remove(&(cookie, direction)).unwrap_or_default();
                let packets = found.packets.saturating_sub(said.packets);
                missing.insert(
                    (cookie, direction),
                    Tally { packets, segments: found.segments.saturating_sub(said.segments) },
                );
            }
        }
        let added = (0..2).filter_map(|direction| missing.get(&(None, direction))).map(|tally| tally.packets).sum();
        for fate in [None, Some(Fate::Logged)] {
            let mut missing = missing.clone();
            for entry in entries.iter_mut().filter(|entry| entry.fate == fate) {
                entry.tally.add(missing.remove(&(entry.cookie, entry.direction)).unwrap_or_default());
            }
            let new = missing.into_iter().filter(|(_, tally)| tally.packets > 0);
            entries.extend(new.map(|((cookie, direction), tally)| Entry { cookie, direction, fate, tally }));
        }
        added
    }

    /// The rows of all flows that have numbers, in their order.
    pub(super) fn rows(&self, block: i32) -> Vec<tcp::Flow> {
        // Of several flows of a socket, the last.
        let told: HashMap<u64, &Flow> = self.told.values().map(|flow| (flow.cookie, flow)).collect();
        self.seen
            .iter()
            .zip(1..)
            .map(|(seen, number)| of(block, number, seen, told.get(&seen.cookie).copied()))
            .collect()
    }
}

fn of(block: i32, number: i32, seen: &Seen, told: Option<&Flow>) -> tcp::Flow {
    let first = told.map(|flow| flow.first_ns).filter(|time| *time != 0).unwrap_or(seen.first_ns);
    let last = told.map_or(0, |flow| flow.last_ns).max(seen.last_ns);
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
