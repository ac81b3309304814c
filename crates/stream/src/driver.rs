//! The loops over ports and a clock that carry streams out.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use sojourn_port::{Batch, PortError};
use sojourn_time::{Clock, Nanos};

use crate::{End, Head, Pace, Receiver, SendOutcome, SendRequest};

/// How a receiver waits for frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Looks again and again: takes a whole processor.
    Spin,
    /// Sleeps in the kernel until a frame comes.
    #[default]
    Block,
}

/// Sends the streams of a checked request. Ends early, cleanly, once `stop` is set.
///
/// # Errors
/// When the request cannot be carried out over these ports, or a port refuses for another reason than a full queue.
pub fn send(
    request: &SendRequest,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    pace: Pace,
    stop: &AtomicBool,
) -> Result<SendOutcome, PortError> {
    let _ = (request, ports, clock, pace, stop);
    todo!()
}

/// Tells a receiver that a stream is over, five times at most, until it says that it knows. Returns whether it did.
///
/// # Errors
/// When the port refuses.
pub fn conclude(
    port: &mut dyn Batch,
    clock: &dyn Clock,
    (head, block, flow): (Head, u32, u16),
    end: &End,
    patience: Nanos,
) -> Result<bool, PortError> {
    let _ = (port, clock, head, block, flow, end, patience);
    todo!()
}

/// Takes in what arrives at all `ports` until `ended`, which is asked about a thousand times a second and at each event of
/// `wakers`: descriptors that end a sleep when something can be read from them.
///
/// # Errors
/// When the kernel refuses to receive or to wait.
pub fn receive(
    receiver: &mut Receiver,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    (waiting, wakers): (Waiting, &[BorrowedFd<'_>]),
    ended: &mut dyn FnMut(&Receiver) -> bool,
) -> Result<(), PortError> {
    let _ = (receiver, ports, clock, waiting, wakers, ended);
    todo!()
}
