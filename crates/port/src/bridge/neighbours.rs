//! Finds other users of an interface: the host's stack by an address, a route or an interface on top, a bridge, or the
//! other port. An interface on top that is in another network namespace is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Means;
use crate::PortError;
use crate::kernel::{Interface, LinkState, Netlink};

/// The most addresses, routes or interfaces that an error names.
const MOST_NAMED: usize = 3;

/// The state of an interface when it was claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its state as the kernel reports it.
    pub link: LinkState,
    /// Its master.
    pub master: Option<Master>,
    /// Its addresses, except IPv6 link-local ones, which every interface has.
    pub addresses: BTreeSet<IpAddr>,
    /// Prefixes of the routes by it.
    pub routes: Vec<String>,
    /// The interfaces on top of it, VLANs and macvlans: their names by their indices.
    pub stacked: BTreeMap<u32, String>,
}

/// The master of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its name.
    pub name: String,
    /// Whether it forwards frames between its ports: bridges do; bonds and VRFs do not.
    pub is_switch: bool,
}

impl Standing {
    /// Reads the state from the kernel.
    pub fn of(interface: &Interface) -> Result<Self, PortError> {
        let asked = || -> std::io::Result<Self> {
            let mut netlink = Netlink::open(false)?;
            let link = netlink.link(interface.index)?;
            let addresses = netlink.addresses(interface.index)?.into_iter().filter(is_somebodys).collect();
            let routes = netlink.routes(interface.index)?;
            let stacked = netlink.stacked(interface.index)?.into_iter().collect();
            let master = master(&mut netlink, &link);
            Ok(Self { link, master, addresses, routes, stacked })
        };
        asked().map_err(|source| PortError::System { operation: "look at", object: interface.name.clone(), source })
    }

    /// Refuses an interface in use by others, unless it is to be taken over.
    pub fn check(&self, is_taken_over: bool, means: Means) -> Result<(), PortError> {
        let Some(uses) = self.uses().filter(|_| !is_taken_over) else { return Ok(()) };
        let name = &self.link.name;
        let costs = match means {
            Means::Packet => "its frames would be bridged and reach this host's own stack as well",
            Means::Auto | Means::Xdp => "none of its frames would reach this host any more",
        };
        let delete = if self.stacked.is_empty() { "" } else { ", `ip link delete` of what is on top" };
        Err(PortError::Wrong {
            object: name.clone(),
            problem: format!(
                "{uses}, so this host uses it, and {costs}: free it (`ip address flush dev {name}`, \
                 `ip link set {name} nomaster`{delete}), or give --take-over"
            ),
        })
    }

    /// Describes its uses; `None` if there are none.
    pub fn uses(&self) -> Option<String> {
        let named = |all: Vec<String>| match all.len() {
            0..=MOST_NAMED => all.join(", "),
            many => format!("{} and {} more", all[..MOST_NAMED].join(", "), many - MOST_NAMED),
        };
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let uses = [
            self.master.as_ref().map(|master| format!("it belongs to {}", master.name)),
            (!addresses.is_empty()).then(|| format!("it has the address {}", named(addresses))),
            (!self.routes.is_empty()).then(|| format!("a route leads by it to {}", named(self.routes.clone()))),
            (!self.stacked.is_empty())
                .then(|| format!("on top of it is {}", named(self.stacked.values().cloned().collect()))),
        ];
        let uses: Vec<_> = uses.into_iter().flatten().collect();
        (!uses.is_empty()).then(|| uses.join(", "))
    }
}

/// Kinds of interfaces that see frames of each other and of the network beyond, where they lie on one interface. VLANs
/// do not: each has a tag of its own.
const SIDE_BY_SIDE: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "ipvtap"];

/// Refuses two interfaces that are peers, one of which is stacked on the other, or that share one network: each frame
/// would loop for ever.
pub fn check_apart(left: &LinkState, right: &LinkState) -> Result<(), PortError> {
    let lies_on = |one: &LinkState, other: &LinkState| one.lower == Some(other.index);
    let is_beside = |one: &LinkState| SIDE_BY_SIDE.contains(&one.kind.as_str());
    let problem = match (lies_on(left, right), lies_on(right, left)) {
        (false, false) if left.lower.is_some() && left.lower == right.lower && is_beside(left) && is_beside(right) => {
            format!(
                "it and {} are a {} and a {} on one interface: every frame would go round for ever",
                right.name, left.kind, right.kind
            )
        }
        (false, false) => return Ok(()),
        (true, true) => {
            format!("it and {} are the two ends of one veth: every frame would go round for ever", right.name)
        }
        _ => format!("it and {} are one interface on top of the other: every frame would come back", right.name),
    };
    Err(PortError::Wrong { object: left.name.clone(), problem })
}

