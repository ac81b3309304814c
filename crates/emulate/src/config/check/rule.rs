//! Checks rules and masks for contradictions.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{ConfigError, Refused, ensure, probability};
use crate::config::{Action, Config, Mask, Match, Prefix, Rule};

/// The maximum number of flows of a mask.
const MOST_FLOWS: u32 = 1 << 20;
/// Protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

pub(super) fn rules(config: &Config) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for rule in &config.rules {
        let place = || format!("rule {}", rule.number);
        if !seen.insert(rule.number) {
            return Err(ConfigError::new(place(), "its number is given twice; give each rule its own"));
        }
        target(rule, config)
            .and_then(|()| selection(&rule.on))
            .map_err(|problem| ConfigError::new(place(), problem))?;
    }
    Ok(())
}

/// Checks that the pipe and the class of a rule exist.
fn target(rule: &Rule, config: &Config) -> Refused {
    let Action::Pipe { pipe: name, class } = &rule.action else { return Ok(()) };
    let Some(pipe) = config.pipes.iter().find(|pipe| pipe.name == *name) else {
        let known: Vec<&str> = config.pipes.iter().map(|pipe| pipe.name.as_str()).collect();
        return Err(format!("there is no pipe {name:?}; there are: {}", listed(&known)));
    };
    let classes: Vec<&str> = pipe.queue.classes.iter().map(|class| class.name.as_str()).collect();
    match class {
        Some(class) => ensure(classes.contains(&class.as_str()), || {
            format!("pipe {name} has no class {class:?}; it has: {}", listed(&classes))
        }),
        None => Ok(()),
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn selection(on: &Match) -> Refused {
    numbers(on)?;
    for (ports, name) in [(&on.source_ports, "source"), (&on.destination_ports, "destination")] {
        let wrong = ports.iter().find(|(from, to)| from > to);
        ensure(wrong.is_none(), || format!("{name} ports {wrong:?} go backwards; write the smaller first"))?;
    }
    let has_ports = !(on.source_ports.is_empty() && on.destination_ports.is_empty());
    ensure(!has_ports || on.protocol.is_none_or(|protocol| WITH_PORTS.contains(&protocol)), || {
        "ports of a protocol that has none: it would never match; leave the ports out or name tcp or udp".to_owned()
    })?;
    let flags = on.tcp_set | on.tcp_clear;
    ensure(flags == 0 || on.protocol.is_none_or(|protocol| protocol == 6), || {
        "TCP flags of another protocol: it would never match; name tcp".to_owned()
    })?;
    ensure(on.tcp_set & on.tcp_clear == 0, || "a TCP flag is wanted both set and clear; leave one out".to_owned())?;
    families(on)
}

fn numbers(on: &Match) -> Refused {
    ensure(on.dscp.is_none_or(|dscp| dscp < 64), || "a DSCP is from 0 to 63".to_owned())?;
    ensure(on.vlan.is_none_or(|vlan| vlan < 4095), || "a VLAN is from 1 to 4094, or 0 for untagged".to_owned())?;
    ensure(on.length.is_none_or(|(from, to)| from <= to), || {
        "its lengths go backwards; write the smaller first".to_owned()
    })?;
    on.probability.map_or(Ok(()), |it| probability(it, "probability"))
}

/// Checks that addresses and EtherType belong to one family.
fn families(on: &Match) -> Refused {
    for prefix in [on.source, on.destination].into_iter().flatten() {
        ensure(prefix.bits <= width(prefix), || {
            format!("{}/{} has more bits than the address", prefix.address, prefix.bits)
        })?;
        let wanted = if prefix.address.is_ipv4() { 0x0800 } else { 0x86dd };
        ensure(on.ethertype.is_none_or(|it| it == wanted), || {
            format!("{} is not of EtherType {:#06x}: it would never match", prefix.address, on.ethertype.unwrap_or(0))
        })?;
    }
    let mixed = matches!((on.source, on.destination), (Some(a), Some(b)) if a.address.is_ipv4() != b.address.is_ipv4());
    ensure(!mixed, || "source and destination are of different IP versions: it would never match".to_owned())
}

const fn width(prefix: Prefix) -> u8 {
    match prefix.address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

pub(super) fn mask(mask: &Mask) -> Refused {
    for (bits, most, name) in [
        (mask.source4, 32, "src-ip"),
        (mask.destination4, 32, "dst-ip"),
        (mask.source6, 128, "src-ip6"),
        (mask.destination6, 128, "dst-ip6"),
    ] {
        ensure(bits <= most, || format!("mask {name} has {bits} bits; there are {most}"))?;
    }
    ensure(mask.most <= MOST_FLOWS, || format!("mask: most is {}; {MOST_FLOWS} flows are the most", mask.most))
}
