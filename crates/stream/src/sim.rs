//! A simulated one-way path in simulated time, with a known truth. Exact and repeatable: what happens depends on the
//! path's seed and the block's number alone.
//!
//! The sender's own loop runs over the near end of the path, in the sender's time; the receiver's engine stands at the
//! far end. Synchronisation, answers and ends go back over it. Frames leave the serialiser in order; behind it, delays
//! are independent, so that they may overtake each other.

mod clock;
mod draw;
mod line;
mod path;

pub use path::{Clocks, GilbertElliott, Path, PathError, Serialiser, Sinusoid, Skewed};

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use sojourn_port::{Batch, Framing};
use sojourn_time::{Pace, Wait};

use crate::driver;
use crate::{Head, ReceiveOutcome, ReceiveRequest, Receiver, RequestError, SendOutcome, SendRequest, SentCount};
use line::{Line, Near, NearClock};

/// Why a simulation did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A path that cannot be.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A request that cannot be carried out.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Something else.
    #[error(transparent)]
    Port(#[from] sojourn_port::PortError),
}

/// Sends streams over a path and receives them: both ends in one call, by the same engines and the same loop as over
/// real ports. Each frame goes to each of the receiver's ports, with dispositions of its own behind the serialiser that all
/// share.
///
/// # Errors
/// When the path or a request cannot be.
pub fn simulate(
    path: &Path,
    send: &SendRequest,
    receive: &ReceiveRequest,
    stop: &AtomicBool,
) -> Result<(SendOutcome, ReceiveOutcome), SimulateError> {
    path.check()?;
    let count = send.flows.iter().map(|flow| flow.port + 1).max().unwrap_or_default();
    send.check(&vec![line::MAX_FRAME_BYTES; count])?;
    let receiver = Receiver::new(&ReceiveRequest { clock: far_clock(path, send, receive), ..receive.clone() });
    let line = Rc::new(RefCell::new(Line::new(path, send.block, receiver, receive.ports.len(), count)?));
    let framing = |port| match send.flows.iter().find(|flow| flow.port == port).map(|flow| flow.head) {
        Some(Head::Udp) => Framing::Udp,
        _ => Framing::Ethernet,
    };
    let mut nears: Vec<_> = (0..count).map(|port| Near::new(Rc::clone(&line), port, framing(port))).collect();
    let mut ports: Vec<_> = nears.iter_mut().map(|near| near as &mut dyn Batch).collect();
    let clock = NearClock::new(Rc::clone(&line));
    let pace = Pace { wait: Wait::Sleep, is_real_time: false };
    let sent = driver::send(send, &mut ports, &clock, pace, stop)?;
    let counts =
        sent.flows.iter().map(|flow| SentCount { flow: flow.flow, port: None, sent: flow.counts.sent, next: None });
    let received = line.borrow_mut().finish(&counts.collect::<Vec<_>>());
    Ok((sent, received))
}

/// The id of the receiver's clock: the sender's where they share one, and never that where they do not.
fn far_clock(path: &Path, send: &SendRequest, receive: &ReceiveRequest) -> u64 {
    match path.clocks.shared {
        true => send.clock,
        false if receive.clock == send.clock => send.clock ^ 1,
        false => receive.clock,
    }
}

#[cfg(test)]
mod tests;
