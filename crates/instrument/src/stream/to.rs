//! Destinations and backends of streams. The options of the command line and the JSON keys are declared together.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use sojourn_probe::Peer;
use sojourn_rights::{Needs, table};
use sojourn_wire::stream::{DEFAULT_UDP_PORT, TAG_BYTES};
use sojourn_wire::{Carrier, MacAddress};

use crate::failure::WrongRequest;

/// To whom, and through what.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct To {
    /// Send on this interface; with --udp: bind to it
    #[arg(long, value_name = "D")]
    pub dev: Option<String>,
    /// Destination MAC address: unicast, multicast or broadcast
    #[arg(long = "to", value_name = "MAC", conflicts_with = "udp")]
    pub mac: Option<MacAddress>,
    /// Send UDP to this address, and port where it is not 7708: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(long, value_name = "ADDR[:PORT]")]
    #[serde(rename = "address")]
    pub udp: Option<UdpPeer>,
    /// The kernel interface that moves frames; without it: UDP with --udp, else packet
    #[arg(long = "engine", value_name = "ENGINE", conflicts_with = "udp")]
    via: Option<Via>,
    /// Tag frames with this VLAN
    #[arg(long, value_name = "ID", conflicts_with = "udp", value_parser = clap::value_parser!(u16).range(0..4095))]
    pub vlan: Option<u16>,
    /// Tag frames with this priority (802.1Q, 0 to 7)
    #[arg(long, value_name = "P", conflicts_with = "udp", value_parser = clap::value_parser!(u8).range(0..8))]
    pub pcp: Option<u8>,
    /// Mark packets with this DSCP (0 to 63)
    #[arg(long, value_name = "N", requires = "udp", value_parser = clap::value_parser!(u8).range(0..64))]
    pub dscp: Option<u8>,
    /// Send through the interface's queueing discipline, not past it
    #[arg(long = "through-qdisc", conflicts_with = "udp", action = clap::ArgAction::SetFalse)]
    #[serde(default = "yes")]
    pub qdisc_bypass: bool,
    /// Whether the interface's other end is a device's: a frame for which that has no room has then been sent, and lost
    /// by the device, whose receive ring was full. Else it was refused, by a part of the tester. For live frames.
    #[arg(skip)]
    #[serde(default)]
    pub into_device: bool,
    /// Whether live frames were seen to leave there before: then none go ahead of the others to find that out.
    #[arg(skip)]
    #[serde(default)]
    pub proven: bool,
}

/// By which means of the kernel frames move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// AF_PACKET: every interface
    Packet,
    /// A UDP socket.
    #[value(skip)]
    Udp,
    /// AF_XDP: bypasses most of the kernel; needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF
    Xdp,
    /// Sent and counted by programs in the kernel: fastest, but records counts and no single frames; needs CAP_NET_RAW,
    /// CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON
    Live,
}

impl Via {
    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Udp => "udp",
            Self::Xdp => "xdp",
            Self::Live => "live",
        }
    }

    /// Returns the rights that a stream by hand over it needs.
    pub const fn rights(self) -> &'static Needs {
        match self {
            Self::Packet | Self::Udp => &table::STREAM,
            Self::Xdp | Self::Live => &table::STREAM_BY_PROGRAMS,
        }
    }
}

/// Where UDP goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct UdpPeer(pub SocketAddr);

impl FromStr for UdpPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Peer::parse(text, DEFAULT_UDP_PORT).map(|peer| Self(peer.into()))
    }
}

impl TryFrom<String> for UdpPeer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl To {
    /// Returns the means.
    pub fn via(&self) -> Via {
        self.via.unwrap_or(if self.udp.is_some() { Via::Udp } else { Via::Packet })
    }

    /// Returns the peer of a UDP socket.
    pub fn peer(&self) -> Result<SocketAddr, WrongRequest> {
        self.udp.map(|peer| peer.0).ok_or_else(nowhere)
    }

    /// Returns the interface and the station of Ethernet frames.
    pub fn station(&self) -> Result<(&str, MacAddress), WrongRequest> {
        self.dev.as_deref().zip(self.mac).ok_or_else(nowhere)
    }

    /// Checks that it says where to, and nothing that its means cannot do.
    ///
    /// # Errors
    /// When it does not, or a number is out of range.
    pub fn check(&self) -> Result<(), WrongRequest> {
        let via = self.via();
        let (is_udp, is_tagging) = (via == Via::Udp, matches!(via, Via::Packet | Via::Xdp));
        let is_in = |what: Option<u16>, below: u16| what.is_none_or(|number| number < below);
        for (is_right, problem) in [
            (is_udp || self.udp.is_none(), "an address is for UDP"),
            (is_udp || self.dscp.is_none(), "a DSCP is for UDP"),
            (!is_udp || self.mac.is_none(), "a MAC address is not for UDP"),
            (!is_udp || self.qdisc_bypass, "UDP always goes through the queueing discipline"),
            (is_tagging || (self.vlan.is_none() && self.pcp.is_none()), "a VLAN or priority is for packet and xdp"),
            (is_in(self.vlan, 4095), "a VLAN is a number from 0 to 4094"),
            (is_in(self.pcp.map(u16::from), 8), "a priority is a number from 0 to 7"),
            (is_in(self.dscp.map(u16::from), 64), "a DSCP is a number from 0 to 63"),
        ] {
            if !is_right {
                return Err(WrongRequest(format!("to, by {}: {problem}", via.name())));
            }
        }
        if is_udp { self.peer().map(|_| ()) } else { self.station().map(|_| ()) }
    }

    /// What carries the user data; Ethernet frames where nothing is said.
    pub fn carrier(&self) -> Carrier {
        match (self.via(), self.udp) {
            (Via::Udp, Some(peer)) if peer.0.is_ipv6() => Carrier::Udp6,
            (Via::Udp, _) => Carrier::Udp4,
            _ => Carrier::Ethernet,
        }
    }

    /// Whether its frames have an 802.1Q tag.
    pub fn is_tagged(&self) -> bool {
        matches!(self.via(), Via::Packet | Via::Xdp) && (self.vlan.is_some() || self.pcp.is_some())
    }

    /// Whether it goes to several receivers: a group or all.
    pub fn is_group(&self) -> bool {
        match (self.udp, self.mac) {
            (Some(UdpPeer(peer)), _) => peer.ip().is_multicast() || peer.ip() == IpAddr::V4(Ipv4Addr::BROADCAST),
            (None, Some(MacAddress([first, ..]))) => first & 1 == 1,
            (None, None) => false,
        }
    }

    pub fn tag_bytes(&self) -> usize {
        if self.is_tagged() { TAG_BYTES } else { 0 }
    }
}

impl Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.udp, self.mac) {
            (Some(peer), _) => peer.0.fmt(f),
            (None, Some(mac)) => mac.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

fn nowhere() -> WrongRequest {
    WrongRequest("name an interface and a MAC address with --dev and --to, or a peer with --udp".to_owned())
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn incomplete_destination_is_refused() {
        for to in [
            json!({ "via": "udp" }),
            json!({ "via": "packet", "dev": "a" }),
            json!({ "via": "live", "mac": "02:77:00:00:00:01" }),
        ] {
            assert!(serde_json::from_value::<To>(to).unwrap().check().is_err());
        }
        assert!(serde_json::from_value::<To>(json!({ "via": "udp", "address": "host" })).is_err());
    }
}
