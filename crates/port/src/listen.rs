//! Receives requests from peers that are not known beforehand.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use crate::{Framing, PortError, Received};

/// The addresses of a received datagram, from the headers that its payload does not include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The source address, as the datagram states it.
    pub from: SocketAddr,
    /// The destination address, where the kernel reports it.
    pub to: Option<IpAddr>,
    /// Whether the destination was a broadcast or multicast address, so that other hosts received it too.
    pub to_group: bool,
    /// The TTL or hop limit on receipt, where it was requested.
    pub hop_limit: Option<u8>,
}

/// Receives requests, each of which is answered to its sender. Callers poll its descriptor.
pub trait Listener: AsFd {
    /// The peer to answer, and the local address to answer from.
    type Peer;

    /// Copies the next request, if there is one, into `buffer`. Never blocks.
    ///
    /// # Errors
    /// When the kernel refuses, not when there is nothing to take.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(Received, Self::Peer)>, PortError>;

    /// Sends an answer to `peer`.
    ///
    /// # Errors
    /// When the kernel refuses the frame.
    fn answer(&mut self, peer: &Self::Peer, frame: &[u8]) -> Result<(), PortError>;

    /// Returns the addresses of `peer`'s request; `None` where the frame itself carries all of them.
    fn route(&self, peer: &Self::Peer) -> Option<Route>;

    /// Returns what its frames consist of.
    fn framing(&self) -> Framing;

    /// Counts the requests that the tester's own socket dropped since it was opened.
    /// Call it every few minutes at least: the kernel's counter has 32 bits, and is extended when it is read.
    fn local_drops(&mut self) -> u64;
}
