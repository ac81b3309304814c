//! Runs responders over their sockets.

use std::os::fd::{AsFd, BorrowedFd};

use sojourn_port::kernel::wait_for_any;
use sojourn_port::{Listener, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Wait};

use super::engine::{Asked, Reply};

/// Holds any frame that a socket can deliver, and any reply.
const FRAME_BYTES: usize = 1 << 16;
/// The number of polls of empty sockets, or of replies, between two checks whether to end.
const LOOKS_BETWEEN: u32 = 1_000;

/// A socket with its responder and its buffers.
pub struct Endpoint<L, R> {
    listener: L,
    responder: R,
    request: Box<[u8]>,
    reply: Box<[u8]>,
    refused: u64,
}

/// An endpoint of any kind of socket and responder.
pub trait Serve: AsFd {
    /// Answers the next request, if there is one; returns whether there was.
    ///
    /// # Errors
    /// When the kernel refuses to receive. A reply that it refuses to send is only counted.
    fn serve_one(&mut self, clock: &dyn Clock) -> Result<bool, PortError>;

    /// Counts the replies that the kernel refused to send.
    fn refused(&self) -> u64;

    /// Counts the requests that the tester's own socket dropped.
    fn local_drops(&mut self) -> u64;
}

/// Answers requests at all `endpoints` until `ended` returns true. It is called about a thousand times per second and
/// at each error of `wakers`: descriptors that end a sleep when they become readable.
///
/// # Errors
/// When the kernel refuses to receive or to wait.
pub fn serve(
    endpoints: &mut [Box<dyn Serve>],
    clock: &dyn Clock,
    wait: Wait,
    wakers: &[BorrowedFd<'_>],
    mut ended: impl FnMut() -> bool,
) -> Result<(), PortError> {
    let mut looks = 0;
    loop {
        let mut answered = false;
        for endpoint in endpoints.iter_mut() {
            answered |= endpoint.serve_one(clock)?;
        }
        looks += 1;
        let sleeps = wait != Wait::Spin && !answered;
        if looks >= LOOKS_BETWEEN || sleeps {
            looks = 0;
            if ended() {
                return Ok(());
            }
        }
        if sleeps {
            let sockets = endpoints.iter().map(|endpoint| endpoint.as_fd()).chain(wakers.iter().copied());
            wait_for_any(sockets, LONGEST_SLEEP)?;
        } else if !answered {
            std::hint::spin_loop();
        }
    }
}

impl<L: Listener, R: Reply> Endpoint<L, R> {
    /// Returns an endpoint that answers with this responder.
    pub fn new(listener: L, responder: R) -> Self {
        let frame = || vec![0; FRAME_BYTES].into_boxed_slice();
        Self { listener, responder, request: frame(), reply: frame(), refused: 0 }
    }
}

impl<L: Listener, R> AsFd for Endpoint<L, R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl<L: Listener, R: Reply> Serve for Endpoint<L, R> {
    fn serve_one(&mut self, clock: &dyn Clock) -> Result<bool, PortError> {
        let Some((received, peer)) = self.listener.receive(&mut self.request)? else { return Ok(false) };
        let request = self.request.get(..received.length).unwrap_or_default();
        let (framing, route) = (self.listener.framing(), self.listener.route(&peer));
        let asked = Asked { framing, route, request, arrived: received.arrived.at, now: &|| clock.now() };
        if let Some(length) = self.responder.reply(&asked, &mut self.reply)
            && self.listener.answer(&peer, &self.reply[..length]).is_err()
        {
            // An unreachable peer, or a reply beyond the MTU, must not stop the service for others.
            self.refused += 1;
        }
        Ok(true)
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn local_drops(&mut self) -> u64 {
        self.listener.local_drops()
    }
}
