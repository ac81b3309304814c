//! Rules: which packets go where.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sojourn_wire::MacAddress;

/// Which way through the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// In by the left port (the first that was named), out by the right one.
    Forward,
    /// In by the right port, out by the left one.
    Backward,
}

impl Direction {
    /// Returns the name that records and people use.
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

/// One rule: all that is given must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its number, as ipfw has it: rules are tried by rising numbers. Unique.
    pub number: u32,
    /// What it selects.
    #[serde(default)]
    pub on: Match,
    /// What becomes of it.
    pub action: Action,
}

/// What becomes of a selected packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// Through a pipe, there in a class where one is named.
    Pipe {
        /// Name of the pipe.
        pipe: String,
        /// Name of the class.
        #[serde(default)]
        class: Option<String>,
    },
    /// Bridged unchanged.
    Pass,
    /// Lost.
    Drop,
    /// Only counted; the next rules are tried.
    Count,
}

/// What a rule looks at. A field of `None` (or an empty list) matches everything; a field that a packet does not have (ports of ARP) does not match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Which way.
    pub direction: Option<Direction>,
    /// EtherType behind all tags.
    pub ethertype: Option<u16>,
    /// Source address.
    pub source_mac: Option<MacAddress>,
    /// Destination address.
    pub destination_mac: Option<MacAddress>,
    /// Outer VLAN; `Some(0)`: untagged or priority-tagged.
    pub vlan: Option<u16>,
    /// Source prefix.
    pub source: Option<Prefix>,
    /// Destination prefix.
    pub destination: Option<Prefix>,
    /// IP protocol: 6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6.
    pub protocol: Option<u8>,
    /// Source ports, each a range from and to.
    pub source_ports: Vec<(u16, u16)>,
    /// Destination ports.
    pub destination_ports: Vec<(u16, u16)>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// TCP flags that must be set.
    pub tcp_set: u8,
    /// TCP flags that must be clear.
    pub tcp_clear: u8,
    /// Bytes of the frame without FCS, from and to.
    pub length: Option<(u32, u32)>,
    /// How likely it matches at all (several pipes so make several paths).
    pub probability: Option<f64>,
}

/// An address and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// From 0 to 32 or 128.
    pub bits: u8,
}

/// Which bits make a flow, as dummynet's `mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mask {
    /// First bits of the IPv4 source, 0 to 32.
    pub source4: u8,
    /// First bits of the IPv4 destination.
    pub destination4: u8,
    /// First bits of the IPv6 source, 0 to 128.
    pub source6: u8,
    /// First bits of the IPv6 destination.
    pub destination6: u8,
    /// Bits of the source port that count.
    pub source_port: u16,
    /// Bits of the destination port that count.
    pub destination_port: u16,
    /// The protocol.
    pub protocol: bool,
    /// Both MAC addresses.
    pub macs: bool,
    /// The VLAN.
    pub vlan: bool,
    /// How many flows there may be at once; a packet of one more goes into a pipe that the rest share. 0: 4096.
    pub most: u32,
}