/// Reads the master of an interface.
pub fn master(netlink: &mut Netlink, link: &LinkState) -> Option<Master> {
    let (index, kind) = link.master.as_ref()?;
    let is_switch = matches!(kind.as_str(), "bridge" | "openvswitch");
    let name = netlink.link(*index).map_or_else(|_| format!("interface {index}"), |master| master.name);
    Some(Master { name, is_switch })
}

/// Whether an address was configured: IPv6 link-local ones are automatic, and bridging the port does them no harm.
pub fn is_somebodys(address: &IpAddr) -> bool {
    !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing { link: LinkState { name: "eth0".into(), index: 2, ..LinkState::default() }, ..Standing::default() }
    }

    #[test]
    fn interface_used_by_the_host_is_refused_by_name_without_take_over() {
        assert!(standing().check(false, Means::Auto).is_ok());
        let addresses = (1..=5).map(|host| IpAddr::from([10, 0, 0, host])).collect();
        let master = Some(Master { name: "br0".into(), is_switch: true });
        let used = Standing { addresses, master, routes: vec!["default".into()], ..standing() };
        let error = used.check(false, Means::Auto).expect_err("is used").to_string();
        let named = "eth0: it belongs to br0, it has the address 10.0.0.1, 10.0.0.2, 10.0.0.3 and 2 more, a route leads by it to default";
        assert!(error.starts_with(named) && error.contains("--take-over"), "{error}");
        assert!(used.check(true, Means::Auto).is_ok());
    }

    #[test]
    fn interface_with_others_on_top_is_refused_by_their_names_without_take_over() {
        let stacked = [10, 20, 30, 40].map(|tag| (tag, format!("eth0.{tag}"))).into();
        let used = Standing { stacked, ..standing() };
        let error = used.check(false, Means::Auto).expect_err("is used").to_string();
        let named = "eth0: on top of it is eth0.10, eth0.20, eth0.30 and 1 more, so this host uses it";
        assert!(error.starts_with(named) && error.contains("`ip link delete` of what is on top"), "{error}");
        assert!(used.check(true, Means::Auto).is_ok());
    }

    #[test]
    fn two_ends_of_one_cable_are_refused() {
        let link = |name: &str, index, lower| LinkState { name: name.into(), index, lower, ..LinkState::default() };
        let (left, right) = (link("a", 4, Some(5)), link("b", 5, Some(4)));
        let told = |left: &LinkState, right: &LinkState| check_apart(left, right).map_err(|error| error.to_string());
        assert!(told(&left, &right).is_err_and(|told| told.contains("two ends of one veth")));
        let below = link("b", 5, None);
        assert!(told(&left, &below).is_err_and(|told| told.contains("on top of the other")));
        assert!(told(&below, &left).is_err());
        assert!(told(&link("a", 4, Some(7)), &below).is_ok());
        let on = |kind: &str, name, index, lower| LinkState { kind: kind.into(), ..link(name, index, Some(lower)) };
        for [one, other] in [["macvlan", "macvlan"], ["macvtap", "macvlan"], ["ipvlan", "ipvlan"]] {
            let told = told(&on(one, "a", 4, 7), &on(other, "b", 5, 7));
            let sentence =
                format!("a: it and b are a {one} and a {other} on one interface: every frame would go round");
            assert!(told.is_err_and(|told| told.starts_with(&sentence)));
        }
        assert!(told(&on("macvlan", "a", 4, 7), &on("macvlan", "b", 5, 8)).is_ok());
        assert!(told(&on("vlan", "a", 4, 7), &on("vlan", "b", 5, 7)).is_ok(), "each has a tag of its own");
    }

    #[test]
    fn ipv6_link_local_address_is_not_counted_as_use_by_the_host() {
        assert!(!is_somebodys(&"fe80::1".parse().expect("an address")));
        for address in ["10.0.0.1", "2001:db8::1", "169.254.0.1"] {
            assert!(is_somebodys(&address.parse().expect("an address")), "{address}");
        }
    }
}
