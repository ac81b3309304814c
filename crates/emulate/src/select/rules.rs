//! Rules: the first rule that a packet matches decides where it goes.
//!
//! Each rule is compiled into a list of the tests it needs, so that a short list of rules costs some nanoseconds and
//! nothing is allocated. A rule's probability is drawn last, when all other conditions hold, from the rule's own
//! stream: rules do not affect each other's draws, and packets that a rule cannot match draw nothing.

use std::net::IpAddr;

use serde::Serialize;
use sojourn_wire::layers::{IPV4, IPV6};

use super::Key;
use crate::config::check::ConfigError;
use crate::config::{Action, Config, Direction, Match, Pipe, Prefix, Rule};
use crate::random::{Chance, Origin, Random};

/// All rules, in order, with their counters.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Compiled>,
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// Bridged unchanged.
    Pass,
    /// Dropped.
    Drop,
    /// Sent into a pipe.
    Pipe {
        /// The pipe's index in [`Config::pipes`].
        pipe: u16,
        /// The class, as an index into the pipe's queue; 0 if the rule names none.
        class: u16,
    },
}

/// The counters of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleCounter {
    /// The rule's number.
    pub number: u32,
    /// Packets matched.
    pub packets: u64,
    /// Bytes matched, without FCS.
    pub bytes: u64,
}

impl Rules {
    /// Sorts the rules and resolves the pipes and classes that they name.
    ///
    /// # Errors
    /// If a pipe or a class does not exist.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let mut rules = config.rules.iter().map(|rule| Compiled::new(rule, config)).collect::<Result<Vec<_>, _>>()?;
        rules.sort_by_key(|rule| rule.counter.number);
        Ok(Self { rules })
    }

    /// Returns where a packet of `bytes` bytes (without FCS) goes.
    pub fn select(&mut self, key: &Key, direction: Direction, bytes: u32) -> Selected {
        for rule in &mut self.rules {
            if !rule.matches(key, direction, bytes) {
                continue;
            }
            rule.counter.packets += 1;
            rule.counter.bytes += u64::from(bytes);
            match rule.to {
                To::Count => {}
                To::Pass => return Selected::Pass,
                To::Drop => return Selected::Drop,
                To::Pipe { pipe, class } => return Selected::Pipe { pipe, class },
            }
        }
        Selected::Pass
    }

    /// Resolves again the classes that rules name in a pipe (by index) whose parameters change. Counters and random streams continue.
    ///
    /// # Errors
    /// If a rule names a class that no longer exists; then nothing has changed.
    pub fn set(&mut self, pipe: u16, to: &Pipe) -> Result<(), ConfigError> {
        let into = |rule: &Compiled| matches!(rule.to, To::Pipe { pipe: place, .. } if place == pipe);
        for rule in self.rules.iter().filter(|rule| into(rule)) {
            rule.class_in(to)?;
        }
        for rule in &mut self.rules {
            if into(rule) {
                rule.to = To::Pipe { pipe, class: rule.class_in(to)? };
            }
        }
        Ok(())
    }

    /// Returns the EtherTypes that rules can match in a direction; `None`: any. Frames of other EtherTypes are
    /// certainly bridged unchanged, and no rule counts them.
    pub fn ethertypes(&self, direction: Direction) -> Option<Vec<u16>> {
        let mut all = Vec::new();
        for rule in &self.rules {
            if !rule.tests.iter().any(|test| matches!(test, Test::Direction(other) if *other != direction)) {
                all.extend(rule.ethertypes()?);
            }
        }
        all.sort_unstable();
        all.dedup();
        Some(all)
    }

    /// Returns the counters of all rules, in order.
    pub fn counters(&self) -> impl ExactSizeIterator<Item = RuleCounter> {
        self.rules.iter().map(|rule| rule.counter)
    }
}

/// A compiled rule.
#[derive(Debug)]
struct Compiled {
    tests: Vec<Test>,
    chance: Option<(Chance, Random)>,
    to: To,
    class: Option<String>,
    counter: RuleCounter,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Pass,
    Drop,
    Count,
    Pipe { pipe: u16, class: u16 },
}

impl Compiled {
    fn new(rule: &Rule, config: &Config) -> Result<Self, ConfigError> {
        // No pipe has an empty name, so the rule's stream is its own.
        let purpose = format!("rule/{}", rule.number);
        let origin = Origin { seed: config.seed, pipe: "", flow: 0 };
        let mut compiled = Self {
            tests: Test::all_of(&rule.on),
            chance: rule.on.probability.map(|probability| (Chance::of(probability), origin.stream(&purpose))),
            to: To::Count,
            class: None,
            counter: RuleCounter { number: rule.number, packets: 0, bytes: 0 },
        };
        compiled.to = match &rule.action {
            Action::Pass => To::Pass,
            Action::Drop => To::Drop,
            Action::Count => To::Count,
            Action::Pipe { pipe, class } => {
                compiled.class.clone_from(class);
                let place = config.pipes.iter().position(|candidate| candidate.name == *pipe);
                let place = place.ok_or_else(|| compiled.wrong(format!("there is no pipe `{pipe}`")))?;
                let class = compiled.class_in(&config.pipes[place])?;
                To::Pipe { pipe: narrow(place), class }
            }
        };
        Ok(compiled)
    }

    fn matches(&mut self, key: &Key, direction: Direction, bytes: u32) -> bool {
        self.tests.iter().all(|test| test.holds(key, direction, bytes))
            && self.chance.as_mut().is_none_or(|(chance, random)| chance.happens(random))
    }

