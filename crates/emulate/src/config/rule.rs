//! Rules: which packets enter which pipe.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sojourn_wire::MacAddress;

/// The direction through the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the left port (the first that was named) to the right one.
    Forward,
    /// From the right port to the left one.
    Backward,
}

impl Direction {
    /// Returns the name that records and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }

    /// Returns 0 for forward, 1 for backward.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One rule. A packet matches if every given condition holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The rule's number, as in ipfw: rules are tried in ascending order. Unique.
    pub number: u32,
    /// Which packets it selects.
    #[serde(default)]
    pub on: Match,
    /// The action on a selected packet.
    pub action: Action,
}

/// The action on a selected packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// Send into a pipe, and into a class of its queue if one is named.
    Pipe {
        /// Name of the pipe.
        pipe: String,
        /// Name of the class.
        #[serde(default)]
        class: Option<String>,
    },
    /// Bridge unchanged.
    Pass,
    /// Drop.
    Drop,
    /// Only count; the next rules are tried.
    Count,
}

/// The conditions of a rule. A field of `None` (or an empty list) matches every packet; a condition on a field that a
/// packet lacks (ports of ARP) does not match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Direction.
    pub direction: Option<Direction>,
    /// EtherType after all VLAN tags.
    pub ethertype: Option<u16>,
    /// Source MAC address.
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address.
    pub destination_mac: Option<MacAddress>,
    /// Outer VLAN ID; `Some(0)`: untagged or priority-tagged.
    pub vlan: Option<u16>,
    /// Source IP prefix.
    pub source: Option<Prefix>,
    /// Destination IP prefix.
    pub destination: Option<Prefix>,
    /// IP protocol: 6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6.
    pub protocol: Option<u8>,
    /// Source ports, as inclusive ranges.
    pub source_ports: Vec<(u16, u16)>,
    /// Destination ports, as inclusive ranges.
    pub destination_ports: Vec<(u16, u16)>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// TCP flags that must be set.
    pub tcp_set: u8,
    /// TCP flags that must be clear.
    pub tcp_clear: u8,
    /// Frame length in bytes without FCS, as an inclusive range.
    pub length: Option<(u32, u32)>,
    /// The probability that a packet matches at all (several rules can split traffic over several pipes).
    pub probability: Option<f64>,
}

/// An address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// The prefix length: 0 to 32 (IPv4) or 128 (IPv6).
    pub bits: u8,
}

/// The bits that identify a flow, as dummynet's `mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mask {
    /// Prefix length of the IPv4 source, 0 to 32.
    pub source4: u8,
    /// Prefix length of the IPv4 destination, 0 to 32.
    pub destination4: u8,
    /// Prefix length of the IPv6 source, 0 to 128.
    pub source6: u8,
    /// Prefix length of the IPv6 destination, 0 to 128.
    pub destination6: u8,
    /// Mask of the source port.
    pub source_port: u16,
    /// Mask of the destination port.
    pub destination_port: u16,
    /// Whether the IP protocol counts.
    pub protocol: bool,
    /// Whether both MAC addresses count.
    pub macs: bool,
    /// Whether the VLAN ID counts.
    pub vlan: bool,
    /// The maximum number of flows at once; packets of further flows enter one shared pipe. 0: 4096.
    pub most: u32,
}
