//! Rules as tables.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use sojourn_wire::MacAddress;

use super::{Wrong, at, in_order, known, scalar, whole};
use crate::config::selection::{dscp, ethertype, length, ports, prefix, protocol, tcp_flags, vlan};
use crate::config::{Action, Direction, Match, Rule, units};

const KEYS: &[&str] = &[
    "action",
    "class",
    "destination",
    "destination-mac",
    "destination-port",
    "direction",
    "dscp",
    "ethertype",
    "length",
    "number",
    "pipe",
    "probability",
    "protocol",
    "source",
    "source-mac",
    "source-port",
    "tcp",
    "vlan",
];

/// What becomes of a packet, while its keys are read.
#[derive(Default)]
struct Target {
    pipe: Option<String>,
    class: Option<String>,
    action: Option<String>,
}

pub(super) fn rule(table: &DeTable<'_>, start: usize, rules: &mut Vec<Rule>) -> Result<(), Wrong> {
    let mut on = Match::default();
    let mut target = Target::default();
    let mut number = rules.iter().map(|rule| rule.number).max().unwrap_or(0).saturating_add(100);
    for (key, value) in in_order(table) {
        match known(key, KEYS)? {
            "number" => number = whole(value)?,
            "pipe" => target.pipe = Some(scalar(value)?),
            "class" => target.class = Some(scalar(value)?),
            "action" => target.action = Some(scalar(value)?),
            name => field(name, value, &mut on)?,
        }
    }
    let action = target.action().map_err(|problem| Wrong { at: start, problem })?;
    rules.push(Rule { number, on, action });
    Ok(())
}

impl Target {
    fn action(self) -> Result<Action, String> {
        match (self.pipe, self.class, self.action.as_deref()) {
            (Some(pipe), class, None | Some("pipe")) => Ok(Action::Pipe { pipe, class }),
            (None, None, Some("pass")) => Ok(Action::Pass),
            (None, None, Some("drop")) => Ok(Action::Drop),
            (None, None, Some("count")) => Ok(Action::Count),
            (None, Some(_), _) => Err("a class needs the pipe that it is of; give pipe".to_owned()),
            (None, None, None) => {
                Err("what becomes of its packets? give pipe, or action = \"pass\", \"drop\" or \"count\"".to_owned())
            }
            (Some(_), _, Some(action)) => {
                Err(format!("both a pipe and the action {action:?} are given; leave one out"))
            }
            (None, None, Some(action)) => {
                Err(format!("{action:?} is not an action; there are pass, drop and count, or give pipe"))
            }
        }
    }
}

fn field(name: &str, value: &Spanned<DeValue<'_>>, on: &mut Match) -> Result<(), Wrong> {
    let text = scalar(value)?;
    put(name, &text, on).map_err(|why| at(value, format!("{name}: {why}")))
}

fn put(name: &str, text: &str, on: &mut Match) -> Result<(), String> {
    match name {
        "direction" => on.direction = direction(text)?,
        "ethertype" => on.ethertype = Some(ethertype(text)?),
        "source-mac" => on.source_mac = Some(mac(text)?),
        "destination-mac" => on.destination_mac = Some(mac(text)?),
        "vlan" => on.vlan = Some(vlan(text)?),
        "source" => on.source = prefix(text)?,
        "destination" => on.destination = prefix(text)?,
        "protocol" => protocol(text, on)?,
        "source-port" => on.source_ports = ports(text)?,
        "destination-port" => on.destination_ports = ports(text)?,
        "dscp" => on.dscp = Some(dscp(text)?),
        "tcp" => {
            (on.tcp_set, on.tcp_clear) = tcp_flags(text)?;
            on.protocol = on.protocol.or(Some(6));
        }
        "length" => on.length = Some(length(text)?),
        _ => on.probability = Some(units::fraction(text)?),
    }
    Ok(())
}

fn direction(text: &str) -> Result<Option<Direction>, String> {
    match text {
        "forward" => Ok(Some(Direction::Forward)),
        "backward" => Ok(Some(Direction::Backward)),
        "both" => Ok(None),
        other => Err(format!("{other:?} is none of forward, backward and both")),
    }
}

fn mac(text: &str) -> Result<MacAddress, String> {
    text.parse::<MacAddress>().map_err(|why| why.to_string())
}
