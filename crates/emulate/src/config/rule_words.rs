//! Formats a rule in ipfw's words, for display.

use std::fmt;

use super::rule::{Action, Match, Prefix, Rule};
use super::selection::TCP_FLAGS;

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.number)?;
        match &self.action {
            Action::Pipe { pipe, class: None } => write!(f, "pipe {pipe}")?,
            Action::Pipe { pipe, class: Some(class) } => write!(f, "pipe {pipe} class {class}")?,
            Action::Pass => f.write_str("allow")?,
            Action::Drop => f.write_str("deny")?,
            Action::Count => f.write_str("count")?,
        }
        let asked = asked(&self.on);
        if asked.is_empty() { f.write_str(": everything") } else { write!(f, ": {}", asked.join(" ")) }
    }
}

/// Returns the conditions of a rule, a few words each.
fn asked(on: &Match) -> Vec<String> {
    let prefix = |Prefix { address, bits }: Prefix| format!("{address}/{bits}");
    let said = [
        on.direction.map(|direction| direction.name().to_owned()),
        on.probability.map(|probability| format!("prob {probability}")),
        on.ethertype.map(|ethertype| format!("mac-type 0x{ethertype:04x}")),
        on.source_mac.map(|mac| format!("src-mac {mac}")),
        on.destination_mac.map(|mac| format!("dst-mac {mac}")),
        on.vlan.map(|vlan| format!("vlan {vlan}")),
        on.protocol.map(|protocol| format!("proto {protocol}")),
        on.source.map(|source| format!("src-ip {}", prefix(source))),
        ports("src-port", &on.source_ports),
        on.destination.map(|destination| format!("dst-ip {}", prefix(destination))),
        ports("dst-port", &on.destination_ports),
        on.dscp.map(|dscp| format!("dscp {dscp}")),
        tcp_flags(on.tcp_set, on.tcp_clear),
        on.length.map(|(from, to)| format!("length {}", range(from, to))),
    ];
    said.into_iter().flatten().collect()
}

fn ports(name: &str, ranges: &[(u16, u16)]) -> Option<String> {
    let ranges: Vec<_> = ranges.iter().map(|(from, to)| range(*from, *to)).collect();
    (!ranges.is_empty()).then(|| format!("{name} {}", ranges.join(",")))
}

fn range<T: fmt::Display + PartialEq>(from: T, to: T) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

fn tcp_flags(set: u8, clear: u8) -> Option<String> {
    let flags = TCP_FLAGS.iter().enumerate().flat_map(|(bit, name)| {
        let has = |flags: u8| flags & (1 << bit) != 0;
        [has(set).then(|| (*name).to_owned()), has(clear).then(|| format!("!{name}"))]
    });
    let flags: Vec<_> = flags.flatten().collect();
    (!flags.is_empty()).then(|| format!("tcpflags {}", flags.join(",")))
}

#[cfg(test)]
mod tests {
    use super::super::Direction;
    use super::*;

    #[test]
    fn rule_is_printed_in_ipfw_syntax() {
        let on = Match {
            direction: Some(Direction::Forward),
            source: Some(Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 }),
            destination_ports: vec![(80, 80), (8000, 8090)],
            tcp_set: 0x02,
            tcp_clear: 0x50,
            ..Match::default()
        };
        let action = Action::Pipe { pipe: "shared".to_owned(), class: Some("web".to_owned()) };
        let told = Rule { number: 100, on, action }.to_string();
        let expected =
            "100 pipe shared class web: forward src-ip 10.0.0.0/8 dst-port 80,8000-8090 tcpflags syn,!ack,!ece";
        assert_eq!(told, expected);
        let all = Rule { number: 7, on: Match::default(), action: Action::Drop };
        assert_eq!(all.to_string(), "7 deny: everything");
    }
}
