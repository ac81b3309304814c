//! Where requests come in from peers that are not known beforehand.

use std::os::fd::AsFd;

use crate::{Framing, PortError, Received};

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

    /// Says what its frames consist of.
    fn framing(&self) -> Framing;

    /// Counts the requests that our own socket dropped since it was opened.
    fn local_drops(&mut self) -> u64;
}
