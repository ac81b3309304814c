//! The peer of a probe and the protocol to reach it: the `to` of a block request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};
use sojourn_port::sim::Line;
use sojourn_wire::{Carrier, MacAddress};

/// The UDP port that responders listen on unless told otherwise.
pub const DEFAULT_UDP_PORT: u16 = 7707;

/// Whom to probe, and through what: the arguments of a subcommand each, and of JSON what `via` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "via", rename_all = "lowercase")]
pub enum To {
    /// ICMP echo: the peer's kernel answers.
    Icmp(Icmp),
    /// UDP: a responder of ours answers.
    Udp(Udp),
    /// Ethernet frames of our own EtherType: a responder of ours answers.
    #[serde(rename = "packet")]
    Ethernet(Ethernet),
    /// A simulated line.
    Sim(Simulated),
}

/// Who answers ICMP echo.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Icmp {
    /// The peer, IPv4 or IPv6
    pub address: IpAddr,
    /// Bind to this interface
    #[arg(long, value_name = "D")]
    #[serde(default)]
    pub dev: Option<String>,
    /// Mark requests with this DSCP (0 to 63); Linux answers with the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
}

/// Who answers over UDP.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// The peer, and its port where it is not 7707: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(value_name = "ADDR[:PORT]")]
    #[serde(flatten)]
    pub peer: Peer,
    /// Bind to this interface
    #[arg(long, value_name = "D")]
    #[serde(default)]
    pub dev: Option<String>,
    /// Mark requests with this DSCP (0 to 63); a responder of ours answers with the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
}

/// Who answers Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ethernet {
    /// Send on this interface
    #[arg(long, value_name = "D")]
    pub dev: String,
    /// The peer's MAC address
    #[arg(long = "to", value_name = "MAC")]
    pub mac: MacAddress,
    /// Send through the interface's queueing discipline, not past it
    #[arg(long = "through-qdisc", action = ArgAction::SetFalse)]
    #[serde(default = "yes")]
    pub qdisc_bypass: bool,
}

/// A simulated line.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// What the line does, as JSON
    #[arg(long, value_name = "LINE", value_parser = line)]
    pub line: Box<Line>,
    /// What it carries
    // Default: ICMP for kind `icmp` and Ethernet frames for the others.
    #[arg(long = "as", value_name = "WHAT", default_value = "icmp")]
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub carries: Option<Carries>,
}

/// A peer's address, and its port where it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The address.
    pub address: IpAddr,
    /// The port.
    #[serde(default = "default_udp_port")]
    pub port: u16,
}

impl Peer {
    /// Reads an address that may name its port; else that is `default_port`.
    ///
    /// # Errors
    /// Says how it is written.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self { address, port: default_port });
        }
        match text.parse::<SocketAddr>() {
            Ok(socket) if socket.port() > 0 => Ok(Self { address: socket.ip(), port: socket.port() }),
            _ => Err("expected an address as 10.0.0.2, 10.0.0.2:9000, fd00::2 or [fd00::2]:9000".to_owned()),
        }
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, DEFAULT_UDP_PORT)
    }
}

impl From<Peer> for SocketAddr {
    fn from(peer: Peer) -> Self {
        Self::new(peer.address, peer.port)
    }
}

/// What a simulated line carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carries {
    /// ICMP over IPv4.
    Icmp,
    /// ICMP over IPv6.
    Icmp6,
    /// UDP over IPv4.
    Udp,
    /// UDP over IPv6.
    Udp6,
    /// Ethernet frames.
    #[serde(rename = "packet")]
    #[value(name = "packet")]
    Ethernet,
}

impl To {
    /// Returns the name of the backend, as records carry it.
    pub const fn via(&self) -> &'static str {
        match self {
            Self::Icmp(_) => "icmp",
            Self::Udp(_) => "udp",
            Self::Ethernet(_) => "packet",
            Self::Sim(_) => "sim",
        }
    }

    /// Returns the code point that requests are marked with, where one was asked for.
    pub const fn dscp(&self) -> Option<u8> {
        match self {
            Self::Icmp(Icmp { dscp, .. }) | Self::Udp(Udp { dscp, .. }) => *dscp,
            Self::Ethernet(_) | Self::Sim(_) => None,
        }
    }

    /// Returns whether the line is simulated.
    pub const fn is_simulated(&self) -> bool {
        matches!(self, Self::Sim(_))
    }

    /// Returns what carries the user data, given whether the peer's kernel is to answer.
    pub const fn carrier(&self, kernel_answers: bool) -> Carrier {
        match self {
            Self::Icmp(Icmp { address: IpAddr::V4(_), .. }) => Carrier::Icmp4,
            Self::Icmp(Icmp { address: IpAddr::V6(_), .. }) => Carrier::Icmp6,
            Self::Udp(Udp { peer, .. }) if peer.address.is_ipv4() => Carrier::Udp4,
            Self::Udp(_) => Carrier::Udp6,
            Self::Ethernet(_) => Carrier::Ethernet,
            Self::Sim(Simulated { carries, .. }) => match (carries, kernel_answers) {
                (Some(Carries::Icmp), _) | (None, true) => Carrier::Icmp4,
                (Some(Carries::Icmp6), _) => Carrier::Icmp6,
                (Some(Carries::Udp), _) => Carrier::Udp4,
                (Some(Carries::Udp6), _) => Carrier::Udp6,
                (Some(Carries::Ethernet), _) | (None, false) => Carrier::Ethernet,
            },
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Icmp(Icmp { address, dev: None, .. }) => write!(f, "{address}"),
            Self::Icmp(Icmp { address, dev: Some(dev), .. }) => write!(f, "{address} on {dev}"),
            Self::Udp(Udp { peer, .. }) => write!(f, "{}", SocketAddr::from(*peer)),
            Self::Ethernet(Ethernet { dev, mac, .. }) => write!(f, "{mac} on {dev}"),
            Self::Sim(_) => write!(f, "a simulated line"),
        }
    }
}

fn line(text: &str) -> Result<Box<Line>, serde_json::Error> {
    serde_json::from_str(text)
}

const fn default_udp_port() -> u16 {
    DEFAULT_UDP_PORT
}

const fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn peer_without_a_port_gets_the_default() {
        assert_eq!("10.0.0.2".parse::<Peer>().map(|peer| peer.port), Ok(7707));
        assert_eq!("[fd00::2]:9".parse::<Peer>().map(|peer| peer.port), Ok(9));
        assert_eq!("fd00::2".parse::<Peer>().map(|peer| peer.port), Ok(7707));
        assert!("10.0.0.2:0".parse::<Peer>().is_err());
        assert!("host".parse::<Peer>().is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Peer>();
        }
    }
}