    /// Returns the EtherTypes that the rule can match; `None`: any.
    fn ethertypes(&self) -> Option<Vec<u16>> {
        self.tests.iter().find_map(|test| match test {
            Test::Ethertype(ethertype) => Some(vec![*ethertype]),
            Test::Source(bits) | Test::Destination(bits) => Some(vec![if bits.family == 4 { IPV4 } else { IPV6 }]),
            Test::Protocol(_) | Test::Dscp(_) | Test::TcpFlags { .. } => Some(vec![IPV4, IPV6]),
            Test::SourcePorts(_) | Test::DestinationPorts(_) => Some(vec![IPV4, IPV6]),
            _ => None,
        })
    }

    fn class_in(&self, pipe: &Pipe) -> Result<u16, ConfigError> {
        let Some(class) = &self.class else { return Ok(0) };
        let place = pipe.queue.classes.iter().position(|candidate| candidate.name == *class);
        place.map(narrow).ok_or_else(|| self.wrong(format!("the pipe `{}` has no class `{class}`", pipe.name)))
    }

    fn wrong(&self, problem: String) -> ConfigError {
        ConfigError { place: format!("rule {}", self.counter.number), problem }
    }
}

/// One condition of a rule.
#[derive(Clone, Debug)]
enum Test {
    Direction(Direction),
    Ethertype(u16),
    SourceMac(sojourn_wire::MacAddress),
    DestinationMac(sojourn_wire::MacAddress),
    Vlan(u16),
    Source(Bits),
    Destination(Bits),
    Protocol(u8),
    SourcePorts(Vec<(u16, u16)>),
    DestinationPorts(Vec<(u16, u16)>),
    Dscp(u8),
    TcpFlags { looked_at: u8, set: u8 },
    Length(u32, u32),
}

/// A compiled prefix.
#[derive(Clone, Copy, Debug)]
struct Bits {
    family: u8,
    mask: u128,
    value: u128,
}

impl Test {
    /// Returns the tests of a match, cheap ones first.
    fn all_of(on: &Match) -> Vec<Self> {
        let mut tests = Vec::new();
        tests.extend(on.direction.map(Self::Direction));
        tests.extend(on.ethertype.map(Self::Ethertype));
        tests.extend(on.length.map(|(from, to)| Self::Length(from, to)));
        tests.extend(on.vlan.map(Self::Vlan));
        tests.extend(on.protocol.map(Self::Protocol));
        tests.extend(on.dscp.map(Self::Dscp));
        if on.tcp_set != 0 || on.tcp_clear != 0 {
            tests.push(Self::TcpFlags { looked_at: on.tcp_set | on.tcp_clear, set: on.tcp_set });
        }
        tests.extend(on.source.map(|prefix| Self::Source(Bits::of(prefix))));
        tests.extend(on.destination.map(|prefix| Self::Destination(Bits::of(prefix))));
        if !on.source_ports.is_empty() {
            tests.push(Self::SourcePorts(on.source_ports.clone()));
        }
        if !on.destination_ports.is_empty() {
            tests.push(Self::DestinationPorts(on.destination_ports.clone()));
        }
        tests.extend(on.source_mac.map(Self::SourceMac));
        tests.extend(on.destination_mac.map(Self::DestinationMac));
        tests
    }

    fn holds(&self, key: &Key, direction: Direction, bytes: u32) -> bool {
        let is_ip = key.family != 0;
        match self {
            Self::Direction(wanted) => direction == *wanted,
            Self::Ethertype(wanted) => key.ethertype == *wanted,
            Self::SourceMac(wanted) => key.source_mac == *wanted,
            Self::DestinationMac(wanted) => key.destination_mac == *wanted,
            // Priority-tagged frames have VLAN 0.
            Self::Vlan(wanted) => key.vlan.unwrap_or(0) == *wanted,
            Self::Source(bits) => bits.hold(key.family, key.source),
            Self::Destination(bits) => bits.hold(key.family, key.destination),
            Self::Protocol(wanted) => is_ip && key.protocol == *wanted,
            Self::SourcePorts(ranges) => key.ports.is_some_and(|(port, _)| within(ranges, port)),
            Self::DestinationPorts(ranges) => key.ports.is_some_and(|(_, port)| within(ranges, port)),
            Self::Dscp(wanted) => is_ip && key.dscp == *wanted,
            Self::TcpFlags { looked_at, set } => is_tcp(key) && key.tcp_flags & looked_at == *set,
            Self::Length(from, to) => (*from..=*to).contains(&bytes),
        }
    }
}

impl Bits {
    fn of(prefix: Prefix) -> Self {
        let (family, most, octets) = match prefix.address {
            IpAddr::V4(address) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&address.octets());
                (4, 32, octets)
            }
            IpAddr::V6(address) => (6, 128, address.octets()),
        };
        let bits = u32::from(prefix.bits.min(most));
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        Self { family, mask, value: u128::from_be_bytes(octets) & mask }
    }

    fn hold(&self, family: u8, address: [u8; 16]) -> bool {
        family == self.family && u128::from_be_bytes(address) & self.mask == self.value
    }
}

/// Returns whether the packet has a readable TCP header.
fn is_tcp(key: &Key) -> bool {
    key.family != 0
        && key.protocol == sojourn_wire::layers::protocol::TCP
        && key.transport_at != 0
        && key.ports.is_some()
}

fn within(ranges: &[(u16, u16)], port: u16) -> bool {
    ranges.iter().any(|(from, to)| (*from..=*to).contains(&port))
}

/// Converts an index; [`check`](crate::config::check) limits the length of lists.
fn narrow(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
