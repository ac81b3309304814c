//! Where requests come in from peers that are not known beforehand.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use crate::{Framing, PortError, Received};

/// How a datagram came: what its headers say that are not handed over with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Who sent it, by what it says itself.
    pub from: SocketAddr,
    /// The address of this host that it came to, where the kernel tells.
    pub to: Option<IpAddr>,
    /// Whether it was sent to a broadcast or multicast address, and so to others as well.
    pub to_group: bool,
    /// Its TTL or hop limit as it came in, where that was asked for.
    pub hop_limit: Option<u8>,
}

/// A place where requests come in, each to be answered to whom it came from. Waited for by its descriptor.
pub trait Listener: AsFd {
    /// Whom to answer, and from where.
    type Peer;

    /// Takes the next request, if one is there, into `buffer`. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses, not when there is nothing to take.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, Self::Peer)>, PortError>;

    /// Sends an answer to `peer`.
    ///
    /// # Errors
    /// When the kernel refuses the frame.
    fn answer(&mut self, peer: &Self::Peer, frame: &[u8]) -> Result<(), PortError>;

    /// Says how the request of `peer` came; `None` where its frame has all of that itself.
    fn route(&self, peer: &Self::Peer) -> Option<Route>;

    /// Says what its frames consist of.
    fn framing(&self) -> Framing;

    /// Counts the requests that our own socket dropped since it was opened.
    fn local_drops(&mut self) -> u64;
}
