//! The loops over ports and a clock that carry streams out.

mod conclude;
mod greet;
mod receive;
mod send;

pub use conclude::{Ended, conclude};
pub use greet::{Greeted, Greeting, greet};
pub use receive::{Observer, receive};
pub use send::{exchange, send};

/// How many calls are tried again whose error tells of an earlier frame, before it is believed to be of this one.
const MOST_REFUSALS: usize = 8;

/// Sends a frame. A UDP socket tells at the next call that nobody listened for an earlier frame, and sends nothing
/// then: for a stream that is a loss like others.
fn transmit(port: &mut dyn sojourn_port::Batch, frame: &[u8]) -> Result<sojourn_port::Sent, sojourn_port::PortError> {
    let mut result = port.transmit(frame);
    for _ in 0..MOST_REFUSALS {
        if !matches!(result, Err(sojourn_port::PortError::Refused(_))) {
            break;
        }
        result = port.transmit(frame);
    }
    result
}

#[cfg(test)]
mod tests;
