//! The loops that run streams over ports and a clock.

mod conclude;
mod greet;
mod receive;
mod send;

pub use conclude::{Ended, conclude};
pub use greet::{Greeted, Greeting, greet};
pub use receive::{Observer, receive};
pub use send::{exchange, send};

/// Maximum number of retries after an error that belongs to an earlier frame.
const MOST_REFUSALS: usize = 8;

/// Sends a frame. A UDP socket reports on the next call that an earlier frame was refused (nobody listened), and does
/// not send then: the call is retried, because for a stream the earlier frame is an ordinary loss.
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
