//! A simulated one-way path in simulated time with known properties. Exact and repeatable: the outcome depends only on
//! the path's seed and the block's number.
//!
//! The sender's own loop runs over the near end of the path, in the sender's time; the receiver's engine is at the
//! far end. Time exchanges, answers and ends return over it. Frames leave the serialiser in order; after it, delays
//! are independent, so that frames may overtake each other.

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

/// Why a simulation failed.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The path is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The request cannot be carried out.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Any other error.
    #[error(transparent)]
    Port(#[from] sojourn_port::PortError),
}

/// Sends streams over a path and receives them: both ends in one call, by the same engines and the same loop as over
/// real ports. Each frame goes to each of the receiver's ports; the serialiser is shared, and each port then has
/// dispositions of its own.
///
/// # Errors
/// If the path or a request is invalid.
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

/// Returns the id of the receiver's clock: the sender's if they share one, and otherwise always another one.
fn far_clock(path: &Path, send: &SendRequest, receive: &ReceiveRequest) -> u64 {
    match path.clocks.shared {
        true => send.clock,
        false if receive.clock == send.clock => send.clock ^ 1,
        false => receive.clock,
    }
}

#[cfg(test)]
mod tests;
