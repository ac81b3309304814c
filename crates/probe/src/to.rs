//! Whom to probe, and through what: the `to` of a block request.

use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use sojourn_port::sim::Line;
use sojourn_wire::{Carrier, MacAddress};

/// The UDP port that responders listen on unless told otherwise.
pub const DEFAULT_UDP_PORT: u16 = 7707;

/// Whom to probe, and through what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "via", rename_all = "lowercase", deny_unknown_fields)]
pub enum To {
    /// ICMP echo: the peer's kernel answers.
    Icmp {
        /// The peer.
        address: IpAddr,
        /// The interface to bind to.
        #[serde(default)]
        dev: Option<String>,
    },
    /// UDP: a responder of ours answers.
    Udp {
        /// The peer.
        address: IpAddr,
        /// Its port.
        #[serde(default = "default_udp_port")]
        port: u16,
        /// The interface to bind to.
        #[serde(default)]
        dev: Option<String>,
    },
    /// Ethernet frames of our own EtherType: a responder of ours answers.
    #[serde(rename = "packet")]
    Ethernet {
        /// The interface to send on.
        dev: String,
        /// The peer.
        mac: MacAddress,
        /// Whether frames go past the interface's queueing discipline.
        #[serde(default = "yes")]
        qdisc_bypass: bool,
    },
    /// A simulated line.
    Sim {
        /// What the line does.
        line: Box<Line>,
        /// What it carries; unless said, ICMP for kind `icmp` and Ethernet frames for the others.
        #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
        carries: Option<Carries>,
    },
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
            Self::Icmp { .. } => "icmp",
            Self::Udp { .. } => "udp",
            Self::Ethernet { .. } => "packet",
            Self::Sim { .. } => "sim",
        }
    }

    /// Returns whether the line is simulated.
    pub const fn is_simulated(&self) -> bool {
        matches!(self, Self::Sim { .. })
    }

    /// Returns what carries the user data, given whether the peer's kernel is to answer.
    pub const fn carrier(&self, kernel_answers: bool) -> Carrier {
        match self {
            Self::Icmp { address: IpAddr::V4(_), .. } => Carrier::Icmp4,
            Self::Icmp { address: IpAddr::V6(_), .. } => Carrier::Icmp6,
            Self::Udp { address: IpAddr::V4(_), .. } => Carrier::Udp4,
            Self::Udp { address: IpAddr::V6(_), .. } => Carrier::Udp6,
            Self::Ethernet { .. } => Carrier::Ethernet,
            Self::Sim { carries, .. } => match (carries, kernel_answers) {
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
            Self::Icmp { address, dev: None } => write!(f, "{address}"),
            Self::Icmp { address, dev: Some(dev) } => write!(f, "{address} on {dev}"),
            Self::Udp { address, port, .. } => {
                write!(f, "{}", std::net::SocketAddr::new(*address, *port))
            }
            Self::Ethernet { dev, mac, .. } => write!(f, "{mac} on {dev}"),
            Self::Sim { .. } => write!(f, "a simulated line"),
        }
    }
}

const fn default_udp_port() -> u16 {
    DEFAULT_UDP_PORT
}

const fn yes() -> bool {
    true
}
